"""What happened? The list of decisions, and a bar for each hour or day of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.documents import instant
from policy.cluster import times
from policy.decision.model import Outcome
from policy.server import views
from policy.server.api.models import DecisionsQuery
from policy.server.api.operations import query_of
from policy.server.api.table import DECISIONS, EXPORT, EXPORT_CSV, decisions_wanted
from policy.server.http import API, Failure, in_thread
from policy.server.pages.bars import Bar, bars
from policy.server.pages.surface import HTMX, PAGE, Pages, mendable
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import StoreError
from policy.store.model.decisions import Origin
from policy.store.outcomes import OutcomeKind
from policy.store.read.figures import DAY_MS, HOUR_MS

_OUTCOMES: Final = (*(one.value for one in Outcome), OutcomeKind.NOT_CARRIED_OUT.value)
_HOURS: Final = 72
"""Of a time that is shown by the hour, at most."""
_DAYS: Final = (1, 7, 28, 364)
"""What a bar may be of, in days; so that there are not more than `_BARS`."""
_BARS: Final = 120
_RANGES: Final = {"24h": "24 hours", "7d": "7 days", "30d": "30 days", "365d": "a year"}
"""Times that are a link, up to now."""
_NEVER: Final = ("rule", "namespace", "node", "preemptor", "pod", "victim", "workload")
"""Filters that no total of decisions has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Bars of a list, or why there are none."""

    title: str
    bars: Sequence[Bar] = ()
    ends: tuple[str, str] = ("", "")  #: of the time that the bars are of: two instants, or days
    note: str = ""  #: what the bars count otherwise than the list, or why there are none


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    """The list; where a filter is wrong, the error in its place, so that it can be mended."""
    given = {k: v for k, v in request.query_params.items() if v}
    values: dict[str, Any] = {"lines": [], "older": None, "histogram": None, "failure": None}
    status = 200
    try:
        query = query_of(DECISIONS, request, blanks=True)
        assert isinstance(query, DecisionsQuery)  # the model that `DECISIONS` names
        limit = query.limit if "limit" in given else PAGE
        values |= await in_thread(
            _listed, pages.service, principal, query, given=given, limit=limit
        )
    except (Failure, StoreError) as exc:
        failure = mendable(exc)
        values["failure"], status = failure, failure.status
        values["message"] = failure.message.removeprefix("query: ")
    kept = {name: value for name, value in given.items() if name not in ("after", "limit")}
    seen = {**given, "limit": given.get("limit", PAGE)}
    answer = await pages.page(
        request,
        principal,
        "decisions.html",
        status=status,
        outcomes=_OUTCOMES,
        origins=[one.value for one in Origin],
        ranges=[
            (text, "/decisions?" + urlencode({**_timeless(kept), "since": since}))
            for since, text in _RANGES.items()
        ],
        newest="/decisions?" + urlencode(kept) if "after" in given else "",
        filtered=bool(kept),
        exports=[
            ("CSV", f"{API}{EXPORT_CSV.path}?{urlencode(kept)}"),
            ("JSON, a line each", f"{API}{EXPORT.path}?{urlencode(kept)}"),
        ],
        document=f"{API}/decisions?{urlencode(seen)}",
        **values,
    )
    if HTMX in request.headers:  # without the fields that are empty
        answer.headers["HX-Push-Url"] = f"/decisions?{urlencode(given)}" if given else "/decisions"
    return answer


def _timeless(given: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name not in ("since", "until")}


def _listed(
    service: PolicyService,
    principal: Principal,
    query: DecisionsQuery,
    *,
    given: Mapping[str, str],
    limit: int,
) -> dict[str, Any]:
    now_ms = service.clock()
    wanted = decisions_wanted(query, now_ms=now_ms)
    page = views.one_page(
        partial(views.decisions, service, principal, wanted),
        limit=limit,
    )
    older = None
    if page.after is not None:
        older = "/decisions?" + urlencode({**given, "after": page.after})
    histogram = None
    if not principal.limited:  # totals are over all namespaces
        newest_ms = max((row.now_ms for row in page.rows), default=now_ms)
        histogram = _histogram(service, query, wanted, newest_ms=newest_ms)
    return {
        "lines": page.lines,
        "older": older,
        "histogram": histogram,
        "since": instant(wanted["since_ms"]),
        "until": instant(wanted["until_ms"]),
    }


def _histogram(
    service: PolicyService, query: DecisionsQuery, wanted: Mapping[str, Any], *, newest_ms: int
) -> Histogram:
    """By the hour, or by days where that would be too many; of the time that the list is of.

    Without a beginning it is the day before the end, without an end that of the newest of the list.
    """
    barred = [name for name in _NEVER if getattr(query, name) is not None]
    outcome: str | None = query.outcome
    if outcome == OutcomeKind.NOT_CARRIED_OUT:
        barred.append("outcome")
    if barred:
        names = ", ".join(barred)
        return Histogram(
            title="By time",
            note=f"There are no bars for decisions by {names}. Without that there are.",
        )
    since_ms, until_ms = wanted["since_ms"], wanted["until_ms"]
    until_ms = newest_ms + 1 if until_ms is None else until_ms
    since_ms = max(times.EARLIEST, until_ms - DAY_MS) if since_ms is None else since_ms
    if until_ms - since_ms <= _HOURS * HOUR_MS:
        return _by_hour(service, query, wanted, since_ms=since_ms, until_ms=until_ms)
    return _by_day(service, query, wanted, since_ms=since_ms, until_ms=until_ms)


def _kept(query: DecisionsQuery) -> dict[str, str]:
    """Filters that the list of a bar keeps."""
    names = ("cluster", "rules", "outcome", "origin", "simulated")
    found = {name: getattr(query, name) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def _where(service: PolicyService, query: DecisionsQuery) -> str:
    """Of preemptions that are counted as having taken place: where, if not in clusters alone."""
    if query.origin == Origin.SIMULATED.value:
        return " in kept simulations"
    kept = service.store.read.kept_simulations()
    if query.cluster is not None:
        return " in a kept simulation" if query.cluster in kept else ""
    among = kept and query.origin is None and query.simulated is None
    return ", and of those in kept simulations" if among else ""


def _by_hour(
    service: PolicyService,
    query: DecisionsQuery,
    wanted: Mapping[str, Any],
    *,
    since_ms: int,
    until_ms: int,
) -> Histogram:
    title = "Preemptions per hour"
    barred = [name for name in ("rules",) if getattr(query, name) is not None]
    if query.outcome not in (None, Outcome.PREEMPT.value):
        barred.append("outcome")
    if barred:
        names = " and ".join(barred)
        return Histogram(
            title=title,
            note=f"There are no bars: totals by the hour are not kept by {names}, those by the day"
            f" are. A time of more than {_HOURS // 24} days has bars.",
        )
    since_ms = since_ms // HOUR_MS * HOUR_MS
    end_ms = since_ms + -(-(until_ms - since_ms) // HOUR_MS) * HOUR_MS
    hours = service.store.read.preemptions_by_hour(
        query.cluster,
        since_ms=since_ms,
        until_ms=end_ms,
        origins=[one.value for one in Origin] if query.origin is None else [query.origin],
        simulated=wanted["simulated"],
    )
    counts: dict[int, int] = {}
    for hour in hours:
        counts[hour.begin_ms] = counts.get(hour.begin_ms, 0) + hour.preemptions
    given = {**_kept(query), "outcome": Outcome.PREEMPT.value}
    return Histogram(
        title=f"{title}: {sum(counts.values())}",
        bars=bars(counts, since_ms=since_ms, until_ms=end_ms, step_ms=HOUR_MS, given=given),
        ends=(instant(since_ms), instant(until_ms // 1000 * 1000)),
        note=f"Whole hours (UTC) of preemptions that took place{_where(service, query)}: calls"
        " that were answered otherwise, as in shadow mode, are not counted; those of batch sessions"
        " are, and are not listed here.",
    )


def _by_day(
    service: PolicyService,
    query: DecisionsQuery,
    wanted: Mapping[str, Any],
    *,
    since_ms: int,
    until_ms: int,
) -> Histogram:
    read = service.store.read
    preempting = query.outcome == Outcome.PREEMPT.value
    what = "Preemptions" if preempting else "Decisions"
    if until_ms - since_ms > _BARS * DAY_MS:
        # Not of years without any.
        ends = read.days_with_decisions(query.cluster, simulated=wanted["simulated"])
        if ends is not None:
            since_ms, until_ms = max(since_ms, ends[0]), min(until_ms, ends[1] + DAY_MS)
        if ends is None or since_ms >= until_ms:
            return Histogram(title=f"{what} per day: 0", note="There is none in this time.")
    first_ms = since_ms // DAY_MS * DAY_MS
    days = -(-(until_ms - first_ms) // DAY_MS)
    step = next((one for one in _DAYS if days <= one * _BARS), _DAYS[-1])
    end_ms = first_ms + days * DAY_MS
    found = read.decisions_by_day(
        query.cluster,
        since_ms=first_ms,
        until_ms=end_ms,
        rule_set=wanted["rule_set"],
        outcome=query.outcome,
        origin=query.origin,
        simulated=wanted["simulated"],
    )
    counts: dict[int, int] = {}
    for day_ms, number in found.items():
        start = first_ms + (day_ms - first_ms) // (step * DAY_MS) * step * DAY_MS
        counts[start] = counts.get(start, 0) + number
    per = "day" if step == 1 else f"{step} days"
    took = f" of preemptions that took place{_where(service, query)}" if preempting else ""
    return Histogram(
        title=f"{what} per {per}: {sum(counts.values())}",
        bars=bars(
            counts, since_ms=first_ms, until_ms=end_ms, step_ms=step * DAY_MS, given=_kept(query)
        ),
        ends=(instant(first_ms)[:10], instant(until_ms - 1)[:10]),
        note=f"Whole days (UTC){took}, from {instant(first_ms)[:10]} on.",
    )
