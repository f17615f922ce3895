"""How often a workload was hit, by whom, and what that cost: sums of the evictions of a list."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from policy.store.read.runs import PodRun, newest_first


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadHit:
    """One time that a pod of the workload was a victim."""

    now_ms: int
    cluster: str
    pod: str
    node: str
    priority: int
    started_ms: int | None  #: None where it had not started, or that is not known
    run_seconds: int  #: 0 where `started_ms` is None
    preemptor: str  #: "" where the reader may not know it
    decision: int | None = None  #: of the three exactly one is there
    session: int | None = None
    observation: int | None = None
    group: bool = False  #: is the session the cycle of a pod group?
    evicted: bool  #: False where it was leaving already, or the decision was not carried out


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTime:
    """Run time of pods that were evicted: work that was lost, unless it was saved somewhere."""

    seconds: int  #: of those of which it is known
    unknown: int  #: pods of which it is not known when they started


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptorCount:
    """Who took pods of a workload, and how many."""

    workload: str  #: `namespace/Kind/name` of its owner, or of the pod itself; "" for hidden ones
    evictions: int
    lost: LostTime


def by_preemptor(hits: Iterable[WorkloadHit], workloads: dict[str, str]) -> list[PreemptorCount]:
    """The evictions by the workload of the preemptor, the most first.

    workloads: of each preemptor; one that is not named there stands for itself.
    """
    by: dict[str, list[WorkloadHit]] = defaultdict(list)
    for hit in hits:
        if hit.evicted:
            by[workloads.get(hit.preemptor, hit.preemptor)].append(hit)
    return [
        PreemptorCount(workload=workload, evictions=len(its), lost=lost_time(its))
        for workload, its in sorted(by.items(), key=lambda one: (-len(one[1]), one[0]))
    ]


def lost_time(hits: Iterable[WorkloadHit]) -> LostTime:
    """Of those that were evicted."""
    evicted = [hit for hit in hits if hit.evicted]
    return LostTime(
        seconds=sum(hit.run_seconds for hit in evicted),
        unknown=sum(hit.started_ms is None for hit in evicted),
    )


def with_evicted(runs: Iterable[PodRun], hits: Sequence[WorkloadHit]) -> list[PodRun]:
    """The runs, and those of evicted pods whose states are not kept or not to be known.

    A run that is over ends with its eviction, as far as one is known.
    """
    found = [_ended(run, hits) for run in runs]
    for hit in hits:
        if hit.evicted and not any(is_of(run, hit) for run in found):
            found.append(
                PodRun(
                    cluster=hit.cluster,
                    pod=hit.pod,
                    node=hit.node,
                    priority=hit.priority,
                    started_ms=_started_ms(hit),
                    start_known=hit.started_ms is not None,
                    ended_ms=hit.now_ms,
                    leaving=False,
                )
            )
    return newest_first(found)


def _started_ms(hit: WorkloadHit) -> int:
    return hit.now_ms if hit.started_ms is None else min(hit.started_ms, hit.now_ms)


def _ended(run: PodRun, hits: Sequence[WorkloadHit]) -> PodRun:
    # The state that has the pod no more may have been recorded days later, by an import.
    its = [hit.now_ms for hit in hits if hit.evicted and is_of(run, hit)]
    return run if run.ended_ms is None or not its else replace(run, ended_ms=max(its))


def is_of(run: PodRun, hit: WorkloadHit) -> bool:
    """Was it this run that the eviction ended? A pod that comes again has a run of its own."""
    ended = run.ended_ms is not None and run.ended_ms < hit.now_ms
    same = (run.cluster, run.pod) == (hit.cluster, hit.pod)
    return same and run.started_ms <= hit.now_ms and not ended
