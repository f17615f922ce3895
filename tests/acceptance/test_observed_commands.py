"""`policy observed`, `explain observed:ID`, imports of clusters and logs, the kubectl plugin."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from policy.cli import kubectl
from policy.observing.model import Confidence, Evidence, Preemption, SeenVictim
from policy.store import Store
from policy.store.observed import NewObservation
from tests.acceptance.commands import Policy
from tests.contract.builders import a_pod
from tests.support.api_server import kubeconfig, serving
from tests.support.live import LIVE, final, identity, initial, play


def files(name: str) -> list[str]:
    return [str(LIVE / f"{name}.initial.json.gz"), str(LIVE / f"{name}.jsonl.gz")]


def observed(policy: Policy, *options: str) -> list[dict[str, Any]]:
    done = policy("observed", "--output", "json", *options)
    assert done.status == 0, done.err
    found: list[dict[str, Any]] = json.loads(done.out)
    return found


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The database of every command that names none."""
    file = tmp_path / "policy.db"
    monkeypatch.setenv("POLICY_DB", str(file))
    return file


@pytest.fixture
def imported(policy: Policy) -> Policy:
    for name in ("single", "wave-kubelet"):
        assert policy("import", "--cluster", name, *files(name)).status == 0
    return policy


def test_lists_are_narrowed(imported: Policy) -> None:
    """By cluster, verdict, namespace, node, preemptor, victim and confidence."""
    counts = {
        name: len(observed(imported, *options))
        for name, options in {
            "all": (),
            "cluster": ("--cluster", "single"),
            "tie": ("--verdict", "tie"),
            "same": ("--verdict", "same"),
            "namespace": ("--namespace", "default"),
            "node": ("--node", "c15-n004"),
            "preemptor": ("--preemptor", "team-b/c15-pre26"),
            "victim": ("--victim", "team-a/c15-p17"),
            "pod": ("--pod", "team-a/c15-p17"),
            "of default": ("--victim", "c15-p2"),
            "likely": ("--confidence", "likely"),
        }.items()
    }
    assert counts == {
        "all": 7,
        "cluster": 2,
        "tie": 3,
        "same": 4,
        "namespace": 1,
        "node": 2,
        "preemptor": 2,
        "victim": 2,
        "pod": 2,
        "of default": 1,
        "likely": 0,
    }


def test_lines_are_the_documents_of_the_list(imported: Policy) -> None:
    """`jsonl` has an observation a line, as `json` and the export of the API have it."""
    done = imported("observed", "--output", "jsonl")
    assert list(map(json.loads, done.out.splitlines())) == observed(imported)


def test_one_is_explained(imported: Policy) -> None:
    """Its evidence, and the decision that was made again: candidates, victims, reprieve."""
    shown = imported("explain", "observed:1")
    document = json.loads(imported("explain", "observed:1", "--output", "json").out)
    assert shown.status == 0
    for part in ("observed preemption 1", "Evicted", "Candidates:", "verdict     same"):
        assert part in shown.out
    again = document["decided_again"]
    assert (again["node"], sorted(v["pod"] for v in again["victims"])) == (
        document["node"],
        sorted(v["victim"] for v in document["victims"]),
    )


def test_an_unknown_one(imported: Policy) -> None:
    done = imported("explain", "observed:99")
    assert (done.status, "there is no observed preemption 99" in done.err) == (1, True)


def test_other_rules_are_set_against_it(imported: Policy, tmp_path: Path) -> None:
    """Rules that let no pod preempt would have spared every pod."""
    rules = tmp_path / "never.yaml"
    rules.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: never}\n"
        "extends: kube-1.35\nspec:\n  eligibility:\n    insert:\n      - at: start\n        rule:\n"
        "          {id: never, when: 'true', verdict: deny, reason: no preemption here}\n"
    )
    done = imported("observed", "--compare", "--rules", str(rules), "--output", "json")
    document = json.loads(done.out)
    total = {
        key: sum(row[key] for row in document["sums"])
        for key in ("evictions", "would_be", "spared")
    }
    assert (len(document["preemptions"]), total) == (
        7,
        {"evictions": 13, "would_be": 0, "spared": 13},
    )


