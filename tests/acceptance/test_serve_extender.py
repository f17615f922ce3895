"""`policy serve` as the extender of recorded schedulers: nothing here is made up but the tests."""

from __future__ import annotations

import html
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from policy.audit.inputs import ReplayVerdict
from policy.audit.recorded import Comparing
from policy.audit.replay import replay_all
from policy.manifests import from_dicts
from policy.rules import RuleSet
from policy.server.security.tokens import Role, TokenFile
from policy.store import Cause, Store
from tests.support import serving
from tests.support.serving import Serving, preempts, recorded_calls
from tests.support.tried import Kind, Tried

Start = Callable[..., Serving]

ENFORCE = ("--extender-mode", "enforce", "--deadline", 10)
"""A busy machine answers each call within that, too."""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts services that are ready, and ends them after the test."""
    running: list[Serving] = []

    def begin(db: str, *options: object, ready: bool = True) -> Serving:
        running.append(serving.serve(db, tmp_path, *options))
        if ready:
            running[-1].ready()
        return running[-1]

    yield begin
    for one in running:
        one.stop()


def offered(request: dict[str, Any]) -> dict[str, list[str]]:
    """Uids by node, of either form."""
    full = request["NodeNameToVictims"]
    if full is not None:
        return {
            node: [pod["metadata"]["uid"] for pod in victims["Pods"]]
            for node, victims in full.items()
        }
    meta = request["NodeNameToMetaVictims"]
    return {node: [pod["UID"] for pod in victims["Pods"]] for node, victims in meta.items()}


@pytest.mark.parametrize("run", ["a", "b"])
def test_shadow_leaves_every_recorded_call_as_it_is(
    database_url: str, start: Start, run: str
) -> None:
    """The scheduler is answered what it offered; each call is a decision that replays."""
    service = start(serving.filled(database_url, run=run))
    calls = preempts(run)
    for call in calls:
        request = json.loads(call["request"])
        assert service.preempt(call["request"]) == offered(request)
    assert service.stop() == 0
    with Store.open(database_url) as store:
        rows = store.read.decisions("default", origin="extender")
        stored = [store.read.decision(row.id) for row in rows]
        told = {(s.served.mode.value, s.served.answer.value, s.served.failure) for s in stored}
        replayed = [found.verdict for found in replay_all(store, sorted(row.id for row in rows))]
        assert (len(rows), told) == (len(calls), {("shadow", "offered", "")})
        assert set(replayed) == {ReplayVerdict.EQUAL}
        assert {row.revision for row in rows} == {None}
        assert store.ledger.verify().ok
        assert counts(store) == {
            "v_preemptions": 0,
            "v_victims": 0,
            "v_preemptions_hourly": 0,
            "v_pdb_violations": 0,
            "v_extender_calls": len(calls),
            "v_extender_calls WHERE carried_out": 0,
        }


def counts(store: Store) -> dict[str, int]:
    """Rows of the views that tell of preemptions and of calls."""
    found = {}
    for view in (
        "v_preemptions",
        "v_victims",
        "v_preemptions_hourly",
        "v_pdb_violations",
        "v_extender_calls",
        "v_extender_calls WHERE carried_out",
    ):
        with store.sql(f"SELECT count(*) FROM {view}", trust_connection=True) as rows:
            ((found[view],),) = rows
    return found


@pytest.mark.parametrize(
    ("mode", "answer", "words"),
    [("shadow", "offered", "answered as offered"), ("enforce", "chosen", "answered as decided")],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_lists_say_what_the_scheduler_was_answered(
    database_url: str, start: Start, mode: str, answer: str, words: str
) -> None:
    """What was only a judgement is not taken for a preemption: on the page, the API, the CLI."""
    service = start(serving.filled(database_url, run="a"), "--extender-mode", mode)
    service.preempt(preempts("a")[0]["request"])
    (line,) = service.get("/api/v1/decisions").json()["decisions"]
    page = service.get("/decisions").text
    assert service.stop() == 0
    listed = [sys.executable, "-m", "policy", "decisions", "--db", database_url]
    done = subprocess.run([*listed, "--output", "csv"], capture_output=True, text=True, check=True)
    header, first = (one.split(",") for one in done.stdout.splitlines())
    assert (line["outcome"], line["answer"]) == ("preempt", answer)
    assert f">{words}</span></td>" in page
    assert dict(zip(header, first, strict=True))["answer"] == answer


@pytest.mark.parametrize(
    ("case", "node", "said"),
    [
        ("shadow", "n0", "shadow mode: the scheduler was answered everything that it had offered"),
        ("enforce", "n0", "enforce mode: the scheduler was answered this decision's node"),
        ("gone", None, "enforce mode: the scheduler was answered no candidate, because the pod is"),
    ],
)
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_decision_says_what_the_scheduler_was_answered(
    database_url: str, start: Start, case: str, node: str | None, said: str
) -> None:
    """On its page and in `policy explain`; no pod is evicted for one that is gone."""
    a_cluster(database_url, nodes=1)
    urgent = a_pod("urgent", priority=9)
    if case == "gone":
        with Store.open(database_url) as store:
            for obj in (*from_dicts([{"kind": "Pod", **urgent}]), None):
                change = ("Pod", "shop/urgent", obj)
                options = {"at_ms": serving.NOW_MS, "source": "test", "actor": "test"}
                store.record.follow("default", [[change]], **options)
    service = start(database_url, *(() if case == "shadow" else ENFORCE))
    answer = service.preempt(meta_call(urgent, n0=["low-0"]))
    page = service.get("/decisions/1").text
    assert service.stop() == 0
    command = [sys.executable, "-m", "policy", "explain", "1", "--db", database_url]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert answer == ({} if node is None else {"n0": ["uid-low-0"]})
    assert said in html.unescape(page)
    assert said in told
    only_judged = case != "enforce"
    assert ("what the rules would have done" in page) is only_judged
    assert ("what the rules would have done" in told) is only_judged
    with Store.open(database_url) as store:
        stored = store.read.decision(1)
        assert (stored.row.node, stored.row.revision is None) == ("n0", only_judged)
        assert [found.verdict for found in replay_all(store, [1])] == [ReplayVerdict.EQUAL]
        assert store.ledger.verify().ok
        pods = {obj.metadata.name for obj in store.state.load("default").objects}
    assert ("urgent" in pods) is (case != "gone")


@pytest.mark.parametrize(("mode", "as_decided"), [("shadow", False), ("enforce", True)])
@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_no_candidate_is_an_answer_that_changes_nothing(
    database_url: str, start: Start, mode: str, as_decided: bool
) -> None:
    """The second call for a pod leaves the state as it is, and is no judgement only for that."""
    service = start(a_cluster(database_url, nodes=1), "--extender-mode", mode)
    call = meta_call(a_pod("equal", priority=1), n0=["low-0"])
    answers = [service.preempt(call) for _ in range(2)]
    page = service.get("/decisions/2").text
    assert service.stop() == 0
    with Store.open(database_url) as store:
        row = store.read.decision(2).row
    assert (row.outcome, row.revision) == ("no-candidate", None)
    assert (answers[1] == {}) is as_decided
    assert row.is_judgement_only is not as_decided
    assert "what the rules would have done" not in page  # nothing would have been done


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_log_says_why_calls_are_refused(
    database_url: str, start: Start, tmp_path: Path
) -> None:
    """Each reason once: a scheduler that ignores its extender's errors says none of them."""
    tokens = tmp_path / "tokens.json"
    secrets = {
        role: TokenFile(tokens).create(role.value, role, namespaces=None, now_ms=1)
        for role in (Role.EXTENDER, Role.VIEWER)
    }
    service = start(a_cluster(database_url, nodes=1), "--tokens", tokens)
    tried = (
        ("prod/preempt", "none"),
        ("prod/preempt", secrets[Role.VIEWER]),
        ("prd/preempt", secrets[Role.EXTENDER]),
        ("prod/bind", secrets[Role.EXTENDER]),
        ("pr%1Bod/preempt", secrets[Role.EXTENDER]),
    )
    for path, secret in tried * 2:
        headers = {"Authorization": f"Bearer {secret}"}
        service.post(f"/extender/{path}", "{}", headers=headers)
    assert service.stop() == 0
    log = service.log.read_text()
    refused = "WARNING policy.server: a scheduler's call is refused with status "
    assert [line.partition(" ")[2] for line in log.splitlines() if "refused" in line] == [
        f"{refused}401: the extender needs a token or a certificate",
        f"{refused}403: a token of role `viewer` may not call the extender",
        f"{refused}404: there is no environment `prd`",
        f"{refused}404: the extender does not know `/extender/prod/bind`",
        f"{refused}404: there is no environment `pr\\x1bod`",
    ]
    assert not any(secret in log for secret in secrets.values())


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_shadow_fails_no_call_that_it_can_read(database_url: str, start: Start) -> None:
    """The cluster goes on as without the service, whatever is wrong; enforce mode says it."""
    with Store.open(a_cluster(database_url, nodes=1)) as store:
        store.record.create_environment("empty", "default", at_ms=serving.NOW_MS, actor="test")
    call = meta_call(a_pod("high", priority=9), n0=["low-0"])
    odd = {**call["Pod"], "spec": {**call["Pod"]["spec"], "priority": "high"}}
    shadow, enforce = start(database_url), start(database_url, *ENFORCE)
    answered = [
        [
            service.post(f"/extender/{environment}/preempt", json.dumps(body))
            for environment, body in (("prod", {**call, "Pod": odd}), ("empty", call)) * 2
        ]
        for service in (shadow, enforce)
    ]
    offered = {"n0": {"Pods": [{"UID": "uid-low-0"}], "NumPDBViolations": 0}}
    assert [(a.status_code, a.json()["NodeNameToMetaVictims"]) for a in answered[0]] == [
        (200, offered)
    ] * 4
    assert [a.status_code for a in answered[1]] == [400, 409] * 2
    assert "policy_extender_unrecorded_total 4.0" in shadow.get("/metrics").text
    said = [line.partition(" ")[2] for line in shadow.log.read_text().splitlines()]
    told = "WARNING policy.server: the call for `shop/high` is in no record: "
    assert [line for line in said if line.startswith(told)] == [
        f"{told}`Pod`: Pod shop/high: spec.priority: expected a whole number, got the string"
        " `high`",
        f"{told}environment `empty` has no active rule set",
    ]
    with Store.open(database_url) as store:
        assert store.read.decisions("default") == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_victim_that_is_offered_twice_is_answered_once(database_url: str, start: Start) -> None:
    """As it is recorded: the scheduler would delete it twice."""
    service = start(serving.filled(database_url, run="a"), *ENFORCE)
    request = json.loads(preempts("a")[0]["request"])
    for victims in (request["NodeNameToVictims"] or request["NodeNameToMetaVictims"]).values():
        victims["Pods"] *= 2
    ((node, answered),) = service.preempt(request).items()
    assert service.stop() == 0
    with Store.open(database_url) as store:
        stored = store.read.decision(1)
    recorded = [victim.uid for victim in stored.record.victims]
    assert (stored.row.node, recorded) == (node, answered)
    assert len(answered) == len(set(answered)) < len(offered(request)[node])


