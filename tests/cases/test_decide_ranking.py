"""Section 7 of the specification: which candidate is best, criterion by criterion?"""

from __future__ import annotations

import pytest

from policy.decision.model import Decision
from policy.preemption.ranking import rank_recorded
from tests.support.builders import (
    NodeBuilder,
    PodBuilder,
    a_node,
    a_pdb,
    a_pod,
    decided,
    rule_set,
    snapshot,
)

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
LATER = GENERATIONS[1:]
HIGH = a_pod("high").priority(10).cpu(2)
INT32_MIN = -(2**31)


def full(name: str, *pods: PodBuilder) -> NodeBuilder:
    """A node with two cpus, all of which its pods share."""
    share = f"{2000 // len(pods)}m"
    named = (p if p.pod.spec.containers[0].resources else p.cpu(share) for p in pods)
    return a_node(name).cpu(2).running(*named)


def low(name: str, priority: int = 1, started: int | None = 5) -> PodBuilder:
    return a_pod(name).priority(priority).started(started)


def chosen(decision: Decision) -> tuple[str | None, str]:
    """The node, and the criterion that left it alone."""
    return decision.node, decision.trace.decided_by


def test_a_node_that_needs_no_victim_wins_in_1_14() -> None:
    """Whatever the others would cost, 1.14 takes a node on which nobody has to go (an extender may
    leave one without victims)."""
    cluster = snapshot(full("n1", low("a", 0)), full("n2", low("b")), full("n3", low("c", 0)), HIGH)
    given = {"n1": (["default/a"], 0), "n2": ([], 0), "n3": (["default/c"], 0)}
    assert rank_recorded(cluster, rule_set("kube-1.14"), "default/high", given) == "n2"


@pytest.mark.parametrize("name", GENERATIONS)
def test_fewest_budget_violations_come_first(name: str) -> None:
    """A node without violation wins over one whose victim is less important."""
    guarded = full("n1", low("a", priority=0).labelled(app="web"))
    decision = decided(
        guarded, full("n2", low("b", 9)), a_pdb("p").selecting(app="web"), HIGH, rules=name
    )
    assert chosen(decision) == ("n2", "fewest-pdb-violations")


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_lowest_first_victim_comes_second(name: str) -> None:
    """One victim of priority 2 costs more than two of priority 1."""
    decision = decided(full("n1", low("a", 2)), full("n2", low("b"), low("c")), HIGH, rules=name)
    assert chosen(decision) == ("n2", "lowest-top-priority")


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_lowest_sum_of_priorities_comes_third(name: str) -> None:
    """Among equal first victims, the rest of the priorities decides."""
    nodes = full("n1", low("a", 3), low("b", 2)), full("n2", low("c", 3), low("d", 1))
    assert chosen(decided(*nodes, HIGH, rules=name)) == ("n2", "lowest-priority-sum")


@pytest.mark.parametrize("name", GENERATIONS)
def test_few_negative_priorities_beat_many(name: str) -> None:
    """Every victim adds 2^31 to the sum, so one of priority -1 is better than two."""
    nodes = full("n1", low("a", -1), low("b", -1)), full("n2", low("c", -1))
    assert chosen(decided(*nodes, HIGH, rules=name)) == ("n2", "lowest-priority-sum")


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_number_of_victims_decides_at_the_lowest_priority(name: str) -> None:
    """Priorities of INT32_MIN add nothing to the sum; then fewer victims win."""
    nodes = (
        full("n1", low("a", INT32_MIN), low("b", INT32_MIN)),
        full("n2", low("c", INT32_MIN)),
    )
    assert chosen(decided(*nodes, HIGH, rules=name)) == ("n2", "fewest-victims")


@pytest.mark.parametrize("name", LATER)
def test_the_latest_start_comes_fifth(name: str) -> None:
    """Of equal victims, those go that started last."""
    nodes = full("n1", low("a", started=60)), full("n2", low("b", started=5))
    assert chosen(decided(*nodes, HIGH, rules=name)) == ("n2", "latest-start")


def test_1_14_does_not_look_at_start_times() -> None:
    """In 1.14 the tie stays open where later generations ask who started last."""
    nodes = full("n1", low("a", started=60)), full("n2", low("b", started=5))
    assert chosen(decided(*nodes, HIGH, rules="kube-1.14")) == ("n1", "by-name")


@pytest.mark.parametrize("name", LATER)
def test_only_victims_of_the_highest_priority_lend_their_start(name: str) -> None:
    """The earliest start among the most important victims counts, not that of lesser ones."""
    nodes = (
        full("n1", low("a", 2, started=30), low("b", 1, started=1)),
        full("n2", low("c", 2, started=20), low("d", 1, started=500)),
    )
    assert chosen(decided(*nodes, HIGH, rules=name)) == ("n2", "latest-start")


@pytest.mark.parametrize("name", LATER)
def test_the_earliest_of_equal_victims_speaks_for_them(name: str) -> None:
    """Two victims of one priority count as started when the first of them did."""
    nodes = (
        full("n1", low("a", started=60), low("b", started=1)),
        full("n2", low("c", started=50), low("d", started=50)),
    )
    assert chosen(decided(*nodes, HIGH, rules=name)) == ("n2", "latest-start")


@pytest.mark.parametrize("name", LATER)
def test_a_victim_without_start_time_counts_as_started_now(name: str) -> None:
    """Such a node wins over one whose victim started a minute ago."""
    nodes = full("n1", low("a", started=1)), full("n2", low("b", started=None))
    assert chosen(decided(*nodes, HIGH, rules=name)) == ("n2", "latest-start")


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_last_tie_goes_to_the_first_by_name(name: str) -> None:
    """The original takes any of the rest; the rule sets take the first by name and say so."""
    nodes = full("n2", low("b")), full("n1", low("a"))
    assert chosen(decided(*nodes, HIGH, rules=name)) == ("n1", "by-name")


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_single_candidate_is_not_ranked(name: str) -> None:
    """With one candidate no criterion decides."""
    decision = decided(full("n1", low("a")), HIGH, rules=name)
    assert (chosen(decision), decision.trace.ranking) == (("n1", ""), ())


def test_a_decision_tells_where_each_candidate_fell_behind() -> None:
    """Candidates come best first, each with its values and the criterion that ruled it out."""
    nodes = (
        full("n1", low("a", 2)),
        full("n2", low("b", 1), low("c", 1)),
        full("n3", low("d", 1, started=60)),
        full("n4", low("e", 1, started=5)),
    )
    decision = decided(*nodes, HIGH)
    assert [(c.node, c.eliminated_by, c.position) for c in decision.candidates] == [
        ("n4", "", 0),
        ("n3", "latest-start", 1),
        ("n2", "lowest-priority-sum", 2),
        ("n1", "lowest-top-priority", 3),
    ]


def test_the_trace_counts_what_each_criterion_keeps() -> None:
    """Every step names how many candidates it met, how many it kept, and the winning value."""
    nodes = full("n1", low("a", 2)), full("n2", low("b", 1)), full("n3", low("c", 1))
    steps = decided(*nodes, HIGH).trace.ranking
    assert [(s.criterion, s.before, s.after, s.best) for s in steps] == [
        ("fewest-pdb-violations", 3, 3, 0),
        ("lowest-top-priority", 3, 2, 1),
        ("lowest-priority-sum", 2, 2, 1 + 2**31),
        ("fewest-victims", 2, 2, 1),
        ("latest-start", 2, 2, 1795218900000),
        ("by-name", 2, 1, None),
    ]
