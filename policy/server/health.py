"""Is the process alive, can it decide, and what has it done?"""

from __future__ import annotations

import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from policy.server.http import Failure, Shared, in_thread
from policy.server.metrics import CONTENT_TYPE
from policy.server.security.access import Access
from policy.server.security.gate import viewer
from policy.server.service import PolicyService
from policy.store import StoreError

log = logging.getLogger("policy.server")

_SECONDS: Final = 1.0
"""For which the database is waited for: who watches a service asks again soon."""
_SILENT: Final = "the database does not answer"


class _Told:
    """What is wrong with something, in the log: once for as long as it stays the same.

    Whoever watches a service asks every few seconds.
    """

    def __init__(self, wrong: str, *, after: str) -> None:
        """wrong: with `%s` for what it is. after: when nothing is wrong any more."""
        self._wrong, self._after = wrong, after
        self._problem = ""

    def tell(self, problem: str) -> None:
        """problem: "" where nothing is wrong."""
        if problem and problem != self._problem:
            log.warning(self._wrong, problem)
        elif self._problem and not problem:
            log.info(self._after)
        self._problem = problem


def _figures_of(what: str) -> _Told:
    before = f"figures of the {what} are those of before: %s"
    return _Told(before, after=f"figures of the {what} are read again")


def routes(service: PolicyService, access: Access) -> list[Route]:
    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    def problems() -> str:
        found = [service.problem()]
        if service.config.client_ca is None:
            # Without the file of tokens no scheduler is let in; one with a certificate is.
            found.append(access.problem)
        return "; ".join(one for one in found if one)

    problem, figures = Shared(problems), Shared(service.measure_store)
    depth = Shared(service.measure_spool)
    readiness = _Told("not ready: %s", after="ready")
    of_spool, of_database = _figures_of("spool"), _figures_of("database")

    async def readyz(_: Request) -> Response:
        try:
            found = await problem.result(seconds=_SECONDS)
        except TimeoutError:
            found = _SILENT
        readiness.tell(found)
        if found:
            # Whoever looks from outside need not know the names of environments: the log says them.
            return PlainTextResponse("not ready; the log says why\n", status_code=503)
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        viewer(access, request, unlimited=True)
        # The counters are worth reading above all while the database is away, and how many calls
        # wait for it.
        for read, reading in ((depth, of_spool), (figures, of_database)):
            why = ""
            try:
                await read.result(seconds=_SECONDS)
            except StoreError as exc:
                why = exc.message
            except TimeoutError:
                why = "it does not answer"
            reading.tell(why)
        service.measure()
        return Response(service.metrics.text(), media_type=CONTENT_TYPE)

    async def follower(request: Request) -> Response:
        viewer(access, request, unlimited=True)
        if service.follower is None:
            raise Failure(404, "not-found", "this process follows no cluster")
        code, body = await in_thread(service.follower.health)
        return Response(body, status_code=code, media_type="application/json")

    return [
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/healthz/follow", follower),
        Route("/metrics", metrics),
    ]