def test_what_was_only_watched_can_be_explained_and_compared(
    database_url: str, start: Start
) -> None:
    """`explain`, `compare` and `verify` work on the decisions of shadow mode as on all others."""
    service = start(serving.filled(database_url, run="a"))
    calls = preempts("a")
    for call in calls:
        service.preempt(call["request"])
    assert service.stop() == 0
    for command in (["explain", "1"], ["compare", "--rules", "kube-1.35"]):
        done = subprocess.run(
            [sys.executable, "-m", "policy", *command, "--db", database_url, "--output", "json"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        if command[0] == "explain":
            assert (told["id"], told["origin"]) == (1, "extender")
            assert (told["served"]["mode"], told["served"]["answer"]) == ("shadow", "offered")
    with Store.open(database_url) as store:
        assert store.ledger.verify().ok
        ids = [row.id for row in reversed(store.read.decisions("default"))]
        found = list(Comparing(RuleSet.load("kube-1.35"))(store, ids))
        assert [(one.id, one.change.value) for one in found] == [(i, "same") for i in ids]


def test_enforce_ends_where_the_real_scheduler_ended(database_url: str, start: Start) -> None:
    """With the rules of its generation: the same node for the shapes that the import knows."""
    found = {}
    nominated = recorded_calls()["a"]["nominated"]
    shapes = ("01-many-candidates", "03-pdb-choice", "04-pdb-violating-only", "06-gpu-one")
    service = start(serving.filled(database_url, run="a"), *ENFORCE)
    for call in preempts("a"):
        if call["phase"] in shapes:
            request = json.loads(call["request"])
            answer = service.preempt(call["request"])
            assert all(offered(request)[node] == uids for node, uids in answer.items())
            found[call["phase"]] = list(answer)
    assert found == {shape: [*nominated[shape].values()] for shape in shapes}
    with Store.open(database_url) as store:
        counted = counts(store)
    assert counted["v_preemptions"] == counted["v_extender_calls WHERE carried_out"] == len(found)


@pytest.mark.parametrize("run", ["a", "b"])
def test_what_the_rules_deny_is_never_answered(database_url: str, start: Start, run: str) -> None:
    """Pods labelled `preemption=never` stay, whatever is offered, in both forms."""
    # Some calls wait for a newer state, half of the deadline.
    options = ("--extender-mode", "enforce", "--deadline", 2)
    service = start(serving.filled(database_url, run=run, rules="protected"), *options)
    with Store.open(database_url) as store:
        changed = [
            ("Pod", f"{o.metadata.namespace}/{o.metadata.name}", _never(o))
            for o in store.state.load("default").objects
            if type(o).__name__ == "Pod"
        ]
        store.record.change(
            "default", changed, at_ms=serving.NOW_MS + 1, source="test", cause=Cause.LIVE
        )
    answers = []
    for call in preempts(run):
        request = json.loads(call["request"])
        for victims in (request["NodeNameToVictims"] or {}).values():
            for pod in victims["Pods"]:
                pod["metadata"].setdefault("labels", {})["preemption"] = "never"
        answers.append(service.preempt(json.dumps(request)))
    assert answers == [{}] * len(answers)


def _never(pod: Any) -> Any:
    from msgspec.structs import replace

    meta = replace(pod.metadata, labels={**(pod.metadata.labels or {}), "preemption": "never"})
    return replace(pod, metadata=meta)


def test_a_request_brings_what_the_state_does_not_know(database_url: str, start: Start) -> None:
    """In the full form unknown victims count as they were sent, and the record says which."""
    from tests.support.builders import a_node, objects

    with Store.open(database_url) as store:
        store.record.import_objects(
            "default", objects(a_node("n1").cpu(2)), at_ms=serving.NOW_MS, source="test"
        )
        store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.35")
    service = start(database_url, *ENFORCE)
    request = {
        "Pod": a_pod("urgent", priority=100),
        "NodeNameToVictims": {
            "n1": {"Pods": [a_pod("low", priority=1, node="n1")], "NumPDBViolations": 0}
        },
        "NodeNameToMetaVictims": None,
    }
    assert service.preempt(request) == {"n1": ["uid-low"]}
    service.stop()
    with Store.open(database_url) as store:
        (row,) = store.read.decisions("default")
        stored = store.read.decision(row.id)
        assert stored.served.from_request == ("shop/urgent", "shop/low")
        assert [v.pod for v in stored.record.victims] == ["shop/low"]
        assert [found.verdict for found in replay_all(store, [row.id])] == [ReplayVerdict.EQUAL]
        assert store.ledger.verify().ok


def a_pod(name: str, *, priority: int, node: str = "", cpu: int = 2) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def meta_call(pod: dict[str, Any], **nodes: list[str]) -> dict[str, Any]:
    return {
        "Pod": pod,
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {
            node: {"Pods": [{"UID": f"uid-{name}"} for name in names], "NumPDBViolations": 0}
            for node, names in nodes.items()
        },
    }


def a_cluster(url: str, *, nodes: int) -> str:
    """Nodes n0, n1, ... with pod low-0, low-1, ... on each; environment `prod`."""
    made = []
    for i in range(nodes):
        made.append(
            {
                "kind": "Node",
                "metadata": {"name": f"n{i}"},
                "status": {"allocatable": {"cpu": "2", "pods": "10"}},
            }
        )
        made.append({"kind": "Pod", **a_pod(f"low-{i}", priority=1, node=f"n{i}")})
    with Store.open(url) as store:
        objects = from_dicts(made)
        store.record.import_objects("default", objects, at_ms=serving.NOW_MS, source="test")
        store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.35")
    return url


def test_two_processes_never_promise_the_same_room(
    database_url: str, start: Start, tried: Tried
) -> None:
    """Sixteen preemptors at once, all offered all of eight nodes: each node is promised once.

    Half of those of each process are of another scheduler, which knows nothing of the others.
    """
    tried(Kind.CONCURRENT)
    a_cluster(database_url, nodes=8)
    services = [start(database_url, "--extender-mode", "enforce", "--deadline", 30) for _ in "12"]
    everything = {f"n{i}": [f"low-{i}"] for i in range(8)}

    def call(i: int) -> list[str]:
        pod = a_pod(f"high-{i}", priority=100)
        pod["spec"]["schedulerName"] = ("one", "two")[i // 2 % 2]
        return list(services[i % 2].preempt(meta_call(pod, **everything)))

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(call, range(16)))
    nodes = sorted(node for answer in answers for node in answer)
    assert nodes == sorted(everything)
    with Store.open(database_url) as store:
        assert len(store.read.decisions("default")) == 16
        assert store.ledger.verify().ok


def test_an_activation_by_another_process_is_taken_over(database_url: str, start: Start) -> None:
    """The next call after `policy env activate` is judged by the new rules."""
    a_cluster(database_url, nodes=1)
    service = start(database_url)
    service.preempt(meta_call(a_pod("one", priority=9), n0=["low-0"]))
    command = [sys.executable, "-m", "policy", "env", "activate", "prod", "max-victims"]
    done = subprocess.run(
        [*command, "--reason", "fewer", "--db", database_url], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    service.preempt(meta_call(a_pod("two", priority=9), n0=["low-0"]))
    with Store.open(database_url) as store:
        assert [row.rule_set for row in store.read.decisions("default")] == [
            "max-victims",
            "kube-1.35",
        ]


def test_no_answered_call_is_missing_after_a_kill(
    database_url: str, start: Start, tried: Tried
) -> None:
    """SIGKILL under load in enforce mode: every answer that arrived is in the record."""
    tried(Kind.KILL)
    a_cluster(database_url, nodes=4)
    service = start(database_url, "--extender-mode", "enforce", "--deadline", 30)
    answered: list[str] = []

    def calls(worker: int) -> None:
        for i in range(1000):
            name = f"high-{worker}-{i}"
            try:
                service.preempt(meta_call(a_pod(name, priority=9), n0=["low-0"], n1=["low-1"]))
            except (httpx.HTTPError, RuntimeError):
                return
            answered.append(f"shop/{name}")

    threads = [threading.Thread(target=calls, args=[n]) for n in range(3)]
    for thread in threads:
        thread.start()
    while len(answered) < 20:
        threads[0].join(0.01)
    service.kill()
    for thread in threads:
        thread.join()
    with Store.open(database_url) as store:
        recorded = {row.preemptor for row in store.read.decisions("default")}
        assert set(answered) - recorded == set()
        assert store.ledger.verify().ok


@pytest.mark.parametrize(
    ("options", "answer", "kept"),
    [
        (["--extender-mode", "shadow"], {"n0": ["uid-low-0"]}, "offered"),
        (["--extender-mode", "enforce"], {}, "none"),
        (
            ["--extender-mode", "enforce", "--on-failure", "pass-through"],
            {"n0": ["uid-low-0"]},
            "offered",
        ),
    ],
)
def test_a_database_that_does_not_answer_is_no_excuse(
    tmp_path: Path, sqlite_template: Path, start: Start, options: list[str], answer: Any, kept: str
) -> None:
    """Locked: the way out is answered in time, spooled, and recorded once the lock is gone."""
    url = str(tmp_path / "policy.db")
    Path(url).write_bytes(sqlite_template.read_bytes())
    service = start(a_cluster(url, nodes=1), *options, "--deadline", 0.5)
    lock = sqlite3.connect(url, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    assert service.preempt(meta_call(a_pod("high", priority=9), n0=["low-0"])) == answer
    assert len(list((tmp_path / "policy-spool").iterdir())) == 1
    lock.execute("ROLLBACK")
    lock.close()
    for _ in range(300):
        if not list((tmp_path / "policy-spool").iterdir()):
            break
        threading.Event().wait(0.1)
    service.stop()
    with Store.open(url) as store:
        (row,) = store.read.decisions("default")
        stored = store.read.decision(row.id)
        assert (stored.served.answer.value, stored.served.failure, row.revision) == (
            kept,
            "no decision was recorded within 500 ms",
            None,
        )
        assert [found.verdict for found in replay_all(store, [row.id])] == [ReplayVerdict.EQUAL]


def test_what_was_spooled_outlives_the_process(
    tmp_path: Path, sqlite_template: Path, start: Start
) -> None:
    """Killed before the database came back: the next process records the call, once."""
    url = str(tmp_path / "policy.db")
    Path(url).write_bytes(sqlite_template.read_bytes())
    service = start(a_cluster(url, nodes=1), "--deadline", 0.5)
    lock = sqlite3.connect(url, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    service.preempt(meta_call(a_pod("high", priority=9), n0=["low-0"]))
    service.kill()
    lock.close()
    spooled = list((tmp_path / "policy-spool").iterdir())
    copies = [(file, file.read_bytes()) for file in spooled]
    for _ in range(2):
        for file, content in copies:  # as if the process had died before it removed the file
            file.write_bytes(content)
        again = start(url)
        for _ in range(300):
            if not list((tmp_path / "policy-spool").iterdir()):
                break
            threading.Event().wait(0.1)
        again.stop()
    with Store.open(url) as store:
        assert [row.preemptor for row in store.read.decisions("default")] == ["shop/high"]


def test_filter_and_prioritize_decide_nothing(database_url: str, start: Start) -> None:
    """Every node passes, in the form that was asked for, and none is preferred."""
    service = start(serving.filled(database_url, run="a"))
    for run in "ab":
        for call in recorded_calls()[run]["exchanges"]:
            request = json.loads(call["request"])
            names = request.get("NodeNames") or [
                item["metadata"]["name"] for item in (request.get("Nodes") or {}).get("items", ())
            ]
            if call["verb"] == "filter":
                assert service.post("/extender/filter", call["request"]).json() == {
                    "Nodes": request["Nodes"],
                    "NodeNames": request["NodeNames"],
                    "FailedNodes": {},
                    "FailedAndUnresolvableNodes": {},
                    "Error": "",
                }
            elif call["verb"] == "prioritize":
                answer = service.post("/extender/prod/prioritize", call["request"]).json()
                assert answer == [{"Host": name, "Score": 0} for name in names]


def test_sigterm_ends_it_after_what_it_holds(database_url: str, start: Start) -> None:
    """A call that is under way when the signal comes is answered and recorded; status 0."""
    service = start(a_cluster(database_url, nodes=1), "--deadline", 30)
    with ThreadPoolExecutor(1) as pool:
        call = meta_call(a_pod("high", priority=9), n0=["low-0"])
        answer = pool.submit(service.preempt, call)
        service.process.terminate()
        try:
            answered = answer.result() == {"n0": ["uid-low-0"]}
        except httpx.HTTPError:  # the signal was faster than the connection
            answered = False
    assert service.process.wait(15) == 0
    with Store.open(database_url) as store:
        assert len(store.read.decisions("default")) >= int(answered)
