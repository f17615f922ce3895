"""state, replay, compare, what-if and audit as people type them."""

from __future__ import annotations

import getpass
import json
import os
import pwd
import re
from typing import Any

import pytest
from sqlalchemy import update

from policy.cli.app import run
from policy.store import Store
from policy.store.tables import DECISIONS
from tests.acceptance.commands import NOW, Done, Policy
from tests.contract.test_ledger import tampering

LATER = "2026-11-21T01:00:00Z"
GENTLE = """\
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: gentle}
extends: kube-1.35
spec:
  victims:
    eligible:
      insert:
      - at: start
        rule: {id: gold-stays, when: victim.priority >= 5, verdict: deny, reason: gold stays}
"""


def a_node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }


def a_pod(name: str, priority: int, cpu: int, node: str = "") -> dict[str, Any]:
    namespace, _, own = name.rpartition("/")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": own,
            "namespace": namespace or "default",
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": own, "uid": f"of-{own}", "controller": True}
            ],
        },
        "spec": {
            "nodeName": node,
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {
            "phase": "Running" if node else "Pending",
            **({"startTime": "2026-11-20T23:00:00Z"} if node else {}),
        },
    }


@pytest.fixture
def policy(database_url, tmp_path, capsys) -> Policy:
    """Runs one command line on a database with two decisions: `high` evicted `gold`."""
    dump = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            a_node("n1"),
            a_node("n2"),
            a_pod("gold", 5, 4, "n1"),
            a_pod("shop/low", 8, 4, "n2"),
            a_pod("high", 10, 4),
            a_pod("huge", 9, 8),
        ],
    }
    (tmp_path / "dump.json").write_text(json.dumps(dump))
    (tmp_path / "gentle.yaml").write_text(GENTLE)

    def call(*arguments: object, db: bool = True) -> Done:
        words = [str(a).replace("{folder}", str(tmp_path)) for a in arguments]
        capsys.readouterr()
        status = run([*words, "--db", database_url] if db else words)
        return Done(status, *capsys.readouterr())

    assert call("import", "{folder}/dump.json").status == 0
    assert call("run", "--now", NOW).status == 0
    return call


def columns(text: str) -> list[list[str]]:
    """Cells of a printed table without its head."""
    lines = text.splitlines()[2:]
    return [re.split(r"\s{2,}", line.strip()) for line in lines]


# --- state -------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["1", "decision:1", None])
def test_the_cluster_is_shown_as_it_was(policy, at):
    """Before the first decision `gold` was not leaving and `high` not nominated; now they are."""
    more = () if at is None else ("--at", at)
    found = json.loads(policy("state", "show", "pods", *more, "--output", "json").out)
    pods = {item["metadata"]["name"]: item for item in found["items"]}
    leaving = "deletionTimestamp" in pods["gold"]["metadata"]
    nominated = "nominatedNodeName" in pods["high"]["status"]
    assert (leaving, nominated) == ((True, True) if at is None else (False, False))


def test_a_time_names_the_revision_that_was_there(policy):
    """Long ago there was nothing, which is said; a second from now there is the newest."""
    before = policy("state", "show", "--at", "2001-01-01")
    assert (before.status, "had no state yet at `2001-01-01`" in before.err) == (1, True)
    newest = json.loads(policy("state", "revisions", "--output", "json").out)[0]["revision"]
    after = policy("state", "show", "--at", "2199-01-01")
    assert f"at revision {newest}" in after.err


def test_what_is_shown_can_be_imported_again(policy, tmp_path):
    """The List of a past state is a dump: a new database made of it shows the same."""
    shown = policy("state", "show", "--at", "1", "--output", "json").out
    (tmp_path / "again.json").write_text(shown)
    other = f"{tmp_path}/other.db"
    assert policy("import", "{folder}/again.json", "--db", other, db=False).status == 0
    again = policy("state", "show", "--output", "json", "--db", other, db=False).out
    assert json.loads(again) == json.loads(shown)


