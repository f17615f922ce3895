"""Comparisons of rule sets as programs read them, and the parts of which a report consists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from policy.audit.compare import Comparison, ComparisonSummary, DecisionResult, Group, Losses
from policy.audit.documents import instant
from policy.text.words import number

_FIGURES: Final = ("preemptions", "victims", "pdb_violations", "lost_seconds")


def summary_document(summary: ComparisonSummary) -> dict[str, Any]:
    return {
        "total": _group(summary.total),
        "changes": {change.value: count for change, count in summary.changes.items()},
        "by_namespace": {k: _group(g) for k, g in summary.by_namespace.items()},
        "by_priority": {str(k): _group(g) for k, g in summary.by_priority.items()},
        "by_victim_namespace": {k: _losses_pair(g) for k, g in summary.by_victim_namespace.items()},
        "by_victim_priority": {
            str(k): _losses_pair(g) for k, g in summary.by_victim_priority.items()
        },
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "decisions": group.decisions,
        "changed": group.changed,
        "before": _losses(group.before, _FIGURES),
        "after": _losses(group.after, _FIGURES),
    }


def _losses_pair(group: Group) -> dict[str, Any]:
    return {
        "before": _losses(group.before, _FIGURES[1:]),
        "after": _losses(group.after, _FIGURES[1:]),
    }


def _losses(losses: Losses, figures: Sequence[str]) -> dict[str, int]:
    return {name: getattr(losses, name) for name in figures}


def comparison_document(comparison: Comparison) -> dict[str, Any]:
    return {
        "id": comparison.id,
        "now": instant(comparison.now_ms),
        "preemptor": comparison.preemptor,
        "priority": comparison.priority,
        "change": comparison.change.value,
        "before": _result(comparison.before),
        "after": _result(comparison.after),
    }


def _result(result: DecisionResult) -> dict[str, Any]:
    return {**asdict(result), "outcome": result.outcome.value}


# --- parts of a report -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """Sums by one thing; only of what differs or costs anything."""

    title: str
    groups: Mapping[str, Group]
    not_listed: str  #: in words, the decisions that are in no group; "" where all are in one

    @property
    def counted(self) -> bool:
        """Are decisions counted, and not only victims?"""
        return any(group.decisions for group in self.groups.values())


def report_parts(summary: ComparisonSummary) -> list[ReportPart]:
    """The tables of a report, in their order, without those that would be empty."""
    parts: tuple[tuple[str, str, Mapping[Any, Group]], ...] = (
        ("in all", "", {"": summary.total}),
        ("by namespace of the preemptor", "namespace", summary.by_namespace),
        ("by priority of the preemptor", "priority", summary.by_priority),
        ("by namespace of the victims", "namespace", summary.by_victim_namespace),
        ("by priority of the victims", "priority", summary.by_victim_priority),
    )
    found = [
        ReportPart(
            title=title,
            groups={str(key): group for key, group in groups.items() if listed(group)},
            not_listed=not_listed(groups, what),
        )
        for title, what, groups in parts
    ]
    return [part for part in found if part.groups]


def listed(group: Group) -> bool:
    """Does anything differ, or any pod leave?"""
    return bool(group.changed or group.before.victims or group.after.victims)


def not_listed(groups: Mapping[Any, Group], what: str) -> str:
    """The groups that are not `listed`, in words; "" where all are. what: `namespace`, `priority`.

    With them the decisions of a table add up to all that were compared.
    """
    rest = [group for group in groups.values() if not listed(group)]
    if not rest:
        return ""
    decisions = number(sum(group.decisions for group in rest), "decision")
    several = {"namespace": "namespaces", "priority": "priorities"}
    of = f"1 {what}" if len(rest) == 1 else f"{len(rest)} {several[what]}"
    return f"{decisions} of {of} in which nothing differs and no pod leaves"
