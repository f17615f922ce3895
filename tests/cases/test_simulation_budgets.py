"""Budgets in simulations: what they allow follows from their spec and the pods of each instant."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from policy.cluster.objects import ClusterObject, PodDisruptionBudget, PodDisruptionBudgetStatus
from policy.simulation.budgets import DisruptionController, noted
from policy.simulation.options import Options
from policy.simulation.run import Result, simulate
from policy.simulation.trace import Trace, TraceEvent, TracePod
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pdb, a_pod, rule_set

KEY = "default/b"


def budget(
    *, least: int | str | None = None, most: int | str | None = None, allowed: int = 0
) -> PodDisruptionBudget:
    """`minAvailable` or `maxUnavailable` of the pods `app=a`."""
    made = a_pdb("b").selecting(app="a").allowing(allowed).budget
    return replace(made, spec=replace(made.spec, min_available=least, max_unavailable=most))


def a(name: str, *, cpu: int = 1) -> PodBuilder:
    return a_pod(name).labelled(app="a").priority(1).cpu(cpu).owned_by("ReplicaSet", "a")


def running(*names: str) -> list[TracePod]:
    return [
        TracePod(pod=a(name).on("n1").pod, arrives_ms=NOW_MS, work_ms=None, left_ms=None)
        for name in names
    ]


def coming(pod: PodBuilder, seconds: int) -> TracePod:
    return TracePod(pod=pod.pod, arrives_ms=NOW_MS + 1000 * seconds, work_ms=1_000_000)


def trace(
    tasks: Sequence[TracePod],
    budgets: Sequence[ClusterObject],
    *later: tuple[int, PodDisruptionBudget | None],
) -> Trace:
    """One node that is full with three pods of 1 cpu. later: seconds, and what the budget is."""
    return Trace(
        name="drawn",
        start_ms=NOW_MS,
        end_ms=NOW_MS + 100_000,
        objects=[a_node("n1").cpu(3).node, *budgets],
        tasks=tasks,
        events=[
            TraceEvent(at_ms=NOW_MS + 1000 * at, change=("PodDisruptionBudget", KEY, obj))
            for at, obj in later
        ],
    )


def high(name: str, seconds: int) -> TracePod:
    return coming(a_pod(name).priority(9).cpu(1), seconds)


def violations(result: Result) -> tuple[int, int]:
    return result.everyone.evictions, result.everyone.pdb_violations


@pytest.mark.parametrize(
    ("made", "broken"),
    [
        (budget(least=0), 0),
        (budget(least=2), 1),
        (budget(least=3), 2),
        (budget(most=2), 0),
        (budget(most=1), 1),
        (budget(most=0), 2),
        # A third of three pods is one, 34 % are rounded up to two.
        (budget(least="34%"), 1),
        (budget(least="33%"), 0),
        (budget(most="34%"), 0),
        (budget(most="33%"), 1),
        (budget(least="100%"), 2),
        # Only the status says something: two of the three healthy ones are desired.
        (budget(allowed=1), 1),
    ],
)
def test_what_is_desired_follows_from_the_spec(made: PodDisruptionBudget, broken: int) -> None:
    """Two of three pods are evicted, at 10 s and at 50 s; the first one waits for room then."""
    result = simulate(
        trace([*running("a1", "a2", "a3"), high("x", 10), high("y", 50)], [made]),
        rule_set("kube-1.36"),
    )
    assert violations(result) == (2, broken)


@pytest.mark.parametrize(
    ("budgets", "later", "broken"),
    [
        ([budget(least=0)], [(5, budget(least=3))], 2),
        ([budget(least=3)], [(5, budget(least=0))], 0),
        ([], [(5, budget(least=3))], 2),
        ([budget(least=3)], [(5, None)], 0),
        ([budget(least=3)], [(5, None), (6, budget(most=1))], 1),
    ],
)
def test_a_budget_that_changes_counts_from_then_on(
    budgets: list[ClusterObject],
    later: list[tuple[int, PodDisruptionBudget | None]],
    broken: int,
) -> None:
    """It comes, has another spec, goes, and comes again."""
    tasks = [*running("a1", "a2", "a3"), high("x", 10), high("y", 50)]
    result = simulate(trace(tasks, budgets, *later), rule_set("kube-1.36"))
    assert violations(result) == (2, broken)


def test_a_pod_that_waits_is_expected_and_not_healthy() -> None:
    """Two thirds of three pods may not be missing: one of them waits already."""
    made = trace([*running("a1", "a2", "a3"), coming(a("a4"), 5), high("x", 10)], [])
    fits, breaks = (
        simulate(replace_objects(made, budget(least=share)), rule_set("kube-1.36"))
        for share in ("50%", "75%")
    )
    assert (violations(fits), violations(breaks)) == ((1, 0), (1, 1))


def replace_objects(made: Trace, *more: ClusterObject) -> Trace:
    return Trace(
        name=made.name,
        start_ms=made.start_ms,
        end_ms=made.end_ms,
        objects=[*made.objects, *more],
        tasks=made.tasks,
    )


def test_an_evicted_pod_that_comes_back_later_is_still_expected() -> None:
    """Gone for 30 s, it is one of the three of which two thirds are wanted."""
    made = trace([*running("a1", "a2", "a3"), high("x", 10), high("y", 50)], [budget(least="66%")])
    away, lost = (
        simulate(made, rule_set("kube-1.36"), options=Options(return_ms=delay, bare_return_ms=None))
        for delay in (60_000, 0)
    )
    assert (violations(away), violations(lost)) == ((2, 1), (2, 1))
    # Nobody makes a pod without controller again: two are there then, and one of them may go.
    bare = [
        TracePod(
            pod=a_pod(f"a{i}").labelled(app="a").priority(1).cpu(1).on("n1").pod,
            arrives_ms=NOW_MS,
            work_ms=None,
        )
        for i in range(3)
    ]
    gone = simulate(
        trace([*bare, high("x", 10), high("y", 50)], [budget(least="50%")]),
        rule_set("kube-1.36"),
        options=Options(bare_return_ms=None),
    )
    assert violations(gone) == (2, 0)


def test_a_status_that_says_otherwise_is_told() -> None:
    """Kubernetes may count pods that are not ready, or that a controller still wants."""
    said = PodDisruptionBudgetStatus(desired_healthy=4, expected_pods=5, current_healthy=3)
    told = noted(trace(running("a1", "a2", "a3"), [replace(budget(most=1), status=said)]))
    alike = PodDisruptionBudgetStatus(disruptions_allowed=1, desired_healthy=2, expected_pods=3)
    silent = noted(trace(running("a1", "a2", "a3"), [replace(budget(most=1), status=alike)]))
    none = noted(trace(running("a1", "a2", "a3"), [budget(most=1)]))
    assert (told.notes, silent.notes, none.notes) == (
        [
            "disruptions that budgets allow at the start follow from their spec and the pods that"
            " are there: `default/b` (1, its status says 0)"
        ],
        (),
        (),
    )


def test_a_change_of_a_pod_looks_at_no_other_pod() -> None:
    """Pods of equal labels are one count, however many they are."""
    pods = [a(f"a{i}").on("n1").pod for i in range(1000)]
    counted = DisruptionController([budget(most="10%")], pods)
    for i, pod in enumerate(pods):
        counted.comes(f"default/a{i}", pod)
    ((_, _, first),) = counted.changes()
    for i in range(500):
        counted.ends(f"default/a{i}", pods[i])
    ((_, _, second),) = counted.changes()
    assert isinstance(first, PodDisruptionBudget)
    assert isinstance(second, PodDisruptionBudget)
    assert (first.status, second.status) == (
        PodDisruptionBudgetStatus(
            disruptions_allowed=100, current_healthy=1000, desired_healthy=900, expected_pods=1000
        ),
        PodDisruptionBudgetStatus(
            disruptions_allowed=550, current_healthy=1000, desired_healthy=450, expected_pods=500
        ),
    )
