"""Could it have been avoided? What would have spared a victim, each answer decided again.

Every change is asked alone, on the state, the time, the seed and the figures that the decision was
made with, and among what a scheduler offered for it. A change spares the victims where the decision
that follows evicts none of them; what it costs instead is part of the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from msgspec.structs import replace as with_fields

from policy.audit.recorded import not_pod_by_pod, with_figures
from policy.audit.replay import Replayer
from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import (
    LabelSelector,
    Node,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
)
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, Outcome, Victim
from policy.extenders.recorded import NotRecorded
from policy.preemption.decide import decide
from policy.rules.files import shipped_rules
from policy.rules.problems import RulesError
from policy.rules.ruleset import Rule, RuleSet
from policy.store import DecisionRow, Store

HOSTNAME: Final = "kubernetes.io/hostname"


class AlternativeKind(StrEnum):
    """What would have to be different, the least intrusive first. Values are part of the output."""

    PARAMETER = "parameter"  # one setting of the rule set
    RULE = "rule"  # one shipped rule, included
    BUDGET = "budget"  # a disruption budget for the victim
    PRIORITY = "priority"  # of the victim
    NODE = "node"  # one more


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What a decision takes: the pods that leave, and what is lost with them."""

    outcome: str
    node: str | None
    victims: tuple[str, ...]
    run_seconds: int
    pdb_violations: int
    highest_priority: int | None  #: None without victims


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """A node that lost."""

    node: str
    victims: tuple[str, ...]
    pdb_violations: int
    run_seconds: int
    highest_priority: int
    eliminated_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """What would have been decided with one thing different."""

    kind: AlternativeKind | None  #: None for an environment's rules
    what: str
    spared: bool
    instead: Cost | None  #: None where it could not be asked
    why_not: str = ""  #: why it could not be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Avoidable:
    """The whole answer for one decision."""

    id: int
    victims: tuple[str, ...]  #: that are to be spared
    taken: Cost
    alternatives: tuple[Alternative, ...]  #: best first
    rules: tuple[Counterfactual, ...]  #: each shipped rule alone
    environments: tuple[Counterfactual, ...]  #: the rules that are active in each
    #: the smallest of each kind that spares them, least intrusive first
    changes: tuple[Counterfactual, ...]
    #: changes that cannot spare them, or cannot be tried, and why: one sentence each
    not_possible: tuple[str, ...]


class NothingToAvoid(Exception):  # its message is for users
    """The decision evicts no pod."""


def avoidable(store: Store, number: int, victim: str | None = None) -> Avoidable:
    """Raises Incomplete, DecisionError where the decision cannot be made again, NothingToAvoid."""
    replayer = Replayer(store)
    (row,) = replayer.rows([number])
    snapshot, rules = replayer.situation(row)
    decision = replayer.again(row)
    evicted = set(decision.effects.evict)
    taken = tuple(v.pod for v in decision.victims if v.pod in evicted)
    if decision.outcome is not Outcome.PREEMPT or not taken:
        raise NothingToAvoid(f"decision {number} evicts no pod")
    if victim is not None and victim not in taken:
        raise NothingToAvoid(f"decision {number} does not evict `{victim}`, but {', '.join(taken)}")
    question = _Question(
        store=store,
        replayer=replayer,
        row=row,
        snapshot=snapshot,
        rules=rules,
        spare=frozenset(taken if victim is None else (victim,)),
        decision=decision,
    )
    included = tuple(question.shipped())
    return Avoidable(
        id=number,
        victims=tuple(pod for pod in taken if pod in question.spare),
        taken=cost_of(decision),
        alternatives=tuple(_alternatives(snapshot, decision)),
        rules=included,
        environments=tuple(question.environments()),
        changes=tuple(question.smallest(included)),
        not_possible=tuple(question.not_possible()),
    )


def cost_of(decision: Decision) -> Cost:
    """What the decision takes; pods that were leaving already cost nothing."""
    takes = decision.outcome is Outcome.PREEMPT
    victims = [v for v in decision.victims if takes and not v.already_terminating]
    return Cost(
        outcome=decision.outcome.value,
        node=decision.node,
        victims=tuple(v.pod for v in victims),
        run_seconds=sum(v.run_seconds for v in victims),
        pdb_violations=sum(v.pdb_violating for v in victims),
        highest_priority=max((v.priority for v in victims), default=None),
    )


