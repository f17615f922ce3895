"""`policy batch` on a small dump: a session, its list, its explanation, its replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import NOW, Done, Policy

KUBE_BATCH = "scheduling.incubator.k8s.io/v1alpha1"
VOLCANO = "scheduling.volcano.sh/v1beta1"


def a_node(name: str) -> dict[str, Any]:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status}


def a_task(key: str, group: str, *, scheduler: str, node: str = "") -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    annotation = "scheduling.k8s.io/group-name"
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "annotations": {annotation: group}},
        "spec": {
            "schedulerName": scheduler,
            **({"nodeName": node} if node else {}),
            "containers": [{"name": "c", "resources": {"requests": {"cpu": 2, "memory": "1Gi"}}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def a_group(api: str, key: str, minimum: int, queue: str) -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    return {
        "apiVersion": api,
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": minimum, "queue": queue},
    }


def a_queue(api: str, name: str, weight: int) -> dict[str, Any]:
    spec = {"weight": weight}
    return {"apiVersion": api, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def a_cluster(api: str, scheduler: str) -> list[dict[str, Any]]:
    """A node full of the bronze queue, an idle one, a gang that fits, one that never can."""
    return [
        a_node("n1"),
        a_node("n2"),
        a_queue(api, "gold", 3),
        a_queue(api, "bronze", 1),
        a_group(api, "lab/crunch", 1, "bronze"),
        a_group(api, "ml/train", 2, "gold"),
        a_group(api, "ml/wide", 3, "gold"),
        *(a_task(f"lab/crunch-{i}", "crunch", scheduler=scheduler, node="n1") for i in range(2)),
        *(a_task(f"ml/train-{i}", "train", scheduler=scheduler) for i in range(2)),
        *(a_task(f"ml/wide-{i}", "wide", scheduler=scheduler) for i in range(3)),
    ]


def imported(policy: Policy, folder: Path, url: str, items: list[dict[str, Any]]) -> None:
    dump = folder / "cluster.json"
    dump.write_text(json.dumps({"kind": "List", "items": items}))
    assert policy("import", dump, "--db", url).status == 0


@pytest.fixture
def database(policy: Policy, tmp_path: Path, database_url: str) -> str:
    """A database, of each kind, that knows the cluster with kube-batch's objects."""
    imported(policy, tmp_path, database_url, a_cluster(KUBE_BATCH, "kube-batch"))
    return database_url


def the_session(done: Done) -> dict[str, Any]:
    assert done.status == 0, done.err
    (session,) = json.loads(done.out)
    assert isinstance(session, dict)
    return session


def bound(session: dict[str, Any]) -> dict[str, str]:
    return {row["pod"]: row["node"] for row in session["binds"]}


# --- run -----------------------------------------------------------------------------------------


def test_pods_without_a_phase_are_left_out_aloud(
    policy: Policy, tmp_path: Path, database_url: str
) -> None:
    """As manifests have them that no API server has seen: a session takes none of them."""
    items = a_cluster(KUBE_BATCH, "kube-batch")
    for item in items:
        if item["kind"] == "Pod" and item["metadata"]["name"].startswith("train"):
            del item["status"]
    imported(policy, tmp_path, database_url, items)
    done = policy("batch", "run", "--now", NOW, "--db", database_url, "-o", "json")
    assert (bound(the_session(done)), done.err.splitlines()[0]) == (
        {},
        "2 pods without a phase left out: only those with `status.phase: Pending` take part, as an"
        " API server makes them",
    )


def test_a_session_binds_a_gang_and_says_why_another_waits(policy: Policy, database: str) -> None:
    """Binds, shares before and after, and the reason of each gang that waits."""
    done = policy("batch", "run", "--now", NOW, "--db", database, "-o", "json")
    session = the_session(done)
    assert bound(session) == {"ml/train-0": "n2", "ml/train-1": "n2"}
    assert (session["id"], session["base_revision"], session["revision"]) == (1, 1, 2)
    assert [
        (row["queue"], row["weight"], row["share_before"], row["share_after"], row["bound"])
        for row in session["queues"]
    ] == [("bronze", 1, 2.0, 2.0, 0), ("gold", 3, 0.0, pytest.approx(2 / 3), 2)]
    assert [(row["job"], row["reason"]) for row in session["waiting"]] == [("ml/wide", "no-node")]
    assert done.err == "1 session held and recorded: 2 bound, 0 evicted; 1 job still waiting\n"


