"""Where decisions hurt: who is hit again and again, by whom, in chains, and what it costs."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from policy.store import NominationRow
from policy.store.read.evictions import Eviction, EvictionOrder

STANDING: Final = "standing"
"""`WaitingRow.ended` of nominations that have not ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRow:
    """A workload that was hit."""

    workload: str  #: `namespace/Kind/name`
    evictions: int
    pods: int  #: distinct names among them
    shortest_gap_seconds: int | None  #: between two preemptions that hit it; None for a single one
    seconds_lost: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """Who took pods of whom."""

    preemptor: str
    victim: str
    evictions: int
    preemptions: int
    seconds_lost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramRow:
    """How many workloads were hit so often, and how many pods by their names."""

    evictions: int
    workloads: int
    pods: int  #: a pod that came back under its name is the same one


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeRow:
    """Preemptions that followed from preemptions: a victim that came back took another's place."""

    depth: int  #: 1: the preemptor's workload had not been a victim shortly before
    preemptions: int
    evictions: int
    example: str  #: `a > b > c`: a took from b, whose next pod took from c


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRow:
    """How long nominations lasted that ended in one way."""

    ended: str
    nominations: int
    median_seconds: int | None
    longest_seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """What was lost."""

    by: str  #: `namespace` and `priority` of the victim, or `preemptor`
    name: str
    evictions: int
    seconds_lost: int  #: run time of the evicted pods
    core_seconds_lost: int  #: the same times their cpu requests


def workloads(evictions: Iterable[Eviction]) -> list[WorkloadRow]:
    """The workloads that were hit, the most often first."""
    by_workload: dict[str, list[Eviction]] = defaultdict(list)
    for eviction in evictions:
        by_workload[eviction.workload].append(eviction)
    rows = [
        WorkloadRow(
            workload=name,
            evictions=len(found),
            pods=len({e.pod for e in found}),
            shortest_gap_seconds=_shortest_gap(found),
            seconds_lost=sum(e.run_seconds for e in found),
            first_ms=min(e.now_ms for e in found),
            last_ms=max(e.now_ms for e in found),
        )
        for name, found in by_workload.items()
    ]
    return sorted(rows, key=lambda row: (-row.evictions, -row.seconds_lost, row.workload))


def _shortest_gap(found: Sequence[Eviction]) -> int | None:
    times = sorted({e.order: e.now_ms for e in found}.values())
    gaps = [after - before for before, after in itertools.pairwise(times)]
    return min(gaps) // 1000 if gaps else None


def pairs(evictions: Iterable[Eviction]) -> list[PairRow]:
    """Preemptor and victim workloads, the pair with the most evictions first."""
    by_pair: dict[tuple[str, str], list[Eviction]] = defaultdict(list)
    for eviction in evictions:
        by_pair[eviction.preemptor_workload, eviction.workload].append(eviction)
    rows = [
        PairRow(
            preemptor=preemptor,
            victim=victim,
            evictions=len(found),
            preemptions=len({e.order for e in found}),
            seconds_lost=sum(e.run_seconds for e in found),
        )
        for (preemptor, victim), found in by_pair.items()
    ]
    return sorted(rows, key=lambda row: (-row.evictions, row.preemptor, row.victim))


def histogram(evictions: Iterable[Eviction]) -> list[HistogramRow]:
    """How many workloads and pods were hit how often; the last row holds the maximum."""
    found = list(evictions)
    workloads = Counter(Counter(e.workload for e in found).values())
    pods = Counter(Counter(e.pod for e in found).values())
    return [
        HistogramRow(evictions=n, workloads=workloads[n], pods=pods[n])
        for n in sorted({*workloads, *pods})
    ]


def cascades(evictions: Iterable[Eviction], *, window_seconds: int) -> list[CascadeRow]:
    """Preemptions by how deep in a chain they are.

    A preemption continues a chain where the preemptor's workload lost a pod within the window
    before it.
    """
    by_preemption: dict[EvictionOrder, list[Eviction]] = defaultdict(list)
    for eviction in evictions:
        by_preemption[eviction.order].append(eviction)
    reached: dict[str, tuple[int, int, str]] = {}  # workload -> when it was hit, depth, chain
    preemptions: Counter[int] = Counter()
    hit: Counter[int] = Counter()
    examples: dict[int, str] = {}
    for _, found in sorted(by_preemption.items()):
        now_ms, preemptor = found[0].now_ms, found[0].preemptor_workload
        before = reached.get(preemptor)
        fresh = before is not None and 0 <= now_ms - before[0] <= window_seconds * 1000
        depth = before[1] + 1 if before is not None and fresh else 1
        chain = before[2] if before is not None and fresh else preemptor
        preemptions[depth] += 1
        hit[depth] += len(found)
        for victim in dict.fromkeys(e.workload for e in found):
            path = f"{chain} > {victim}"
            examples.setdefault(depth, path)
            reached[victim] = (now_ms, depth, path)
    return [
        CascadeRow(
            depth=depth,
            preemptions=preemptions[depth],
            evictions=hit[depth],
            example=examples[depth],
        )
        for depth in sorted(preemptions)
    ]


def waiting(nominations: Iterable[NominationRow], *, now_ms: int) -> list[WaitingRow]:
    """How long preemptors waited on their nominations, by how those ended; standing ones last."""
    lengths: dict[str, list[int]] = defaultdict(list)
    for row in nominations:
        end = now_ms if row.ended_ms is None else row.ended_ms
        lengths[row.ended_by or STANDING].append(max(0, end - row.made_ms) // 1000)
    return [
        WaitingRow(
            ended=name,
            nominations=len(found),
            median_seconds=int(median(found)),
            longest_seconds=max(found),
        )
        for name, found in sorted(lengths.items(), key=lambda item: (item[0] == STANDING, item[0]))
    ]


_COST: Final[dict[str, Callable[[Eviction], str]]] = {
    "namespace": lambda e: e.namespace,
    "priority": lambda e: "unknown" if e.priority is None else str(e.priority),
    "preemptor": lambda e: e.preemptor_workload,
}
COST_BY: Final = tuple(_COST)
"""What costs are summed up by."""


def cost(evictions: Sequence[Eviction], *, by: str) -> list[CostRow]:
    """Run time that was lost, the largest sum first."""
    groups: dict[str, list[Eviction]] = defaultdict(list)
    for eviction in evictions:
        groups[_COST[by](eviction)].append(eviction)
    rows = [
        CostRow(
            by=by,
            name=name,
            evictions=len(found),
            seconds_lost=sum(e.run_seconds for e in found),
            core_seconds_lost=sum(e.run_seconds * e.cpu_milli for e in found) // 1000,
        )
        for name, found in groups.items()
    ]
    return sorted(rows, key=lambda row: (-row.seconds_lost, row.name))