def test_reports_tell_whose_evictions_they_count(imported: Policy) -> None:
    """The cluster's own scheduler's, or what was decided here."""
    counts = {}
    for origin in ((), ("--origin", "observed"), ("--origin", "decided")):
        done = imported("report", "cost", "--cluster", "single", "--output", "csv", *origin)
        counts[origin] = done.err.split(" ")[0]
    assert list(counts.values()) == ["8", "8", "0"]


def test_a_cluster_is_listed_once(policy: Policy, tmp_path: Path, database: Path) -> None:
    """`import --context`: the state, what its events show, and what is gone goes.

    The server says which rules its scheduler has: a kubelet may be older.
    """
    name = "kubelet-grace"
    with serving(initial(name)) as server:
        server.version = "v1.34.0"
        config = kubeconfig(tmp_path, server.url)
        options = ("import", "--kubeconfig", config, "--cluster", "real")
        assert policy(*options).status == 0
        play(server, name)
        done = policy(*options)
    assert done.status == 0
    told = "preemptions are decided again by kube-1.34.1: the API server is v1.34.0"
    assert told in done.err
    with Store.open(str(database)) as store:
        state = identity(store.state.load("real").objects)
        (row,) = store.read.observations("real")
    assert (state, row.preemptor, row.confidence) == (final(name), "team-a/c14-pre31", "certain")
    assert row.rule_set == "kube-1.34.1"


def audited(verb: str, pod: str, second: int, **more: Any) -> bytes:
    """A line of an audit log: a request of the scheduler about a pod in `shop`."""
    ref = {"resource": "pods", "namespace": "shop", "name": pod, "uid": f"u-{pod}"}
    entry = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "stage": "ResponseComplete",
        "verb": verb,
        "user": {"username": "system:kube-scheduler"},
        "objectRef": ref | ({"subresource": "status"} if verb == "patch" else {}),
        "responseStatus": {"code": 200},
        "requestReceivedTimestamp": f"2026-11-21T07:10:{second}Z",
        **more,
    }
    return json.dumps(entry).encode() + b"\n"


def test_an_audit_log_is_read(policy: Policy, tmp_path: Path) -> None:
    """Of the time before anybody followed; the same log again adds nothing."""
    log = tmp_path / "audit.log.gz"
    log.write_bytes(gzip.compress(audited("delete", "a", 35)))
    statuses = [policy("import", "--audit-log", str(log)).status for _ in range(2)]
    (row,) = observed(policy)
    assert (statuses, row["confidence"], row["verdict"], row["victims"][0]["victim"]) == (
        [0, 0],
        "possible",
        "unknown",
        "shop/a",
    )


@pytest.mark.parametrize("newest_first", [False, True])
def test_what_a_rotation_has_parted(newest_first: bool, policy: Policy, tmp_path: Path) -> None:
    """A wave whose requests are in several files, the older of them gzipped, is one preemption."""
    on_node = {"responseObject": {"metadata": {"uid": "u"}, "spec": {"nodeName": "n1"}}}
    nominates = {"requestObject": {"status": {"nominatedNodeName": "n1"}}}
    lines = [
        audited("patch", "high", 35, **nominates),
        audited("delete", "a", 36, **on_node),
        audited("delete", "b", 37, **on_node),
    ]
    files = [tmp_path / "audit-1.log.gz", tmp_path / "audit-2.log.gz", tmp_path / "audit.log"]
    for file, line in zip(files, lines, strict=True):
        file.write_bytes(gzip.compress(line) if file.suffix == ".gz" else line)
    named = [option for file in files for option in ("--audit-log", str(file))]
    if newest_first:
        named = [option for file in reversed(files) for option in ("--audit-log", str(file))]
    assert policy("import", *named).status == 0
    (row,) = observed(policy)
    assert (row["preemptor"], row["node"], row["confidence"]) == ("shop/high", "n1", "likely")
    assert [one["victim"] for one in row["victims"]] == ["shop/a", "shop/b"]


