"""The search for candidates: potential nodes, the dry run over a sample of them, the best one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import cast

import numpy as np

from policy.cluster import times
from policy.cluster.budgets import BudgetIndex
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import NOWHERE, PRIORITY, START, TERMINATING, Bools, Ints
from policy.decision import messages
from policy.decision.columns import Deferred, Runs
from policy.decision.model import (
    NO_CANDIDATES,
    NO_STATUSES,
    BudgetCount,
    BudgetViolation,
    Candidates,
    Code,
    NodeStatuses,
    PodCheck,
    RankingStep,
    RuleFired,
    Sampling,
    Victim,
)
from policy.decision.record import values_of
from policy.extenders.evaluate import ExtenderFailed
from policy.filters.base import UNRESOLVABLE
from policy.filters.pipeline import Judged
from policy.preemption.columns import owner_of
from policy.preemption.context import DecisionContext
from policy.preemption.extending import ask_preempt
from policy.preemption.filtering import Filtered
from policy.preemption.no_value import conditions_without_value
from policy.preemption.one_node import OneNode, goes_through
from policy.preemption.ranking import Field, Ranked, draw, rank
from policy.preemption.segments import gathered
from policy.preemption.victims import (
    Attempt,
    DryRun,
    attempts,
    joined,
)
from policy.preemption.whole_groups import UNITS, keeps_together, kept_because
from policy.rules.ruleset import CandidateNodes, ReprieveGroup, StartAt, Verdict


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SearchResult:
    """What the search for candidates gave."""

    potential: Rows
    sampling: Sampling | None = None
    candidates: Candidates = NO_CANDIDATES
    node: str = ""  #: of the best candidate, "" without any
    statuses: NodeStatuses = NO_STATUSES
    ranking: tuple[RankingStep, ...] = ()
    decided_by: str = ""
    checks: Sequence[PodCheck] = ()
    victims: tuple[Victim, ...] = ()
    fired: tuple[RuleFired, ...] = ()
    failure: str = ""  #: an extender's, which ends the preemption
    dropped: bool = False  #: extenders left no candidate
    refused: bool = False  #: the rules left none of those that a scheduler offers


NOTHING_SOUGHT = SearchResult(potential=np.zeros(0, dtype=np.int64))
"""The result where no search was made."""


def search(context: DecisionContext, filtered: Filtered, *, consult: bool) -> SearchResult:
    """Dry-run the potential nodes, rank the candidates, and tell the best one in full.

    consult: the rule set's extenders are queried, too.
    """
    rules = context.rules
    if rules.candidates.nodes is CandidateNodes.UNSCHEDULABLE:
        potential = filtered.unschedulable
    else:
        potential = filtered.resolvable
    if not potential.size:
        return SearchResult(potential=potential)
    if potential.size == len(context.names):
        potential = context.snapshot.nodes.every
    found, examined, sampling = _sample(context, potential)
    statuses = _dry_run_statuses(context, found)
    fired = (
        *victim_rules(context, examined, _decided(context, examined)),
        *forbidding_rules(context, found.held),
        # Where several dry runs were joined, or made for equal pods, nothing that they left is
        # without a value.
        *(
            rule
            for potential in found.potentials[:1]
            for rule in conditions_without_value(context, examined, potential)
        ),
    )
    if not found.nodes.size:
        return SearchResult(potential=potential, sampling=sampling, statuses=statuses, fired=fired)
    if consult and context.consultation is not None:
        failure = ""
        try:
            found = ask_preempt(context.consultation, found)
        except ExtenderFailed as exc:
            failure = str(exc)
        if failure or not found.nodes.size:
            return SearchResult(
                potential=potential,
                sampling=sampling,
                statuses=statuses,
                fired=fired,
                failure=failure,
                dropped=not failure,
            )
    return best_of(
        context,
        filtered,
        found,
        potential=potential,
        sampling=sampling,
        statuses=statuses,
        fired=fired,
    )


def best_of(
    context: DecisionContext,
    filtered: Filtered,
    found: DryRun,
    *,
    potential: Rows,
    sampling: Sampling | None,
    statuses: NodeStatuses,
    fired: tuple[RuleFired, ...],
) -> SearchResult:
    """Rank the candidates, of which there is one at least, and tell the best one in full."""
    ranked = rank(
        criteria=context.rules.ranking,
        field=Field.of(found, context.staying_violations),
        incoming=context.incoming,
        failed_nodes=filtered.failed_count,
        seed=context.seed,
    )
    best = ranked.best
    rows = found.victims[found.offsets[best] : found.offsets[best + 1]]
    node = int(found.nodes[best])
    told = _attempts(context, found, node, rows)
    return SearchResult(
        potential=potential,
        sampling=sampling,
        candidates=_candidates(context, found, ranked),
        node=context.names[node],
        statuses=statuses,
        ranking=ranked.steps,
        decided_by=ranked.decided_by,
        checks=Deferred(len(told), partial(_checks, context, node, told)),
        victims=listed_victims(context.snapshot, rows, told),
        fired=(*fired, *ranked.without_value),
    )


def _attempts(
    context: DecisionContext, found: DryRun, node: int, victims: Rows
) -> Sequence[Attempt]:
    """The reprieve on the chosen node step by step."""
    if found.looked_at(node) and goes_through(context):
        here = OneNode.of(context, node)
        if here is not None:
            return here.attempts(set(victims.tolist()))
    if found.potentials:
        potential = found.potential_on(node)
    else:
        potential = context.potential_victims(np.array([node], dtype=np.int64))
    return attempts(context.pipeline, potential, victims)


def _checks(context: DecisionContext, node: int, told: Sequence[Attempt]) -> tuple[PodCheck, ...]:
    snapshot, keys = context.snapshot, context.snapshot.keys
    violating = {a.row: a.violating for a in told}
    rows = np.array([a.row for a in told], dtype=np.int64)
    used = context.budget_counts(node, rows)
    budgets: dict[int, list[BudgetCount]] = {}
    for row, count in used:
        budgets.setdefault(row, []).append(count)

    by_group = context.rules.victims.reprieve != (ReprieveGroup.ALL,)
    ahead_by = dict.fromkeys((a.row for a in told if a.ahead_of != NOWHERE), "victims.reprieve")
    pairs = [
        (a.lead, a.ahead_of)
        for a in told
        if a.row in ahead_by and not (by_group and a.violating != violating[a.ahead_of])
    ]
    keys_of = context.importance.deciding_keys(pairs)
    by_lead = {row: key for (row, _), key in zip(pairs, keys_of, strict=True)}
    ahead_by |= {a.row: by_lead[a.lead] for a in told if a.lead in by_lead}
    return tuple(
        PodCheck(
            pod=keys[a.row],
            priority=priority,
            start_ms=start_ms,
            pdb_violating=a.violating,
            budgets=tuple(budgets.get(a.row, ())),
            reprieved=a.reprieved,
            ahead_of="" if a.ahead_of == NOWHERE else keys[a.ahead_of],
            ahead_by=ahead_by.get(a.row, ""),
            filter=a.filter,
            reasons=a.reasons,
        )
        for a, priority, start_ms in zip(
            told,
            snapshot.column(PRIORITY)[rows].tolist(),
            snapshot.column(START)[rows].tolist(),
            strict=True,
        )
    )


def _sample(context: DecisionContext, potential: Rows) -> tuple[DryRun, Rows, Sampling]:
    """Dry-run potential nodes, one by one in cyclic name order, until enough is found.

    Enough: the wanted number of candidates, at least one of them without PDB violation.
    """
    rules = context.rules.candidates
    size = potential.size
    wanted = min(size, max(size * rules.min_percentage // 100, rules.min_absolute))
    if wanted >= size:
        found = context.dry_run(potential)
        sampling = Sampling(potential=size, offset=0, wanted=size, examined=size)
        return found, potential, sampling
    offset = 0
    if rules.start is StartAt.RANDOM:
        offset = draw(context.incoming, seed=context.seed, purpose="candidates", size=size)
    walk = np.concatenate([potential[offset:], potential[:offset]])
    if context.shared_victims is not None:
        looked_at = np.sort(context.shared_victims.examined(context, walk, wanted=wanted))
        sampling = Sampling(potential=size, offset=offset, wanted=wanted, examined=looked_at.size)
        return context.dry_run(looked_at), looked_at, sampling
    found, examined = _walked(context, walk, wanted=wanted)
    sampling = Sampling(potential=size, offset=offset, wanted=wanted, examined=examined.size)
    return found, examined, sampling


def _walked(context: DecisionContext, walk: Rows, *, wanted: int) -> tuple[DryRun, Rows]:
    """What is found on the nodes of the walk up to the last one that is needed; these nodes."""
    size = walk.size
    parts: list[DryRun] = []
    seen = 0
    enough: int | None = None
    # Mostly the wanted number of nodes gives as many candidates; where it does not, the walk goes
    # on by what has been walked so far.
    while enough is None and seen < size:
        nodes = walk[seen : seen + max(1, wanted, seen)]
        parts.append(context.dry_run(np.sort(nodes)))
        seen += nodes.size
        enough = _enough(walk[:seen], parts, nodes=len(context.names), wanted=wanted)
    examined = np.sort(walk[: seen if enough is None else enough])
    if len(parts) == 1 and examined.size == seen:
        return parts[0], examined
    if context.rules.victims.forbid or not all(
        key.expression.total for key in context.rules.victims.importance
    ):
        # How many pods these held back or had no value for is reported of the examined nodes alone.
        return context.dry_run(examined), examined
    looked_at = np.zeros(len(context.names), dtype=np.bool_)
    looked_at[examined] = True
    return joined(parts).only(looked_at), examined


def _dry_run_statuses(context: DecisionContext, found: DryRun) -> NodeStatuses:
    """Why the nodes that were looked at and are no candidates are none."""
    others = (found.failed, found.without_victims, found.unfit, found.over_limit, found.needless)
    if not any(part.size for part in others):
        return NO_STATUSES
    failed = context.why_failed(found)
    statuses = list(failed.statuses)
    parts = [(found.failed, failed.index)]
    refused = [(found.without_victims, messages.NO_VICTIMS)]
    if found.unfit.size:
        refused.append((found.unfit, messages.UNFIT))
    for needed in sorted(set(found.needed.tolist())):
        text = messages.TOO_MANY_VICTIMS.format(
            needed=needed, limit=context.rules.victims.max_victims
        )
        refused.append((found.over_limit[found.needed == needed], text))
    for nodes, text in refused:
        parts.append((nodes, np.full(nodes.size, len(statuses), dtype=np.int64)))
        statuses.append((UNRESOLVABLE, "", (text,)))
    # A node that needs no victim should have passed the filters: the scheduler calls that an
    # error (an extender or a port held twice brings it about).
    for node in found.needless.tolist():
        parts.append((np.array([node]), np.array([len(statuses)])))
        text = messages.NEEDLESS.format(node=context.names[node])
        statuses.append((int(Code.ERROR), "", (text,)))
    nodes = np.concatenate([p[0] for p in parts])
    index = np.concatenate([p[1] for p in parts])
    by_name = np.argsort(nodes, kind="stable")
    judged = Judged(
        codes=np.zeros(nodes.size, dtype=np.int8),
        index=index[by_name],
        statuses=tuple(statuses),
    )
    return context.statuses(nodes[by_name], judged)


def victim_rules(
    context: DecisionContext, nodes: Rows, counts: Sequence[int]
) -> tuple[RuleFired, ...]:
    """How many pods on the examined nodes each victim rule allowed or denied.

    counts: what `decided_on` says of the nodes.
    """
    rules = context.rules.victims.eligible
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
    kept = 0
    if keeps_together(context.snapshot, context.rules):
        kept = int(np.isin(context.snapshot.node[context.kept_together], nodes).sum())
    if kept:
        told.append(
            RuleFired(
                section=UNITS,
                rule="",
                verdict=Verdict.DENY.value,
                reason=kept_because(context.rules),
                inputs={"pods": kept},
            )
        )
    return tuple(told)


def _decided(context: DecisionContext, nodes: Rows) -> list[int]:
    """`decided_on` nodes that a dry run has looked at."""
    if context.shared_victims is not None:
        return context.shared_victims.decided(nodes)
    return decided_on(context, nodes)


def decided_on(context: DecisionContext, nodes: Rows) -> list[int]:
    """Pods on the nodes for which no victim rule decided, then those that each one decided."""
    if nodes.size == len(context.names):
        return context.allowed.decided
    return context.allowed.decided_among(context.order.on(nodes)[0])


def forbidding_rules(context: DecisionContext, held: Sequence[int]) -> tuple[RuleFired, ...]:
    """How many potential victims each rule of `victims.forbid` held back."""
    return tuple(
        RuleFired(
            section="victims.forbid",
            rule=rule.id,
            verdict=rule.verdict.value,
            reason=rule.reason,
            inputs={"pods": n},
        )
        for rule, n in zip(context.rules.victims.forbid, held, strict=True)
        if n
    )


def _candidates(context: DecisionContext, found: DryRun, ranked: Ranked) -> Candidates:
    snapshot = context.snapshot
    size = found.nodes.size
    names, keys = snapshot.nodes.name_array, snapshot.keys

    @cache
    def listed() -> tuple[Rows, Rows]:
        return gathered(found.offsets, ranked.order)

    def victims() -> list[str]:
        return cast("list[str]", keys[found.victims[listed()[0]]].tolist())

    def offsets() -> list[int]:
        return cast("list[int]", listed()[1].tolist())

    def nodes() -> list[str]:
        return cast("list[str]", names[found.nodes[ranked.order]].tolist())

    return Candidates(
        nodes=Deferred(size, nodes),
        victims=Deferred(found.victims.size, victims),
        offsets=Deferred(size + 1, offsets),
        pdb_violations=Runs(size, lambda: (found.pdb_violations[ranked.order], None)),
        criteria=ranked.criteria,
        values=tuple(
            Runs(size, partial(_told_values, ranked, i)) for i in range(len(ranked.criteria))
        ),
        eliminated_by=Runs(
            size,
            lambda: (ranked.eliminated_at[ranked.order], None),
            labels=[*(criterion.id for criterion in context.rules.ranking), ""],
        ),
        violations=_violations(context, found, ranked, listed),
    )


def _violations(
    context: DecisionContext,
    found: DryRun,
    ranked: Ranked,
    listed: Callable[[], tuple[Rows, Rows]],
) -> tuple[BudgetViolation, ...]:
    """The budgets that victims of candidates would break, by the order of the candidates.

    listed: gives the positions of all victims in that order, and where those of each begin.
    """
    if not found.violating.any():
        return ()
    flat, offsets = listed()
    rows = found.victims[flat]
    nodes = found.nodes[ranked.order].repeat(np.diff(offsets))
    broken = found.violating[flat].nonzero()[0]
    rows, nodes = rows[broken], nodes[broken]
    names, keys = context.snapshot.nodes.name_array, context.snapshot.keys
    if context.whole_groups is not None:
        return tuple(
            BudgetViolation(**values_of(count), node=names[node], pod=keys[row])
            for node in dict.fromkeys(nodes.tolist())
            for row, count in context.budget_counts(node, rows[nodes == node])
            if count.allowed_after < 0
        )
    # A pod is on one node, so all of them are counted in one go.
    counts = context.counted(rows)
    counts = counts.some(counts.after < 0)
    budgets = BudgetIndex.of(context.snapshot).budgets
    return tuple(
        [
            BudgetViolation(
                budget=budgets[budget].key,
                disruptions_allowed=budgets[budget].allowed,
                allowed_before=before,
                allowed_after=after,
                node=node,
                pod=pod,
            )
            for budget, before, after, node, pod in zip(
                counts.budgets.tolist(),
                counts.before.tolist(),
                counts.after.tolist(),
                names[context.snapshot.node[counts.rows]].tolist(),
                keys[counts.rows].tolist(),
                strict=True,
            )
        ]
    )


def _told_values(ranked: Ranked, criterion: int) -> tuple[Ints, Bools | None]:
    """What the criterion says of the candidates, best first, and which have no value."""
    values, missing = ranked.values(criterion)
    return values[ranked.order], None if missing is None else missing[ranked.order]


_UNTOLD = Attempt(
    row=NOWHERE,
    lead=NOWHERE,
    violating=False,
    reprieved=False,
    ahead_of=NOWHERE,
    filter="",
    reasons=(),
)


def listed_victims(snapshot: Snapshot, rows: Rows, told: Sequence[Attempt]) -> tuple[Victim, ...]:
    """The pods as victims, in this order; `told` says why each could not stay."""
    why = {a.row: a for a in told}
    requests = snapshot.requests()
    ids = snapshot.pools.resources.ids
    cpu, memory = ids.get("cpu"), ids.get("memory")
    starts, terminating = snapshot.column(START), snapshot.column(TERMINATING)
    victims = []
    for row in rows.tolist():
        pod = snapshot.pods[row]
        assert pod is not None
        # An extender may name pods that would not have had to leave, or could not be asked to.
        told_of = why.get(row, _UNTOLD)
        start = starts.item(row)
        ran = 0 if start == times.MISSING else max(0, (snapshot.now_ms - start) // 1000)
        victims.append(
            Victim(
                pod=snapshot.keys[row],
                uid=pod.metadata.uid,
                node=pod.spec.node_name,
                priority=pod.spec.priority or 0,
                priority_class=pod.spec.priority_class_name,
                owner=owner_of(pod),
                start_ms=start,
                run_seconds=ran,
                cpu_milli=0 if cpu is None else requests.item(row, cpu),
                memory_bytes=0 if memory is None else requests.item(row, memory),
                pdb_violating=told_of.violating,
                already_terminating=terminating.item(row),
                filter=told_of.filter or messages.BY_EXTENDER,
                reasons=told_of.reasons,
            )
        )
    return tuple(victims)


def _enough(walk: Rows, parts: Sequence[DryRun], *, nodes: int, wanted: int) -> int | None:
    """How many nodes of the walk give enough candidates; None where all of them do not.

    nodes: in the cluster.
    """
    candidate, clean = np.zeros((2, nodes), dtype=np.bool_)
    for part in parts:
        candidate[part.nodes] = True
        clean[part.nodes] = part.pdb_violations == 0
    both = (candidate[walk].cumsum() >= wanted) & (clean[walk].cumsum() > 0)
    # Where nothing is wanted, the first clean candidate is enough.
    return int(np.argmax(both)) + 1 if both.any() else None
