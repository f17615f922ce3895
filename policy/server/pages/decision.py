"""Why there, why these pods? One decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from policy.audit.documents import causes
from policy.audit.fired import marked_rules, rules_of
from policy.audit.rule_sets import single_pod_names
from policy.audit.sentences import WOULD_HAVE, answered, contradicted
from policy.audit.spared import reprieved
from policy.rules.criteria import instant_criteria
from policy.rules.problems import RulesError
from policy.server import decided, rule_sets, views
from policy.server.http import Failure, in_thread
from policy.server.pages.decision_bars import node_bars
from policy.server.pages.occupancy import WIDTH
from policy.server.pages.parameters import require_choice
from policy.server.pages.surface import Pages
from policy.server.security.access import Principal
from policy.store import InvalidValue, NotFound, StoredDecision
from policy.store.model.decisions import Origin

_AT_ONCE: Final = 5_000
"""Pods whose versions ended since a decision: that many are looked at within 20 ms or so for those
of its node. Beyond that the node is shown on request."""
_LONG: Final = ("why_not", "rules", "replay")
"""Parameters for which the state of then is loaded."""
_LONG_PARTS: Final = ("node", "spared")
"""Of `show`, for which it is, too."""
_PARTS: Final = ("candidates", *_LONG_PARTS)
"""What `show` may be."""
_CANDIDATES: Final = 100
"""Rows of the ladder that are shown at once."""


async def show(pages: Pages, request: Request, principal: Principal) -> Response:
    wanted = request.path_params["id"]
    require_choice(request.query_params, "show", _PARTS)
    stored = await in_thread(views.stored_decision, pages.service, principal, wanted)
    told = views.decision(principal, stored)
    asked = {name: value.strip()[:253] for name, value in request.query_params.items()}
    more: dict[str, Any] = {}
    if not principal.limited:  # who is sees the document alone
        long = any(asked.get(name) for name in _LONG) or asked.get("show") in _LONG_PARTS
        more = await pages.work(request, principal, long, _whole, pages, stored, asked)
    # Pages of workloads and nodes have what was simulated where its cluster is named.
    only = told["cluster"] if told["origin"] == Origin.SIMULATED else ""
    return await pages.page(
        request, principal, "decision.html", told=told, in_cluster=only, width=WIDTH, **more
    )


def _whole(pages: Pages, stored: StoredDecision, asked: dict[str, str]) -> dict[str, Any]:
    """What the page shows to those who see all of a decision."""
    service = pages.service
    shown = asked.get("show", "")
    rules = rules_of(service.store, stored)
    most = None if shown == "node" else _AT_ONCE
    best = stored.record.candidates.best
    return {
        "rules": marked_rules(rules, stored.record),
        "has_rules": rules is not None,
        "instants": _instants(pages, stored.row.rule_set_digest),
        "causes": list(causes(stored)),
        "contradicted": [contradicted(one) for one in stored.outcomes],
        "answered": stored.served and answered(stored.served),
        "would_have": WOULD_HAVE if stored.row.is_judgement_only else "",
        "reprieved": reprieved(stored.record),
        "candidates_shown": len(best) if shown == "candidates" else min(len(best), _CANDIDATES),
        "bars": None
        if stored.row.node is None
        else _answer(lambda: _bars(decided.node(service, stored, rules, most=most))),
        "protected": _answer(lambda: decided.protected(service, stored))
        if shown == "spared"
        else None,
        "node": asked.get("why_not", ""),
        "why_not": _answer(lambda: views.why_not(service, stored, asked["why_not"]))
        if asked.get("why_not")
        else None,
        "names": single_pod_names(),
        "other": asked.get("rules", ""),
        "under": _answer(
            lambda: decided.under(service, stored, rule_sets.rule_set(service, asked["rules"]))
        )
        if asked.get("rules")
        else None,
        "replayed": _answer(lambda: decided.replayed(service, stored))
        if asked.get("replay")
        else None,
    }


def _bars(change: Any) -> Any:
    return None if change is None else node_bars(change)


def _answer(ask: Callable[[], Any]) -> dict[str, Any]:
    """What was found, or in words why it is not known."""
    try:
        return {"found": ask(), "problem": ""}
    except (Failure, InvalidValue, NotFound) as exc:
        hint = f" ({exc.help})" if exc.help else ""
        return {"found": None, "problem": f"{exc.message}{hint}"}
    except RulesError as exc:
        problem = f"these rules cannot be used: {str(exc).partition(chr(10))[0]}"
        return {"found": None, "problem": problem}


def _instants(pages: Pages, digest: str) -> frozenset[str]:
    """Criteria whose values are instants; none where the rule set is gone or cannot be read."""
    try:
        return instant_criteria(pages.service.store.read.rule_set(digest))
    except (NotFound, RulesError):
        return frozenset()
