"""Routes that are made when they are first asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from starlette.routing import BaseRoute, Router
from starlette.types import Receive, Scope, Send

from policy.server.http import in_thread


class Later:
    """An application of routes that its first request makes, in a thread.

    Requests that come meanwhile wait for the same routes, on the event loop: the threads are for
    others. Where the routes cannot be made, who waits fails, and the next request tries again.
    """

    def __init__(self, make: Callable[[], Sequence[BaseRoute]]) -> None:
        self._make = make
        self._making: asyncio.Future[Router] | None = None

    @property
    def routes(self) -> Sequence[BaseRoute]:
        """Those that are made by now."""
        making = self._making
        made = making is not None and making.done() and not _failed(making)
        return making.result().routes if making is not None and made else ()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._making is None or _failed(self._making):
            self._making = asyncio.ensure_future(in_thread(self._made))
        # A client that goes away does not cancel it for the others.
        router = await asyncio.shield(self._making)
        await router(scope, receive, send)

    def _made(self) -> Router:
        return Router(self._make(), redirect_slashes=False)


def _failed(making: asyncio.Future[Router]) -> bool:
    return making.done() and (making.cancelled() or making.exception() is not None)
