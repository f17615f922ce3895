"""The processes that are called, that decide and that record: how each ends, and what stays."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from policy.manifests import from_dicts
from policy.server.extender.call import PreemptCall
from policy.server.extender.desk import Desk
from policy.server.extender.recorder import Recorder
from policy.server.extender.spool import Spool, SpooledCall
from policy.server.extender.wire import read_preempt
from policy.store import EnvironmentRow, Store
from policy.store.errors import DamagedRows, Unavailable
from policy.store.model.decisions import CallMode
from policy.store.read.face import ReadFace
from tests.support import serving
from tests.support.commits import slow_commit_of
from tests.support.recording import recorder_of
from tests.support.serving import Serving, children
from tests.support.tried import Kind, Tried

_ENOUGH = 120.0


def a_pod(name: str, *, priority: int, node: str = "") -> dict[str, Any]:
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": 2}}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def a_call(name: str) -> dict[str, Any]:
    return {
        "Pod": a_pod(name, priority=9),
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"n0": {"Pods": [{"UID": "uid-low"}], "NumPDBViolations": 0}},
    }


def a_cluster(url: str) -> str:
    """Node n0 with pod `low`; environment `prod`."""
    node = {
        "kind": "Node",
        "metadata": {"name": "n0"},
        "status": {"allocatable": {"cpu": "2", "pods": "10"}},
    }
    made = from_dicts([node, {"kind": "Pod", **a_pod("low", priority=1, node="n0")}])
    with Store.open(url) as store:
        store.record.import_objects("default", made, at_ms=serving.NOW_MS, source="test")
        store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.35")
    return url


@pytest.fixture
def sqlite_url(tmp_path: Path, sqlite_template: Path) -> str:
    file = tmp_path / "policy.db"
    file.write_bytes(sqlite_template.read_bytes())
    return a_cluster(str(file))


@contextmanager
def served(url: str, folder: Path, *options: object, **more: Any) -> Iterator[Serving]:
    service = serving.serve(url, folder, *options, **more)
    try:
        yield service
    finally:
        for pid in children(service.process.pid):
            for one in (pid, *children(pid)):
                os.kill(one, signal.SIGCONT)
        service.stop()


def decider(service: Serving) -> int:
    """The process that decides."""
    (pid,) = children(service.process.pid)
    return pid


def recorder(service: Serving) -> int:
    """The process that records."""
    (pid,) = children(decider(service))
    return pid


def until(fact: Callable[[], bool], what: str, *, seconds: float = _ENOUGH) -> None:
    end = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < end, what
        time.sleep(0.05)


def runs(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def under_load(service: Serving, end: Callable[[], None]) -> tuple[set[str], set[int]]:
    """Pods whose calls were answered, and the statuses of those that were not, after `end`."""
    answered: list[str] = []
    refused: set[int] = set()

    def calls(worker: int) -> None:
        for i in range(1000):
            name = f"high-{worker}-{i}"
            try:
                answer = service.post("/extender/preempt", a_call(name))
            except (httpx.HTTPError, RuntimeError):
                return
            if answer.status_code == 200:
                answered.append(f"shop/{name}")
            else:
                refused.add(answer.status_code)

    threads = [threading.Thread(target=calls, args=[n]) for n in range(3)]
    for thread in threads:
        thread.start()
    until(lambda: len(answered) >= 20, "no calls are answered")
    end()
    for thread in threads:
        thread.join()
    return set(answered), refused


def test_no_process_interrupts_another_one(sqlite_url: str, tmp_path: Path) -> None:
    """None of their threads does: what computes goes on, and finds its data in the caches."""
    with served(sqlite_url, tmp_path) as service:
        service.ready()
        pids = [service.process.pid, decider(service), recorder(service)]
        threads = [int(task.name) for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
        others = [one for one in threads if os.sched_getscheduler(one) != os.SCHED_BATCH]
        # numpy has a thread for each further core when it is imported, which never does anything.
        assert not {*others} & {*pids}
        assert len(others) < (os.cpu_count() or 1) < len(threads)


def test_a_scheduling_class_that_was_chosen_stays() -> None:
    code = (
        "import os; from policy.server import interpreter;"
        "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)); interpreter.prepare();"
        "print(os.sched_getscheduler(0) == os.SCHED_IDLE)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


@pytest.mark.parametrize(
    ("one", "said"),
    [
        (decider, "the process that decides has ended by itself, with status -9"),
        (recorder, "the process that records has ended by itself: so does the one that decides"),
    ],
)
def test_the_service_ends_with_either_process(
    database_url: str, tmp_path: Path, tried: Tried, one: Callable[[Serving], int], said: str
) -> None:
    """SIGKILL of it under load: no answered call is missing, and none is answered by a guess."""
    tried(Kind.KILL)
    options = ("--extender-mode", "enforce", "--deadline", 30)
    with served(a_cluster(database_url), tmp_path, *options) as service:
        service.ready()
        pids, killed = (decider(service), recorder(service)), one(service)
        answered, refused = under_load(service, lambda: os.kill(killed, signal.SIGKILL))
        assert service.process.wait(_ENOUGH) == 1
        until(lambda: not any(map(runs, pids)), "the other one still runs")
        assert refused <= {503}
        log = service.log.read_text()
        assert said in log
        assert "Traceback" not in log
    assert list(tmp_path.glob("policy-spool/*")) == []
    with Store.open(database_url) as store:
        recorded = {row.preemptor for row in store.read.decisions("default")}
        assert answered - recorded == set()
        assert store.ledger.verify().ok


def test_both_processes_end_with_the_service(sqlite_url: str, tmp_path: Path, tried: Tried) -> None:
    """SIGKILL of the service under load: nothing is left behind that still writes."""
    tried(Kind.KILL)
    options = ("--extender-mode", "enforce", "--deadline", 30)
    with served(sqlite_url, tmp_path, *options) as service:
        service.ready()
        pids = decider(service), recorder(service)
        answered, _ = under_load(service, service.kill)
        until(lambda: not any(map(runs, pids)), "they still run")
        assert "Traceback" not in service.log.read_text()
    with Store.open(sqlite_url) as store:
        recorded = {row.preemptor for row in store.read.decisions("default")}
        assert answered - recorded == set()
        assert store.ledger.verify().ok


@pytest.mark.parametrize("one", [lambda service: service.process.pid, decider])
def test_no_process_stays_to_wait_for_a_database(
    sqlite_url: str, tmp_path: Path, one: Callable[[Serving], int]
) -> None:
    """When the database is back, no caller is left to answer, and no row can be claimed."""
    with Store.open(sqlite_url) as store:
        known = from_dicts([{"kind": "Pod", **a_pod("high", priority=9)}])
        store.record.import_objects("default", known, at_ms=serving.NOW_MS, source="test")
    options = ("--extender-mode", "enforce", "--deadline", 30)
    with served(sqlite_url, tmp_path, *options) as service:
        service.ready()
        pids = decider(service), recorder(service)
        lock = sqlite3.connect(sqlite_url, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        call = threading.Thread(target=unanswered, args=[service])
        call.start()
        time.sleep(1)
        os.kill(one(service), signal.SIGKILL)
        call.join()
        until(lambda: not any(map(runs, pids)), "they wait for the database", seconds=30)
        lock.close()
        assert "Traceback" not in service.log.read_text()
    with Store.open(sqlite_url) as store:
        assert store.read.decision_ids("default") == []


def unanswered(service: Serving) -> None:
    with suppress(httpx.HTTPError):
        assert service.post("/extender/preempt", a_call("high")).status_code == 503


def test_what_is_spooled_outlives_the_process_that_decides(sqlite_url: str, tmp_path: Path) -> None:
    """Killed while the database is locked; the next service records the call, once."""
    spool = tmp_path / "policy-spool"
    with served(sqlite_url, tmp_path, "--deadline", 0.5) as service:
        service.ready()
        lock = sqlite3.connect(sqlite_url, isolation_level=None)
        lock.execute("BEGIN IMMEDIATE")
        assert service.preempt(a_call("high")) == {"n0": ["uid-low"]}
        os.kill(decider(service), signal.SIGKILL)
        assert service.process.wait(_ENOUGH) == 1
        lock.close()
    assert [one.call.doubtful for one in Spool(spool).waiting("prod")] == [False]
    with served(sqlite_url, tmp_path):
        until(lambda: list(spool.iterdir()) == [], "it stays in the spool")
    with Store.open(sqlite_url) as store:
        (row,) = store.read.decisions("default")
        served_call = store.read.decision(row.id).served
        assert served_call is not None
        assert (row.preemptor, served_call.failure) == (
            "shop/high",
            "no decision was recorded within 500 ms",
        )


@pytest.mark.parametrize("one", [decider, recorder])
def test_a_process_that_stands_still_records_nothing_that_was_answered_otherwise(
    sqlite_url: str, tmp_path: Path, one: Callable[[Serving], int]
) -> None:
    """Nothing is heard of it, so `--on-failure` answers; awake again it records that answer."""
    spool = tmp_path / "policy-spool"
    options = ("--extender-mode", "enforce", "--deadline", 0.5)
    with served(sqlite_url, tmp_path, *options) as service:
        service.ready()
        pid = one(service)
        os.kill(pid, signal.SIGSTOP)
        assert service.preempt(a_call("high")) == {}
        (kept,) = Spool(spool).waiting("prod")
        assert kept.call.doubtful is (one is decider)  # the other one was heard of
        os.kill(pid, signal.SIGCONT)
        until(lambda: list(spool.iterdir()) == [], "it stays in the spool")
        assert service.stop() == 0
    with Store.open(sqlite_url) as store:
        (row,) = store.read.decisions("default")
        call = store.read.decision(row.id).served
        assert call is not None
        assert (call.answer.value, call.failure, row.revision) == (
            "none",
            "no decision was recorded within 500 ms",
            None,
        )


def test_a_process_that_stands_still_keeps_nobody_else_from_writing(
    sqlite_url: str, tmp_path: Path
) -> None:
    """What it was asked, while its decisions were being written, is answered by the deadline."""
    options = ("--extender-mode", "enforce", "--deadline", 0.5)
    with served(sqlite_url, tmp_path, *options) as service:
        service.ready()
        pid = decider(service)
        answered, _ = under_load(service, lambda: _stands_still(pid, sqlite_url))
        assert service.stop() == 0
    with Store.open(sqlite_url) as store:
        rows = {row.id: row.preemptor for row in store.read.decisions("default", limit=None)}
        assert len(rows) == len(set(rows.values()))
        assert answered <= set(rows.values())


def _stands_still(pid: int, url: str) -> None:
    """Stop a process until it is too late for what it was asked; others may write then."""
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(1.5)
        other = sqlite3.connect(url, isolation_level=None, timeout=1)
        other.execute("BEGIN IMMEDIATE")
        other.execute("ROLLBACK")
        other.close()
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def held_up(url: str, service: Serving) -> Iterator[list[dict[str, list[str]]]]:
    """A call that waits for the database until the end of the block; gives its answer."""
    answered: list[dict[str, list[str]]] = []
    call = threading.Thread(target=lambda: answered.append(service.preempt(a_call("high"))))
    lock = sqlite3.connect(url, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    call.start()
    time.sleep(0.5)
    yield answered
    lock.execute("ROLLBACK")
    lock.close()
    call.join()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_ends_it_after_what_it_holds(
    sqlite_url: str, tmp_path: Path, number: signal.Signals
) -> None:
    """Ctrl-C reaches all processes, and so do those signals that a supervisor sends to all."""
    with served(sqlite_url, tmp_path, "--deadline", 30, process_group=0) as service:
        service.ready()
        pids = decider(service), recorder(service)
        with held_up(sqlite_url, service) as answered:
            os.killpg(service.process.pid, number)
            time.sleep(0.5)
            assert (answered, [runs(pid) for pid in pids]) == ([], [True, True])
        assert answered == [{"n0": ["uid-low"]}]
        assert service.process.wait(_ENOUGH) == 0
        assert not any(map(runs, pids))
        assert "Traceback" not in service.log.read_text()
    with Store.open(sqlite_url) as store:
        assert [row.preemptor for row in store.read.decisions("default")] == ["shop/high"]


def test_a_file_that_is_moved_is_not_written(sqlite_url: str, tmp_path: Path) -> None:
    """It is a database that is away: `--on-failure` answers, and the call waits in the spool."""
    path, away = Path(sqlite_url), tmp_path / "away.db"
    spool = Spool(tmp_path / "policy-spool")
    given = ("--extender-mode", "enforce")
    with served(sqlite_url, tmp_path, *given) as service:
        service.ready()
        path.rename(away)
        assert service.preempt(a_call("high")) == {}
        found = service.get("/readyz").status_code, spool.depth(), path.exists()
        assert found == (503, 1, False)
        away.rename(path)
        until(lambda: spool.depth() == 0, "the call stays in the spool")
        service.ready()
        assert service.preempt(a_call("other")) == {"n0": ["uid-low"]}
        log = service.log.read_text()
        assert (service.stop(), "Traceback" in log) == (0, False)
    assert f"no calls for `prod` are decided: the file `{path}` is gone" in log
    with Store.open(sqlite_url) as store:
        found = [
            (row.preemptor, store.read.decision(row.id).served.failure)
            for row in store.read.decisions("default")
        ]
    assert found == [("shop/other", ""), ("shop/high", "the database could not take it")]


def test_a_process_that_starts_later_writes_no_other_file(sqlite_url: str, tmp_path: Path) -> None:
    """It is started by the first call, after the file that the service has open was replaced."""
    path, other = Path(sqlite_url), tmp_path / "other.db"
    other.write_bytes(path.read_bytes())
    before = other.read_bytes()
    with served(sqlite_url, tmp_path, "--extender-mode", "enforce", environment="") as service:
        service.ready()
        other.replace(path)
        answer = service.post("/extender/prod/preempt", a_call("high"))
        assert (answer.status_code, answer.json()) == (200, {"NodeNameToMetaVictims": {}})
        assert len(children(service.process.pid)) == 1
        log = service.log.read_text()
        assert service.stop() == 0
    assert f"no calls for `prod` are decided: another file is in the place of `{path}`" in log
    assert path.read_bytes() == before


def test_a_command_line_shows_no_database(sqlite_url: str, tmp_path: Path) -> None:
    """Any user of the machine may read it, and a URL may hold a password."""
    with served(sqlite_url, tmp_path) as service:
        service.ready()
        shown = [
            Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
            for pid in (decider(service), recorder(service))
        ]
    assert shown == [
        [sys.executable, "-P", "-m", f"policy.server.extender.{name}", ""]
        for name in ("worker", "recording")
    ]


def test_a_service_that_no_scheduler_calls_has_one_process(sqlite_url: str, tmp_path: Path) -> None:
    """Without `--environment` the other one is started by the first call."""
    with served(sqlite_url, tmp_path, "--deadline", 60, environment="") as service:
        service.ready()
        assert service.get("/decisions").status_code == 200
        assert children(service.process.pid) == []
        answer = service.post("/extender/prod/preempt", a_call("high"))
        assert (answer.status_code, len(children(service.process.pid))) == (200, 1)
        assert service.stop() == 0
    with Store.open(sqlite_url) as store:
        (row,) = store.read.decisions("default")
        call = store.read.decision(row.id).served
        assert call is not None
        assert (row.preemptor, call.failure) == ("shop/high", "")


def test_a_process_that_stands_still_is_not_called_ready(sqlite_url: str, tmp_path: Path) -> None:
    """Its own last words said that it was; it is again when something is heard of it."""
    ready = 'policy_environment_ready{environment="prod"} '
    with served(sqlite_url, tmp_path, "--deadline", 1) as service:
        service.ready()
        pid = decider(service)
        os.kill(pid, signal.SIGSTOP)
        assert service.preempt(a_call("high")) == {"n0": ["uid-low"]}
        found = service.get("/readyz").status_code, ready + "0.0" in service.get("/metrics").text
        os.kill(pid, signal.SIGCONT)
        service.ready()
        log = service.log.read_text()
        assert (found, ready + "1.0" in service.get("/metrics").text) == ((503, True), True)
    assert "not ready: the process that decides stands still" in log


@pytest.mark.parametrize("environment", ["prod", ""])
def test_spooled_calls_of_every_environment_are_recorded_from_the_start(
    sqlite_url: str, tmp_path: Path, environment: str
) -> None:
    """No call has to come first; one for what the spool alone names is still an error."""
    made(sqlite_url, "a/b")
    with Store.open(sqlite_url) as store:
        serving.activate(store, "kube-1.35", environment="a/b")
    spool, unfinished = (
        Spool(tmp_path / "policy-spool"),
        tmp_path / "policy-spool" / "1-1-x.unfinished",
    )
    for name in ("a/b", "nowhere"):
        spool.add(spooled(name)).result(60)
    unfinished.write_bytes(b"part of a call")
    with served(sqlite_url, tmp_path, environment=environment) as service:
        until(lambda: spool.depth() == 0, "they stay in the spool")
        service.ready()
        assert not unfinished.exists()
        answer = service.post("/extender/nowhere/preempt", a_call("other"))
        assert answer.status_code == 404
        log = service.log.read_text()
        assert log.count("a spooled call is in no record") == 1
        own = f"environment `{environment}`" if environment else "the environments that they name"
        said = f"calls are answered in shadow mode, for {own}; without a decision, by `--on-failure"
        assert f"INFO policy.server: {said} pass-through`\n" in log
        assert service.stop() == 0
    with Store.open(sqlite_url) as store:
        found = [(row.preemptor, row.environment) for row in store.read.decisions("default")]
        assert found == [("shop/high", "a/b")]


def test_alike_calls_of_one_millisecond_are_all_recorded(sqlite_url: str, tmp_path: Path) -> None:
    """Also where a file is still there whose calls were recorded; those are not, once more."""
    folder = tmp_path / "policy-spool"
    spool = Spool(folder)
    calls = [*[spooled("prod")] * 3, spooled("prod", caller="ann"), spooled("prod", mode="enforce")]
    for kept in [spool.add(call) for call in calls]:
        kept.result(60)
    copies = [(file, file.read_bytes()) for file in folder.iterdir()]
    with served(sqlite_url, tmp_path):
        until(lambda: list(folder.iterdir()) == [], "they stay in the spool")
        for file, content in copies:
            file.write_bytes(content)
        until(lambda: list(folder.iterdir()) == [], "they stay in the spool again")
    with Store.open(sqlite_url) as store:
        found = [store.read.decision(row.id).served for row in store.read.decisions("default")]
    assert sorted((call.mode.value, call.caller) for call in found if call) == [
        ("enforce", ""),
        *[("shadow", "")] * 3,
        ("shadow", "ann"),
    ]


def test_services_that_share_a_spool_record_its_calls_once(
    database_url: str, tmp_path: Path
) -> None:
    """Both take the same calls from it at the same time."""
    a_cluster(database_url)
    folder = tmp_path / "policy-spool"
    spool = Spool(folder)
    for number in range(40):  # each in a file of its own
        spool.add(spooled("prod", pod=f"high-{number}")).result(60)
    with served(database_url, tmp_path) as one, served(database_url, tmp_path) as other:
        until(lambda: list(folder.iterdir()) == [], "they stay in the spool")
        assert (one.stop(), other.stop()) == (0, 0)
        assert "Traceback" not in one.log.read_text() + other.log.read_text()
    with Store.open(database_url) as store:
        found = sorted(row.preemptor for row in store.read.decisions("default", limit=100))
        assert found == sorted(f"shop/high-{number}" for number in range(40))
        assert store.ledger.verify().ok


def test_a_call_whose_commit_waits_is_recorded_once_by_services_that_share_a_spool(
    postgres_template: str, make_postgres: Callable[[str | None], str], tmp_path: Path
) -> None:
    """The other one finds it in the spool meanwhile."""
    url = a_cluster(make_postgres(postgres_template))
    with Store.open(url) as store:
        slow_commit_of(store, "shop/high", seconds=6)
    folder = tmp_path / "policy-spool"
    with served(url, tmp_path, "--deadline", 1) as one, served(url, tmp_path) as another:
        one.ready()
        another.ready()
        assert one.preempt(a_call("before")) == {"n0": ["uid-low"]}
        assert one.preempt(a_call("high")) == {"n0": ["uid-low"]}
        assert len(list(folder.iterdir())) == 1
        until(lambda: list(folder.iterdir()) == [], "it stays in the spool")
        assert (one.stop(), another.stop()) == (0, 0)
        assert "Traceback" not in one.log.read_text() + another.log.read_text()
    with Store.open(url) as store:
        found = [row.preemptor for row in store.read.decisions("default")]
        assert found == ["shop/high", "shop/before"]
        assert store.ledger.verify().ok


def spooled(
    environment: str, *, pod: str = "high", mode: str = "shadow", caller: str = ""
) -> SpooledCall:
    return SpooledCall(
        environment=environment,
        mode=mode,
        caller=caller,
        answer="offered",
        failure="the database is locked",
        arrived_ms=serving.NOW_MS,
        duration_us=7,
        body=json.dumps(a_call(pod)).encode(),
    )


# --- environments without rules -------------------------------------------------------------------


def refused(environment: str) -> dict[str, object]:
    return {
        "type": "/api/v1/problems/conflict",
        "title": "The request does not go with the present state",
        "status": 409,
        "detail": f"environment `{environment}` has no active rule set",
        "help": f'activate one: `policy env activate {environment} RULES --reason "..."`',
    }


def made(url: str, environment: str) -> None:
    """An environment that has no rules."""
    with Store.open(url) as store:
        at = {"at_ms": serving.NOW_MS, "actor": "test"}
        store.record.create_environment(environment, "default", **at)


def test_an_environment_without_rules_is_its_own_affair(database_url: str, tmp_path: Path) -> None:
    """A call for it is an error in words, kept nowhere; the service stays ready for its own.

    From the activation on its calls are decided.
    """
    made(a_cluster(database_url), "empty2")
    service = serving.serve(database_url, tmp_path, "--extender-mode", "enforce")
    service.ready()
    try:
        calls = [service.post("/extender/empty2/preempt", a_call(f"p{i}")) for i in range(3)]
        assert [(one.status_code, one.json()) for one in calls] == [(409, refused("empty2"))] * 3
        time.sleep(1.5)  # it looks around once a second
        figures = service.get("/metrics").text
        assert (service.get("/readyz").status_code, "policy_spool_depth 0.0" in figures) == (
            200,
            True,
        )
        assert 'policy_environment_ready{environment="empty2"} 0.0' in figures
        assert 'policy_environment_ready{environment="prod"} 1.0' in figures
        assert service.preempt(a_call("own")) == {"n0": ["uid-low"]}
        log = service.log.read_text()
        assert log.count("no calls for `empty2` are decided: environment `empty2` has no") == 1
        with Store.open(database_url) as store:
            serving.activate(store, "kube-1.35", environment="empty2")
        answer = service.post("/extender/empty2/preempt", a_call("later"))
        # The room on its node was promised just before: it is decided, and not refused.
        assert (answer.status_code, answer.json()) == (200, {"NodeNameToMetaVictims": {}})
        assert list((tmp_path / "policy-spool").iterdir()) == []
    finally:
        assert service.stop() == 0


def test_a_spool_that_cannot_be_written_ends_no_desk(sqlite_url: str, tmp_path: Path) -> None:
    """A call of an environment without rules cannot be let go of; with rules it is recorded."""
    made(sqlite_url, "empty2")
    folder = tmp_path / "policy-spool"
    folder.mkdir()
    calls = folder / f"{serving.NOW_MS}-2-x.calls"
    calls.write_bytes(msgspec.msgpack.encode([spooled("empty2"), spooled("empty2", pod="other")]))
    in_the_way = folder / f"{serving.NOW_MS}-1-x.calls"  # the name when one of them is done
    in_the_way.mkdir()
    with served(sqlite_url, tmp_path) as service:
        service.ready()
        refusal = "spooled calls of `empty2` are not recorded: "
        until(lambda: refusal in service.log.read_text(), "the log does not say it")
        with Store.open(sqlite_url) as store:
            serving.activate(store, "kube-1.35", environment="empty2")
        ready = 'policy_environment_ready{environment="empty2"} 1.0'
        until(lambda: ready in service.get("/metrics").text, "nothing is decided")
        in_the_way.rmdir()
        until(lambda: list(folder.iterdir()) == [], "they stay in the spool")
        assert (service.log.read_text().count(refusal), service.stop()) == (1, 0)
    with Store.open(sqlite_url) as store:
        found = [(row.preemptor, row.environment) for row in store.read.decisions("default")]
    assert found == [("shop/other", "empty2"), ("shop/high", "empty2")]


def a_desk(store: Store, environment: str, recorder: Recorder, spool: Spool) -> Desk:
    """One that looks around twenty times a second."""
    return Desk(
        store,
        environment,
        clock=lambda: serving.NOW_MS,
        recorder=recorder,
        spool=spool,
        poll_seconds=0.05,
        ending=threading.Event(),
    )


def test_a_database_that_goes_during_a_look_ends_no_desk(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone after it said that there is no such environment, and before it names those."""
    path, away = Path(sqlite_url), tmp_path / "away.db"
    named = ReadFace.environments

    def gone(read: ReadFace) -> list[EnvironmentRow]:
        path.rename(away)
        return named(read)

    monkeypatch.setattr(ReadFace, "environments", gone)
    with Store.open(sqlite_url) as store, recorder_of(store) as recorder:
        desk = a_desk(store, "later", recorder, Spool(tmp_path / "spool"))
        desk.open()
        until(lambda: "is gone" in desk.problem, "it does not look again")
        away.rename(path)
        monkeypatch.undo()
        until(lambda: desk.missing, "it does not say that there is none")
        made(sqlite_url, "later")
        with Store.open(sqlite_url) as other:
            serving.activate(other, "kube-1.35", environment="later")
        until(lambda: desk.problem == "", "it stays as it was")
        assert (desk.missing, desk.close(seconds=60)) == (False, True)


