"""Observed preemptions out of the record, decided again: as then, or under other rules."""

from __future__ import annotations

from functools import partial

from policy.audit.observed.comparing import POD_GROUP, examining_all, without_extenders
from policy.audit.observed.views import View
from policy.audit.past import Damaged, Past
from policy.cluster import times
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import Decision
from policy.decision.record import record_of
from policy.groups.decide import decide_group
from policy.preemption.decide import DecisionError, decide
from policy.rules import RuleSet
from policy.store import NotFound, Store, StoredDecision, StoreError, Unavailable
from policy.store.observed import ObservationRow


class CannotDecide(Exception):  # what is missing, in the words of its message
    """An observed preemption cannot be decided again."""


class AgainDecider:
    """Decides the observed preemptions of one store; ascending order in a cluster is cheap."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pasts: dict[str, Past] = {}

    def decide(
        self, row: ObservationRow, rules: RuleSet, *, evaluate_all: bool = False
    ) -> tuple[Decision | GroupDecision, Snapshot]:
        """The decision on the state that the observation was judged on, at its time.

        The rules' history figures are those of the moment before; extenders are not called: what
        they answered then is not known. Raises CannotDecide.
        """
        rules = without_extenders(rules)
        if not row.preemptor:
            raise CannotDecide("the preemptor is unknown")
        revision = row.detail.get("revision", row.base_revision)
        if not isinstance(revision, int) or revision < 1:
            raise CannotDecide("no state before it is kept")
        now_ms = min(row.now_ms, times.LATEST_NOW)
        needs = rules.history_needs
        history = (
            # Without the preemption itself, which is recorded for this instant.
            self._store.read.history(row.cluster, needs, now_ms=now_ms - 1) if needs else None
        )
        past = self._pasts.setdefault(row.cluster, Past(self._store, row.cluster))
        try:
            # The budgets of a view can be those of a later revision, which is read first.
            at = partial(past.at, now_ms=now_ms, history=history)
            snapshot = View.stored(revision, row.detail).of(at)
            if row.preemptor_kind == POD_GROUP:
                return decide_group(snapshot, rules, row.preemptor), snapshot
            return decide(snapshot, rules, row.preemptor, evaluate_all=evaluate_all), snapshot
        except Unavailable:
            raise  # it says nothing about the record, and where the database is
        except (NotFound, StoreError, Damaged, DecisionError) as exc:
            raise CannotDecide(str(exc)) from exc


def decided_again(store: Store, row: ObservationRow) -> StoredDecision | GroupDecision:
    """The decision of the rules that judged it, through every step. Raises CannotDecide."""
    decider = AgainDecider(store)
    decision, _ = decider.decide(row, as_observed(store, row), evaluate_all=True)
    if isinstance(decision, GroupDecision):
        return decision
    return StoredDecision.unsaved(
        record_of(decision),
        cluster=row.cluster,
        environment="",
        base_revision=int(row.detail.get("revision", row.base_revision or 0)),
        at_ms=row.at_ms,
        actor=row.actor,
    )


def as_observed(store: Store, row: ObservationRow) -> RuleSet:
    """The rule set that judged an observation, examining all nodes as then.

    Raises CannotDecide where it is not stored, and this version ships another one under that name.
    """
    if not row.rule_set:
        raise CannotDecide(row.reason or "it was not decided again")
    try:
        return examining_all(RuleSet.from_canonical(store.read.rule_set(row.rule_set_digest)))
    except NotFound:
        pass  # a shipped one: its text is stored only where something else uses it
    if row.rule_set not in RuleSet.names():
        raise CannotDecide(f"rule set {row.rule_set} is not stored any more")
    rules = RuleSet.load(row.rule_set)
    if rules.digest != row.rule_set_digest:
        raise CannotDecide(f"rule set {row.rule_set} is another one by now")
    return examining_all(rules)
