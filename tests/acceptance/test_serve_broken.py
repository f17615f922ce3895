"""What schedulers are answered while the database is away, slow, or lost during a commit."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import psycopg
import pytest

from policy.server.extender.spool import Spool, SpooledCall
from policy.store import Store
from tests.support import serving
from tests.support.broken_wire import BrokenWire
from tests.support.commits import slow_commit_of
from tests.support.serving import Serving, preempts

CALLS = [json.loads(one["request"]) for one in preempts("b")]
RULES = "kube-1.35"
DEADLINE = 2.0


@pytest.fixture
def wire(make_postgres: Callable[[str], str], postgres_template: str) -> Iterator[BrokenWire]:
    """On the way to a database with environments `prod` and `other`."""
    url = make_postgres(postgres_template)
    with Store.open(serving.filled(url)) as store:
        store.record.create_environment("other", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, RULES, environment="other")
    found = BrokenWire(url)
    yield found
    found.close()


def started(wire: BrokenWire, folder: Path, *options: object) -> Serving:
    service = serving.serve(wire.url, folder, *options)
    service.ready()
    return service


def pod_of(request: dict[str, Any]) -> str:
    meta = request["Pod"]["metadata"]
    return f"{meta['namespace']}/{meta['name']}"


def recorded(wire: BrokenWire, request: dict[str, Any]) -> list[tuple[str, str]]:
    """Of the decisions about the pod of a call: how it was answered, and why not otherwise."""
    with Store.open(wire.url) as store:
        rows = store.read.decisions("default", preemptor=pod_of(request))
        calls = [store.read.decision(row.id).served for row in rows]
        return [(call.answer.value, call.failure) for call in calls if call is not None]


def waits_in(folder: Path) -> list[Path]:
    return list((folder / "policy-spool").glob("*"))


def spooled(request: dict[str, Any], *, mode: str = "shadow") -> SpooledCall:
    """A call that was answered while the database was locked."""
    return SpooledCall(
        environment="prod",
        mode=mode,
        caller="",
        answer="offered",
        failure="the database is locked",
        arrived_ms=serving.NOW_MS,
        duration_us=7,
        body=json.dumps(request).encode(),
    )


def until(found: Callable[[], bool], *, seconds: float = 30) -> bool:
    end = time.monotonic() + seconds
    while not found():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


def broken_commit(wire: BrokenWire, service: Serving) -> httpx.Response:
    """The answer to a call whose commit succeeds, but whose confirmation is lost."""
    first = service.post("/extender/preempt", CALLS[1])
    assert first.status_code == 200
    wire.commits_to_break = 1
    answer = service.post("/extender/preempt", CALLS[0])
    assert wire.broken == 1
    return answer


def test_what_may_be_committed_is_answered_in_no_other_way(
    wire: BrokenWire, tmp_path: Path
) -> None:
    """The call fails, as where the process is killed: the record has the decision, or has none."""
    service = started(wire, tmp_path, "--extender-mode", "enforce", "--on-failure", "pass-through")
    answer = broken_commit(wire, service)
    assert (answer.status_code, "is in the record" in answer.json()["detail"]) == (503, True)
    assert (recorded(wire, CALLS[0]), waits_in(tmp_path)) == ([("chosen", "")], [])
    assert until(lambda: service.post("/extender/preempt", CALLS[1]).status_code == 200)
    assert service.stop() == 0


def test_in_shadow_mode_it_is_the_same_answer_either_way(wire: BrokenWire, tmp_path: Path) -> None:
    service = started(wire, tmp_path, "--on-failure", "deny")
    answer = broken_commit(wire, service)
    assert answer.status_code == 200
    assert set(answer.json()["NodeNameToMetaVictims"]) == set(CALLS[0]["NodeNameToMetaVictims"])
    assert until(lambda: not waits_in(tmp_path))
    assert (recorded(wire, CALLS[0]), service.stop()) == ([("offered", "")], 0)


@pytest.mark.parametrize(("mode", "status"), [("enforce", 503), ("shadow", 200)])
def test_a_commit_that_waits_is_answered_in_no_other_way(
    wire: BrokenWire, tmp_path: Path, mode: str, status: int
) -> None:
    """When it ends the decision is recorded, and once."""
    with Store.open(wire.url) as store:
        slow_commit_of(store, pod_of(CALLS[0]), seconds=6)
    service = started(wire, tmp_path, "--extender-mode", mode, "--deadline", 2)
    assert service.post("/extender/preempt", CALLS[1]).status_code == 200
    assert service.post("/extender/preempt", CALLS[0]).status_code == status
    assert until(lambda: len(recorded(wire, CALLS[0])) > 0)
    assert until(lambda: not waits_in(tmp_path))
    answer = "chosen" if mode == "enforce" else "offered"
    assert (recorded(wire, CALLS[0]), service.stop()) == ([(answer, "")], 0)


LOCKED: Final = "LOCK TABLE victims IN ACCESS EXCLUSIVE MODE"


@pytest.mark.parametrize(
    ("mode", "on_failure", "answer"),
    [
        ("enforce", "pass-through", "offered"),
        ("enforce", "deny", "none"),
        ("shadow", "pass-through", "offered"),
    ],
)
def test_a_decision_that_waits_for_a_lock_is_taken_back_in_time(
    wire: BrokenWire, tmp_path: Path, mode: str, on_failure: str, answer: str
) -> None:
    """As of `VACUUM FULL`; when the lock is gone the call is recorded as it was answered."""
    options = ("--extender-mode", mode, "--on-failure", on_failure, "--deadline", DEADLINE)
    service = started(wire, tmp_path, *options)
    assert service.post("/extender/preempt", CALLS[1]).status_code == 200
    with psycopg.connect(wire.url) as other:
        other.execute(LOCKED)
        given = service.post("/extender/preempt", CALLS[0])
        offered = CALLS[0]["NodeNameToMetaVictims"]
        assert given.status_code == 200
        assert set(given.json()["NodeNameToMetaVictims"]) == set(
            offered if answer != "none" else ()
        )
    assert until(lambda: len(recorded(wire, CALLS[0])) > 0)
    assert until(lambda: not waits_in(tmp_path))
    assert recorded(wire, CALLS[0]) == [(answer, "the database could not take it")]
    assert "did not execute a statement in time" in service.log.read_text()
    assert service.stop() == 0


def test_calls_that_wait_for_a_lock_together_are_answered_and_recorded_once(
    wire: BrokenWire, tmp_path: Path
) -> None:
    """Also those that were decided on the state that another one would have led to."""
    options = ("--extender-mode", "enforce", "--on-failure", "deny", "--deadline", DEADLINE)
    service = started(wire, tmp_path, *options)
    calls = list({pod_of(one): one for one in CALLS}.values())[:8]
    with ThreadPoolExecutor(len(calls)) as schedulers, psycopg.connect(wire.url) as other:
        other.execute(LOCKED)
        given = list(schedulers.map(lambda one: service.post("/extender/preempt", one), calls))
    assert [(one.status_code, one.json()["NodeNameToMetaVictims"]) for one in given] == [
        (200, {}) for _ in calls
    ]
    assert until(lambda: not waits_in(tmp_path))
    found = [recorded(wire, one) for one in calls]
    assert [[answer for answer, _ in of] for of in found] == [["none"] for _ in calls]
    assert all(failure for [(_, failure)] in found)
    assert service.stop() == 0


def test_a_lock_that_is_gone_in_time_changes_nothing(wire: BrokenWire, tmp_path: Path) -> None:
    service = started(wire, tmp_path, "--extender-mode", "enforce", "--deadline", 30)
    with ThreadPoolExecutor(1) as scheduler, psycopg.connect(wire.url) as other:
        other.execute(LOCKED)
        asked = scheduler.submit(service.post, "/extender/preempt", CALLS[0])
        time.sleep(1)
        other.commit()
        assert asked.result(60).status_code == 200
    assert (recorded(wire, CALLS[0]), service.stop()) == ([("chosen", "")], 0)


def test_a_call_for_any_environment_is_answered_in_time(wire: BrokenWire, tmp_path: Path) -> None:
    """Also for one that has to be looked up first, and while pages wait for the database."""
    service = started(wire, tmp_path, "--deadline", DEADLINE)
    nodes = {"Pod": CALLS[0]["Pod"], "Nodes": None, "NodeNames": ["w-1"]}
    large = {**CALLS[0], "more": "x" * (2 << 20)}
    asked = {
        "/extender/filter": nodes,
        "/extender/other/filter": nodes,
        "/extender/other/preempt": CALLS[0],
        "/extender/prod/preempt": large,
        "/extender/none/preempt": CALLS[1],
    }
    with ThreadPoolExecutor(20) as others:
        with wire.standing_still():
            pages = [others.submit(service.get, "/readyz") for _ in range(12)]
            time.sleep(0.2)
            took = {}
            for path, body in asked.items():
                began = time.monotonic()
                answer = service.post(path, json.dumps(body).encode())
                took[path] = (answer.status_code, time.monotonic() - began < 3 * DEADLINE)
        for page in pages:
            page.result(60)
    assert took == dict.fromkeys(asked, (200, True))
    # Those of an environment that there is come into the record, the others are let go of.
    assert until(lambda: len(recorded(wire, CALLS[0])) == 2)
    assert until(lambda: not waits_in(tmp_path))
    assert recorded(wire, CALLS[1]) == []
    assert service.post("/extender/other/preempt", CALLS[2]).status_code == 200
    assert service.post("/extender/none/preempt", CALLS[2]).status_code == 404
    assert service.stop() == 0


def test_a_spooled_call_that_cannot_be_recorded_holds_up_no_other(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """It is set aside, by this process and so for all later ones; calls are decided."""
    url = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, url)
    spool = Spool(tmp_path / "policy-spool")
    unreadable = deepcopy(CALLS[1])
    unreadable["Pod"]["metadata"]["uid"] = "unknown"
    unreadable["Pod"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "zz"}}
    given = (("of no such mode", CALLS[1]), ("shadow", unreadable), ("shadow", CALLS[0]))
    for mode, request in given:
        spool.add(spooled(request, mode=mode)).result(60)
    service = serving.serve(serving.filled(url), tmp_path)
    service.ready()
    assert until(lambda: not list((tmp_path / "policy-spool").glob("*.calls")))
    assert [file.suffix for file in waits_in(tmp_path)] == [".refused"] * 2
    said = "a spooled call cannot be recorded; it is kept in"
    assert until(lambda: service.log.read_text().count(said) == 2)
    assert "requests.cpu: `zz` is not a quantity" in service.log.read_text()
    assert service.post("/extender/preempt", CALLS[2]).status_code == 200
    assert (service.get("/readyz").status_code, service.stop()) == (200, 0)
    with Store.open(url) as store:
        assert len(store.read.decisions("default")) == 2


def test_files_of_the_spool_that_cannot_be_read_are_set_aside(
    tmp_path: Path, sqlite_template: Path
) -> None:
    """The log names them, what can be read of them is recorded, and nothing waits any more."""
    url = str(tmp_path / "policy.db")
    shutil.copy(sqlite_template, url)
    folder = tmp_path / "policy-spool"
    folder.mkdir()
    calls = [spooled(request) for request in CALLS[:2]]
    cut = folder / f"{serving.NOW_MS}-2-cut.calls"
    cut.write_bytes(msgspec.msgpack.encode(calls)[:-200])
    (folder / f"{serving.NOW_MS}-1-abc.calls").write_bytes(b"garbage\n")
    (folder / "foo.calls").write_bytes(b"")
    (folder / "folder.calls").mkdir()
    service = serving.serve(serving.filled(url), tmp_path)
    service.ready()
    assert until(lambda: sum(file.suffix == ".refused" for file in waits_in(tmp_path)) == 3)
    assert "\npolicy_spool_depth 0.0\n" in service.get("/metrics").text
    log = service.log.read_text()
    assert service.stop() == 0
    said = [line for line in log.splitlines() if "spooled calls in" in line]
    assert sorted(line.split("`")[1] for line in said) == [
        f"policy-spool/{name}.calls"
        for name in (f"{serving.NOW_MS}-1-abc", f"{serving.NOW_MS}-1-cut", "folder", "foo")
    ]
    with Store.open(url) as store:
        assert len(store.read.decisions("default")) == 1


def test_a_key_stays_taken_where_a_write_may_be_committed(wire: BrokenWire, tmp_path: Path) -> None:
    """Sent again under its `Idempotency-Key`, a rollback that took place is not done once more."""
    with Store.open(wire.url) as store:
        for rules in ("kube-1.30", "kube-1.28"):
            serving.activate(store, rules, environment="other")
    service = started(wire, tmp_path)
    headers = {"Content-Type": "application/json", "Idempotency-Key": "back"}

    def sent() -> tuple[int, str]:
        path = "/api/v1/environments/other/rollback"
        answer = service.post(path, {"reason": "test"}, headers=headers)
        return answer.status_code, answer.json()["detail"]

    wire.breaks_after, wire.commits_to_break = b"INSERT INTO activations", 1
    assert (sent(), wire.broken) == ((503, "the database cannot answer now"), 1)
    again = "the first request with this `Idempotency-Key` has no answer yet"
    assert sent() == (409, again)
    with Store.open(wire.url) as store:
        active = [row.rule_set for row in store.read.activations("other")]
    assert active == ["kube-1.30", "kube-1.28", "kube-1.30", RULES]
    assert service.stop() == 0