@pytest.mark.parametrize("cut", [1, 9, 40])
def test_an_audit_log_that_is_cut_off(cut: int, policy: Policy, tmp_path: Path) -> None:
    """The file and the line are named, and nothing of the others is recorded."""
    whole, broken = tmp_path / "audit-1.log.gz", tmp_path / "audit-2.log.gz"
    whole.write_bytes(gzip.compress(audited("delete", "a", 35)))
    broken.write_bytes(gzip.compress(audited("delete", "b", 36))[:-cut])
    done = policy("import", "--audit-log", str(whole), "--audit-log", str(broken))
    assert (done.status, observed(policy)) == (1, [])
    assert f"{broken}:" in done.err
    assert "the gzipped file is damaged behind this line" in done.err


def test_an_audit_log_that_is_no_text(policy: Policy, tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_bytes(audited("delete", "a", 35) + audited("delete", "?", 36).replace(b"?", b"\xff"))
    done = policy("import", "--audit-log", str(log))
    assert (done.status, observed(policy)) == (1, [])
    assert f"{log}:2: not JSON: one of its texts is not UTF-8" in done.err


def test_the_kubectl_plugin(
    imported: Policy, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """Context and namespace of the kubeconfig are the defaults."""
    config = json.loads(Path(kubeconfig(tmp_path, "http://127.0.0.1:1")).read_text())
    config["contexts"][0]["name"] = config["current-context"] = "wave-kubelet"
    config["contexts"][0]["context"]["namespace"] = "team-a"
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    assert kubectl.main(["who", "c15-p17", "--output", "csv"]) == 0
    who = capsys.readouterr().out
    assert kubectl.main(["why", "team-b/c15-pre26"]) == 0
    why = capsys.readouterr().out
    assert kubectl.main(["list", "--output", "csv"]) == 0
    listed = capsys.readouterr().out
    assert kubectl.main(["nonsense"]) == 2
    assert (who.count(",c15-n004,"), len(listed.splitlines())) == (1, 6)
    assert "team-b/c15-pre26 took c15-n001 from 1 pod" in why


def test_the_newest_of_a_pod_in_one_cluster(
    policy: Policy, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    """Where two clusters know the pod `--cluster` says which is meant; the plugin its context."""
    for name in ("one", "two"):
        assert policy("import", "--cluster", name, *files("single")).status == 0
    config = json.loads(Path(kubeconfig(tmp_path, "http://127.0.0.1:1")).read_text())
    config["contexts"][0]["name"] = config["current-context"] = "one"
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    subject = "observed:team-a/c11-pre31"
    named = [policy("explain", subject, "--cluster", name).out for name in ("one", "two")]
    capsys.readouterr()
    assert kubectl.main(["why", "team-a/c11-pre31"]) == 0
    assert [
        [cluster for cluster in ("one", "two") if f"cluster {cluster}, revision" in shown]
        for shown in (*named, capsys.readouterr().out)
    ] == [["one"], ["two"], ["one"]]
    refused = policy("explain", "observed:1", "--cluster", "one")
    assert "`--cluster` means nothing without `observed:NAMESPACE/POD`" in refused.err


def test_rules_to_compare_with_have_to_be_one(policy: Policy) -> None:
    """The message names the clusters, and the environments of which one has to be chosen."""
    assert policy("import", "--cluster", "single", *files("single")).status == 0
    none = policy("report", "observed")
    for name in ("a", "b"):
        policy("env", "create", name)
        policy("env", "activate", name, "kube-1.35", "--reason", "x")
    several = policy("observed", "--compare")
    nothing = policy("observed", "--compare", "--since", "1h")
    assert [
        done.err.partition("Error: ")[2].splitlines()[0] for done in (none, several, nothing)
    ] == [
        "no environment of cluster `single` has active rules",
        "several environments of cluster `single` have active rules: `a`, `b`",
        "no preemption was found, so no cluster says whose active rules to compare with",
    ]


def test_a_comparison_without_decisions_says_so(imported: Policy) -> None:
    """What was only observed is compared by another command, which is named."""
    done = imported("compare", "--rules", "kube-1.28", "--cluster", "single")
    assert (done.status, done.err) == (
        0,
        "nothing found\n"
        "nothing to compare: no decision of cluster `single` is recorded\n"
        "  help: `policy observed --compare` is about preemptions by the cluster's own scheduler\n",
    )


def test_what_is_not_known_of_an_eviction_is_said(policy: Policy, database: Path) -> None:
    """An event names two pods that were not seen before."""
    seen = Preemption(
        preemptor="lab/high",
        preemptor_uid="high",
        preemptor_kind="Pod",
        node="n1",
        scheduler="",
        at_ms=1_790_000_000_000,
        confidence=Confidence.CERTAIN,
        victims=(SeenVictim(pod="lab/gone", uid="gone", evidence=(Evidence.EVENT,)),),
    )
    pods = [a_pod("lab/other")]
    with Store.open(str(database)) as store:
        store.record.import_objects("default", pods, at_ms=1_789_999_999_000, source="test")
        found = NewObservation(preemption=seen, situation=store.read.situation("default", seen))
        store.record.observations(
            "default", [found], at_ms=1_790_000_001_000, source="test", actor="ann"
        )
    done = policy("who", "lab/gone")
    assert done.out.splitlines()[0] == (
        "2026-09-21T14:13:20Z  lab/gone (priority not known) left n1"
        " for lab/high (priority not known)"
    )


EXTENDED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- {urlPrefix: "http://127.0.0.1:1/", preemptVerb: preempt, httpTimeout: 3s, weight: 1}
"""
PACKED = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {filter: {disabled: [{name: NodeResourcesFit}]}}
"""


@pytest.mark.parametrize(
    ("config", "verdict"), [(EXTENDED, "same"), (PACKED, "other")], ids=["extender", "no filter"]
)
def test_what_the_scheduler_runs_decides_again(
    config: str, verdict: str, policy: Policy, tmp_path: Path
) -> None:
    """By the environment's configuration, not by the server's version; explained by it, too."""
    dump, watch = files("kubelet-grace")
    (tmp_path / "scheduler.yaml").write_text(config)
    assert policy("import", dump).status == 0
    assert policy("env", "create", "prod").status == 0
    done = policy("env", "scheduler", "prod", "--config", str(tmp_path / "scheduler.yaml"))
    assert done.status == 0, done.err
    assert (
        "default-scheduler by default-scheduler (environment prod)" in policy("import", watch).err
    )
    (row,) = observed(policy)
    explained = policy("explain", f"observed:{row['id']}")
    assert (row["verdict"], row["rule_set"]) == (verdict, "default-scheduler"), row["reason"]
    assert "Decided again by default-scheduler, all potential nodes" in explained.out


def test_the_report_says_what_rules_would_have_saved(imported: Policy) -> None:
    """By week and namespace; the total is the sum of the lines, which `--compare` has, too."""
    options = ("--rules", "environments/prod", "--output", "json")
    report = json.loads(imported("report", "observed", *options).out)
    one_by_one = json.loads(imported("observed", "--compare", *options).out)
    total = report["total"]
    assert report["sums"] == one_by_one["sums"]
    assert (report["rules"], report["preemptions"], report["undecided"]) == ("prod", 7, 0)
    figures = [name for name in total if name not in ("week", "namespace")]
    assert {name: sum(line[name] for line in report["sums"]) for name in figures} == {
        name: total[name] for name in figures
    }
    assert total["avoided"] == total["evictions"] - total["would_be"] > 0
    assert total["budgets_kept"] == total["pdb_violations"] - total["pdb_violations_would_be"]
    refused = imported("report", "observed")
    assert (refused.status, "name the other rules with `--rules`" in refused.err) == (2, True)


CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler}]
extenders:
  - {urlPrefix: "http://extender:8888/scheduler", filterVerb: filter, preemptVerb: preempt}
"""


def test_a_configuration_with_an_extender(policy: Policy, tmp_path: Path) -> None:
    """Every verdict says that an extender took part, and that its answers are not known."""
    config = tmp_path / "scheduler.yaml"
    config.write_text(CONFIGURATION)
    before, watched = files("wave-kubelet")
    place = ("--cluster", "real")
    assert policy("import", *place, before).status == 0
    assert policy("env", "create", "prod", *place).status == 0
    said = policy("env", "scheduler", "prod", "--config", str(config), "--for", "1.35.6")
    assert said.status == 0, said.err
    assert policy("import", *place, watched).status == 0
    rows = observed(policy)
    note = "without the answers of the scheduler's extenders (http://extender:8888/scheduler)"
    assert [(row["reason"].startswith(note), row["detail"]["extenders"]) for row in rows] == [
        (True, ["http://extender:8888/scheduler"])
    ] * 5
