"""The comparison of two rule sets as one self-contained HTML page: no network, no script.

The page is `templates/compare.html`; here is what it is filled with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.audit.compare import Comparison, ComparisonSummary, DecisionChange, Group
from policy.audit.compare_documents import listed, not_listed
from policy.audit.pages import environment
from policy.text.words import grouped

_MOST_CHANGES: Final = 300
_WIDTH: Final = 960
_PAIR_WIDTH: Final = 130

_COLOURS: Final = {
    DecisionChange.SAME: "same",
    DecisionChange.OTHER_NODE: "c1",
    DecisionChange.OTHER_VICTIMS: "c2",
    DecisionChange.NOW_FITS: "c3",
    DecisionChange.NEWLY_POSSIBLE: "c4",
    DecisionChange.NOW_PREEMPTS: "c5",
    DecisionChange.NO_LONGER_POSSIBLE: "c6",
    DecisionChange.OTHER_REASON: "c7",
    DecisionChange.OTHER_NOMINATIONS: "c8",
}
"""CSS classes; the order is that of the bar and its legend."""

_FIGURES: Final = (
    ("Victims", "victims"),
    ("PDB violations", "pdb_violations"),
    ("Lost run time", "lost_seconds"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What was compared, for the head of the page."""

    recorded_rules: Sequence[str]  #: names of the rule sets that decided
    rules: str
    rules_digest: str
    cluster: str
    skipped: int


def page(about: About, summary: ComparisonSummary, changed: Sequence[Comparison]) -> str:
    """The whole page. `changed`: the decisions that differ, in the order to show them."""
    total = summary.total
    counts = [(change, summary.changes.get(change, 0)) for change in _COLOURS]
    return (
        environment()
        .get_template("compare.html")
        .render(
            about=about,
            total=total,
            share=f"{100 * total.changed / total.decisions if total.decisions else 0:.1f}",
            figures=_FIGURES,
            width=_WIDTH,
            colours=_COLOURS,
            bar=list(_bar(counts)),
            legend=[(change, _COLOURS[change], count) for change, count in counts],
            tables=[
                table
                for table in (
                    _table("Who preempts, by namespace", "namespace", summary.by_namespace),
                    _table("Who preempts, by priority", "priority", summary.by_priority),
                    _table("Who leaves, by namespace", "namespace", summary.by_victim_namespace),
                    _table("Who leaves, by priority", "priority", summary.by_victim_priority),
                )
                if table["rows"]
            ],
            changed=changed[:_MOST_CHANGES],
            more_changes=max(0, len(changed) - _MOST_CHANGES),
        )
    )


def _bar(counts: Sequence[tuple[DecisionChange, int]]) -> Iterator[dict[str, Any]]:
    """The parts of one bar of all decisions, by kind of change."""
    total = sum(count for _, count in counts)
    x = 0.0
    for change, count in counts:
        if not count:
            continue
        width = _WIDTH * count / total
        has_room = width > 12 + 8 * len(grouped(count))
        yield {
            "meaning": change.meaning,
            "colour": _COLOURS[change],
            "count": count,
            "x": f"{x:.1f}",
            "width": f"{max(width - 1, 0.5):.1f}",
            "label_x": f"{x + width / 2:.1f}" if has_room else "",
        }
        x += width


def _table(title: str, name: str, groups: Mapping[Any, Group]) -> dict[str, Any]:
    """A table with a pair of bars per figure: before above, after below."""
    items = [(key, group) for key, group in groups.items() if listed(group)]
    items.sort(key=lambda item: (-max(item[1].before.victims, item[1].after.victims), str(item[0])))
    most = {
        figure: max(
            (max(getattr(g.before, figure), getattr(g.after, figure)) for _, g in items), default=0
        )
        for _, figure in _FIGURES
    }
    return {
        "title": title,
        "name": name,
        "counted": any(group.decisions for group in groups.values()),
        "rows": [
            {
                "key": str(key),
                "group": group,
                "pairs": [_pair(group, figure, most[figure]) for _, figure in _FIGURES],
            }
            for key, group in items
        ],
        "not_listed": not_listed(groups, name),
    }


def _pair(group: Group, figure: str, most: int) -> list[dict[str, Any]]:
    bars = []
    for y, kind, figures in ((0, "before", group.before), (17, "after", group.after)):
        value = getattr(figures, figure)
        width = _PAIR_WIDTH * value / most if most else 0
        bars.append(
            {
                "attribute": figure,
                "kind": kind,
                "value": value,
                "y": y,
                "width": f"{width:.1f}",
                "text_x": f"{width + 6 if value else 0:.1f}",
            }
        )
    return bars
