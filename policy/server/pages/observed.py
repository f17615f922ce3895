"""Preemptions of real schedulers, and what the rules that a team wants would have done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.documents import instant
from policy.audit.observed.documents import nodes
from policy.audit.rule_sets import single_pod_names
from policy.observing.model import Confidence
from policy.server import rule_sets, views
from policy.server.api.models import ObservationsQuery
from policy.server.api.operations import query_of
from policy.server.api.table import EXPORT_OBSERVATIONS, OBSERVATIONS, observations_wanted
from policy.server.http import API, Failure, about
from policy.server.pages.parameters import require_whole
from policy.server.pages.surface import Pages, mendable
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import StoreError
from policy.store.observed import ObservationRow, VerdictClass

MOST: Final = 200
"""How many the page looks at, the newest."""

VERDICTS: Final[Mapping[str, str]] = {
    VerdictClass.SAME.value: "the rules decide the same node and victims",
    VerdictClass.TIE.value: "another node, equal on every criterion",
    VerdictClass.ORDER.value: "other victims, equal in priority and start time",
    VerdictClass.SAMPLING.value: "a candidate; the scheduler need not have looked at a better one",
    VerdictClass.LAG.value: "the same on the state a moment earlier or later",
    VerdictClass.ANSWERED.value: "what the extender of the service answered; it is a decision",
    VerdictClass.OTHER.value: "something else; the reason names the first difference",
    VerdictClass.UNKNOWN.value: "it cannot be decided again; the reason says what is missing",
}
CONFIDENCES: Final[Mapping[str, str]] = {
    Confidence.CERTAIN.value: "an event names the preemptor and the victim",
    Confidence.LIKELY.value: "one pod alone was nominated to the node of a marked victim",
    Confidence.POSSIBLE.value: "the preemptor is unknown or one of several, or no victim is marked",
}


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    """The list; where a filter is wrong, the error in its place, so that it can be mended."""
    given = {name: value for name, value in request.query_params.items() if value}
    rules = given.get("rules", "")[:253]
    values: dict[str, Any] = {"lines": [], "gaps": [], "gap_count": 0, "older": ""}
    failure, status = None, 200
    try:
        require_whole(principal, given, ("rules",))
        query = query_of(OBSERVATIONS, request, blanks=True, beside=("rules",))
        assert isinstance(query, ObservationsQuery)  # the model that `OBSERVATIONS` names
        most = query.limit if "limit" in given else MOST
        reads = partial(observed, pages.service, principal, query, most=most, given=given)
        values |= await pages.work(request, principal, bool(rules), reads, rules=rules)
    except (Failure, StoreError) as exc:
        failure = mendable(exc)
        status = failure.status
    kept = {name: value for name, value in given.items() if name not in ("after", "limit")}
    return await pages.page(
        request,
        principal,
        "observed.html",
        status=status,
        failure=failure,
        message="" if failure is None else failure.message.removeprefix("query: "),
        verdicts=VERDICTS,
        confidences=CONFIDENCES,
        rules=rules,
        names=single_pod_names(),
        newest=_address(kept) if "after" in given else "",
        export=_export(kept),
        **{"against": None, **values},
    )


def _export(kept: Mapping[str, str]) -> str:
    filters = {name: value for name, value in kept.items() if name != "rules"}
    address = f"{API}{EXPORT_OBSERVATIONS.path}"
    return f"{address}?{urlencode(filters)}" if filters else address


def _address(given: Mapping[str, Any]) -> str:
    return f"/observed?{urlencode(given)}" if given else "/observed"


def observed(
    service: PolicyService,
    principal: Principal,
    query: ObservationsQuery,
    *,
    rules: str,
    most: int,
    given: Mapping[str, str],
) -> dict[str, Any]:
    """A page of them; rules: what they are set against, "" for nothing. Raises Failure, NotFound.

    Who is limited to namespaces sees their part of each, and neither sums nor gaps.
    """
    wanted = observations_wanted(query, now_ms=service.clock())
    page = views.one_page(partial(views.observations, service, principal, wanted), limit=most)
    gaps = [] if principal.limited else service.store.read.gaps(query.cluster)
    return {
        "lines": [_line(one) for one in page.lines],
        "older": "" if page.after is None else _address({**given, "after": page.after}),
        "gaps": [
            {
                "kind": gap.kind,
                "since": "" if gap.since_ms is None else instant(gap.since_ms),
                "until": instant(gap.until_ms),
                "reason": gap.reason,
                "cluster": gap.cluster,
            }
            for gap in gaps[:10]
        ],
        "gap_count": len(gaps),
        "against": _against(service, page.rows, rules) if rules else None,
    }


def _line(told: dict[str, Any]) -> dict[str, Any]:
    names = ("id", "cluster", "preemptor", "preemptor_kind", "confidence", "verdict")
    return {
        **{name: told[name] for name in names},
        "nodes": nodes(told),
        "at": told["now"],
        "victims": [victim["victim"] for victim in told["victims"]],
        "reason": told.get("reason", ""),
        "decision": told.get("detail", {}).get("decision"),
    }


def _against(service: PolicyService, rows: Sequence[ObservationRow], rules: str) -> dict[str, Any]:
    from policy.audit.observed.against import compare, sums, total

    with about("rules"):
        chosen = rule_sets.rule_set(service, rules)
    compared = list(compare(service.store, rows, chosen))
    lines = sums(compared)
    return {
        "lines": lines,
        "total": total(lines),
        "undecided": [
            {"id": row.observation.id, "why": row.detail} for row in compared if not row.outcome
        ],
        "count": len(compared),
    }
