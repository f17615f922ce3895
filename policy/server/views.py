"""What the API and the pages show, read from the store once for both."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar
from urllib.parse import quote

from policy.audit import instants
from policy.audit.documents import instant, verdict
from policy.audit.rule_sets import (
    recorded_as,
)
from policy.audit.why_not import WhyNotError, why_not_chosen
from policy.cluster import times
from policy.cluster.objects import Node, Pod, key_of
from policy.decision.model import document_of
from policy.server.http import API, Failure, invalid, of_store
from policy.server.security import scope
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.server.service import PolicyService
from policy.store import (
    DecisionRow,
    InvalidValue,
    NotFound,
    SessionRow,
    StoredDecision,
)
from policy.store.observed import ObservationRow
from policy.store.read.by_rule import require_section
from policy.store.read.observed import no_observation
from policy.store.read.queries import is_digest, no_decision, require_workload

_PAGE: Final = 1000
"""Decisions, or cycles of pod groups, that an export reads at once."""

Page: TypeAlias = tuple[Sequence[Any], list[dict[str, Any]]]
"""Rows of a list, and what is shown of each."""
_Found = TypeVar("_Found")


def millis(text: str | None, name: str) -> int | None:
    """An RFC 3339 instant. Raises Failure."""
    if text is None:
        return None
    try:
        return times.parse(text)
    except ValueError as exc:
        raise invalid("query", [(name, str(exc))]) from exc


def of_clusters(principal: Principal, read: Callable[[], _Found], nothing: _Found) -> _Found:
    """What is read by a filter that may name a cluster which the database does not know.

    To a limited viewer that is as one in which nothing concerns them: the error names all others.
    Raises Failure.
    """
    try:
        return read()
    except NotFound as exc:
        if principal.limited:
            return nothing
        raise of_store(exc, field="cluster") from exc


def knows(service: PolicyService, principal: Principal, of: Numbered, number: int) -> bool:
    """May a limited viewer know of what has that number in the record?"""
    read = service.store.read
    look: Mapping[Numbered, Callable[..., object]] = {
        Numbered.DECISION: read.decision_row,
        Numbered.SESSION: read.session_row,
        Numbered.OBSERVATION: read.observation,
    }
    try:
        look[of](number, namespaces=principal.namespaces)
    except NotFound:
        return False
    return True


def filters(
    service: PolicyService, principal: Principal, of: Numbered, wanted: Mapping[str, Any]
) -> dict[str, Any]:
    """What is wanted of a list, as the store takes it.

    `before_id` and `after_id` are as the viewer sees them, zero is before all numbers; `before_row`
    is in place of the former a row that was read before. Raises Failure for a number that no list
    ended with. One of others is none, for its place among the viewer's own would tell when it was
    made; nor is one that there is not in a list that is not in the order of numbers.
    """
    found = {**wanted, "namespaces": principal.namespaces}
    for name in ("before_id", "after_id"):
        if given := found.get(name):
            found[name] = principal.actual(of, given)
            known = found[name] is not None
            if known and name == "before_id" and (principal.limited or of is Numbered.OBSERVATION):
                known = knows(service, principal, of, found[name])
            if not known:
                raise invalid("query", [("after", f"no list ended with {given}")])
    if (row := found.pop("before_row", None)) is not None:
        found["before_id"] = row.id
    return found


def sessions(
    service: PolicyService,
    principal: Principal,
    wanted: Mapping[str, Any],
    *,
    kind: str,
    limit: int,
) -> list[SessionRow]:
    """Batch sessions, or cycles of pod groups, that the viewer may know of; newest first.

    wanted: as of `filters`. Raises Failure.
    """
    asked = filters(service, principal, Numbered.SESSION, wanted)
    return of_clusters(
        principal, lambda: service.store.read.sessions(kind=kind, limit=limit, **asked), []
    )


def is_number(wanted: str) -> bool:
    return wanted.isascii() and wanted.isdigit() and len(wanted) < 19


def number_of(wanted: str) -> int:
    """The number that is in an address. Raises NotFound for what is none."""
    if is_number(wanted):
        return int(wanted)
    raise NotFound(f"`{wanted}` is not a number", help="lists show the numbers that there are")


def numbered(
    principal: Principal,
    of: Numbered,
    wanted: str,
    read: Callable[[int], _Found],
    missing: Callable[[int], NotFound],
) -> _Found:
    """What has the number, as the viewer sees it, that is in an address. Raises NotFound.

    missing: the error for a number under which there is nothing.
    """
    given = number_of(wanted)
    actual = principal.actual(of, given)
    if actual is None:
        raise missing(given)
    try:
        return read(actual)
    except NotFound:
        if actual == given:
            raise
        raise missing(given) from None  # who asked knows of no other number


def moment(text: str | None, name: str, *, now_ms: int) -> int | None:
    """An instant as people type it, `7d` too, as the command line takes it. Raises Failure."""
    if text is None:
        return None
    try:
        found = instants.read(text, now=datetime.fromtimestamp(now_ms / 1000, UTC))
    except instants.NoInstant as exc:
        advice = _PLUS if _LOST_PLUS.search(text) else ""
        raise invalid("query", [(name, str(exc))], help=advice) from exc
    return times.from_datetime(found.at)


_LOST_PLUS: Final = re.compile(r":[0-9.]+ [0-9]{2}:[0-9]{2}$")
_PLUS: Final = "in an address `+` is a space: write `+` as `%2B`"


def span(since: str | None, until: str | None, *, now_ms: int) -> dict[str, int | None]:
    """`since_ms` and `until_ms` as the store takes them. Raises Failure."""
    since_ms = moment(since, "since", now_ms=now_ms)
    until_ms = moment(until, "until", now_ms=now_ms)
    require_order(since_ms, until_ms)
    return {"since_ms": since_ms, "until_ms": until_ms}


def require_order(since_ms: int | None, until_ms: int | None) -> None:
    """Raises Failure where nothing can lie between them."""
    try:
        instants.require_order(since_ms, until_ms)
    except instants.NoInstant as exc:
        advice = "exchange them, or leave one out"
        failure = invalid("query", [("", str(exc))], help=advice)
        failure.field = "since"  # that pages mark
        raise failure from exc


def workload(text: str | None) -> str | None:
    """The name of a workload as the store takes it. Raises Failure."""
    try:
        if text is not None:
            require_workload(text)
    except InvalidValue as exc:
        raise invalid("query", [("workload", exc.message)]) from exc
    return text


def recorded_rules(text: str | None) -> str | None:
    """The rule set that decisions are filtered by, as the store takes it. Raises Failure."""
    try:
        return None if text is None else recorded_as(text)
    except InvalidValue as exc:
        raise invalid("query", [("rules", exc.message)], help=exc.help) from exc


def recorded_rule(text: str | None) -> str | None:
    """The rule that decisions are filtered by, as the store takes it. Raises Failure."""
    try:
        if text is not None:
            require_section(text)
    except InvalidValue as exc:
        raise invalid("query", [("rule", exc.message)], help=exc.help) from exc
    return text


def decisions(
    service: PolicyService, principal: Principal, wanted: Mapping[str, Any], *, limit: int
) -> tuple[list[DecisionRow], list[dict[str, Any]]]:
    """Rows and lines of a list, newest first.

    wanted: as `store.read.decisions` takes it, but for where the list begins: as of `filters`.
    Raises Failure.
    """
    if principal.limited and wanted.get("rule") is not None:
        told = "a token that is limited to namespaces may not see which rule decided"
        raise Failure(403, "not-allowed", f"query: `rule`: {told}", field="rule")
    # Nor by a guess: whether others' pod took a viewer's victim is not for the viewer to know.
    if _of_others(principal, wanted):
        return [], []
    asked = filters(service, principal, Numbered.DECISION, wanted)
    rows: list[DecisionRow] = of_clusters(
        principal, lambda: service.store.read.decisions(**asked, limit=limit), []
    )
    victims = service.store.read.victims_of([r.id for r in rows])
    return rows, scope.lines(principal, rows, victims)


def _of_others(principal: Principal, wanted: Mapping[str, Any]) -> bool:
    """Is what is wanted in a namespace that the viewer may not see?"""
    named = (wanted.get(name) for name in ("preemptor", "pod", "victim", "workload"))
    spaces = (wanted.get("namespace"), *(name and name.partition("/")[0] for name in named))
    return any(space and not principal.sees(space) for space in spaces)


def stored_decision(service: PolicyService, principal: Principal, wanted: str) -> StoredDecision:
    """By number or digest; for whoever sees everything by the beginning of one, too.

    A limited viewer, who is shown none, could find a digest out digit by digit, and with it try
    what the rest of a decision may be. Raises NotFound, also where the viewer may not know of it.
    """
    names: list[int | str] = []
    if is_number(wanted):
        actual = principal.actual(Numbered.DECISION, int(wanted))
        names += [] if actual is None else [actual]
    if is_digest(wanted, whole=principal.limited):  # as digits may be
        names.append(wanted)
    for named in names:
        with suppress(NotFound):
            return service.store.read.decision(named, namespaces=principal.namespaces)
    raise no_decision(wanted)  # who asked knows of no other number


def decision(principal: Principal, stored: StoredDecision) -> dict[str, Any]:
    """One decision with its trace, its sentence, and the call that it answers."""
    told = scope.whole(principal, stored)
    if principal.limited:
        return told
    return {"served": None, **told, "explanation": explanation(stored)}


def explanation(stored: StoredDecision) -> str:
    row = stored.row
    return f"{row.preemptor} (priority {row.preemptor_priority}) {verdict(stored)}"


def why_not(service: PolicyService, stored: StoredDecision, node: str) -> dict[str, Any]:
    try:
        return why_not_chosen(service.store, stored, node)
    except WhyNotError as exc:
        raise Failure(404, "not-found", str(exc), help=exc.help) from exc


# --- observed preemptions --------------------------------------------------------------


def observations(
    service: PolicyService, principal: Principal, wanted: Mapping[str, Any], *, limit: int
) -> tuple[list[ObservationRow], list[dict[str, Any]]]:
    """Rows and documents, newest first.

    wanted: as `store.read.observations` takes it, but for where the list begins: as of `filters`.
    Raises Failure.
    """
    if _of_others(principal, wanted):
        return [], []
    asked = filters(service, principal, Numbered.OBSERVATION, wanted)
    if (number := asked.pop("before_id", None)) is not None:
        last = wanted.get("before_row") or service.store.read.observation(number)
        asked["before"] = last.now_ms, last.id
    rows: list[ObservationRow] = of_clusters(
        principal, lambda: service.store.read.observations(**asked, limit=limit), []
    )
    return rows, [scope.observation(principal, row) for row in rows]


def observation_row(service: PolicyService, principal: Principal, wanted: str) -> ObservationRow:
    """Raises NotFound, also where the viewer may not know of it."""
    return numbered(
        principal,
        Numbered.OBSERVATION,
        wanted,
        lambda n: service.store.read.observation(n, namespaces=principal.namespaces),
        no_observation,
    )


def observation(service: PolicyService, principal: Principal, wanted: str) -> dict[str, Any]:
    """One of them, with the decision made again for those who see all of it.

    Raises NotFound, also where the viewer may not know of it.
    """
    row = observation_row(service, principal, wanted)
    told = scope.observation(principal, row)
    return told if principal.limited else {**told, **_decided_again(service, row)}


def _decided_again(service: PolicyService, row: ObservationRow) -> dict[str, Any]:
    from policy.audit.observed.again import AgainDecider, CannotDecide, as_observed

    try:
        decision, _ = AgainDecider(service.store).decide(row, as_observed(service.store, row))
    except CannotDecide as exc:
        return {"decided_again": None, "undecided": str(exc)}
    return {"decided_again": document_of(decision), "undecided": ""}


# --- state ------------------------------------------------------------


def state(
    service: PolicyService, cluster: str, kind: str, *, revision: int | None, at_ms: int | None
) -> tuple[int, list[Node] | list[Pod]]:
    """The revision and its objects of a kind, by name."""
    if at_ms is not None:
        revision = service.store.state.revision_at(cluster, at_ms)
        if not revision:
            raise NotFound(
                f"cluster `{cluster}` had no state yet at {instant(at_ms)}",
                help=f"`{API}/clusters/{quote(cluster)}/revisions` lists since when it is known",
            )
    loaded = service.store.state.load(cluster, at=revision)
    if kind == "nodes":
        nodes = [obj for obj in loaded.objects if isinstance(obj, Node)]
        return loaded.revision, sorted(nodes, key=key_of)
    pods = [obj for obj in loaded.objects if isinstance(obj, Pod)]
    return loaded.revision, sorted(pods, key=key_of)


class OnePage(NamedTuple):
    """Some of a list."""

    rows: Sequence[Any]
    lines: list[dict[str, Any]]
    after: int | None  #: the number that the next page begins after; None on the last one


def one_page(read: Callable[..., Page], *, limit: int) -> OnePage:
    """So many of a list at most.

    read: gives `limit` rows and lines. One more is read than the page has: a page that is full may
    be the last one.
    """
    rows, lines = read(limit=limit + 1)
    more, lines = len(rows) > limit, lines[:limit]
    return OnePage(rows[:limit], lines, lines[-1]["id"] if more else None)


def in_pages(
    page: Callable[[Mapping[str, Any], int], Page],
    before_id: int | None,
    *,
    most: int | None = None,
) -> Iterator[dict[str, Any]]:
    """All lines of a list, or at most so many, page by page, newest first.

    page: rows and lines from where a list begins (`filters`), at most so many. The first one is
    read at once: a filter that is wrong is an error then, and not in the midst of an answer.
    """
    size = _PAGE if most is None else min(most, _PAGE)

    def pages(rows: Sequence[Any], lines: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        asked, left = size, most
        while True:
            yield from lines
            if len(rows) < asked:
                return
            if left is not None:
                left -= len(rows)
                asked = min(left, _PAGE)
            if not asked:
                return
            rows, lines = page({"before_id": None, "before_row": rows[-1]}, asked)

    return pages(*page({"before_id": before_id}, size))
