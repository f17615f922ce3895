"""What did the cluster's own scheduler do, how is that known, and what would the rules say?"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.documents import document
from policy.audit.observed.comparing import POD_GROUP
from policy.audit.observed.documents import nodes
from policy.audit.rule_sets import load_shipped
from policy.audit.sentences import cycle_ended
from policy.cluster.pod_groups import disruption_mode, min_count
from policy.decision.groups import GroupDecision
from policy.decision.model import document_of
from policy.rules.criteria import instant_criteria
from policy.rules.files import shipped
from policy.server import views
from policy.server.pages.observed import CONFIDENCES, VERDICTS
from policy.server.pages.surface import Pages
from policy.server.security import scope
from policy.server.security.access import Principal
from policy.server.service import PolicyService
from policy.store import NotFound
from policy.store.observed import ObservationRow, VerdictClass


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    wanted, again = request.path_params["id"], bool(request.query_params.get("again"))
    values = await pages.work(
        request, principal, again, observation, pages.service, principal, wanted, again=again
    )
    return await pages.page(
        request,
        principal,
        "observation.html",
        verdicts=VERDICTS,
        confidences=CONFIDENCES,
        **values,
    )


def observation(
    service: PolicyService, principal: Principal, wanted: str, *, again: bool
) -> dict[str, Any]:
    """What the page shows; again: with the decision made again. Raises NotFound."""
    row = views.observation_row(service, principal, wanted)
    told = scope.observation(principal, row)
    shown = {
        "told": told,
        "nodes": nodes(told),
        "without_start": {one.victim for one in row.victims if one.start_ms is None},
    }
    if principal.limited:
        return {**shown, "rules": "", "again": None, "answered": None, "group": None}
    answered = row.detail["decision"] if row.verdict == VerdictClass.ANSWERED else None
    return {
        **shown,
        "answered": answered,
        "group": _group(service, row) if row.preemptor_kind == POD_GROUP else None,
        "rules": _rules_address(service, row),
        "again": _again(service, row) if again and answered is None else None,
    }


def _group(service: PolicyService, row: ObservationRow) -> dict[str, Any] | None:
    """The pod group in the state before; None where that is not kept."""
    if row.base_revision is None or not row.preemptor:
        return None
    try:
        found = service.store.state.group_at(row.cluster, row.preemptor, row.base_revision)
    except NotFound:  # pruned since
        return None
    least = None if found.group is None else min_count(found.group)
    return {
        "known": found.group is not None,
        "priority": 0 if found.group is None else found.group.spec.priority or 0,
        "policy": "basic" if least is None else f"gang, minCount {least}",
        "together": found.group is not None and disruption_mode(found.group) == POD_GROUP,
        "members": found.members,
    }


def _rules_address(service: PolicyService, row: ObservationRow) -> str:
    """What the rules that judged it are called in addresses; "" where they are gone."""
    try:
        service.store.read.rule_set(row.rule_set_digest)
        return row.rule_set_digest
    except NotFound:  # a shipped one is stored only where something else uses it
        named = row.rule_set in shipped() and load_shipped(row.rule_set).digest
        return row.rule_set if named == row.rule_set_digest else ""


def _again(service: PolicyService, row: ObservationRow) -> dict[str, Any]:
    """The decision with its candidates, or in words why there is none."""
    from policy.audit.observed.again import CannotDecide, as_observed, decided_again

    try:
        found = decided_again(service.store, row)
        rules = as_observed(service.store, row)
    except CannotDecide as exc:
        return {"problem": str(exc)}
    if isinstance(found, GroupDecision):
        cycle = document_of(found)
        return {"problem": "", "group": cycle, "ended": cycle_ended(cycle), "told": None}
    return {
        "problem": "",
        "group": None,
        "told": document(found),
        "instants": instant_criteria(rules.canonical),
    }
