"""Is preemption healthy now? The figures of some days, of one cluster or of all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from policy.audit.documents import instant
from policy.store import EnvironmentRow, LedgerHead, Store
from policy.store.observed import VerdictClass
from policy.store.read.figures import DAY_MS, HOUR_MS, BrokenBudget, Evicted, NominatedPod

VERDICTS: Final = 1000
"""Observed preemptions of a cluster that are counted by verdict, the newest."""
BUDGETS: Final = 200
"""Victims that are looked at for the budgets that they violate, the newest."""
LINES: Final = 10
"""Of a list of the most, or of the longest."""
AGREES: Final = VerdictClass.SAME.value
"""Verdict of an observed preemption that the rules decide in the same way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    """One cluster."""

    cluster: str
    preemptions: int
    victims: int
    pdb_violations: int
    revision: int | None  #: the newest; None where no state was ever recorded
    state_at_ms: int | None
    head: LedgerHead | None  #: newest entry of its ledger
    #: the newest observed preemptions by verdict, the most frequent first; none without any
    verdicts: Mapping[str, int]
    simulated: bool = False  #: does it hold simulations and nothing real?

    @property
    def observed(self) -> int:
        """Those that the cluster's scheduler decided itself."""
        return sum(self.verdicts.values()) - self.verdicts.get(VerdictClass.ANSWERED.value, 0)

    @property
    def same(self) -> int:
        """Of them, those that the rules decide in the same way."""
        return self.verdicts.get(AGREES, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetHealth:
    """A disruption budget that victims violate."""

    cluster: str
    budget: str | None  #: None where the record does not keep which one it was
    namespace: str
    victims: int  #: pods that were leaving already among them
    newest_ms: int
    newest_decision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What the overview shows."""

    since_ms: int  #: the beginning of an hour
    until_ms: int  #: the end of the hour that has begun
    by_hour: Mapping[int, int]  #: preemptions, by the first millisecond of each hour with some
    pdb_violations: int  #: of these
    evicted: Evicted
    outcomes: tuple[tuple[str, int], ...]
    nominated: tuple[NominatedPod, ...]
    more_nominated: bool
    budgets: tuple[BudgetHealth, ...]
    clusters: tuple[ClusterHealth, ...]
    environments: tuple[EnvironmentRow, ...]

    @property
    def preemptions(self) -> int:
        return sum(self.by_hour.values())


def period(now_ms: int, days: int) -> tuple[int, int]:
    """So many days up to the end of the hour that has begun."""
    until_ms = (now_ms // HOUR_MS + 1) * HOUR_MS
    return until_ms - days * DAY_MS, until_ms


def health(store: Store, *, cluster: str | None, days: int, now_ms: int) -> Health:
    """Of one cluster, or of all: then only the lines of clusters count kept simulations.

    Raises NotFound for an unknown cluster.
    """
    since_ms, until_ms = period(now_ms, days)
    with store.reading() as rooms:
        read = rooms.read
        hours = read.preemptions_by_hour(cluster, since_ms=since_ms, until_ms=until_ms)
        ages = {one.cluster: one for one in read.state_ages()}
        heads = {head.cluster: head for head in rooms.ledger.heads()}
        verdicts = read.newest_verdicts(newest=VERDICTS)
        environments = read.environments()
        nominated = read.nominated_pods(cluster, limit=LINES + 1)
        evicted = read.evicted_within(cluster, since_ms=since_ms, until_ms=until_ms, limit=LINES)
        outcomes = read.outcomes_within(cluster, since_ms=since_ms, until_ms=until_ms)
        under = read.simulated_clusters()
        kept = read.kept_simulations()
        broken = read.broken_budgets(cluster, since_ms=since_ms, until_ms=until_ms, limit=BUDGETS)
    by_hour: Counter[int] = Counter()
    pdb_violations = 0
    sums: dict[str, Counter[str]] = {}
    for hour in hours:
        if cluster is not None or hour.cluster not in kept:
            by_hour[hour.begin_ms] += hour.preemptions
            pdb_violations += hour.pdb_violations
        of = sums.setdefault(hour.cluster, Counter())
        of["preemptions"] += hour.preemptions
        of["victims"] += hour.victims
        of["pdb_violations"] += hour.pdb_violations
    # A cluster of its own holds a kept one; a real cluster may hold what was simulated from it.
    simulated = under - set(ages) | kept
    names = sorted({*ages, *heads, *verdicts, *sums, *(row.cluster for row in environments)})
    return Health(
        since_ms=since_ms,
        until_ms=until_ms,
        by_hour=dict(by_hour),
        pdb_violations=pdb_violations,
        evicted=evicted,
        outcomes=tuple(outcomes),
        nominated=tuple(nominated[:LINES]),
        more_nominated=len(nominated) > LINES,
        budgets=_budgets(broken),
        clusters=tuple(
            ClusterHealth(
                cluster=name,
                preemptions=sums.get(name, Counter())["preemptions"],
                victims=sums.get(name, Counter())["victims"],
                pdb_violations=sums.get(name, Counter())["pdb_violations"],
                revision=ages[name].revision if name in ages else None,
                state_at_ms=ages[name].at_ms if name in ages else None,
                head=heads.get(name),
                verdicts=verdicts.get(name, {}),
                simulated=name in simulated,
            )
            for name in names
            if cluster in (None, name)
        ),
        environments=tuple(row for row in environments if cluster in (None, row.cluster)),
    )


def _budgets(broken: list[BrokenBudget]) -> tuple[BudgetHealth, ...]:
    """By budget, the one that was violated most often first; `broken`: the newest first."""
    found: dict[tuple[str, str, str], list[BrokenBudget]] = {}
    for one in broken:
        space = one.victim.partition("/")[0]
        found.setdefault((one.cluster, one.budget or "", space), []).append(one)
    counted = [
        BudgetHealth(
            cluster=cluster,
            budget=budget or None,
            namespace=space,
            victims=len({(one.decision_id, one.victim) for one in ones}),
            newest_ms=ones[0].at_ms,
            newest_decision=ones[0].decision_id,
        )
        for (cluster, budget, space), ones in found.items()
    ]
    return tuple(
        sorted(counted, key=lambda b: (-b.victims, b.namespace, b.budget or "", b.cluster))
    )


def document(found: Health, *, now_ms: int) -> dict[str, Any]:
    """The figures as programs get them; times as RFC 3339."""
    return {
        "since": instant(found.since_ms),
        "until": instant(found.until_ms),
        "preemptions": found.preemptions,
        "by_hour": [
            {"hour": instant(begin), "preemptions": count}
            for begin, count in sorted(found.by_hour.items())
        ],
        "outcomes": dict(found.outcomes),
        "clusters": [_of_cluster(one, now_ms) for one in found.clusters],
        "environments": [
            {
                "environment": row.name,
                "cluster": row.cluster,
                "rule_set": row.active.rule_set if row.active else None,
                "digest": row.active.rule_set_digest if row.active else None,
                "since": instant(row.active.at_ms) if row.active else None,
            }
            for row in found.environments
        ],
        "namespaces": [
            {"namespace": name, "evictions": count} for name, count in found.evicted.namespaces
        ],
        "workloads": [
            {
                "cluster": one.cluster,
                "workload": f"{one.namespace}/{one.owner}",
                "evictions": one.evictions,
            }
            for one in found.evicted.workloads
        ],
        "nominated": [
            {
                "cluster": one.cluster,
                "pod": one.pod,
                "priority": one.priority,
                "node": one.node,
                "since": instant(one.since_ms),
                "decision": one.decision_id,
            }
            for one in found.nominated
        ],
        "more_nominated": found.more_nominated,
        "budgets": [
            {
                "cluster": one.cluster,
                "budget": one.budget,
                "namespace": one.namespace,
                "victims": one.victims,
                "newest": instant(one.newest_ms),
                "decision": one.newest_decision,
            }
            for one in found.budgets
        ],
    }


def _of_cluster(one: ClusterHealth, now_ms: int) -> dict[str, Any]:
    return {
        "cluster": one.cluster,
        "preemptions": one.preemptions,
        "victims": one.victims,
        "pdb_violations": one.pdb_violations,
        "revision": one.revision,
        "state_age_seconds": (
            None
            if one.state_at_ms is None or one.simulated
            else max(0, now_ms - one.state_at_ms) // 1000
        ),
        "ledger": (
            None
            if one.head is None
            else {"sequence": one.head.sequence, "at": instant(one.head.at_ms)}
        ),
        "observed": one.observed,
        "same": one.same,
        "verdicts": dict(one.verdicts),
        "simulated": one.simulated,
    }
