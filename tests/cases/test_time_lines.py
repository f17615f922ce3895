"""Time lines, runs of pods, sums of evictions: what the pages of places draw."""

from __future__ import annotations

from dataclasses import replace

from policy.audit.on_node import by_importance
from policy.audit.workload import (
    LostTime,
    PreemptorCount,
    WorkloadHit,
    by_preemptor,
    lost_time,
    with_evicted,
)
from policy.server.pages.timelines import WIDTH, Axis, Mark, Span
from policy.store.read.runs import PodRun
from tests.support.builders import NOW_MS, a_pod

HIT = WorkloadHit(
    now_ms=100_000,
    cluster="c",
    pod="shop/web-1",
    node="n1",
    priority=5,
    started_ms=40_000,
    run_seconds=60,
    preemptor="jobs/a-1",
    decision=7,
    observation=None,
    evicted=True,
)
RUN = PodRun(
    cluster="c",
    pod="shop/web-1",
    node="n1",
    priority=5,
    started_ms=40_000,
    ended_ms=100_000,
    leaving=False,
)


def test_an_axis_keeps_what_it_shows_inside() -> None:
    """Instants outside are at its edges; what is short is seen; one instant is in the middle."""
    axis = Axis.over([3000, 1000, 2000])
    assert axis == Axis(first_ms=1000, last_ms=3000)
    assert [axis.at(ms) for ms in (0, 1000, 1500, 3000, 9000)] == [0.0, 0.0, 150.0, 600.0, 600.0]
    assert axis.span(1500, 2500, "x") == Span(x=150.0, width=300.0, words="x")
    assert axis.span(3000, 3000, "x") == Span(x=WIDTH - 1.0, width=1.0, words="x")
    marks = [axis.mark(ms, "x", "/a") for ms in (1000, 2000, 3000)]
    assert marks == [Mark(x=x, words="x", address="/a") for x in (0.0, 298.0, 596.0)]
    assert Axis.over([5]).at(5) == 300.0


def test_evictions_are_counted_by_workload() -> None:
    """Of each preemptor; what was not evicted has lost nothing, and without a start who knows."""
    hits = [
        HIT,
        replace(HIT, preemptor="jobs/a-2", run_seconds=30),
        replace(HIT, preemptor="jobs/b", run_seconds=5),
        replace(HIT, preemptor="jobs/b", run_seconds=0, started_ms=None),
        replace(HIT, preemptor="", run_seconds=1),
        replace(HIT, preemptor="jobs/b", evicted=False),
    ]
    workloads = {"jobs/a-1": "jobs/Job/a", "jobs/a-2": "jobs/Job/a"}
    assert by_preemptor(hits, workloads) == [
        PreemptorCount(workload="jobs/Job/a", evictions=2, lost=LostTime(seconds=90, unknown=0)),
        PreemptorCount(workload="jobs/b", evictions=2, lost=LostTime(seconds=5, unknown=1)),
        PreemptorCount(workload="", evictions=1, lost=LostTime(seconds=1, unknown=0)),
    ]
    assert lost_time(hits) == LostTime(seconds=96, unknown=1)


def test_an_evicted_pod_has_a_run() -> None:
    """The one that the states show, else the time that the decision knew, to the millisecond."""
    again = replace(RUN, started_ms=150_000, ended_ms=None)
    assert with_evicted([RUN, again], [HIT]) == [again, RUN]
    assert with_evicted([again], [HIT]) == [again, RUN]
    assert with_evicted([], [replace(HIT, evicted=False)]) == []
    between = replace(HIT, started_ms=40_999, run_seconds=59)
    assert with_evicted([], [between]) == [replace(RUN, started_ms=40_999)]
    waiting = replace(HIT, started_ms=None, run_seconds=0)
    assert with_evicted([], [waiting]) == [replace(RUN, started_ms=100_000, start_known=False)]
    assert with_evicted([replace(RUN, cluster="d")], [HIT]) == [replace(RUN, cluster="d"), RUN]


def test_a_run_ends_with_its_eviction() -> None:
    """A state that has the pod no more is recorded later; a pod that is there still has no end."""
    late = replace(RUN, ended_ms=9_000_000)
    there, leaving = replace(RUN, ended_ms=None), replace(RUN, ended_ms=None, leaving=True)
    twice = [replace(HIT, now_ms=90_000), HIT]
    assert with_evicted([late], twice) == [RUN]
    assert with_evicted([late], [replace(HIT, pod="shop/web-2")])[0] == late
    assert with_evicted([late], [replace(HIT, evicted=False)]) == [late]
    assert [with_evicted([run], [HIT]) for run in (there, leaving)] == [[there], [leaving]]


def test_importance_is_the_schedulers() -> None:
    """The higher priority, then the earlier start; a pod without one starts last; then the name."""
    pods = [
        a_pod("b").on("n1").priority(1).started(None),
        a_pod("a").on("n1").priority(1).started(None),
        a_pod("old").on("n1").priority(1).started(90),
        a_pod("new").on("n1").priority(1).started(60),
        a_pod("high").on("n1").priority(2).started(30),
    ]
    ordered = by_importance([one.pod for one in pods], now_ms=NOW_MS)
    assert [pod.metadata.name for pod in ordered] == ["high", "old", "new", "a", "b"]
    assert by_importance([], now_ms=NOW_MS) == []
