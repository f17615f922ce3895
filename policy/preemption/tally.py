"""History figures counted in memory, as the record counts them.

For evictions that no record holds to be asked: those of a dry run or a what-if, and those of a
recorded history that is gone through from its beginning.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

from policy.cluster.digest import HistoryFigures
from policy.cluster.objects import workload_key
from policy.decision.groups import GroupDecision
from policy.decision.model import Decision, Outcome
from policy.preemption.columns import history_key
from policy.rules.expressions.variables import LOOK_BACK_SECONDS


class Tally:
    """What was evicted, by workload and namespace, and who preempted; each with its times."""

    def __init__(self) -> None:
        self._hits: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))

    def preempted(self, *, now_ms: int, namespace: str) -> None:
        """A pod of the namespace preempted."""
        insort(self._hits["caused"][namespace], now_ms)

    def evicted(self, *, now_ms: int, pod: str, owner: str) -> None:
        """pod: `namespace/name`; owner: `Kind/name`, "" for a pod without one."""
        for key in {workload_key(pod, owner), owner} - {""}:
            insort(self._hits["workload"][key], now_ms)
        insort(self._hits["lost"][pod.partition("/")[0]], now_ms)

    def note(self, decision: Decision) -> None:
        """Count what a decision evicts."""
        if decision.outcome is not Outcome.PREEMPT:
            return
        now_ms = decision.now_ms
        self.preempted(now_ms=now_ms, namespace=decision.preemptor.partition("/")[0])
        evicted = frozenset(decision.effects.evict)
        for victim in decision.victims:
            if victim.pod in evicted:
                self.evicted(now_ms=now_ms, pod=victim.pod, owner=victim.owner)

    def note_group(self, decision: GroupDecision) -> None:
        """Count what the cycle of a pod group evicts: each member that it is for preempts once."""
        now_ms = decision.now_ms
        evicted = frozenset(decision.effects.evict)
        for member in sorted({decision.claimants[pod] for pod in evicted}):
            self.preempted(now_ms=now_ms, namespace=member.partition("/")[0])
        for victim in decision.victims:
            if victim.pod in evicted:
                self.evicted(now_ms=now_ms, pod=victim.pod, owner=victim.owner)

    def figures(
        self, function: str, window_seconds: int | None, *, now_ms: int
    ) -> Mapping[str, int]:
        """One function's figures at an instant."""
        hits = self._hits[_SOURCES[function]]
        return _Figures(hits, now_ms=now_ms, window_seconds=window_seconds)

    def added_to(
        self,
        recorded: HistoryFigures,
        needs: Collection[tuple[str, int | None]],
        *,
        now_ms: int,
    ) -> dict[str, dict[str, int]]:
        """The figures of the record, with what was counted here on top of them."""
        joined: dict[str, dict[str, int]] = {}
        for function, window in needs:
            key = history_key(function, window)
            figures = dict(recorded.get(key, {}))
            for name, figure in self.figures(function, window, now_ms=now_ms).items():
                known = figures.get(name)
                figures[name] = figure if known is None else joining(function)(known, figure)
            joined[key] = figures
        return joined


def joining(function: str) -> Callable[[int, int], int]:
    """How two parts of one figure make the whole."""
    return min if function == "secondsSinceLastPreempted" else int.__add__


_SOURCES: Final = {
    "preemptedCount": "workload",
    "secondsSinceLastPreempted": "workload",
    "namespacePreemptedCount": "lost",
    "namespacePreemptions": "caused",
}


class _Figures(Mapping[str, int]):
    """One function's figures, counted when they are needed."""

    def __init__(
        self, hits: Mapping[str, list[int]], *, now_ms: int, window_seconds: int | None
    ) -> None:
        self._hits = hits
        self._now_ms = now_ms
        self._window = window_seconds

    def __getitem__(self, key: str) -> int:
        times = self._hits.get(key, [])
        until = bisect_right(times, self._now_ms)
        window = LOOK_BACK_SECONDS if self._window is None else self._window
        since = bisect_right(times, self._now_ms - window * 1000)
        if since >= until:
            raise KeyError(key)
        if self._window is None:
            return (self._now_ms - times[until - 1]) // 1000
        return until - since

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._hits if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, key: object) -> bool:
        try:
            return isinstance(key, str) and self[key] >= 0
        except KeyError:
            return False