def test_volcano_files_mean_the_same(policy: Policy, tmp_path: Path, database_url: str) -> None:
    """Volcano's API group, scheduler name and configuration file are understood."""
    imported(policy, tmp_path, database_url, a_cluster(VOLCANO, "volcano"))
    rules = tmp_path / "volcano-scheduler.yaml"
    rules.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: volcano-scheduler-configmap}\n"
        "data:\n  volcano-scheduler.conf: |\n"
        '    actions: "enqueue, allocate, backfill"\n'
        "    tiers:\n    - plugins:\n      - name: priority\n      - name: gang\n"
        "    - plugins:\n      - name: drf\n      - name: predicates\n      - name: proportion\n"
        "      - name: nodeorder\n"
    )
    done = policy("batch", "run", "--rules", rules, "--db", database_url, "-o", "json")
    assert bound(the_session(done)) == {"ml/train-0": "n2", "ml/train-1": "n2"}


def test_people_read_tables(policy: Policy, database: str) -> None:
    """The table names what was bound, the shares, and in words who still waits."""
    out = policy("batch", "run", "--now", NOW, "--db", database).out
    headings = [line for line in out.splitlines() if line and line[0].isupper()]
    assert headings == ["Bound", "Queues", "Jobs", "Still waiting"]
    assert out.splitlines()[0] == (
        "session 1 of cluster default, 2026-11-21T00:00:00Z:"
        " kube-batch on revision 1, led to revision 2"
    )
    assert "  ml/wide (queue gold): there is no node for one of its pods;" in out


def test_a_dry_run_leaves_no_trace(policy: Policy, database: str) -> None:
    """With --dry-run a session is shown and neither recorded nor carried out."""
    done = policy("batch", "run", "--dry-run", "--db", database, "-o", "json")
    assert the_session(done)["id"] is None
    assert "nothing recorded (--dry-run)" in done.err
    listed = policy("batch", "sessions", "--db", database, "-o", "json")
    assert json.loads(listed.out) == []


def test_until_settled_prints_a_line_per_session(policy: Policy, database: str) -> None:
    """Sessions follow until nothing changes; each is recorded, and all replay equal."""
    arguments = ("--rules", "kube-batch-sample", "--until-settled", "--now", NOW, "-o", "jsonl")
    done = policy("batch", "run", *arguments, "--db", database)
    assert done.status == 0
    held = [json.loads(line) for line in done.out.splitlines()]
    assert [session["id"] for session in held] == list(range(1, len(held) + 1))
    assert held[-1]["revision"] is None
    assert {pod for session in held for pod in bound(session)} >= {"ml/train-0", "ml/train-1"}
    assert policy("batch", "replay", "--all", "--db", database) == (
        0,
        "",
        f"{len(held)} sessions replayed: {len(held)} equal, 0 different, 0 incomplete\n",
    )


def test_evictions_are_found_where_victims_are_looked_for(policy: Policy, database: str) -> None:
    """A query for victims finds those of sessions, with the pod that they made room for."""
    rules = ("--rules", "kube-batch-sample", "--now", NOW)
    session = the_session(policy("batch", "run", *rules, "--db", database, "-o", "json"))
    assert session["evictions"]
    text = "SELECT victim, preemptor, session_id FROM v_victims ORDER BY position"
    found = json.loads(
        policy("sql", "--trust-connection", text, "--db", database, "-o", "json").out
    )
    assert found == [
        {"victim": row["pod"], "preemptor": row["for"], "session_id": 1}
        for row in session["evictions"]
    ]
    assert policy("audit", "verify", "--db", database).status == 0


def test_pods_of_another_scheduler_are_pointed_out(
    policy: Policy, tmp_path: Path, database_url: str
) -> None:
    """Where nobody takes part, the scheduler's name is most often the reason."""
    imported(policy, tmp_path, database_url, a_cluster(VOLCANO, "volcano"))
    done = policy("batch", "run", "--db", database_url)
    assert "only those with `schedulerName: kube-batch` take part" in done.err.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--rules", "kube-bach"], "did you mean `kube-batch`?"),
        (["run", "--cluster", "nowhere"], "there is no cluster `nowhere`"),
        (["explain", "7"], "there is no session 7"),
        (["replay", "7"], "there is no batch session 7"),
        (["replay", "--all", "--cluster", "nowhere"], "there is no cluster `nowhere`"),
    ],
)
def test_what_is_wrong_is_said(
    policy: Policy, database: str, arguments: list[str], words: str
) -> None:
    """Unknown rules, clusters and sessions end with status 1 and what to do."""
    done = policy("batch", *arguments, "--db", database)
    assert (done.status, done.out) == (1, "")
    assert words in done.err