def test_one_object_and_a_missing_one(policy):
    """A name gives the object itself; a name that is not there ends with status 1."""
    one = json.loads(policy("state", "show", "node", "n1", "--output", "json").out)
    assert (one["kind"], one["metadata"]["name"]) == ("Node", "n1")
    none = policy("state", "show", "pod", "shop/nobody")
    assert (none.status, none.out) == (1, "")
    assert "no Pod `shop/nobody`" in none.err


def test_a_kind_that_is_none_gets_a_suggestion(policy):
    """As everywhere: what was typed, and what may be meant."""
    told = policy("state", "show", "pdo")
    assert (told.status, "`pdo` is no kind that is kept" in told.err) == (2, True)
    assert "did you mean `" in told.err


# --- replay ------------------------------------------------------------------------------------


def test_an_untouched_record_replays_equal(policy):
    """All decisions, some by number, some by digest: status 0."""
    done = policy("replay", "--all")
    assert (done.status, done.out) == (0, "")
    assert "2 decisions replayed: 2 equal, 0 different, 0 incomplete" in done.err
    (first,) = json.loads(policy("replay", "1", "--output", "json").out)
    assert first["verdict"] == "equal"
    assert policy("replay", first["recorded_digest"][:20]).status == 0
    assert "0 decisions replayed" in policy("replay", "--since", LATER).err


def test_a_decision_that_differs_ends_with_status_5(policy, database_url):
    """The first difference is printed with both values."""
    with tampering(database_url) as connection:
        values = {"digest": "sha256:" + 64 * "0", "node": "n2"}
        connection.execute(update(DECISIONS).where(DECISIONS.c.id == 1).values(**values))
        connection.commit()
    done = policy("replay", "--all")
    assert done.status == 5
    assert columns(done.out) == [["1", "default/high", "different", "node", "n2", "n1"]]


def test_a_decision_that_cannot_be_replayed_ends_with_status_1(policy, database_url):
    """What is missing is named, and nothing else is replayed instead."""
    with tampering(database_url) as connection:
        connection.execute(update(DECISIONS).values(engine_version="0"))
        connection.commit()
    done = policy("replay", "2")
    assert (done.status, columns(done.out)) == (
        1,
        [["2", "default/huge", "incomplete", "engine-version"]],
    )
    assert "made by engine version 0" in done.err


@pytest.mark.parametrize("words", [(), ("1", "--all"), ("--all", "--since", "7d")])
def test_what_to_replay_is_said_in_one_way(policy, words):
    """Decisions, a time, or all of them."""
    assert policy("replay", *words).status == 2


# --- compare -----------------------------------------------------------------------------------


def test_the_same_rules_change_nothing(policy):
    """Two decisions, both the same, and it is said that they cannot differ."""
    done = policy("compare", "--rules", "kube-1.36", "--output", "json")
    found = json.loads(done.out)
    assert "made by these very rules, so that none of them differs: 2 of 2 decisions" in done.err
    assert (found["total"]["decisions"], found["total"]["changed"], found["changed"]) == (2, 0, [])
    assert found["total"]["before"] == found["total"]["after"]


def test_other_rules_are_reported_in_each_form(policy):
    """What is no longer possible stands in the table, in the JSON, on the page and side by side."""
    options = ("compare", "--rules", "{folder}/gentle.yaml")
    found = json.loads(policy(*options, "--output", "json").out)
    assert {k: n for k, n in found["changes"].items() if n} == {"same": 1, "no-longer-possible": 1}
    assert found["total"]["before"]["lost_seconds"] == 3600
    assert found["total"]["after"]["victims"] == 0
    (changed,) = found["changed"]
    assert (changed["preemptor"], changed["before"]["node"], changed["after"]["node"]) == (
        "default/high",
        "n1",
        None,
    )
    done = policy(*options)
    table = done.out
    assert "no-longer-possible" in table
    assert "by these very rules" not in done.err
    assert "1 -> 0 (-1)" in table
    page = policy(*options, "--output", "html").out
    assert page.startswith("<!doctype html>")
    assert "default/high" in page
    beside = policy(*options, "--show", "1").out
    assert re.search(r"node +n1 +\n", beside)
    assert "default/gold (priority 5, 1" in beside


