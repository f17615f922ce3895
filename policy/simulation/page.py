"""Simulations as one self-contained HTML page: `templates/simulate.html` and what fills it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from policy.audit.compare import duration, grouped
from policy.audit.pages import environment
from policy.simulation import charts
from policy.simulation.charts import Chart
from policy.simulation.paired import differences
from policy.simulation.run import Result
from policy.simulation.words import difference_line, figure_line, names, of_rules, whole_line


def page(results: Sequence[Result], notes: Sequence[str]) -> str:
    """The whole page. results: at least one; all of one trace with the same options."""
    found = names(results)
    first = [of_rules(results, name)[0] for name in found]
    apart = [difference_line(one) for one in differences(results)]
    return (
        environment("policy.simulation")
        .get_template("simulate.html")
        .render(
            names=found,
            first=first[0],
            digests=[(r.rules, r.rules_digest) for r in first],
            seeds=len(of_rules(results, found[0])),
            notes=notes,
            options=_options(first[0]),
            length=duration((first[0].end_ms - first[0].start_ms) // 1000),
            colours=[charts.colour(i) for i in range(len(found))],
            charts=[*_over_time(first), _front(results)],
            curves=_curves(first),
            whole=[whole_line(of_rules(results, name)) for name in found],
            figures=[line for name in found for line in _figures(results, name)],
            apart=apart,
            width=charts.WIDTH,
            height=charts.HEIGHT,
            left=charts.LEFT,
        )
    )


def _options(result: Result) -> list[tuple[str, str]]:
    o = result.options
    bare = "never" if o.bare_return_ms is None else f"after {o.bare_return_ms // 1000} s"
    return [
        ("evicted pods restart", f"with their {o.restart} work"),
        ("controllers make them again", f"after {o.return_ms // 1000} s"),
        ("pods without controller come back", bare),
        ("a scheduling cycle takes", f"{o.cycle_ms} ms"),
        ("unknown durations", str(o.durations)),
        ("scheduler", o.scheduler),
    ]


def _over_time(first: Sequence[Result]) -> list[Chart]:
    seconds = (first[0].end_ms - first[0].start_ms) / 1000
    waiting = charts.over_time(
        "Pods that wait",
        [(r.rules, r.timeline.waiting) for r in first],
        seconds=seconds,
        shown=_number,
        note="means over 240 equal stretches of time",
    )
    used = [
        charts.over_time(
            f"Requested {resource}",
            [(r.rules, r.timeline.used.get(resource, ())) for r in first],
            seconds=seconds,
            shown=lambda share: f"{100 * share:g} %",
            note="of what the nodes have; pods that are leaving count",
        )
        for resource in sorted(first[0].timeline.used)
    ]
    return [waiting, *used]


def _front(results: Sequence[Result]) -> Chart:
    def point(result: Result) -> tuple[float, float]:
        length = (result.end_ms - result.start_ms) / 1000
        return result.everyone.lost_ms / 1000, result.timeline.waiting_mean * length

    return charts.front(
        "Lost work against waiting",
        [(name, [point(r) for r in of_rules(results, name)]) for name in names(results)],
        shown=(_seconds, _seconds),
        note="run time lost to evictions (across) and time that pods waited in all (up), a point"
        " for each seed; less is better in both directions",
    )


def _curves(first: Sequence[Result]) -> list[Chart]:
    """How long pods waited, by priority, where any came."""
    found = []
    for priority in sorted({p for r in first for p in r.by_priority}, reverse=True):
        lines = [
            (r.rules, [None if w is None else w / 1000 for w in curve])
            for r in first
            if priority in r.by_priority and (curve := r.by_priority[priority].wait_curve)
        ]
        if lines:
            came = first[0].by_priority[priority].arrived
            found.append(
                charts.curves(f"Priority {priority}", lines, f"pods that came: {grouped(came)}")
            )
    return found


def _figures(results: Sequence[Result], name: str) -> list[dict[str, Any]]:
    of = of_rules(results, name)
    priorities = sorted({p for r in of for p in r.by_priority}, reverse=True)
    return [
        figure_line(name, "all", [r.everyone for r in of]),
        *(
            figure_line(name, str(p), [r.by_priority[p] for r in of if p in r.by_priority])
            for p in priorities
        ),
    ]


def _number(value: float) -> str:
    return grouped(int(value)) if value == int(value) else f"{value:g}"


def _seconds(value: float) -> str:
    return f"{value:g} s" if value < 10 else duration(round(value))
