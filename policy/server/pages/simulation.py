"""Simulations: the list, and one of them, as `policy simulate --output html` writes it."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from policy.server.http import Failure, in_thread
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.simulation.keeping import result_of
from policy.simulation.page import body
from policy.simulation.run import Result
from policy.store import DamagedRows
from policy.typed import UNDECODABLE

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    found = await in_thread(pages.service.store.read.simulations)
    return await pages.page(request, principal, "simulations.html", found=found)


async def show_one(pages: Pages, request: Request, principal: Principal) -> Response:
    number = request.path_params["id"]
    found = await in_thread(simulation, pages.service, number)
    text = await in_thread(body, [found], ())
    return await pages.page(
        request,
        principal,
        "simulation.html",
        number=number,
        rules=found.rules,
        digest=found.rules_digest,
        text=text,
    )


def simulation(service: PolicyService, number: str) -> Result:
    """Raises NotFound, DamagedRows, Failure for what is no number."""
    if not _NUMBER.fullmatch(number):
        raise Failure(404, "not-found", f"there is no simulation `{number[:40]}`")
    documents = service.store.read.simulation_document(int(number))
    try:
        return result_of(*documents)
    except (*UNDECODABLE, TypeError) as exc:
        raise DamagedRows(
            f"the row of simulation {int(number)} is not that of a simulation",
            help="`policy audit verify` names what was changed",
        ) from exc
