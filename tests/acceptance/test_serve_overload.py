"""More calls than can be decided: those that can be answered in time are, the others at once."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Self

import pytest

from policy.server.extender import routes, wire
from policy.server.extender.call import PreemptCall
from policy.server.extender.desk import Desk, Overloaded
from policy.server.extender.spool import Spool, SpooledCall
from policy.store import Store
from policy.store.model.decisions import CallMode
from tests.support import serving
from tests.support.recording import recorder_of
from tests.support.serving import preempts

_ENOUGH = 120.0


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(serving.filled(database_url)) as opened:
        yield opened


@pytest.fixture
def desk(store: Store, tmp_path: Path) -> Iterator[Desk]:
    """One that takes calls and does not work yet."""
    with recorder_of(store) as recorder:
        yield Desk(
            store,
            "prod",
            clock=lambda: serving.NOW_MS,
            recorder=recorder,
            spool=Spool(tmp_path / "spool"),
            poll_seconds=60,
            ending=threading.Event(),
        )


def a_call(number: int, *, seconds: float) -> PreemptCall:
    return PreemptCall(
        request=wire.read_preempt(preempts("b")[number]["request"].encode()),
        mode=CallMode.SHADOW,
        caller="",
        arrived_ms=serving.NOW_MS,
        seconds=seconds,
    )


def test_a_call_that_cannot_be_answered_in_time_holds_up_no_other(store: Store, desk: Desk) -> None:
    late, early = a_call(0, seconds=0.0), a_call(1, seconds=_ENOUGH)
    for call in (late, early):
        desk.submit(call)
    desk.open()
    try:
        with pytest.raises(Overloaded, match="too little of its deadline is left to decide it"):
            late.said.result(_ENOUGH)
        decided = early.said.result(_ENOUGH).decision_id
    finally:
        assert desk.close(seconds=_ENOUGH)
    assert [row.id for row in store.read.decisions("default")] == [decided]


def test_slow_rows_do_not_keep_new_calls_out(store: Store, desk: Desk) -> None:
    """What a row takes is learned from calls that were tried, so those that just came are tried."""
    desk._lasts = 10 * _ENOUGH
    call = a_call(0, seconds=_ENOUGH)
    desk.submit(call)
    desk.open()
    try:
        assert call.said.result(_ENOUGH).outcome == "preempt"
    finally:
        assert desk.close(seconds=_ENOUGH)
    assert desk._lasts < 10 * _ENOUGH


def test_only_a_call_whose_commit_said_nothing_may_have_been_decided(
    store: Store, desk: Desk, tmp_path: Path
) -> None:
    """It is not recorded once more; one that is like it, and was not decided, is."""
    call = a_call(0, seconds=_ENOUGH)
    desk.submit(call)
    desk.open()
    try:
        decided = call.said.result(_ENOUGH).decision_id
    finally:
        assert desk.close(seconds=_ENOUGH)
    spool = Spool(tmp_path / "spool")
    failures = {"nothing was heard": True, "more calls wait": False}
    for failure, doubtful in failures.items():
        kept = SpooledCall(
            environment="prod",
            mode=call.mode.value,
            caller=call.caller,
            answer="offered",
            failure=failure,
            arrived_ms=call.arrived_ms,
            duration_us=7,
            body=preempts("b")[0]["request"].encode(),
            doubtful=doubtful,
        )
        spool.add(kept).result(60)
    while spool.depth():
        desk._look_around()
    found = [store.read.decision(row.id) for row in store.read.decisions("default")]
    assert {(one.row.id == decided, one.served and one.served.failure) for one in found} == {
        (True, ""),
        (False, "more calls wait"),
    }


class Body(bytes):
    """A body that says how many of its kind are still in memory."""

    alive: ClassVar[int] = 0

    def __new__(cls, content: bytes) -> Self:
        cls.alive += 1
        return super().__new__(cls, content)

    def __del__(self) -> None:
        Body.alive -= 1


def test_what_cannot_be_read_is_freed_without_the_collector() -> None:
    """The exception that says so holds frames, and none of them it."""

    async def refused() -> None:
        for _ in range(3):
            with suppress(wire.BadRequest):
                await routes._read(wire.read_preempt, Body(b"no JSON"))
        await asyncio.sleep(0.1)  # the threads let go

    gc.disable()
    try:
        asyncio.run(refused())
        assert Body.alive == 0
    finally:
        gc.enable()
