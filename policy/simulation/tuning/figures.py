"""Figures of recorded simulations, as one number each that is better when it is smaller."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from policy.text.words import duration, grouped

Document = Mapping[str, Any]
"""The result of a simulation as it is recorded."""


def _percentile(name: str, which: str) -> Callable[[Document], int | None]:
    def value(figures: Document) -> int | None:
        found: int | None = figures[name][which]
        return found

    return value


def _count(name: str) -> Callable[[Document], int | None]:
    def value(figures: Document) -> int | None:
        return int(figures[name])

    return value


LOST_CPU: Final = "lost cpu"

FIGURES: Final[Mapping[str, Callable[[Document], int | None]]] = {
    **{f"wait {p}": _percentile("wait", p) for p in ("p50", "p95", "p99")},
    **{f"turnaround {p}": _percentile("turnaround", p) for p in ("p50", "p95", "p99")},
    "not started": _count("not_started"),
    "evictions": _count("evictions"),
    "repeats": _count("repeats"),
    "pdb violations": _count("pdb_violations"),
    "lost work": _count("lost_ms"),
    LOST_CPU: _count("lost_cpu_ms"),
    "waiting": _count("waiting_ms"),
}
"""By the names that `policy simulate` prints; `waiting`: the time that all pods waited together."""

PERCENTILES: Final = frozenset(name for name in FIGURES if name.startswith(("wait ", "turnaround")))
TIMES: Final = PERCENTILES | {"lost work", "waiting"}


def value(result: Document, figure: str, priority: int | None) -> float:
    """A figure of one simulation; times in milliseconds.

    Of several priorities it is the worst percentile, and the sum of counts and amounts. Where a
    percentile falls on a pod that never got there, it is the whole simulated time.
    """
    length = int(result["end_ms"]) - int(result["start_ms"])
    of = FIGURES[figure]
    if priority is None:
        groups: Sequence[Document] = [result["everyone"]]
    else:
        groups = [f for p, f in result["by_priority"].items() if int(p) >= priority]
    if figure not in PERCENTILES:
        return float(sum(of(group) or 0 for group in groups))
    came = [group for group in groups if group["arrived"]]
    found = [of(group) for group in came]
    return float(max((length if v is None else v for v in found), default=0))


def mean(results: Iterable[Document], figure: str, priority: int | None) -> float:
    """Over several simulations."""
    values = [value(result, figure, priority) for result in results]
    return sum(values) / len(values)


def worst(results: Iterable[Document], figure: str, priority: int | None) -> float:
    """Over several simulations."""
    return max(value(result, figure, priority) for result in results)


def shown(figure: str, amount: float) -> str:
    """In words: `3 h 2 min`, `12.50 cpu h`, `17`."""
    if figure == LOST_CPU:
        return f"{amount / 3_600_000_000:.2f} cpu h"
    if figure in TIMES:
        return f"{amount / 1000:.3f} s" if amount < 10_000 else duration(round(amount / 1000))
    return grouped(int(amount)) if amount == int(amount) else f"{amount:.1f}"
