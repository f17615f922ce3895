"""Where the extenders have their say in a cycle: after the filters, and after the dry run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from policy.cluster.tables import NOWHERE
from policy.decision import messages
from policy.decision.model import Code, NodeStatuses, Status
from policy.extenders.evaluate import CandidateOffer, Consultation, ExtenderFailed, FilterResult
from policy.filters.base import UNSCHEDULABLE, Nodes
from policy.preemption.filtering import Filtered
from policy.preemption.victims import DryRun
from policy.rules.ruleset import UnmentionedNodes

_UNMENTIONED: Final = Status(code=Code.UNRESOLVABLE, filter="", reasons=())


def ask_filters(
    consultation: Consultation,
    filtered: Filtered,
    *,
    names: Sequence[str],
    nominated: int,
) -> tuple[Filtered, Nodes]:
    """Statuses as the extenders leave them, and the nodes that pass. Raises ExtenderFailed.

    nominated: index of the pod's nominated node, NOWHERE without one: where it passes the
    filters, it is queried alone and before the others; a failure of that is forgotten.
    """
    passing = filtered.passing
    if nominated != NOWHERE and nominated in passing:
        alone = np.array([nominated], dtype=np.int64)
        try:
            result = consultation.filter(alone)
        except ExtenderFailed:
            pass
        else:
            filtered = _told(filtered, result, names)
            if result.passing.size:
                return filtered, result.passing
    result = consultation.filter(passing)
    return _told(filtered, result, names), result.passing


def _told(filtered: Filtered, result: FilterResult, names: Sequence[str]) -> Filtered:
    """A node that no answer mentions is unresolvable, or loses the status that it had."""
    said: dict[int, Status | None] = {
        node: _UNMENTIONED if what is UnmentionedNodes.UNRESOLVABLE else None
        for node, what in result.unmentioned.items()
    }
    for told, code in (
        (result.failed, Code.UNSCHEDULABLE),
        (result.unresolvable, Code.UNRESOLVABLE),
    ):
        for node, text in told.items():
            said[node] = Status(code=code, filter=messages.BY_EXTENDER, reasons=(text,))
    for node in result.passing.tolist():
        said.pop(node, None)
    if not said:
        return filtered
    codes = filtered.codes.copy()
    before = filtered.statuses
    index = dict(zip(before.nodes, before.index, strict=True))
    distinct = {status: i for i, status in enumerate(before.statuses)}
    for node, status in said.items():
        codes[node] = UNSCHEDULABLE if status is None else status.code
        if status is None:
            index.pop(names[node], None)
        else:
            index[names[node]] = distinct.setdefault(status, len(distinct))
    nodes = sorted(index)
    statuses = NodeStatuses(nodes=nodes, index=[index[n] for n in nodes], statuses=tuple(distinct))
    return replace(filtered, codes=codes, statuses=statuses)


def ask_preempt(consultation: Consultation, found: DryRun) -> DryRun:
    """The candidates as the extenders leave them. Raises ExtenderFailed."""
    bounds = found.offsets.tolist()
    rows = found.victims.tolist()
    offers = [
        CandidateOffer(node=node, victims=tuple(rows[start:end]), pdb_violations=violations)
        for node, start, end, violations in zip(
            found.nodes.tolist(), bounds, bounds[1:], found.pdb_violations.tolist(), strict=False
        )
    ]
    left = consultation.preempt(offers)
    if left == offers:
        return found
    broken = set(found.victims[found.violating].tolist())
    victims = [row for offer in left for row in offer.victims]
    return replace(
        found,
        nodes=np.array([o.node for o in left], dtype=np.int64),
        victims=np.array(victims, dtype=np.int64),
        offsets=np.cumsum([0, *(len(o.victims) for o in left)], dtype=np.int64),
        violating=np.array([row in broken for row in victims], dtype=np.bool_),
        pdb_violations=np.array([o.pdb_violations for o in left], dtype=np.int64),
    )
