"""What a viewer who is limited to namespaces sees of a record: only what is named here.

Nothing of a pod of another namespace: no name, label, count, priority or reason. Whatever is added
to decisions, cycles and batch sessions stays hidden until it is added here. What has a number is
shown with another one: see `numbers`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from policy.audit import session_documents
from policy.audit.documents import document, instant, listed
from policy.audit.observed import documents as observed
from policy.decision.model import Victim
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.store import DecisionRow, SessionRow, SessionStep, StoredDecision, StoredSession
from policy.store.observed import ObservationRow
from policy.store.outcomes import OutcomeRow
from policy.store.record.groups import document_of

_OF_ALL: Final = ("now", "outcome", "node", "rule_set", "origin", "answer")
_OF_OWN: Final = ("preemptor", "priority")
_OBSERVED_OF_ALL: Final = ("cluster", "now", "node", "confidence", "verdict", "rule_set")
_OBSERVED_OF_OWN: Final = ("preemptor", "preemptor_uid", "preemptor_kind", "preemptor_priority")
_OBSERVED_OF_VICTIM: Final = (
    "victim",
    "namespace",
    "uid",
    "node",
    "priority",
    "priority_class",
    "owner",
    "run_seconds",
    "evidence",
)
_OF_VICTIM: Final = ("pod", "node", "priority", "priority_class", "owner", "started", "evicted")


def lines(
    principal: Principal, rows: Sequence[DecisionRow], victims: Mapping[int, Sequence[Victim]]
) -> list[dict[str, Any]]:
    """Lines of a list of decisions. victims: by decision."""
    return [_line(principal, row, victims.get(row.id, ())) for row in rows]


def _line(principal: Principal, row: DecisionRow, victims: Sequence[Victim]) -> dict[str, Any]:
    line = listed(row, victims)
    if not principal.limited:
        return line
    own = principal.sees(_namespace(row.preemptor))
    shown = {name: line[name] for name in _OF_ALL}
    shown |= {name: line[name] if own else None for name in _OF_OWN}
    seen = [v for v in victims if principal.sees(_namespace(v.pod))]
    return {
        "id": principal.shown(Numbered.DECISION, row.id),
        **shown,
        "victims": len(seen),
        "cluster": row.cluster,
        "pdb_violations": None,
        "decided_by": None,
        "victim_pods": [victim.pod for victim in seen],
    }


def whole(principal: Principal, stored: StoredDecision) -> dict[str, Any]:
    """A decision's document."""
    told = document(stored)
    if not principal.limited:
        return told
    line = _line(principal, stored.row, stored.record.victims)
    del line["victim_pods"]  # they follow whole
    line["victims"] = [
        {name: victim[name] for name in _OF_VICTIM}
        for victim in told["victims"]
        if principal.sees(_namespace(victim["pod"]))
    ]
    return line


# --- cycles of pod groups ------------------------------------------------------------------------

_OF_ALL_CYCLES: Final = ("now", "outcome", "rule_set", "cluster")
_OF_OWN_GROUP: Final = ("group", "bound")
_OF_MEMBER: Final = ("pod", "priority", "placed", "bound", "nominated_node")


def cycle_line(principal: Principal, row: SessionRow, evicted: Sequence[str]) -> dict[str, Any]:
    """Line of a list of cycles. evicted: pods, needed for limited viewers only."""
    line = {
        "id": row.id,
        "now": instant(row.now_ms),
        "group": row.subject,
        "outcome": row.outcome,
        "bound": row.bound_count,
        "evicted": row.evicted_count,
        "rule_set": row.rule_set,
        "cluster": row.cluster,
    }
    if not principal.limited:
        return line
    own = principal.sees(_namespace(row.subject))
    shown = {name: line[name] for name in _OF_ALL_CYCLES}
    shown |= {name: line[name] if own else None for name in _OF_OWN_GROUP}
    return {
        "id": principal.shown(Numbered.SESSION, row.id),
        **shown,
        "evicted": sum(principal.sees(_namespace(pod)) for pod in evicted),
    }


def cycle(principal: Principal, stored: StoredSession) -> dict[str, Any]:
    """A cycle's document for a limited viewer: its own group's members, and its own victims."""
    told = document_of(stored)
    evicted = frozenset(() if stored.row.hypothetical else told["effects"]["evict"])
    own = principal.sees(_namespace(stored.row.subject))
    members = [{name: one[name] for name in _OF_MEMBER} for one in told["members"]]
    victims = [
        {
            **victim,
            "started": instant(victim["start_ms"]) or None,
            "evicted": victim["pod"] in evicted,
        }
        for victim in told["victims"]
        if principal.sees(_namespace(victim["pod"]))
    ]
    return {
        **cycle_line(principal, stored.row, tuple(evicted)),
        "members": members if own else [],
        "victims": [{name: victim[name] for name in _OF_VICTIM} for victim in victims],
    }


# --- batch sessions ------------------------------------------------------------------------------

_OF_ALL_SESSIONS: Final = ("now", "rule_set", "cluster")


def session_line(principal: Principal, row: SessionRow, moved: Mapping[str, int]) -> dict[str, Any]:
    """Line of a list of batch sessions.

    moved: pods of the viewer's namespaces by operation, needed for limited viewers only.
    """
    line = session_documents.summary(row)
    if not principal.limited:
        return line
    shown = {name: line[name] for name in _OF_ALL_SESSIONS}
    return {
        "id": principal.shown(Numbered.SESSION, row.id),
        **shown,
        "bound": moved.get("bind", 0),
        "evicted": moved.get("evict", 0),
    }


def batch_session(
    principal: Principal,
    row: SessionRow,
    steps: Mapping[int, SessionStep],
    outcomes: Sequence[OutcomeRow],
) -> dict[str, Any]:
    """A batch session's document for a limited viewer: which of its own pods went where, for whom.

    steps: those that bound or evicted pods, by position, which stays hidden: it tells how many
    others there were before. outcomes: of the session.
    """
    own = {at: step for at, step in steps.items() if principal.sees(_namespace(step.task))}
    vain = {one.position for one in outcomes}
    return {
        **session_line(principal, row, Counter(step.operation for step in own.values())),
        "steps": [
            {
                "action": step.action,
                "operation": step.operation,
                "job": step.job if principal.sees(_namespace(step.job)) else None,
                "task": step.task,
                "node": step.node,
                "claimant": _seen_or_none(principal, step.for_task),
                "carried_out": at not in vain,
            }
            for at, step in own.items()
        ],
    }


def _seen_or_none(principal: Principal, pod: str) -> str | None:
    """The pod, None where the viewer may not know it, "" where there is none."""
    return pod if not pod or principal.sees(_namespace(pod)) else None


# --- observed preemptions ------------------------------------------------------------------------


def observation(principal: Principal, row: ObservationRow) -> dict[str, Any]:
    """An observed preemption's document."""
    told = observed.document(row)
    if not principal.limited:
        return told
    own = principal.sees(_namespace(row.preemptor))
    shown = {name: told[name] for name in _OBSERVED_OF_ALL}
    shown |= {name: told[name] if own else None for name in _OBSERVED_OF_OWN}
    victims = [
        {name: victim[name] for name in _OBSERVED_OF_VICTIM}
        for victim in told["victims"]
        if principal.sees(victim["namespace"])
    ]
    return {
        "id": principal.shown(Numbered.OBSERVATION, row.id),
        **shown,
        "victims": victims,
    }


def _namespace(pod: str) -> str:
    return pod.partition("/")[0]