def _alternatives(snapshot: Snapshot, decision: Decision) -> Iterator[Alternative]:
    def ran(key: str) -> int:
        pod = snapshot.pod(key)
        start = times.parse_optional(pod.status.start_time) if pod else times.MISSING
        return 0 if start == times.MISSING else max(0, (snapshot.now_ms - start) // 1000)

    for candidate in decision.candidates[1:]:
        pods = [snapshot.pod(key) for key in candidate.victims]
        yield Alternative(
            node=candidate.node,
            victims=candidate.victims,
            pdb_violations=candidate.pdb_violations,
            run_seconds=sum(map(ran, candidate.victims)),
            highest_priority=max((p.spec.priority or 0 for p in pods if p), default=0),
            eliminated_by=candidate.eliminated_by,
        )


@dataclass(frozen=True, kw_only=True)
class _Question:
    """One decision, to be made again with one thing different."""

    store: Store
    replayer: Replayer
    row: DecisionRow
    snapshot: Snapshot
    rules: RuleSet
    spare: Collection[str]
    decision: Decision

    def ask(
        self,
        kind: AlternativeKind | None,
        what: str,
        *,
        rules: RuleSet | None = None,
        changes: Iterable[Change] = (),
    ) -> Counterfactual:
        rules = rules or self.rules
        if rules.extenders and rules.extenders != self.rules.extenders:
            why = f"it is not known what the extenders of `{rules.name}` would have answered"
            return _not_asked(kind, what, why)
        pod = self.snapshot.pod(self.row.preemptor)
        if self.rules.groups is None and (why := not_pod_by_pod(rules, pod)):
            return _not_asked(kind, what, why)
        snapshot = with_figures(self.store, self.row, self.snapshot, rules)
        changes = tuple(changes)
        if changes:
            snapshot = snapshot.apply(changes)
        try:
            found = decide(
                snapshot,
                rules,
                self.row.preemptor,
                seed=self.row.seed,
                extenders=self.replayer.extenders(self.row, rules),
                offer=self.replayer.offer(self.row),
            )
        except NotRecorded as exc:
            return _not_asked(kind, what, str(exc))
        gone = found.effects.evict if found.outcome is Outcome.PREEMPT else ()
        return Counterfactual(
            kind=kind,
            what=what,
            spared=not set(gone) & set(self.spare),
            instead=cost_of(found),
        )

    # --- rules -----------------------------------------------------------------------------------

    def shipped(self) -> Iterator[Counterfactual]:
        """Each shipped rule file, included alone; what is in force already is left out."""
        for name in shipped_rules():
            rules = including(self.rules, RuleSet.load(name), name)
            if rules is not None:
                yield self.ask(AlternativeKind.RULE, name, rules=rules)

    def environments(self) -> Iterator[Counterfactual]:
        for one in self.store.read.environments():
            if one.active is None or one.active.batch:
                continue
            text = self.store.read.rule_set(one.active.rule_set_digest)
            what = f"{one.name} ({one.active.rule_set})"
            try:
                rules = RuleSet.from_canonical(text)
            except RulesError as exc:
                why = f"this version cannot read its rules: {exc.problems[0].message}"
                yield _not_asked(None, what, why)
            else:
                yield self.ask(None, what, rules=rules)

    # --- the smallest change of each kind --------------------------------------------------------

    def smallest(self, included: Iterable[Counterfactual]) -> Iterator[Counterfactual]:
        searches: list[Callable[[], Iterator[Counterfactual]]] = [
            self._parameters,
            lambda: iter(included),
        ]
        if self.replayer.offer(self.row) is None:
            searches += [self._budget, self._priorities, self._node]
        for search in searches:
            found = next((asked for asked in search() if asked.spared), None)
            if found is not None:
                yield found

    def _parameters(self) -> Iterator[Counterfactual]:
        rules = self.rules
        sampling = self.decision.trace.sampling
        if sampling is not None and sampling.examined < sampling.potential:
            every = replace(rules.candidates, min_percentage=100)
            text = f"candidates.minPercentage: 100 (was {rules.candidates.min_percentage})"
            yield self.ask(AlternativeKind.PARAMETER, text, rules=replace(rules, candidates=every))
        victims = sum(not v.already_terminating for v in self.decision.victims)
        if victims > 1:
            fewer = replace(rules.victims, max_victims=victims - 1)
            text = f"victims.maxVictims: {victims - 1}"
            yield self.ask(AlternativeKind.PARAMETER, text, rules=replace(rules, victims=fewer))
        order = list(rules.ranking)
        for i, criterion in enumerate(order):
            if i and criterion.pick is None:
                moved = (criterion, *order[:i], *order[i + 1 :])
                text = f"ranking: `{criterion.id}` before all others"
                yield self.ask(AlternativeKind.PARAMETER, text, rules=replace(rules, ranking=moved))

    def _victims(self) -> list[tuple[Victim, Pod]]:
        found = []
        for victim in self.decision.victims:
            pod = self.snapshot.pod(victim.pod)
            if victim.pod in self.spare and pod is not None:
                found.append((victim, pod))
        return found

    def _budget(self) -> Iterator[Counterfactual]:
        """A budget that allows no disruption of the pods that are to be spared."""
        changes: list[Change] = []
        names = []
        for victim, pod in self._victims():
            labels = pod.metadata.labels
            if not labels:  # `not_possible` says so
                return
            namespace = victim.pod.partition("/")[0]
            name = f"for-{pod.metadata.name}"
            budget = PodDisruptionBudget(
                metadata=ObjectMeta(name=name, namespace=namespace),
                spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=dict(labels))),
            )
            changes.append(("PodDisruptionBudget", f"{namespace}/{name}", budget))
            shown = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            names.append(f"{namespace} {shown}")
        what = f"a disruption budget that allows no disruption of {'; '.join(names)}"
        yield self.ask(AlternativeKind.BUDGET, what, changes=changes)

    def not_possible(self) -> Iterator[str]:
        if self.replayer.offer(self.row) is not None:
            yield (
                "Another budget, priority or node was not tried: what the scheduler would have "
                "offered then is not known."
            )
            return
        names = [victim.pod for victim, pod in self._victims() if not pod.metadata.labels]
        if names:
            have = "has" if len(names) == 1 else "have"
            yield (
                f"A disruption budget cannot help: {', '.join(names)} {have} no labels, and no "
                "budget covers a pod without labels."
            )

    def _priorities(self) -> Iterator[Counterfactual]:
        """The lowest priority that spares them: just above some other pod's, or the preemptor's."""
        victims = self._victims()
        own = max(victim.priority for victim, _ in victims)
        top = self.row.preemptor_priority
        known = {
            pod.spec.priority or 0
            for pod in self.snapshot.pods
            if pod is not None and pod.spec.node_name
        }
        tried = sorted({p for q in known for p in (q, q + 1) if own < p < top} | {top})
        for priority in tried:
            changes: list[Change] = [
                ("Pod", v.pod, with_fields(p, spec=with_fields(p.spec, priority=priority)))
                for v, p in victims
            ]
            names = ", ".join(victim.pod for victim, _ in victims)
            yield self.ask(
                AlternativeKind.PRIORITY,
                f"priority {priority} for {names} (was {own})",
                changes=changes,
            )

    def _node(self) -> Iterator[Counterfactual]:
        """One more node like the one that was chosen, empty."""
        name = self.decision.node or ""
        position = self.snapshot.nodes.index.get(name)
        if position is None:
            return
        node = self.snapshot.nodes.nodes[position]
        another = f"{name}-another"
        labels = {**(node.metadata.labels or {})}
        if HOSTNAME in labels:
            labels[HOSTNAME] = another
        made: Node = with_fields(
            node, metadata=with_fields(node.metadata, name=another, labels=labels or None, uid="")
        )
        yield self.ask(
            AlternativeKind.NODE, f"one more node like {name}", changes=[("Node", another, made)]
        )


