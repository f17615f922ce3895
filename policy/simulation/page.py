"""Simulations as one self-contained HTML page: `templates/simulate.html` and what fills it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from markupsafe import Markup

from policy.audit.pages import environment
from policy.simulation import charts
from policy.simulation.charts import Chart
from policy.simulation.lives import PARTS
from policy.simulation.paired import arrived, differences, figures_of
from policy.simulation.run import Result
from policy.simulation.uses import PriorityUse
from policy.simulation.words import (
    assumed,
    difference_line,
    figure_lines,
    names,
    of_rules,
    whole_line,
)
from policy.text.words import duration, grouped


def page(results: Sequence[Result], notes: Sequence[str]) -> str:
    """The whole page. results: at least one; all of one trace with the same options."""
    return _rendered("simulate.html", results, notes)


def body(results: Sequence[Result], notes: Sequence[str]) -> Markup:
    """What is in the page, for one of a service."""
    return Markup(_rendered("simulate_body.html", results, notes))


def _rendered(template: str, results: Sequence[Result], notes: Sequence[str]) -> str:
    found = names(results)
    first = [of_rules(results, name)[0] for name in found]
    apart = [difference_line(one) for one in differences(results)]
    by_rules = [of_rules(results, name) for name in found]
    return (
        environment("policy.simulation")
        .get_template(template)
        .render(
            names=found,
            first=first[0],
            digests=[(r.rules, r.rules_digest) for r in first],
            seeds=len(by_rules[0]),
            other_traces=any(r.trace_digest != first[0].trace_digest for r in by_rules[0]),
            notes=notes,
            options=assumed(first[0].options),
            length=duration((first[0].end_ms - first[0].start_ms) // 1000),
            colours=[charts.colour(i) for i in range(len(found))],
            charts=[*_over_time(by_rules), _front(results)],
            priorities=_of_priorities(by_rules),
            whole=[whole_line(of) for of in by_rules],
            figures=[line for of in by_rules for line in figure_lines(of)],
            apart=apart,
            width=charts.WIDTH,
            height=charts.HEIGHT,
            left=charts.LEFT,
        )
    )


def _over_time(groups: Sequence[Sequence[Result]]) -> list[Chart]:
    """groups: the results of each rule set, by seed."""
    used = [
        _in_time(
            f"Requested {resource}",
            groups,
            partial(_used, resource),
            shown=_share,
            note="of what the nodes have; pods that are leaving count",
        )
        for resource in sorted(groups[0][0].timeline.used)
    ]
    waiting = _in_time("Pods that wait", groups, lambda r: r.timeline.waiting, shown=_number)
    return [waiting, *used]


def _in_time(
    title: str,
    groups: Sequence[Sequence[Result]],
    values: Callable[[Result], Sequence[float]],
    *,
    shown: Callable[[float], str],
    note: str = "",
) -> Chart:
    """One line for each rule set; with several seeds it is their mean at each time."""
    first = groups[0][0]
    seeds = f", and over {len(groups[0])} seeds" if len(groups[0]) > 1 else ""
    means = f"means over {PARTS} equal stretches of time{seeds}"
    return charts.over_time(
        title,
        [(of[0].rules, _mean_line([values(r) for r in of])) for of in groups],
        seconds=(first.end_ms - first.start_ms) / 1000,
        shown=shown,
        note=f"{note}; {means}" if note else means,
    )


def _mean_line(lines: Sequence[Sequence[float]]) -> list[float]:
    """Of lines of equal length; one without values is 0 everywhere."""
    known = [line for line in lines if line]
    return [sum(values) / len(lines) for values in zip(*known, strict=True)]


def _used(resource: str, result: Result) -> Sequence[float]:
    return result.timeline.used.get(resource, ())


def _share(share: float) -> str:
    return f"{100 * share:g} %"


def _front(results: Sequence[Result]) -> Chart:
    def point(result: Result) -> tuple[float, float]:
        waiting = result.everyone.waiting_ms
        if waiting is None:  # recorded before it was counted
            waiting = round(result.timeline.waiting_mean * (result.end_ms - result.start_ms))
        return result.everyone.lost_ms / 1000, waiting / 1000

    return charts.front(
        "Lost work against waiting",
        [(name, [point(r) for r in of_rules(results, name)]) for name in names(results)],
        shown=(_seconds, _seconds),
        note="run time lost to evictions (across) and time that pods waited in all (up), a point"
        " for each seed; less is better in both directions",
    )


def _of_priorities(groups: Sequence[Sequence[Result]]) -> list[tuple[int, str, list[Chart]]]:
    """Each priority, how many pods of it came, and the pictures of it."""
    found = []
    every = (r for of in groups for r in of)
    for priority in sorted({p for r in every for p in r.by_priority}, reverse=True):
        told = [*_curve(groups, priority), *_use(groups, priority)]
        if told:
            found.append((priority, _came(groups[0], priority), told))
    return found


def _came(results: Sequence[Result], priority: int) -> str:
    """Of one rule set: the same pods come under all of them."""
    numbers = [f.arrived if (f := figures_of(r, priority)) else 0 for r in results]
    mean = f"{sum(numbers) / len(numbers):.2f}".rstrip("0").rstrip(".")
    if len(numbers) == 1:
        return f"pods that came: {grouped(numbers[0])}"
    return f"pods that came: {mean}, the mean over {len(numbers)} seeds"


def _curve(groups: Sequence[Sequence[Result]], priority: int) -> list[Chart]:
    """How long pods waited: means at each share over the seeds in which any came."""
    lines = []
    some = 0
    for of in groups:
        curves = [r.by_priority[priority].wait_curve for r in of if arrived(r, priority)]
        if curves:
            some = len(curves)
            lines.append((of[0].rules, [_mean_wait(waits) for waits in zip(*curves, strict=True)]))
    if not lines:
        return []
    note = (
        "share of the pods that came, by the time that they waited at most; a line that does not"
        " reach the top stands for pods that never started"
    )
    seeds = len(groups[0])
    if seeds > 1:
        of_them = "" if some == seeds else f" {some} of"
        note += f"; means over{of_them} {seeds} seeds, and none where it is never in one of them"
    return [charts.curves("How long pods waited for their first start", lines, note)]


def _mean_wait(waits: Sequence[int | None]) -> float | None:
    """In seconds; None where it has no end with one of the seeds."""
    known = [wait for wait in waits if wait is not None]
    return sum(known) / len(known) / 1000 if len(known) == len(waits) else None


def _use(groups: Sequence[Sequence[Result]], priority: int) -> list[Chart]:
    """Queue and used cpu over time; nothing of results of before that was counted."""

    def of(result: Result) -> PriorityUse | None:
        return result.use_by_priority.get(priority)

    if not any(of(r) for results in groups for r in results):
        return []
    return [
        _in_time(
            "Pods that wait", groups, lambda r: u.waiting if (u := of(r)) else (), shown=_number
        ),
        _in_time(
            "Requested cpu",
            groups,
            lambda r: u.used_cpu if (u := of(r)) else (),
            shown=_share,
            note="of what the nodes have; pods that are leaving count",
        ),
    ]


def _number(value: float) -> str:
    return grouped(int(value)) if value == int(value) else f"{value:g}"


def _seconds(value: float) -> str:
    return f"{value:g} s" if value < 10 else duration(round(value))