@pytest.mark.parametrize("arguments", [[], ["1", "--all"]])
def test_a_replay_needs_to_know_what(policy: Policy, database: str, arguments: list[str]) -> None:
    """Sessions or --all: one of them, not both."""
    assert policy("batch", "replay", *arguments, "--db", database).status == 2


# --- looked at again -----------------------------------------------------------------------------


@pytest.fixture
def held(policy: Policy, database: str) -> str:
    """A database in which session 1 has been held."""
    done = policy("batch", "run", "--rules", "kube-batch-sample", "--now", NOW, "--db", database)
    assert done.status == 0
    return database


def test_sessions_are_listed(policy: Policy, held: str) -> None:
    """A line per session, with what it came to."""
    (line,) = json.loads(policy("batch", "sessions", "--db", held, "-o", "json").out)
    assert (line["id"], line["rule_set"], line["now"]) == (1, "kube-batch-sample", NOW)
    assert policy("batch", "sessions", "--db", held, "--cluster", "other").out == ""
    found = {
        option: json.loads(policy("batch", "sessions", "--db", held, option, NOW, "-o", "json").out)
        for option in ("--since", "--until")
    }
    assert found == {"--since": [line], "--until": []}


def test_an_explanation_has_the_steps_in_order(policy: Policy, held: str) -> None:
    """All steps, or those of one job: on its tasks, for them, or in its statements."""
    whole = json.loads(policy("batch", "explain", "1", "--db", held, "-o", "json").out)
    assert [step["position"] for step in whole["steps"]] == list(range(len(whole["steps"])))
    assert {step["action"] for step in whole["steps"]} >= {"reclaim", "allocate"}
    part = json.loads(
        policy("batch", "explain", "1", "--job", "lab/crunch", "--db", held, "-o", "json").out
    )
    assert part["steps"] == [step for step in whole["steps"] if step["job"] == "lab/crunch"]
    assert {step["operation"] for step in part["steps"]} == {"evict"}


def test_an_explanation_for_people_says_why_a_gang_waits(policy: Policy, held: str) -> None:
    """The reason in words, then the steps, then where the session stands in the record."""
    out = policy("batch", "explain", "1", "--job", "ml/wide", "--db", held).out
    lines = out.splitlines()
    assert lines[0] == "session 1: job ml/wide, queue gold"
    headings = [line for line in lines if line in ("Still waiting", "Steps", "Statements")]
    assert headings == ["Still waiting", "Steps", "Statements"]
    assert lines[-1].startswith("digest     sha256:")
    wrong = policy("batch", "explain", "1", "--job", "ml/wode", "--db", held)
    assert (wrong.status, wrong.err.splitlines()) == (
        1,
        ["session 1 names no job `ml/wode`", "  help: did you mean `ml/wide`?"],
    )


def test_a_node_that_was_not_taken_is_explained(policy: Policy, held: str) -> None:
    """Every attempt on the node, for people and for programs; a misspelt one is named."""
    shown = policy("batch", "explain", "1", "--why-not", "n1", "--db", held)
    told = policy("batch", "explain", "1", "--why-not", "n1", "--db", held, "-o", "json")
    trials = json.loads(told.out)
    assert trials
    assert {trial["node"] for trial in trials} == {"n1"}
    headings = [line for line in shown.out.splitlines() if not line.startswith(" ")]
    assert [line.split(":")[0] for line in headings] == [
        f"{trial['action']} of {trial['task']} on n1" for trial in trials
    ]
    missing = policy("batch", "explain", "1", "--why-not", "n11", "--db", held)
    assert missing.status != 0
    assert "has no node `n11`" in missing.err