def test_a_call_that_waits_for_a_newer_state_does_not_outlast_its_patience(
    sqlite_url: str, tmp_path: Path
) -> None:
    """Not either where no state can be read, and nothing of it, such as its body, is kept."""
    path, away = Path(sqlite_url), tmp_path / "away.db"
    unknown = a_call("high")
    unknown["NodeNameToMetaVictims"]["n0"]["Pods"] = [{"UID": "uid-not-yet"}]
    with Store.open(sqlite_url) as store, recorder_of(store) as recorder:
        record = partial(store.record.import_objects, at_ms=serving.NOW_MS, source="test")
        record("default", from_dicts([{"kind": "Namespace", "metadata": {"name": "shop"}}]))
        desk = a_desk(store, "prod", recorder, Spool(tmp_path / "spool"))
        desk.open()
        until(lambda: desk.problem == "", "the state is not loaded")

        def submitted() -> PreemptCall:
            call = PreemptCall(
                request=read_preempt(msgspec.json.encode(unknown)),
                mode=CallMode.ENFORCE,
                caller="",
                arrived_ms=serving.NOW_MS,
                seconds=_ENOUGH,
                patience=0.5,
            )
            desk.submit(call)
            return call

        assert submitted().said.result(_ENOUGH).outcome == "no-candidate"
        path.rename(away)
        until(lambda: "is gone" in desk.problem, "it does not look again")
        call = submitted()
        failure = call.said.exception(_ENOUGH / 4)
        assert (call.held, type(failure), desk._held) == (True, Unavailable, {})
        away.rename(path)
        until(lambda: desk.problem == "", "it stays as it was")
        assert desk.close(seconds=60)


