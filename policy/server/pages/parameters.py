"""Parameters of a query as fields of a form, and back."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import QueryParams

from policy.audit.instants import typed_zone
from policy.server import views
from policy.server.http import Failure
from policy.server.security.access import Principal
from policy.store.read.saved_queries import DEFAULTS

PREFIX: Final = "p."
"""Before a parameter's name in the address."""

_INSTANTS: Final = ("since", "until")
_HINTS: Final[Mapping[str, str]] = {
    "since": "7d, yesterday 14:02, 2026-11-22T00:00:00Z, or milliseconds since 1970; without a"
    " zone: {zone}; empty: from the beginning",
    "until": "likewise; empty: to the end",
    "cluster": "empty: all",
    "namespace": "empty: all",
    "limit": "rows, at most",
}
_NUMBER: Final = re.compile(r"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A field of the form."""

    name: str
    value: str
    hint: str


def require_known(query: QueryParams, known: Collection[str], names: Sequence[str] = ()) -> None:
    """Refuse what has no effect; an empty one, as a form sends it, is none. Raises Failure.

    known: parameters of the page. names: parameters of a query that it runs.
    """
    given = [name for name, value in query.multi_items() if value]
    for name in given:
        if given.count(name) > 1:
            raise Failure(400, "invalid", f"query: `{name[:80]}`: it is given twice")
        if name in known:
            continue
        own = name.removeprefix(PREFIX)
        if own == name:
            advice = f"`{PREFIX}{own}` is the parameter of the query" if own in names else ""
            told = f"query: `{name[:80]}`: there is no such parameter"
            raise Failure(400, "invalid", told, help=advice)
        if own not in names:
            raise Failure(400, "invalid", f"the query has no parameter `{own[:80]}`")


def require_whole(principal: Principal, query: Mapping[str, str], names: Collection[str]) -> None:
    """Refuse what is answered to those alone who see everything. Raises Failure.

    names: parameters of the page.
    """
    for name in names if principal.limited else ():
        if query.get(name):
            told = f"a token that is limited to namespaces may not ask for `{name}`"
            raise Failure(403, "not-allowed", told)


def require_choice(query: Mapping[str, str], name: str, choices: Collection[str]) -> None:
    """Refuse a value that has no effect; an empty one is none. Raises Failure."""
    if query.get(name) and query[name] not in choices:
        told = f"query: `{name}`: not one of {', '.join(f'`{one}`' for one in choices)}"
        raise Failure(400, "invalid", told)


def fields(names: Sequence[str], query: Mapping[str, str]) -> list[Parameter]:
    """A field for each parameter: what the address gives, else its default."""
    return [
        Parameter(name=name, value=query.get(PREFIX + name, _shown(name)), hint=_hint(name))
        for name in names
    ]


def values(names: Sequence[str], query: Mapping[str, str], *, now_ms: int) -> dict[str, Any]:
    """What the address gives for the parameters, with the defaults of those that have one.

    Whole numbers are numbers, as with `policy sql -p`. now_ms: what `7d` is before. Raises Failure.
    """
    found: dict[str, Any] = {}
    for name in names:
        text = query.get(PREFIX + name)
        if name in DEFAULTS and not text:
            found[name] = DEFAULTS[name]
        elif text is not None:
            found[name] = _value(name, text, now_ms=now_ms)
    ends = [value if isinstance(value := found.get(n), int) else None for n in _INSTANTS]
    views.require_order(*ends)
    return found


def _value(name: str, text: str, *, now_ms: int) -> int | str | None:
    if _NUMBER.fullmatch(text):
        return int(text)
    return views.moment(text, name, now_ms=now_ms) if name in _INSTANTS else text


def _shown(name: str) -> str:
    default = DEFAULTS.get(name, "")
    return "" if name in _INSTANTS else str(default)


def _hint(name: str) -> str:
    hint = _HINTS.get(name, "whole numbers count as numbers")
    return hint.format(zone=typed_zone())