def test_explain_and_replay_know_sessions(policy: Policy, held: str) -> None:
    """`session:ID` stands for a session where decisions are asked for."""
    own = policy("batch", "explain", "1", "--db", held)
    assert policy("explain", "session:1", "--db", held) == own
    again = policy("replay", "session:1", "--db", held, "-o", "json")
    assert [(r["id"], r["verdict"]) for r in json.loads(again.out)] == [(1, "equal")]
    assert policy("replay", "1", "session:1", "--db", held).status == 2
    assert policy("explain", "session:x", "--db", held).status == 2
    why_not = ("--why-not", "n1", "--db", held)
    assert policy("explain", "session:1", *why_not) == policy("batch", "explain", "1", *why_not)


def test_a_forged_session_differs(policy: Policy, held: str) -> None:
    """A record that says something else ends the replay with status 5 and the place."""
    from sqlalchemy import text

    from tests.contract.test_ledger import tampering

    with tampering(held) as connection:
        connection.execute(text("UPDATE sessions SET digest = 'sha256:0'"))
        connection.execute(
            text("UPDATE session_steps SET node = 'n9' WHERE session_id = 1 AND position = 0")
        )
        connection.commit()
    done = policy("batch", "replay", "1", "--db", held, "-o", "json")
    (line,) = json.loads(done.out)
    assert done.status == 5
    assert (line["first_difference"], line["recorded"]) == ("steps[0].node", "n9")
    assert policy("audit", "verify", "--db", held).status == 6


def test_fields_that_kube_batch_does_not_read_are_noted(policy: Policy, tmp_path: Path) -> None:
    """Limits of Volcano's queues have no effect there: the session says it."""
    file, database = tmp_path / "queues.yaml", tmp_path / "policy.db"
    file.write_text(
        "apiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: gold}\n"
        "spec: {weight: 1, capability: {cpu: 6}, reclaimable: false}\nstatus: {state: Closed}\n"
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: n1}\n"
        "status: {allocatable: {cpu: 4, memory: 8Gi, pods: 10}}\n"
    )
    policy("import", file, "--db", database)
    done = policy("batch", "run", "--rules", "kube-batch-sample", "--db", database, "-o", "json")
    assert json.loads(done.out)[0]["notes"] == [
        {"note": "queue-field-ignored", "subject": "gold", "detail": field}
        for field in ("capability", "reclaimable", "state")
    ]


def test_what_if_names_its_rules_and_the_pods_that_are_gone(policy: Policy, held: str) -> None:
    """A default rule set that is not named could be taken for another one."""
    done = policy("batch", "what-if", "--remove-node", "n1", "--db", held)
    assert done.err.splitlines()[-2:] == [
        "2 pods of removed nodes left for good, such as lab/crunch-0: leaving already, or without"
        " an owner that makes another one elsewhere",
        "both sessions by rule set kube-batch, on revision 2 of cluster default",
    ]


def test_an_eviction_that_an_import_contradicts_is_named(
    policy: Policy, held: str, tmp_path: Path
) -> None:
    """`import`, `who` and `explain` say that the pod still runs; the history counts it no more."""
    shown = policy("state", "show", "pod", "lab/crunch-0", "--db", held, "-o", "json")
    pod = json.loads(shown.out)
    del pod["metadata"]["deletionTimestamp"]
    dump = tmp_path / "again.json"
    dump.write_text(json.dumps(pod))
    imported = policy("import", dump, "--db", held)
    assert (
        "not carried out: victims of session 1 are still there;"
        " `policy explain session:ID` names them\n"
    ) in imported.err
    who = policy("who", "lab/crunch-0", "--db", held).out.splitlines()
    assert who[1].startswith("  not carried out: lab/crunch-0 still ran at revision 3")
    assert who[2].startswith("  batch session 1 (`policy batch explain 1`) in cluster default, rec")
    assert [line[:11] for line in who[3:]] == ["  rule set "]
    assert "Not carried out\n  not carried out: lab/crunch-0 still ran at revision 3" in (
        policy("explain", "session:1", "--db", held).out
    )
    (line,) = json.loads(policy("explain", "session:1", "--db", held, "-o", "json").out)[
        "not_carried_out"
    ]
    assert (line["pod"], line["reason"], line["revision"]) == (
        "lab/crunch-0",
        "victim-still-runs",
        3,
    )
    assert policy("audit", "verify", "--db", held).status == 0