def _not_asked(kind: AlternativeKind | None, what: str, why: str) -> Counterfactual:
    return Counterfactual(kind=kind, what=what, spared=False, instead=None, why_not=why)


def including(rules: RuleSet, overlay: RuleSet, name: str) -> RuleSet | None:
    """The rules with those that a shipped file adds to its base; None where they have them all.

    The result is for asking: it has the name and the digest of `rules`.
    """
    own = f"rules/{name}/"
    known = {r.id for r in (*rules.eligibility, *rules.victims.eligible, *rules.victims.forbid)}

    def added(of: Iterable[Rule]) -> tuple[Rule, ...]:
        return tuple(
            rule for rule in of if overlay.origins[rule.id].startswith(own) and rule.id not in known
        )

    eligibility = added(overlay.eligibility)
    eligible, forbid = added(overlay.victims.eligible), added(overlay.victims.forbid)
    limit, before = overlay.victims.max_victims, rules.victims.max_victims
    limits = limit is not None and (before is None or limit < before)
    if not (eligibility or eligible or forbid or limits):
        return None
    return replace(
        rules,
        eligibility=(*eligibility, *rules.eligibility),
        victims=replace(
            rules.victims,
            eligible=(*eligible, *rules.victims.eligible),
            forbid=(*rules.victims.forbid, *forbid),
            max_victims=limit if limits else before,
        ),
    )
