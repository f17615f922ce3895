"""Bodies of requests: each has a limit, and all that are under way have one together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from starlette.requests import Request
from starlette.types import Message

from policy.server.http import Failure, Room, body_of


def read(parts: list[bytes], *, limit: int, take: Callable[[int], None]) -> bytes:
    """The body of a request that arrives in these parts."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": "http.request", "body": b"", "more_body": False})

    async def receive() -> Message:
        return messages.pop(0)

    request = Request({"type": "http", "method": "POST", "headers": []}, receive)
    return asyncio.run(body_of(request, limit=limit, take=take))


def refused(parts: list[bytes], *, limit: int, take: Callable[[int], None]) -> tuple[int, str]:
    with pytest.raises(Failure) as found:
        read(parts, limit=limit, take=take)
    return found.value.status, found.value.message


def test_bodies_that_are_under_way_share_a_room() -> None:
    """Who finds none is refused and gives back what it took; room is free again afterwards."""
    room = Room(16)
    full = (503, "the bodies of other requests take up the 16 bytes there are")
    with room.share("one") as first:
        assert read([b"abcdef", b"ghijkl"], limit=16, take=first) == b"abcdefghijkl"
        with room.share("two") as second:
            assert refused([b"abc", b"de"], limit=16, take=second) == full
        with room.share("two") as third:
            assert read([b"abc"], limit=16, take=third) == b"abc"
    with room.share("two") as fourth:
        assert read([b"abcdefghijkl"], limit=16, take=fourth) == b"abcdefghijkl"


def test_bodies_of_one_caller_leave_room_for_those_of_others() -> None:
    """Three quarters of what the others leave are its part, over how many requests they may be."""
    room = Room(16)
    part = (
        "the bodies of other requests of the same caller take up its part of the 16 bytes there are"
    )
    with room.share("one") as first, room.share("one") as second, room.share("two") as other:
        assert read([b"abcdef"], limit=16, take=first) == b"abcdef"
        assert refused([b"abcdefg"], limit=16, take=second) == (503, part)
        assert read([b"abcdef"], limit=16, take=second) == b"abcdef"
        assert refused([b"abcd"], limit=16, take=other) == (503, part)
        assert read([b"abc"], limit=16, take=other) == b"abc"


def test_a_body_has_a_limit_of_its_own() -> None:
    with Room(100).share("one") as take:
        told = (413, "the body is larger than the 4 bytes allowed")
        assert refused([b"abc", b"de"], limit=4, take=take) == told
