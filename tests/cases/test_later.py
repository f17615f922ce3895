"""Routes that are made at their first request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import BaseRoute, Route

from policy.server.http import in_thread
from policy.server.later import Later


async def found(_: object) -> PlainTextResponse:
    return PlainTextResponse("found")


def client(app: Later) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")


def test_requests_that_come_together_make_the_routes_once() -> None:
    """Meanwhile the threads are free for others, and a client that goes away does not cancel it."""
    made, may_end = [], threading.Event()

    def make() -> Sequence[BaseRoute]:
        made.append(threading.current_thread() is threading.main_thread())
        assert may_end.wait(60)
        return [Route("/", found)]

    async def main() -> list[object]:
        async with client(Later(make)) as http:
            first = asyncio.create_task(http.get("/"))
            while not made:
                await asyncio.sleep(0.001)
            others = [asyncio.create_task(http.get("/")) for _ in range(20)]
            await asyncio.sleep(0.01)
            first.cancel()
            await in_thread(may_end.set)
            answers = await asyncio.gather(*others)
            return [(answer.status_code, answer.text) for answer in answers]

    assert (asyncio.run(main()), made) == ([(200, "found")] * 20, [False])


def test_routes_that_could_not_be_made_are_made_again() -> None:
    made: list[int] = []

    def make() -> Sequence[BaseRoute]:
        made.append(1)
        if len(made) == 1:
            raise ImportError("a file is missing")
        return [Route("/", found)]

    async def main() -> tuple[list[str], int]:
        async with client(Later(make)) as http:
            both = await asyncio.gather(http.get("/"), http.get("/"), return_exceptions=True)
            return [str(failed) for failed in both], (await http.get("/")).status_code

    assert asyncio.run(asyncio.wait_for(main(), 60)) == (["a file is missing"] * 2, 200)
    assert len(made) == 2


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/x", 404), ("POST", "/", 405)])
def test_what_no_route_is_for(method: str, path: str, status: int) -> None:
    async def main() -> int:
        async with client(Later(lambda: [Route("/", found)])) as http:
            return (await http.request(method, path)).status_code

    assert asyncio.run(main()) == status
