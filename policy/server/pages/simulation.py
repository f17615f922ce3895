"""One recorded simulation: the page that `policy simulate --output html` writes."""

from __future__ import annotations

import base64
import hashlib
from typing import Final

from starlette.responses import HTMLResponse, Response

from policy.server.service import PolicyService
from policy.simulation.keeping import result_of
from policy.simulation.page import page

_LARGEST: Final = 2**62


def simulation(service: PolicyService, number: int) -> Response:
    """Raises NotFound."""
    found = result_of(*service.store.read.simulation_document(min(number, _LARGEST)))
    text = page([found], ())
    return HTMLResponse(text, headers={"Content-Security-Policy": _policy(text)})


def _policy(text: str) -> str:
    """The page holds its style sheet and needs nothing else; no other style counts."""
    style = text.partition("<style>")[2].partition("</style>")[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
