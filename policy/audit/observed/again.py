"""Observed preemptions out of the record, decided again: as then, or under other rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import msgspec

from policy.audit.observed.comparing import POD_GROUP, examining_all, without_extenders
from policy.audit.past import Damaged, Past
from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision, GroupOutcome
from policy.decision.model import Decision, Outcome, Victim
from policy.groups.decide import decide_group
from policy.preemption.decide import DecisionError, decide
from policy.rules import RuleSet
from policy.store import NotFound, Store, StoreError
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
            snapshot = _as_judged(past.at(revision, now_ms=now_ms, history=history), row)
            if row.preemptor_kind == POD_GROUP:
                return decide_group(snapshot, rules, row.preemptor), snapshot
            return decide(snapshot, rules, row.preemptor, evaluate_all=evaluate_all), snapshot
        except (NotFound, StoreError, Damaged, DecisionError) as exc:
            raise CannotDecide(str(exc)) from exc


def _as_judged(snapshot: Snapshot, row: ObservationRow) -> Snapshot:
    """The state with the nominations that the verdict supposes beyond those that were in it."""
    changes: list[Change] = []
    for key, node in dict(row.detail.get("nominated") or {}).items():
        pod = snapshot.pod(key)
        if pod is not None:
            status = msgspec.structs.replace(pod.status, nominated_node_name=node)
            changes.append(("Pod", key, msgspec.structs.replace(pod, status=status)))
    return snapshot.apply(changes) if changes else snapshot


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


# --- set against other rules ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRow:
    """An observed preemption, and what other rules would have done."""

    observation: ObservationRow
    outcome: str  #: of the other rules; "" where they cannot be asked
    node: str
    victims: tuple[str, ...]  #: that the other rules would evict
    violating: frozenset[str]  #: those of them whose eviction would violate a budget
    detail: str  #: why nothing could be decided, or what the rules say

    @property
    def theirs(self) -> frozenset[str]:
        """Pods that the scheduler evicted, and that no other preemption counts."""
        return frozenset(v.victim for v in self.observation.victims if v.counted)

    @property
    def avoided(self) -> int:
        """How many evictions fewer; below zero where it is more."""
        return len(self.theirs) - len(self.victims) if self.outcome else 0

    @property
    def kept(self) -> tuple[str, ...]:
        """Pods that were evicted and would have stayed."""
        return tuple(sorted(self.theirs - set(self.victims))) if self.outcome else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedSum:
    """The difference that other rules would have made to one namespace in one week."""

    week: str  #: the Monday, UTC
    namespace: str  #: of the victims
    evictions: int  #: that took place
    would_be: int  #: under the other rules
    spared: int  #: pods that would have stayed
    others: int  #: pods that would have left in their place
    pdb_violations: int  #: that took place, as far as it is known
    pdb_violations_would_be: int


NONE: Final = frozenset[str]()


def compare(store: Store, rows: Sequence[ObservationRow], rules: RuleSet) -> Iterator[ComparedRow]:
    """What other rules would have done about each observed preemption, oldest first."""
    decider = AgainDecider(store)
    in_order = sorted(rows, key=lambda row: (row.cluster, row.base_revision or 0, row.id))
    for row in in_order:
        try:
            decision, snapshot = decider.decide(row, rules)
        except CannotDecide as exc:
            yield ComparedRow(
                observation=row, outcome="", node="", victims=(), violating=NONE, detail=str(exc)
            )
            continue
        gone = _evicted(decision, snapshot)
        if isinstance(decision, GroupDecision):
            node, message = "", decision.message
        else:
            node, message = decision.node or "", decision.trace.message
        yield ComparedRow(
            observation=row,
            outcome=str(decision.outcome),
            node=node,
            victims=tuple(sorted(victim.pod for victim in gone)),
            violating=frozenset(victim.pod for victim in gone if victim.pdb_violating),
            detail="" if gone else message,
        )


def _evicted(decision: Decision | GroupDecision, snapshot: Snapshot) -> list[Victim]:
    """The victims that it newly evicts."""
    preempts = (
        decision.outcome is GroupOutcome.PREEMPTING
        if isinstance(decision, GroupDecision)
        else decision.outcome is Outcome.PREEMPT
    )
    return [
        victim
        for victim in decision.victims
        if preempts and not victim.already_terminating and snapshot.pod(victim.pod) is not None
    ]


def sums(compared: Iterable[ComparedRow]) -> list[ComparedSum]:
    """The difference by week and namespace of the victims; what cannot be decided is left out."""
    found: dict[tuple[str, str], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in compared:
        if not row.outcome:
            continue
        week = _week(row.observation.now_ms)
        broken = {v.victim for v in row.observation.victims if v.pdb_violating}
        for pod in row.theirs:
            line = found[week, pod.partition("/")[0]]
            line["evictions"] += 1
            line["spared"] += pod not in row.victims
            line["pdb_violations"] += pod in broken
        for pod in row.victims:
            line = found[week, pod.partition("/")[0]]
            line["would_be"] += 1
            line["others"] += pod not in row.theirs
            line["pdb_violations_would_be"] += pod in row.violating
    names = (
        "evictions",
        "would_be",
        "spared",
        "others",
        "pdb_violations",
        "pdb_violations_would_be",
    )
    return [
        ComparedSum(week=week, namespace=namespace, **{name: line[name] for name in names})
        for (week, namespace), line in sorted(found.items())
    ]


def _week(now_ms: int) -> str:
    at = times.to_datetime(now_ms)
    assert at is not None
    return str((at - timedelta(days=at.weekday())).date())