# --- what-if -----------------------------------------------------------------------------------


def test_the_cascade_is_printed_as_a_tree(policy, tmp_path):
    """A pod of priority 100 takes the place of one of 8, which finds nobody below itself."""
    (tmp_path / "new.json").write_text(json.dumps(a_pod("new", 100, 4)))
    done = policy("what-if", "--pod", "{folder}/new.json", "--at", "1", "--depth", "2")
    lines = done.out.splitlines()
    assert lines[0] == "default/new (priority 100) preempts 1 pod on n1"
    assert lines[1].startswith("└─ default/gold leaves; default/gold~2 (priority 5) finds no node")
    assert "nothing was recorded" in done.err


def test_nothing_is_recorded_unless_it_is_asked_for(policy, database_url):
    """Without `--record` no table changes; with it decisions are kept and listed nowhere."""

    def size() -> list[tuple[int, ...]]:
        with Store.open(database_url, read_only=True) as store:
            query = "SELECT (SELECT count(*) FROM decisions), (SELECT count(*) FROM ledger)"
            with store.sql(query, trust_connection=True) as found:
                return list(found)

    before, listed = size(), policy("decisions", "--output", "json").out
    assert policy("what-if", "--remove-node", "n1").status == 0
    assert size() == before
    done = policy("what-if", "default/high", "--at", "decision:1", "--now", NOW, "--record")
    assert "recorded as hypothetical decisions 3" in done.err
    assert size() != before
    assert policy("decisions", "--output", "json").out == listed
    assert (
        policy("sql", "--trust-connection", "SELECT * FROM v_preemptions WHERE decision_id > 2").out
        == ""
    )
    (replayed,) = json.loads(policy("replay", "3", "--output", "json").out)
    assert (replayed["verdict"], policy("audit", "verify").status) == ("equal", 0)
    explained = policy("explain", "3").out
    assert re.search("only asked +what would be, by `policy what-if`", explained)
    assert "only asked" not in policy("explain", "2").out


def test_a_class_with_another_value_turns_the_decision(policy, tmp_path):
    """With `batch` above the others its pod preempts; below, it does not."""
    pod = a_pod("job", 0, 4)
    del pod["spec"]["priority"]
    pod["spec"]["priorityClassName"] = "batch"
    (tmp_path / "job.json").write_text(json.dumps(pod))
    ask = ("what-if", "--pod", "{folder}/job.json", "--at", "1", "--output", "json", "--depth", "1")
    high = json.loads(policy(*ask, "--priority-class", "batch=50").out)
    low = json.loads(policy(*ask, "--priority-class", "batch=1").out)
    assert [high[0]["outcome"], low[0]["outcome"]] == ["preempt", "no-candidate"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--remove-node", "n9"), "no node `n9` in cluster `default`"),
        (("default/nobody",), "no pod `default/nobody`"),
        (("--priority-class", "x"), "`x` is not like `NAME=1000`"),
        (("--pod", "{folder}/dump.json"), "manifests of pods and of the pod groups"),
        (("--at", "99"), "no revision 99"),
    ],
)
def test_a_wrong_supposition_is_said(policy, words, message):
    """Each mistake has its sentence."""
    done = policy("what-if", *words)
    assert (done.status in (1, 2), done.out, message in done.err) == (True, "", True), done.err


# --- audit -------------------------------------------------------------------------------------


def test_an_untouched_record_verifies_from_the_start_and_from_a_head(policy):
    """The head that was kept elsewhere is found again."""
    (head,) = json.loads(policy("audit", "head", "--output", "json").out)
    assert (head["cluster"], policy("audit", "verify").status) == ("default", 0)
    assert policy("what-if", "default/high", "--at", "1", "--record").status == 0
    for option in ("--head", "--from"):
        done = policy("audit", "verify", option, head["hash"])
        assert (done.status, done.out) == (0, "")