def test_a_known_refusal_of_a_spooled_call_is_one_line(
    sqlite_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It says why, where the call is kept, and how it is tried again; a traceback says no more."""

    def damaged(*_: object) -> bool:
        raise DamagedRows("decision 7 is damaged", help="see `policy audit verify`")

    monkeypatch.setattr(ReadFace, "key_is_taken", damaged)
    spool = Spool(tmp_path / "spool")
    spool.add(spooled("prod")).result(60)
    with Store.open(sqlite_url) as store, recorder_of(store) as recorder:
        desk = a_desk(store, "prod", recorder, spool)
        desk.open()
        until(lambda: spool.depth() == 0, "it stays in the spool")
        (kept,) = (tmp_path / "spool").iterdir()
        until(lambda: bool(caplog.records), "the log does not say it")
        assert desk.close(seconds=60)
    assert [(one.getMessage(), one.exc_info) for one in caplog.records] == [
        (
            f"a spooled call cannot be recorded; it is kept in `{kept}`, and is tried again where"
            " that is renamed to end in `.calls`: decision 7 is damaged"
            " (see `policy audit verify`)",
            None,
        )
    ]
    assert kept.suffix == ".refused"


def test_calls_of_an_environment_without_rules_do_not_stay_in_the_spool(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """They came while the database could not be asked; they can never be judged."""
    url = str(tmp_path / "policy.db")
    Path(url).write_bytes(sqlite_template.read_bytes())
    made(a_cluster(url), "empty2")
    Spool(tmp_path / "policy-spool").add(spooled("empty2")).result(60)
    service = serving.serve(url, tmp_path, "--extender-mode", "enforce")
    try:
        service.ready()
        assert service.post("/extender/empty2/preempt", a_call("more")).status_code == 409
        said = "a spooled call is in no record: environment"
        until(lambda: said in service.log.read_text(), "the log does not say it")
        assert list((tmp_path / "policy-spool").iterdir()) == []
        assert service.log.read_text().count(said) == 1
    finally:
        assert service.stop() == 0


def test_a_service_ends_in_time_though_a_call_may_take_longer(
    sqlite_url: str, tmp_path: Path
) -> None:
    """Ten seconds are given; the call is answered by `--on-failure`, and waits in the spool."""
    spool = Spool(tmp_path / "policy-spool")
    given = ("--extender-mode", "enforce", "--deadline", "60")
    with served(sqlite_url, tmp_path, *given) as service:
        service.ready()
        with held_up(sqlite_url, service) as answered:
            service.process.terminate()
            status = service.process.wait(10)
        assert (status, answered) == (0, [{}])
        assert "Traceback" not in service.log.read_text()
    (waiting,) = spool.waiting("prod")
    assert waiting.call.failure == "no decision was recorded before the service ended"
    with Store.open(sqlite_url) as store:
        assert store.read.decisions("default") == []
