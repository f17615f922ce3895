"""Means over seeds, and differences between rule sets: what a seed does not have is said."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from policy.simulation.figures import Figures, Spread
from policy.simulation.folder import read_trace
from policy.simulation.keeping import document, result_of
from policy.simulation.options import Options
from policy.simulation.page import page
from policy.simulation.paired import PairedDifference, differences
from policy.simulation.run import Result, simulate
from policy.simulation.truth import NAME
from policy.simulation.uses import PriorityUse
from policy.simulation.words import difference_line, figure_lines
from tests.support.builders import rule_set

TRACE = Path(__file__).parents[2] / "examples" / "simulation" / "trace"


@cache
def by_hand() -> Result:
    """The trace of the documentation: web-1 of priority 9, two pods of priority 1."""
    options = Options(length_ms=200_000)
    return simulate(read_trace(TRACE), rule_set("kube-1.36"), options=options)


def a_use(mean: float, *, broken: int | None = 0) -> PriorityUse:
    return PriorityUse(
        waiting=(2 * mean, 0.0),
        waiting_mean=mean,
        waiting_highest=1,
        used_cpu=(0.5, 0.5),
        used_cpu_mean=0.5,
        nominations=broken,
        nominations_broken=broken,
    )


def a_result(
    rules: str,
    seed: int,
    *,
    wait: int | None = 1000,
    evictions: int = 0,
    priority: int | None = 9,
    mean: float = 1.0,
    broken: int | None = 0,
) -> Result:
    """One pod of priority 1, and one of another one where there is any."""
    known = by_hand().by_priority[9]
    pod = replace(known, wait=Spread(p50=wait, p95=wait, p99=wait), wait_curve=(wait,) * 101)
    groups = {1: known} if priority is None else {priority: pod, 1: known}
    if priority is not None:
        groups[priority] = replace(pod, evictions=evictions)
    uses = {p: a_use(mean, broken=broken) for p in groups}
    return replace(by_hand(), rules=rules, seed=seed, by_priority=groups, use_by_priority=uses)


def test_queue_use_and_nominations_of_each_priority_by_hand() -> None:
    """web-1 waits from 10 s to 40.005 s, then 3 of 4 cpu are its own for 30 s; the rest is batch.

    batch-1 waits for 0.005 s and 30.010 s, and holds 3 cpu for 39.995 s and 100 s; batch-2 waits
    for 20.010 s, and holds 1 cpu for 30 s.
    """
    found = {
        priority: (
            use.waiting_mean,
            use.waiting_highest,
            use.used_cpu_mean,
            use.nominations,
            use.nominations_broken,
        )
        for priority, use in by_hand().use_by_priority.items()
    }
    assert found == {
        9: (round(30.005 / 200, 3), 1, round(90 / 800, 6), 1, 0),
        1: (round(50.025 / 200, 3), 2, round(449.985 / 800, 6), 0, 0),
    }
    whole = by_hand().timeline
    uses = by_hand().use_by_priority.values()
    for part, waiting in enumerate(whole.waiting):
        assert abs(sum(use.waiting[part] for use in uses) - waiting) < 0.002
        cpu = whole.used["cpu"][part]
        assert abs(sum(use.used_cpu[part] for use in uses) - cpu) < 0.00001


def test_a_recorded_result_is_the_same_again() -> None:
    """And one of before priorities had queues of their own can be read and shown."""
    told = document(by_hand())
    options = told.pop("options")
    again = result_of(json.dumps(options), json.dumps(told))
    assert again == by_hand()
    del told["use_by_priority"]
    old = result_of(json.dumps(options), json.dumps(told))
    assert old.use_by_priority == {}
    (_, line, _) = figure_lines([old])
    assert [line[name] for name in ("broken", "mean queue", "used cpu")] == ["", "", ""]
    assert "Priority 9" in page([old], ())


def test_counts_of_a_priority_are_0_in_a_seed_without_it() -> None:
    """Rows add up to the row of all; a percentile says in how many seeds there was any."""
    results = [a_result("a", seed, evictions=4, priority=7) for seed in range(3)]
    results.append(a_result("a", 3, priority=None))
    lines = {line["priority"]: line for line in figure_lines(results)}
    assert [lines["7"][n] for n in ("pods", "started", "evictions", "wait p50", "mean queue")] == [
        "0.75",
        "0.75",
        "3",
        "1.000 s in 3 of 4 seeds",
        "0.8",
    ]
    assert lines["1"]["pods"] == "1"


def test_a_percentile_that_is_never_in_one_seed_says_in_how_many() -> None:
    """In all of them it is `never` alone."""
    some = [a_result("a", seed, wait=None if seed == 2 else 1000) for seed in range(4)]
    always = [a_result("a", seed, wait=None) for seed in range(4)]
    assert [figure_lines(found)[1]["wait p95"] for found in (some, always)] == [
        "never in 1 of 4 seeds",
        "never",
    ]


def compared(figure: str, results: list[Result]) -> PairedDifference | None:
    found = (one for one in differences(results) if (one.figure, one.priority) == (figure, 9))
    return next(found, None)


def line(figure: str, results: list[Result]) -> tuple[str, str]:
    found = compared(figure, results)
    assert found is not None
    told = difference_line(found)
    return told["difference"], told["seeds"]


def test_a_difference_says_over_how_many_seeds_it_is() -> None:
    """A seed at which one of two is never, or the priority does not come, is not among them."""
    base = [a_result("a", seed, wait=1000) for seed in range(4)]
    later = [a_result("b", seed, wait=3000) for seed in range(4)]
    assert line("wait p50", base + later) == ("+2.000 s", "4")
    later[2] = a_result("b", 2, wait=None)
    assert line("wait p50", base + later) == ("+2.000 s", "3 of 4, never in 1")
    base[0], later[0] = (a_result(name, 0, priority=None) for name in ("a", "b"))
    assert line("wait p50", base + later) == ("+2.000 s", "2 of 4, never in 1")
    never = [later[0], *(a_result("b", seed, wait=None) for seed in range(1, 4))]
    assert line("wait p50", base + never) == ("never in one of them", "0 of 4, never in 3")


def test_counts_are_compared_over_all_seeds_also_those_without_the_priority() -> None:
    """There both have none."""
    base = [a_result("a", seed, priority=9 if seed else None) for seed in range(4)]
    more = [
        a_result("b", seed, priority=9 if seed else None, evictions=4, mean=3.0)
        for seed in range(4)
    ]
    assert line("evictions", base + more) == ("+3", "4")
    assert line("mean queue", base + more) == ("+1.50", "4")


def test_every_figure_is_compared() -> None:
    """Among them turnaround p99, broken nominations, the queue, and what is used."""
    base = a_result("a", 0)
    one = base.by_priority[9]
    other: Figures = replace(one, turnaround=replace(one.turnaround, p99=999))
    timeline = replace(
        base.timeline,
        waiting_mean=9.0,
        waiting_highest=9,
        used_mean={**base.timeline.used_mean, "cpu": 0.9},
    )
    changed = replace(
        a_result("b", 0, mean=2.0, broken=3),
        everyone=other,
        timeline=timeline,
        nominations_broken=3,
    )
    found = {(d.figure, d.priority) for d in differences([base, changed])}
    new = ("broken nominations", "mean queue", "longest queue", "used cpu")
    assert found >= {("turnaround p99", None), *((name, None) for name in new)}
    assert found >= {("broken nominations", 9), ("mean queue", 9)}


def test_what_happened_has_no_nominations_to_compare() -> None:
    """It tells of none, which is not the same as 0."""
    base = replace(a_result("a", 0, broken=3), nominations_broken=3)
    real = replace(a_result(NAME, 0, broken=None), nominations_broken=0)
    assert "broken nominations" not in {d.figure for d in differences([base, real])}


def test_pictures_are_means_over_the_seeds_and_say_so() -> None:
    """Not the first seed's; a curve of waits says where a seed has none."""
    results = [a_result("a", seed, mean=float(seed)) for seed in range(3)]
    results.append(a_result("a", 3, priority=None))
    text = " ".join(page(results, ()).split())
    assert "means over 240 equal stretches of time, and over 4 seeds" in text
    assert "means over 3 of 4 seeds, and none where it is never in one of them" in text
    assert "pods that came: 0.75, the mean over 4 seeds" in text
    # The queue of priority 9: means (0 + 2 + 4 + 0) / 4 and 0 over halves of the time.
    alone = " ".join(page(results[:1], ()).split())
    assert "seeds, and" not in alone
    queue = text.partition("<h2>Priority 9</h2>")[2].partition("<h3>Pods that wait</h3>")[2]
    assert ">1.5</text>" in queue.partition("</svg>")[0]
    assert '<path d="M64.0,10.0 506.0,10.0 506.0,194.0 948.0,194.0"' in queue.partition("</svg>")[0]
