"""Templates, static files, and what every page is given."""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from policy.audit.documents import instant
from policy.audit.instants import typed_zone
from policy.audit.sentences import group_preemption, why_leaves
from policy.server.http import Failure, problem
from policy.server.security.access import Access, Principal
from policy.server.security.tokens import Role
from policy.text.printable import printable
from policy.text.words import duration, value_text

_STATIC: Final = files("policy.server.pages").joinpath("static")
_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}

# Every text of the data is escaped, and shows its control and direction characters.
TEMPLATES: Final = Environment(
    loader=PackageLoader("policy.server.pages"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    finalize=lambda value: printable(value) if type(value) is str else value,
)
TEMPLATES.globals["typed_zone"] = typed_zone
TEMPLATES.globals["in_cluster"] = ""  # that links to workloads and nodes name; of some pages
TEMPLATES.filters["instant"] = instant
TEMPLATES.filters["duration"] = duration
TEMPLATES.filters["group_preemption"] = group_preemption
TEMPLATES.filters["why_leaves"] = why_leaves
TEMPLATES.filters["value_text"] = value_text


def lines(text: str) -> Markup:
    """A text that is edited: its line ends and tabs stay, everything else as in other texts."""
    plain = text.replace("\r\n", "\n")
    return escape(re.sub(r"[^\n\t]+", lambda found: printable(found[0]), plain))


TEMPLATES.filters["lines"] = lines


def with_code(text: str) -> Markup:
    """A sentence in which code, names and commands stand in backquotes, as on the command line.

    Here they are set as code. Of an odd number of backquotes one is part of a name, and all stay.
    """
    parts = printable(text).split("`")
    if len(parts) % 2 == 0:
        return escape(printable(text))
    code = Markup("<code>{}</code>")
    return Markup().join(code.format(p) if i % 2 else escape(p) for i, p in enumerate(parts))


TEMPLATES.filters["with_code"] = with_code


def _static_files() -> dict[str, tuple[bytes, str]]:
    found = {}
    for entry in _STATIC.iterdir():
        ending = entry.name.rpartition(".")[2]
        if ending in _TYPES:
            found[entry.name] = (entry.read_bytes(), _TYPES[ending])
    return found


STATIC: Final = _static_files()
"""Content and type by name: nothing of the disk is looked up by what a request says."""

_STAMPS: Final = {
    name: hashlib.sha256(content).hexdigest()[:12] for name, (content, _) in STATIC.items()
}
TEMPLATES.globals["stamp"] = _STAMPS


def static(request: Request) -> Response:
    found = STATIC.get(request.path_params["name"])
    if found is None:
        return problem(Failure(404, "not-found", "there is no such file"))
    content, kind = found
    # A page of another version, as while services are replaced one by one, names a file that this
    # one does not have: what it is given here is not to be kept under that address.
    own = request.url.query == _STAMPS[request.path_params["name"]]
    kept = "public, max-age=31536000, immutable" if own else "no-store"
    return Response(content, media_type=kind, headers={"Cache-Control": kept})


def page(
    request: Request,
    access: Access,
    principal: Principal | None,
    template: str,
    *,
    status: int = 200,
    **values: Any,
) -> HTMLResponse:
    """A page; `part` of a request by htmx is a page, too, of which it takes what it needs."""
    made = TEMPLATES.get_template(template).render(
        path=request.url.path,
        query=request.query_params,
        principal=principal,
        operator=principal is not None and principal.may(Role.OPERATOR),
        open_to_all=access.open_to_all,
        form_token=access.form_token(request) if principal is not None else "",
        **values,
    )
    return HTMLResponse(made, status_code=status)
