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

    async def readyz(_: Request) -> Response:
        try:
            found = await problem.result(seconds=_SECONDS)
        except TimeoutError:
            found = _SILENT
        if found:
            # Whoever looks from outside need not know the names of environments.
            log.warning("not ready: %s", found)
            return PlainTextResponse("not ready; the log says why\n", status_code=503)
        return PlainTextResponse("ok\n")

    async def metrics(request: Request) -> Response:
        viewer(access, request, unlimited=True)
        # The counters are worth reading above all while the database is away.
        try:
            await figures.result(seconds=_SECONDS)
        except StoreError as exc:
            log.warning("figures of the database are those of before: %s", exc.message)
        except TimeoutError:
            log.warning("figures of the database are those of before: %s", _SILENT)
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