def test_the_first_bad_decision_is_named_with_status_6(policy, database_url):
    """A changed victim count is found, and so is a head that is no longer there."""
    with tampering(database_url) as connection:
        changed = update(DECISIONS).where(DECISIONS.c.id == 2).values(victim_count=7)
        connection.execute(changed)
        connection.commit()
    done = policy("audit", "verify")
    expected = ["default", "3", "decision 2", "3", "changed"]
    assert (done.status, columns(done.out)[0][:5]) == (6, expected)
    assert "decision 2 of cluster default was changed" in done.err
    lost = policy("audit", "verify", "--from", "sha256:" + 64 * "0", "--output", "json")
    assert (lost.status, json.loads(lost.out)["findings"][0]["harm"]) == (6, "removed")
    assert "an entry of a ledger was removed: no entry has the hash" in lost.err


def test_a_hash_that_is_none_is_a_wrong_command_line(policy):
    """What was copied in part, or in capitals, is no sign of tampering."""
    for option in ("--head", "--from"):
        done = policy("audit", "verify", option, "sha256:0")
        assert (done.status, "is not `sha256:` and 64 hexadecimal digits" in done.err) == (2, True)


def test_findings_beyond_the_limit_are_counted(policy, database_url):
    """So many are printed, and how many more there are is said; the JSON holds the number."""
    with tampering(database_url) as connection:
        connection.execute(update(DECISIONS).values(victim_count=7))
        connection.commit()
    done = policy("audit", "verify", "--limit", "1")
    assert (done.status, len(columns(done.out))) == (6, 1)
    assert "not printed: 1 more finding; --limit prints more" in done.err
    found = json.loads(policy("audit", "verify", "--limit", "1", "--output", "json").out)
    assert (len(found["findings"]), found["more_findings"], found["ok"]) == (1, 1, False)
    assert "not printed" not in policy("audit", "verify").err


def test_who_wrote_is_shown_as_what_it_is(policy, database_url, monkeypatch):
    """The claimed name, the process's user and the database's, wherever an actor is named."""
    uid, user = os.getuid(), pwd.getpwuid(os.getuid()).pw_name
    database = "" if database_url.startswith("sqlite") else ", database user postgres"
    shown = policy("explain", "1").out
    claimed = getpass.getuser()
    assert f"by claimed name {claimed}, process user {user} (uid {uid}){database}" in shown
    monkeypatch.setenv("LOGNAME", "somebody-else")
    assert policy("env", "create", "prod").status == 0
    assert policy("env", "activate", "prod", "kube-1.35", "--reason", "go").status == 0
    (row,) = json.loads(policy("env", "show", "prod", "--output", "json").out)["activations"]
    assert (row["actor"], row["process_uid"], row["process_user"]) == ("somebody-else", uid, user)


def test_prunings_are_said_and_listed(policy):
    """`db prune` prints the head to keep; later heads say what they can no longer prove."""
    (old,) = json.loads(policy("audit", "head", "--output", "json").out)
    assert policy("env", "create", "prod").status == 0
    done = policy("db", "prune", "--older-than", "2199-01-01", "--yes", "--output", "json")
    (pruned,) = json.loads(done.out)
    (new,) = json.loads(policy("audit", "head", "--output", "json").out)
    assert (pruned["head"], pruned["last_hash"]) == (new["hash"], old["hash"])
    assert f"taken out; keep the head of cluster default: {new['hash']}" in done.err
    kept = policy("audit", "verify", "--head", new["hash"])
    said = "cluster default: 3 entries with 2 decisions before 2199-01-01T00:00:00Z were pruned"
    assert (kept.status, said in kept.err) == (0, True), kept.err
    lost = policy("audit", "verify", "--head", old["hash"])
    assert (lost.status, "was pruned: its entry was pruned with all" in lost.err) == (6, True)
    accepted = policy("audit", "verify", "--head", old["hash"], "--accept-pruning")
    assert accepted.status == 0
    (listed,) = json.loads(policy("audit", "prunings", "--output", "json").out)
    assert (listed["entries"], listed["decisions"], listed["last_hash"]) == (3, 2, old["hash"])
