"""Simulations: the list, and one of them, the page that `policy simulate --output html` writes."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from policy.server.http import Failure, in_thread
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.simulation.keeping import result_of
from policy.simulation.page import page
from policy.simulation.run import Result

_NUMBER: Final = re.compile(r"[0-9]{1,18}")


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    found = await in_thread(pages.service.store.read.simulations)
    return await pages.page(request, principal, "simulations.html", found=found)


async def show_one(pages: Pages, request: Request, _: Principal) -> Response:
    return await in_thread(simulation, pages.service, request.path_params["id"])


def simulation(service: PolicyService, number: str) -> Response:
    """Raises NotFound, Failure for what is no number."""
    if not _NUMBER.fullmatch(number):
        raise Failure(404, "not-found", f"there is no simulation `{number[:40]}`")
    found = result_of(*service.store.read.simulation_document(int(number)))
    text = page([found], (), links=_links(found))
    return HTMLResponse(text, headers={"Content-Security-Policy": _policy(text)})


def _links(found: Result) -> list[tuple[str, str]]:
    rules = (f"Rules {found.rules}", f"/rules/{quote(found.rules_digest, safe='')}")
    return [("Overview", "/"), ("All simulations", "/simulations"), rules]


def _policy(text: str) -> str:
    """The page holds its style sheet and needs nothing else; no other style counts."""
    style = text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
