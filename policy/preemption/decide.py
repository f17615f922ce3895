"""`decide`: one scheduling cycle for one pod, as a pure function.

The steps are kube-scheduler's: filter every node; where one passes, place the pod; otherwise ask
whether the pod may preempt, dry-run the potential nodes, rank the candidates, and say what
follows. Everything that is policy comes from the rule set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from policy.cluster.occupancy import NodeOrder
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import (
    NOWHERE,
    PREEMPTED,
    PRIORITY,
    SCHEDULER,
    START,
    TERMINATING,
    Bools,
)
from policy.filters.base import SUCCESS, UNRESOLVABLE, UNSCHEDULABLE, Incoming, Narrowing
from policy.filters.pipeline import Judged, Pipeline, Use, narrowing
from policy.filters.registry import FILTERS
from policy.preemption import messages
from policy.preemption.columns import (
    FrozenHistory,
    Lazy,
    Provider,
    owner_of,
    preemptor_variables,
    run_seconds,
    scalar,
    victim_variables,
)
from policy.preemption.decision import (
    NO_CANDIDATES,
    NO_EFFECTS,
    NO_STATUSES,
    Candidates,
    Code,
    Decision,
    Effects,
    NodeStatuses,
    NominationChange,
    Outcome,
    PodCheck,
    RankingStep,
    RuleFired,
    Sampling,
    Status,
    Texts,
    Trace,
    Victim,
)
from policy.preemption.importance import Importance, Ties
from policy.preemption.ranking import Field, Ranked, draw, rank
from policy.preemption.victims import (
    Allowed,
    Attempt,
    DryRun,
    allowed_victims,
    attempts,
    dry_run,
    potential_victims,
)
from policy.rules.expressions import Columns, Scalar
from policy.rules.ruleset import CandidateNodes, OnNoCandidate, Rule, RuleSet, StartAt, Verdict
from policy.scoring.placing import Placement, place


class DecisionError(ValueError):
    """The question cannot be asked: no such pod, or it is placed already."""


def decide(
    snapshot: Snapshot,
    rules: RuleSet,
    preemptor: str,
    *,
    seed: int = 0,
    evaluate_all: bool = False,
    ties: Ties | None = None,
) -> Decision:
    """What one scheduling cycle does with the pending pod `preemptor` (namespace/name).

    A pure function: equal arguments give equal decisions, on every machine. `seed` feeds the
    rule set's random choices. `evaluate_all` goes through every step, also where the pod fits or
    may not preempt (candidates are then hypothetical; outcome and effects stay what would
    happen). `ties` gives pods that are equal in importance another order than that of the
    snapshot. Raises DecisionError for a pod that is unknown or already placed.
    """
    row, pod = snapshot.row(preemptor), snapshot.pod(preemptor)
    if row is None or pod is None:
        raise DecisionError(f"no pod `{preemptor}` in the cluster")
    if pod.spec.node_name:
        raise DecisionError(f"pod `{preemptor}` is on node `{pod.spec.node_name}` already")
    if pod.status.phase in {"Succeeded", "Failed"}:
        raise DecisionError(f"pod `{preemptor}` has ended ({pod.status.phase})")
    incoming = Incoming(snapshot=snapshot, pod=pod, key=preemptor, row=row)
    cycle = _Cycle(
        incoming=incoming,
        rules=rules,
        seed=seed,
        evaluate_all=evaluate_all,
        ties=ties,
    )
    return cycle.run()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Filtered:
    """Result of the filters for every node."""

    codes: np.ndarray[tuple[int], np.dtype[np.int8]]
    statuses: NodeStatuses
    filtered: Bools  #: nodes that the filters looked at


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Eligibility:
    eligible: bool
    fired: RuleFired


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Found:
    """What the search for candidates gave."""

    potential: Rows
    sampling: Sampling | None = None
    candidates: Candidates = NO_CANDIDATES
    statuses: NodeStatuses = NO_STATUSES
    ranking: tuple[RankingStep, ...] = ()
    decided_by: str = ""
    checks: tuple[PodCheck, ...] = ()
    victims: tuple[Victim, ...] = ()
    fired: tuple[RuleFired, ...] = ()


class _Cycle:
    """One run of `decide`; holds what its steps share."""

    def __init__(
        self,
        *,
        incoming: Incoming,
        rules: RuleSet,
        seed: int,
        evaluate_all: bool,
        ties: Ties | None,
    ) -> None:
        self.incoming = incoming
        self.snapshot = incoming.snapshot
        self.rules = rules
        self.seed = seed
        self.evaluate_all = evaluate_all
        self.uses = [
            Use(info=FILTERS[u.name], parameters={**FILTERS[u.name].defaults(), **u.parameters})
            for u in rules.filters
        ]
        self.history = FrozenHistory(self.snapshot.history or {})
        self.variables = Lazy({**victim_variables(self.snapshot), **preemptor_variables(incoming)})
        self.importance = Importance(
            self.snapshot, rules.victims.importance, self.variables, self.history, ties=ties
        )
        self.names = self.snapshot.nodes.names
        self._allowed: Allowed | None = None

    # --- the cycle -----------------------------------------------------------------------------

    def run(self) -> Decision:
        if not len(self.snapshot.nodes):
            return self._failed("no nodes available to schedule pods")
        narrowed = narrowing(self.incoming, self.uses)
        if narrowed is not None and narrowed.error:
            return self._failed(narrowed.error)
        self.pipeline = Pipeline(self.incoming, self.uses)
        rejected = narrowed.rejected if narrowed is not None else ()
        filtered = self._filter(narrowed)
        passing = np.flatnonzero((filtered.codes == SUCCESS) & filtered.filtered)
        fits = passing.size > 0
        eligibility = self._eligibility(filtered)
        search = self.evaluate_all or (not fits and eligibility.eligible)
        found = self._search(filtered) if search else _Found(potential=np.zeros(0, np.int64))
        placement = self._place(passing) if fits else None
        outcome, node, effects, message = self._conclude(
            placement, eligibility, found, rejected=bool(rejected)
        )
        return self._decision(
            outcome=outcome,
            node=node,
            found=found,
            effects=effects,
            trace=Trace(
                fits=fits,
                eligible=eligibility.eligible,
                rejected=rejected,
                filter_statuses=filtered.statuses,
                rules=(eligibility.fired, *found.fired),
                potential_nodes=Texts(table=self.names, index=found.potential),
                sampling=found.sampling,
                dry_run_statuses=found.statuses,
                ranking=found.ranking,
                decided_by=found.decided_by,
                checks=found.checks,
                message=message,
                scores=placement.scores if placement is not None else (),
            ),
        )

    def _failed(self, message: str) -> Decision:
        """The cycle ended in an error; nothing was tried."""
        return self._decision(
            outcome=Outcome.ERROR,
            node=None,
            found=_Found(potential=np.zeros(0, np.int64)),
            effects=NO_EFFECTS,
            trace=Trace(
                fits=False,
                eligible=False,
                rejected=(),
                filter_statuses=NO_STATUSES,
                rules=(),
                potential_nodes=(),
                sampling=None,
                dry_run_statuses=NO_STATUSES,
                ranking=(),
                decided_by="",
                checks=(),
                message=message,
            ),
        )

    def _decision(
        self, *, outcome: Outcome, node: str | None, found: _Found, effects: Effects, trace: Trace
    ) -> Decision:
        return Decision(
            preemptor=self.incoming.key,
            preemptor_uid=self.incoming.pod.metadata.uid,
            preemptor_priority=self.incoming.priority,
            outcome=outcome,
            node=node,
            victims=found.victims,
            candidates=found.candidates,
            trace=trace,
            effects=effects,
            rule_set=self.rules.name,
            rule_set_digest=self.rules.digest,
            snapshot_digest=self.snapshot.digest,
            now_ms=self.snapshot.now_ms,
            seed=self.seed,
            evaluate_all=self.evaluate_all,
        )

    # --- filters -------------------------------------------------------------------------------

    def _filter(self, narrowed: Narrowing | None) -> _Filtered:
        size = len(self.names)
        every = np.arange(size)
        if narrowed is not None and narrowed.rejected:
            plugin = next(u.info.name for u in self.uses if _rejects(u, self.incoming))
            status = Status(code=Code.UNRESOLVABLE, filter=plugin, reasons=narrowed.rejected)
            return _Filtered(
                codes=np.full(size, UNRESOLVABLE, dtype=np.int8),
                statuses=NodeStatuses(nodes=self.names, index=(0,) * size, statuses=(status,)),
                filtered=np.zeros(size, dtype=np.bool_),
            )
        judged = self.pipeline.judge(self.pipeline.base, every)
        inside = np.ones(size, dtype=np.bool_)
        if narrowed is not None and narrowed.names is not None:
            # A nominated node is filtered before the narrowing is looked at.
            names = narrowed.names | {self.incoming.pod.status.nominated_node_name}
            inside = np.array([name in names for name in self.names], dtype=np.bool_)
            judged = _outside(judged, inside, resolvable=narrowed.outside == "no-status")
        shown = every if narrowed is None or narrowed.outside != "no-status" else every[inside]
        return _Filtered(
            codes=judged.codes,
            statuses=self._statuses(shown, judged, positions=shown),
            filtered=inside,
        )

    def _statuses(self, nodes: Rows, judged: Judged, *, positions: Rows) -> NodeStatuses:
        used, index = np.unique(judged.index[positions], return_inverse=True)
        names = self.names
        return NodeStatuses(
            nodes=names if nodes.size == len(names) else Texts(table=names, index=nodes),
            index=index.tolist(),
            statuses=tuple(
                Status(code=Code(code), filter=name, reasons=reasons)
                for code, name, reasons in (judged.statuses[i] for i in used.tolist())
            ),
        )

    # --- eligibility ---------------------------------------------------------------------------

    def allowed(self) -> Allowed:
        if self._allowed is None:
            self._allowed = allowed_victims(
                self.rules.victims.eligible, self.snapshot, self.variables, self.history
            )
        return self._allowed

    def _eligibility(self, filtered: _Filtered) -> _Eligibility:
        variables = self.variables.also(self._nominated_variables(filtered))
        columns = Columns(1, variables, self.history)
        for rule in self.rules.eligibility:
            if rule.when is None or rule.when.evaluate_scalar(columns).holds:
                return _Eligibility(
                    eligible=rule.verdict is Verdict.ALLOW,
                    fired=_fired("eligibility", rule, columns),
                )
        raise AssertionError("a rule set ends its eligibility with a rule that always holds")

    def _nominated_variables(self, filtered: _Filtered) -> dict[str, Provider]:
        """nominated.* and cluster.failedNodeCount."""
        snapshot = self.snapshot
        name = self.incoming.pod.status.nominated_node_name
        node = snapshot.nodes.index.get(name, NOWHERE) if name else NOWHERE

        def terminating() -> Bools:
            if node == NOWHERE:
                return np.zeros(len(snapshot.pods), dtype=np.bool_)
            return np.asarray((snapshot.node == node) & snapshot.column(TERMINATING))

        def lower() -> Bools:
            return terminating() & (snapshot.column(PRIORITY) < self.incoming.priority)

        def by_preemption() -> Bools:
            return np.asarray(terminating() & snapshot.column(PREEMPTED))

        def status() -> str:
            if node == NOWHERE or name not in filtered.statuses:
                return ""
            return filtered.statuses[name].code.label

        values: dict[str, Callable[[], str | int | bool]] = {
            "nominated.node": lambda: name,
            "nominated.exists": lambda: node != NOWHERE,
            "nominated.status": status,
            "nominated.lowerPriorityTerminating": lambda: int(lower().sum()),
            "nominated.preemptedPodsTerminating": lambda: int(
                (by_preemption() & self.allowed().pods).sum()
            ),
            "nominated.preemptedLowerPriorityTerminating": lambda: int(
                (by_preemption() & lower()).sum()
            ),
            "cluster.failedNodeCount": lambda: int((filtered.codes != SUCCESS).sum()),
        }
        return {key: scalar(of) for key, of in values.items()}

    # --- candidates ----------------------------------------------------------------------------

    def _search(self, filtered: _Filtered) -> _Found:
        rules = self.rules
        if rules.candidates.nodes is CandidateNodes.UNSCHEDULABLE:
            potential = np.flatnonzero(filtered.codes == UNSCHEDULABLE)
        else:
            tried = filtered.codes != UNRESOLVABLE
            potential = np.flatnonzero(tried & ~((filtered.codes == SUCCESS) & filtered.filtered))
        if not potential.size:
            return _Found(potential=potential)
        order = self.importance.order()
        found, examined, sampling = self._sample(potential, order)
        statuses = self._dry_run_statuses(found)
        fired = self._victim_rules(examined, order)
        if not found.nodes.size:
            return _Found(potential=potential, sampling=sampling, statuses=statuses, fired=fired)
        field = Field(
            nodes=found.nodes,
            victims=found.victims,
            offsets=found.offsets,
            pdb_violations=found.pdb_violations,
        )
        ranked = rank(
            criteria=rules.ranking,
            field=field,
            incoming=self.incoming,
            failed_nodes=int((filtered.codes != SUCCESS).sum()),
            seed=self.seed,
        )
        best = int(ranked.order[0])
        rows = found.victims[found.offsets[best] : found.offsets[best + 1]]
        told = self._attempts(int(found.nodes[best]), rows, order)
        return _Found(
            potential=potential,
            sampling=sampling,
            candidates=self._candidates(found, ranked),
            statuses=statuses,
            ranking=ranked.steps,
            decided_by=ranked.decided_by,
            checks=tuple(
                PodCheck(
                    pod=self.snapshot.keys[a.row],
                    pdb_violating=a.violating,
                    reprieved=a.reprieved,
                    filter=a.filter,
                    reasons=a.reasons,
                )
                for a in told
            ),
            victims=self._victims(rows, told),
            fired=fired,
        )

    def _dry_run(self, nodes: Rows, order: NodeOrder) -> DryRun:
        potential = potential_victims(
            rules=self.rules.victims,
            snapshot=self.snapshot,
            order=order,
            allowed=self.allowed().pods,
            nodes=nodes,
            variables=self.variables,
            history=self.history,
        )
        return dry_run(self.pipeline, potential, self.rules.victims, self.importance)

    def _sample(self, potential: Rows, order: NodeOrder) -> tuple[DryRun, Rows, Sampling]:
        """Dry-run potential nodes, one by one in cyclic name order, until enough is found.

        Enough: the wanted number of candidates, at least one of them without PDB violation.
        """
        rules = self.rules.candidates
        size = potential.size
        wanted = min(size, max(size * rules.min_percentage // 100, rules.min_absolute))
        if wanted >= size:
            found = self._dry_run(potential, order)
            sampling = Sampling(potential=size, offset=0, wanted=size, examined=size)
            return found, potential, sampling
        offset = 0
        if rules.start is StartAt.RANDOM:
            offset = draw(seed=self.seed, purpose="candidates", size=size)
        walk = np.concatenate([potential[offset:], potential[:offset]])
        examined = min(size, max(1, wanted))
        while True:
            nodes = walk[:examined]
            found = self._dry_run(np.sort(nodes), order)
            enough = _enough(nodes, found, wanted=wanted)
            if enough is not None or examined == size:
                break
            examined = min(size, examined * 2)
        if enough is not None and enough < examined:
            nodes = walk[:enough]
            found = self._dry_run(np.sort(nodes), order)
        sampling = Sampling(potential=size, offset=offset, wanted=wanted, examined=nodes.size)
        return found, np.sort(nodes), sampling

    def _dry_run_statuses(self, found: DryRun) -> NodeStatuses:
        """Why the nodes that were looked at and are no candidates are none."""
        statuses = list(found.failed_status.statuses)
        parts = [(found.failed, found.failed_status.index)]
        for nodes, text in (
            (found.without_victims, messages.NO_VICTIMS),
            (found.over_limit, messages.TOO_MANY_VICTIMS),
        ):
            parts.append((nodes, np.full(nodes.size, len(statuses), dtype=np.int64)))
            statuses.append((UNRESOLVABLE, "", (text,)))
        # A node that needs no victim should have passed the filters: the scheduler calls that an
        # error (an extender or a port held twice brings it about).
        for node in found.needless.tolist():
            parts.append((np.array([node]), np.array([len(statuses)])))
            text = messages.NEEDLESS.format(node=self.names[node])
            statuses.append((int(Code.ERROR), "", (text,)))
        nodes = np.concatenate([p[0] for p in parts])
        index = np.concatenate([p[1] for p in parts])
        by_name = np.argsort(nodes, kind="stable")
        judged = Judged(
            codes=np.zeros(nodes.size, dtype=np.int8),
            index=index[by_name],
            statuses=tuple(statuses),
        )
        return self._statuses(nodes[by_name], judged, positions=np.arange(nodes.size))

    def _victim_rules(self, nodes: Rows, order: NodeOrder) -> tuple[RuleFired, ...]:
        """How many pods on the examined nodes each victim rule allowed or denied."""
        rules = self.rules.victims.eligible
        on = np.zeros(len(self.names) + 1, dtype=np.bool_)
        on[nodes] = True
        decided = self.allowed().rule[on[self.snapshot.node]]
        counts = np.bincount(decided + 1, minlength=len(rules) + 1).tolist()
        told = [
            RuleFired(
                section="victims.eligible",
                rule=rule.id,
                verdict=rule.verdict.value,
                reason=rule.reason,
                inputs={"pods": n},
            )
            for rule, n in zip(rules, counts[1:], strict=True)
            if n
        ]
        if counts[0]:
            told.append(
                RuleFired(
                    section="victims.eligible",
                    rule="",
                    verdict=Verdict.DENY.value,
                    reason="",
                    inputs={"pods": counts[0]},
                )
            )
        return tuple(told)

    def _attempts(self, node: int, victims: Rows, order: NodeOrder) -> list[Attempt]:
        potential = potential_victims(
            rules=self.rules.victims,
            snapshot=self.snapshot,
            order=order,
            allowed=self.allowed().pods,
            nodes=np.array([node], dtype=np.int64),
            variables=self.variables,
            history=self.history,
        )
        return attempts(self.pipeline, potential, self.rules.victims, victims)

    # --- results -------------------------------------------------------------------------------

    def _candidates(self, found: DryRun, ranked: Ranked) -> Candidates:
        order = ranked.order
        starts, counts = found.offsets[order], np.diff(found.offsets)[order]
        offsets = np.zeros(order.size + 1, dtype=np.int64)
        np.cumsum(counts, out=offsets[1:])
        flat = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
        keys, names = self.snapshot.keys, self.names
        behind = [*(criterion.id for criterion in self.rules.ranking), ""]
        return Candidates(
            nodes=Texts(table=names, index=found.nodes[order]),
            victims=Texts(table=keys, index=found.victims[flat]),
            offsets=offsets.tolist(),
            pdb_violations=found.pdb_violations[order].tolist(),
            criteria=ranked.criteria,
            values=tuple(v[order].tolist() for v in ranked.values),
            left_behind_at=[behind[step] for step in ranked.left_behind[order].tolist()],
        )

    def _victims(self, rows: Rows, told: Sequence[Attempt]) -> tuple[Victim, ...]:
        snapshot = self.snapshot
        why = {a.row: a for a in told}
        requests = snapshot.requests()
        ids = snapshot.pools.resources.ids
        cpu, memory = ids.get("cpu"), ids.get("memory")
        seconds = run_seconds(snapshot)
        victims = []
        for row in rows.tolist():
            pod = snapshot.pods[row]
            assert pod is not None
            victims.append(
                Victim(
                    pod=snapshot.keys[row],
                    uid=pod.metadata.uid,
                    node=pod.spec.node_name,
                    priority=pod.spec.priority or 0,
                    priority_class=pod.spec.priority_class_name,
                    owner=owner_of(pod),
                    start_ms=int(snapshot.column(START)[row]),
                    run_seconds=int(seconds[row]),
                    cpu_milli=0 if cpu is None else int(requests[row, cpu]),
                    memory_bytes=0 if memory is None else int(requests[row, memory]),
                    pdb_violating=why[row].violating,
                    already_terminating=bool(snapshot.column(TERMINATING)[row]),
                    filter=why[row].filter,
                    reasons=why[row].reasons,
                )
            )
        return tuple(victims)

    def _conclude(
        self,
        placement: Placement | None,
        eligibility: _Eligibility,
        found: _Found,
        *,
        rejected: bool,
    ) -> tuple[Outcome, str | None, Effects, str]:
        if placement is not None:
            node = self.names[placement.node]
            return Outcome.BIND, node, _bind(node), ""
        if not eligibility.eligible:
            text = self._told(messages.PREFIX + eligibility.fired.reason)
            return Outcome.NOT_ELIGIBLE, None, NO_EFFECTS, text
        if not len(found.candidates):
            errors = [s.reasons[0] for s in found.statuses.statuses if s.code is Code.ERROR]
            if errors:
                return Outcome.ERROR, None, NO_EFFECTS, messages.PREFIX + ", ".join(errors)
            message = messages.preemption_failure(nodes=len(self.names), dry_run=found.statuses)
            outcome = Outcome.REJECTED if rejected else Outcome.NO_CANDIDATE
            policy = self.rules.effects.on_no_candidate
            clears = policy is OnNoCandidate.CLEAR or (
                policy is OnNoCandidate.CLEAR_IF_NO_POTENTIAL_NODE and not found.potential.size
            )
            change = NominationChange.CLEAR if clears else NominationChange.LEAVE
            effects = Effects(
                bind="", mark_disrupted=(), evict=(), clear_nominations=(), nomination=change
            )
            return outcome, None, effects, self._told(message)
        node = found.candidates.nodes[0]
        return Outcome.PREEMPT, node, self._preempt(node, found.victims), ""

    def _told(self, message: str) -> str:
        """The message, where this generation gives one."""
        return message if self.rules.effects.failure_message else ""

    def _place(self, passing: Rows) -> Placement:
        """The node for a pod that fits: the one it is nominated to, else the best by score."""
        nominated = self.snapshot.nodes.index.get(
            self.incoming.pod.status.nominated_node_name, NOWHERE
        )
        if nominated in passing:
            return Placement(node=nominated, scores=())
        return place(self.incoming, self.rules.scoring, passing)

    def _preempt(self, node: str, victims: Sequence[Victim]) -> Effects:
        rules = self.rules.effects
        snapshot = self.snapshot
        deleted = tuple(
            v.pod for v in victims if rules.delete_terminating_victims or not v.already_terminating
        )
        cleared: tuple[str, ...] = ()
        if rules.clear_lower_nominations:
            rows = np.flatnonzero(
                (snapshot.nominated == snapshot.nodes.index[node])
                & (snapshot.column(PRIORITY) < self.incoming.priority)
                & (snapshot.column(SCHEDULER) == snapshot.column(SCHEDULER)[self.incoming.row])
            )
            rows = rows[np.argsort(snapshot.rank[rows])]
            cleared = tuple(snapshot.keys[row] for row in rows.tolist())
        return Effects(
            bind="",
            mark_disrupted=deleted if rules.disruption_condition else (),
            evict=deleted,
            clear_nominations=cleared,
            nomination=NominationChange.SET,
        )


def _bind(node: str) -> Effects:
    return Effects(
        bind=node,
        mark_disrupted=(),
        evict=(),
        clear_nominations=(),
        nomination=NominationChange.LEAVE,
    )


def _rejects(use: Use, incoming: Incoming) -> bool:
    found = use.info.narrow(incoming, use.parameters)
    return found is not None and bool(found.rejected)


def _outside(judged: Judged, inside: Bools, *, resolvable: bool) -> Judged:
    """Statuses with those of nodes outside the narrowed set replaced."""
    status = (
        (UNSCHEDULABLE, "", ()) if resolvable else (UNRESOLVABLE, "", (messages.NOT_SATISFIED,))
    )
    return Judged(
        codes=np.where(inside, judged.codes, status[0]).astype(np.int8),
        index=np.where(inside, judged.index, len(judged.statuses)),
        statuses=(*judged.statuses, status),
    )


def _enough(walk: Rows, found: DryRun, *, wanted: int) -> int | None:
    """How many nodes of the walk give enough candidates; None where all of them do not."""
    position = {node: i for i, node in enumerate(found.nodes.tolist())}
    candidates = clean = 0
    for i, node in enumerate(walk.tolist()):
        at = position.get(node)
        if at is not None:
            candidates += 1
            clean += not found.pdb_violations[at]
        if clean and candidates >= wanted:
            return i + 1
    return None


def _fired(section: str, rule: Rule, columns: Columns) -> RuleFired:
    """The rule with the values of the plain variables that its condition reads."""
    inputs: dict[str, str | int | bool] = {}
    for name in rule.when.variables if rule.when is not None else ():
        column = columns.get(name)
        value = column.value if isinstance(column, Scalar) else None
        if isinstance(value, str | int | bool):
            inputs[name] = value
    return RuleFired(
        section=section,
        rule=rule.id,
        verdict=rule.verdict.value,
        reason=rule.reason,
        inputs=inputs,
    )
