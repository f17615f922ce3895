"""Simulations of pod groups worked out by hand."""

from __future__ import annotations

from policy.rules import RuleSet
from policy.simulation.options import Options
from policy.simulation.run import Result, simulate
from policy.simulation.trace import Trace, TracePod
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pod, objects
from tests.support.groups import a_group, of_group

SECOND = 1000


def a_task(pod: PodBuilder, *, at: int, work: int | None, running: bool = False) -> TracePod:
    """A pod that comes `at` seconds after the start, and works for so many."""
    left = work * SECOND if running and work is not None else None
    millis = None if work is None else work * SECOND
    return TracePod(pod=pod.pod, arrives_ms=NOW_MS + at * SECOND, work_ms=millis, left_ms=left)


def simulated(rules: str) -> tuple[list[tuple[float, str]], Result]:
    """A gang of two that comes pod by pod to a node that a batch pod fills."""
    low = a_pod("low").priority(1).cpu(4).on("n1").owned_by("ReplicaSet", "low")
    trace = Trace(
        name="gang",
        start_ms=NOW_MS,
        end_ms=NOW_MS + 300 * SECOND,
        objects=objects(a_node("n1").cpu(4), a_group("train", priority=100, least=2)),
        tasks=[
            a_task(low, at=0, work=200, running=True),
            a_task(of_group(a_pod("m0").priority(50).cpu(2), "train"), at=10, work=60),
            a_task(of_group(a_pod("m1").priority(50).cpu(2), "train"), at=20, work=60),
        ],
    )
    told: list[tuple[float, str]] = []
    result = simulate(
        trace,
        RuleSet.load(rules),
        options=Options(length_ms=300 * SECOND),
        on_event=lambda at, what: told.append(((at - NOW_MS) / SECOND, what)),
    )
    return told, result


def test_a_gang_waits_for_its_last_member_and_starts_whole() -> None:
    """The first member preempts nothing by itself; both start in one cycle, then the victim."""
    told, result = simulated("kube-1.36-groups")
    assert told == [
        (0.0, "default/low running"),
        (10.0, "default/m0 arrived"),
        (20.0, "default/m1 arrived"),
        (20.0, "default/low evicted for default/train"),
        (50.0, "default/low gone"),
        (50.0, "default/low arrived"),
        (50.005, "default/m0 started n1"),
        (50.005, "default/m1 started n1"),
        (110.005, "default/m0 done"),
        (110.005, "default/m1 done"),
        (110.01, "default/low started n1"),
    ]
    assert dict(result.outcomes) == {
        "bind": 1,
        "no-candidate": 1,
        "preempting": 2,
        "scheduled": 1,
    }


def test_single_pods_of_the_same_trace_preempt_one_by_one() -> None:
    """Without the gates the first pod takes the room for itself, and the second one follows."""
    told, result = simulated("kube-1.36")
    assert (10.0, "default/low evicted for default/m0") in told
    assert "preempting" not in result.outcomes


def test_promises_to_members_are_counted() -> None:
    """`groups-safe` nominates what it makes room for; the promises are kept."""
    _, result = simulated("groups-safe")
    assert (result.nominations, result.nominations_kept, result.nominations_broken) == (2, 2, 0)
