"""What the API and the pages show of one decision beside its record: the rest takes its state."""

from __future__ import annotations

from policy.audit import node_change, spared
from policy.audit.compare import Comparison
from policy.audit.inputs import Replayed
from policy.audit.node_change import NodeChange, NoNodeChange
from policy.audit.recorded import Comparing, Skipped
from policy.audit.replay import replay_all
from policy.audit.spared import NotKnown, Protected
from policy.preemption.decide import DecisionError
from policy.rules import RuleSet
from policy.server.http import Failure
from policy.server.service import PolicyService
from policy.store import DecisionRow, StoredDecision


def node(
    service: PolicyService,
    stored: StoredDecision,
    rules: RuleSet | None,
    *,
    most: int | None = None,
) -> NodeChange | None:
    """Its node before and after it; None where that takes more looks than `most`.

    rules: of the decision, None where they are gone. Raises Failure.
    """
    try:
        return node_change.node_change(service.store, stored, rules, most=most)
    except NoNodeChange as exc:
        raise Failure(404, "not-found", str(exc)) from exc


def protected(service: PolicyService, stored: StoredDecision) -> tuple[Protected, ...]:
    """Who was no potential victim on its node, and why. Raises Failure."""
    try:
        return spared.protected(service.store, stored)
    except NotKnown as exc:
        message = f"the rules of decision {stored.row.id} cannot be evaluated again: {exc}"
        raise Failure(404, "not-found", message) from exc


def replayed(service: PolicyService, stored: StoredDecision) -> Replayed[DecisionRow]:
    """It is made again and compared with the record."""
    (result,) = replay_all(service.store, [stored.row.id])
    return result


def under(service: PolicyService, stored: StoredDecision, rules: RuleSet) -> Comparison | Skipped:
    """What other rules would have decided in its place. Raises Failure."""
    try:
        (result,) = Comparing(rules)(service.store, [stored.row.id])
    except DecisionError as exc:
        raise Failure(409, "conflict", f"`{rules.name}` cannot decide it: {exc}") from exc
    return result
