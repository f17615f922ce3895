"""Who may say what a call of a scheduler is answered: its decision, or whoever waits for it."""

from __future__ import annotations

import asyncio
import io
import time

import msgspec
import pytest

from policy.server.extender import channel
from policy.server.extender.call import Deadline, GivenUp, PreemptCall
from policy.server.extender.wire import PreemptRequest, read_preempt
from policy.store.model.decisions import CallMode


def a_request() -> PreemptRequest:
    """Of a body that is too long to be sent, or read, at once."""
    pod = {"metadata": {"name": "high", "namespace": "web", "uid": "u", "x": "x" * 300_000}}
    victims = {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}}
    return read_preempt(msgspec.json.encode({"Pod": pod, "NodeNameToMetaVictims": victims}))


def a_call(*, seconds: float) -> PreemptCall:
    return PreemptCall(
        request=a_request(),
        mode=CallMode.ENFORCE,
        caller="",
        arrived_ms=1,
        started=time.monotonic(),
        seconds=seconds,
    )


def test_what_is_being_committed_is_the_answer() -> None:
    """Until the commit has failed."""
    call = a_call(seconds=60)
    call.claim()
    assert not call.give_up()
    call.reopen()
    assert (call.give_up(), call.given_up) == (True, True)
    with pytest.raises(GivenUp):
        call.claim()


def test_nothing_is_committed_after_the_deadline() -> None:
    """Who waits gives up then, though that may be heard here much later."""
    call = a_call(seconds=-1)
    with pytest.raises(GivenUp):
        call.claim()
    assert (call.given_up, call.give_up()) == (True, True)


@pytest.mark.parametrize(
    ("left", "seconds", "to_write"),
    [(800, 1000, 600), (0, 1000, 0.2), (-5, 1000, 0.2), (0, 0.4, 0.2), (0, 0.1, 0.05)],
)
def test_what_is_written_may_take_as_long_as_the_call_can_still_be_answered(
    left: float, seconds: float, to_write: float
) -> None:
    """By twice its time a call that is being written is given up as in doubt."""
    deadline = Deadline(time.monotonic() + left, seconds)
    assert deadline.seconds_to_write() == pytest.approx(to_write, rel=0.1)


def test_messages_arrive_as_they_were_sent() -> None:
    """Both ways, one behind the other; what is cut off is no message."""
    call = channel.Call(
        request=a_request(),
        environment="prod",
        mode="enforce",
        caller="scheduler",
        arrived_ms=5,
        started=1.5,
        seconds=1.0,
        patience=0.75,
        traced=True,
    )
    sent = channel.frame(call, call=7) + channel.frame(channel.Stop(seconds=8.0))
    file = io.BytesIO(sent)
    assert [channel.read(file) for _ in range(3)] == [
        (call, 7, b""),
        (channel.Stop(seconds=8.0), 0, b""),
        None,
    ]
    assert [channel.read(io.BytesIO(sent[:end])) for end in (0, 15, 20, 300_000)] == [None] * 4

    step = channel.Step(name="decide", start_ns=1, end_ns=2, attributes={"a": 1, "b": "c"})
    answered = channel.Answered(outcome="preempt", steps=[step])
    failed = channel.Failed(kind=channel.STORE, text="locked", steps=[])

    async def received() -> list[tuple[channel.FromDesks, int, bytes]]:
        reader = asyncio.StreamReader()
        reader.feed_data(
            channel.frame(answered, call=1, body=b"{}") + channel.frame(failed, call=2)
        )
        reader.feed_eof()
        found = [await channel.arrived(reader) for _ in range(2)]
        with pytest.raises(asyncio.IncompleteReadError):
            await channel.arrived(reader)
        return found

    assert asyncio.run(received()) == [(answered, 1, b"{}"), (failed, 2, b"")]
