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
    room = Room(10)
    full = (503, "the bodies of other requests take up the 10 bytes there are")
    with room.share() as first:
        assert read([b"abc", b"def"], limit=10, take=first) == b"abcdef"
        with room.share() as second:
            assert refused([b"ghij", b"k"], limit=10, take=second) == full
        with room.share() as third:
            assert read([b"ghij"], limit=10, take=third) == b"ghij"
    with room.share() as fourth:
        assert read([b"abcdefghij"], limit=10, take=fourth) == b"abcdefghij"


def test_a_body_has_a_limit_of_its_own() -> None:
    with Room(100).share() as take:
        told = (413, "the body is larger than the 4 bytes allowed")
        assert refused([b"abc", b"de"], limit=4, take=take) == told
