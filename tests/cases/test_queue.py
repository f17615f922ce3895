"""The scheduling queue: which pod is tried next, and what the others wait for."""

from __future__ import annotations

import pytest

from policy.rules.ruleset import QueueKind, QueueOrder, QueueRules
from policy.scheduling.nominator import Nominator
from policy.scheduling.queue import SchedulingQueue

SECOND = 1000


def a_queue(
    *, kind: QueueKind = QueueKind.PRIORITY, backoff: int = 1, limit: int = 10, timeout: int = 300
) -> SchedulingQueue:
    return SchedulingQueue(
        QueueRules(
            kind=kind,
            order=QueueOrder.ARRIVAL,
            initial_backoff_seconds=backoff,
            max_backoff_seconds=limit,
            unschedulable_seconds=timeout,
        )
    )


def popped(queue: SchedulingQueue) -> list[str]:
    pods = []
    while (pod := queue.pop()) is not None:
        pods.append(pod)
    return pods


def test_the_most_important_pod_comes_first_and_the_longest_waiting_of_equals() -> None:
    """Active pods are ordered by priority, then by when they were queued."""
    queue = a_queue()
    queue.add("d/late", priority=5, now_ms=3)
    queue.add("d/low", priority=1, now_ms=0)
    queue.add("d/early", priority=5, now_ms=1)
    assert popped(queue) == ["d/early", "d/late", "d/low"]


def test_a_fifo_knows_no_priority_and_no_backoff() -> None:
    """The plain FIFO gives pods in the order of arrival and a failed one comes back at once."""
    queue = a_queue(kind=QueueKind.FIFO)
    queue.add("d/first", priority=1, now_ms=0)
    queue.add("d/second", priority=9, now_ms=1)
    assert queue.pop() == "d/first"
    queue.failed("d/first", priority=1, now_ms=2)
    assert popped(queue) == ["d/second", "d/first"]


def test_a_failed_pod_waits_until_something_happens() -> None:
    """Without an event an unschedulable pod is not tried; with one it is, after its backoff."""
    queue = a_queue()
    queue.add("d/p", priority=1, now_ms=0)
    queue.pop()
    queue.failed("d/p", priority=1, now_ms=0)
    assert popped(queue) == []
    queue.move_all(now_ms=0)
    assert (popped(queue), queue.next_timer()) == ([], 1 * SECOND)
    queue.flush(now_ms=1 * SECOND)
    assert popped(queue) == ["d/p"]


def test_an_event_during_the_cycle_counts_for_its_pod() -> None:
    """A pod whose cycle fails after a move request goes to backoff, not to unschedulable."""
    queue = a_queue()
    queue.add("d/p", priority=1, now_ms=0)
    queue.pop()
    queue.move_all(now_ms=0)
    queue.failed("d/p", priority=1, now_ms=0)
    assert (queue.waiting(), queue.next_timer(unschedulable=False)) == ((), 1 * SECOND)


def test_popping_clears_the_move_request_mark() -> None:
    """An event before the cycle began says nothing about the cycle."""
    queue = a_queue()
    queue.move_all(now_ms=0)
    queue.add("d/p", priority=1, now_ms=0)
    queue.pop()
    queue.failed("d/p", priority=1, now_ms=0)
    assert queue.waiting() == ("d/p",)


@pytest.mark.parametrize(
    ("attempts", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (50, 10)]
)
def test_backoff_doubles_from_one_second_to_ten(attempts: int, seconds: int) -> None:
    """The n-th failure keeps a pod out for 2^(n-1) seconds, at most ten."""
    queue = a_queue()
    queue.add("d/p", priority=1, now_ms=0)
    now = 0
    for _ in range(attempts):
        now += 100 * SECOND
        queue.flush(now_ms=now)
        assert queue.pop() == "d/p"
        queue.failed("d/p", priority=1, now_ms=now)
        queue.move_all(now_ms=now)
    assert queue.next_timer() == now + seconds * SECOND


def test_without_backoff_a_moved_pod_is_active_at_once() -> None:
    """Generations without backoff try a moved pod again immediately."""
    queue = a_queue(backoff=0)
    queue.add("d/p", priority=1, now_ms=0)
    queue.pop()
    queue.failed("d/p", priority=1, now_ms=0)
    queue.move_all(now_ms=0)
    assert popped(queue) == ["d/p"]


def test_time_alone_moves_a_pod_that_has_been_unschedulable_for_long() -> None:
    """After the unschedulable time the pod is tried although nothing has happened."""
    queue = a_queue(timeout=60)
    queue.add("d/p", priority=1, now_ms=0)
    queue.pop()
    queue.failed("d/p", priority=1, now_ms=0)
    queue.flush(now_ms=60 * SECOND - 1)
    assert (popped(queue), queue.next_timer()) == ([], 60 * SECOND)
    queue.flush(now_ms=60 * SECOND)
    assert popped(queue) == ["d/p"]


def test_an_assigned_pod_moves_only_the_pods_it_may_help() -> None:
    """`move` leaves the other unschedulable pods where they are."""
    queue = a_queue(backoff=0)
    for pod in ("d/a", "d/b"):
        queue.add(pod, priority=1, now_ms=0)
        queue.pop()
        queue.failed(pod, priority=1, now_ms=0)
    queue.move(["d/b"], now_ms=0)
    assert (popped(queue), queue.waiting()) == (["d/b"], ("d/a",))


def test_adding_a_pod_that_is_unschedulable_makes_it_active_only() -> None:
    """A pod stands in one part of the queue at a time."""
    queue = a_queue()
    queue.add("d/p", priority=1, now_ms=0)
    queue.pop()
    queue.failed("d/p", priority=1, now_ms=0)
    queue.add("d/p", priority=1, now_ms=1)
    assert (popped(queue), queue.waiting()) == (["d/p"], ())


def test_an_update_moves_an_unschedulable_pod_only_where_it_may_help() -> None:
    """A changed label of no consequence does not bring the pod back."""
    queue = a_queue(backoff=0)
    queue.add("d/p", priority=1, now_ms=0)
    queue.pop()
    queue.failed("d/p", priority=1, now_ms=0)
    queue.update("d/p", priority=1, may_help=False, now_ms=1)
    assert popped(queue) == []
    queue.update("d/p", priority=1, may_help=True, now_ms=1)
    assert popped(queue) == ["d/p"]


def test_an_update_of_an_active_pod_takes_its_new_priority() -> None:
    """The heap follows a changed priority."""
    queue = a_queue()
    queue.add("d/a", priority=1, now_ms=0)
    queue.add("d/b", priority=2, now_ms=0)
    queue.update("d/a", priority=3, may_help=True, now_ms=1)
    assert popped(queue) == ["d/a", "d/b"]


def test_delete_removes_a_pod_from_every_part_and_its_nomination() -> None:
    """Nothing of a deleted pod is left."""
    queue = a_queue()
    queue.add("d/p", priority=1, now_ms=0, nominated="n1")
    queue.pop()
    queue.failed("d/p", priority=1, now_ms=0, nominated="n1")
    queue.add("d/q", priority=1, now_ms=0)
    queue.delete("d/p")
    queue.delete("d/q")
    assert (popped(queue), queue.waiting(), list(queue.nominator)) == ([], (), [])


def test_a_nomination_survives_the_return_to_the_queue() -> None:
    """A pod that preempted keeps its node while it waits."""
    queue = a_queue()
    queue.add("d/p", priority=1, now_ms=0)
    queue.pop()
    queue.failed("d/p", priority=1, now_ms=0, nominated="n1")
    queue.move_all(now_ms=0)
    assert list(queue.nominator) == [("d/p", "n1")]


def test_nominating_again_replaces_the_old_node() -> None:
    """A pod is nominated to one node at a time; the node given wins over the status."""
    nominator = Nominator()
    nominator.add("d/p", node="n1")
    nominator.add("d/p", node="n2", status_node="n3")
    assert (list(nominator), nominator.node_of("d/p")) == ([("d/p", "n2")], "n2")


def test_a_pod_without_any_node_is_not_nominated() -> None:
    """Neither a given node nor a status: nothing is added."""
    nominator = Nominator()
    nominator.add("d/p")
    assert list(nominator) == []


@pytest.mark.parametrize(
    ("was", "status", "kept"),
    [("", "", "n1"), ("n1", "", ""), ("n1", "n2", "n2"), ("", "n2", "n2")],
)
def test_an_update_that_says_nothing_keeps_a_nomination_in_memory(
    was: str, status: str, kept: str
) -> None:
    """Only an update that takes the node away, or names another, changes the nomination."""
    nominator = Nominator()
    nominator.add("d/p", node="n1")
    nominator.update("d/p", status_node=status, was_status_node=was)
    assert nominator.node_of("d/p") == kept


@pytest.mark.parametrize("kind", list(QueueKind))
@pytest.mark.parametrize("until", [0, 17, 1_015, 1_515, 40_000])
def test_passing_pods_over_is_popping_failing_and_flushing(kind: QueueKind, until: int) -> None:
    """In one go: the same pods, tried at the same instants, that wait for the same afterwards.

    It ends before the first pod that may not fail, which keeps its place, and when time is up.
    """
    one_by_one, in_one_go = a_queue(kind=kind, timeout=3), a_queue(kind=kind, timeout=3)
    for queue in (one_by_one, in_one_go):
        queue.add("d/p4", priority=0, now_ms=0)
        queue.pop()
        queue.failed("d/p4", priority=0, now_ms=0)
        queue.move_all(now_ms=0)  # its backoff ends while others are passed over
        for number in range(4):
            queue.add(f"d/p{number}", priority=number % 2, now_ms=number)
        queue.add("d/last", priority=-1, now_ms=4)
    tried, expected, now = {"d/p1"}, 0, 10
    while now < until and (pod := one_by_one.pop(without=tried)) is not None:
        if pod == "d/last":
            one_by_one.add(pod, priority=-1, now_ms=4)
            break
        one_by_one.failed_again(pod, priority=int(pod[-1]) % 2, now_ms=now)
        tried.add(pod)
        expected += 1
        now += 500
        one_by_one.flush(now_ms=now)
    tried_in_one_go = {"d/p1"}
    number = in_one_go.pass_over(
        lambda pod: pod != "d/last", tried=tried_in_one_go, now_ms=10, cycle_ms=500, until_ms=until
    )
    assert (number, tried_in_one_go) == (expected, tried)
    assert in_one_go.waiting() == one_by_one.waiting()
    for queue in (one_by_one, in_one_go):
        queue.flush(now_ms=now)
        queue.move_all(now_ms=now)
    assert in_one_go.next_timer() == one_by_one.next_timer()
    assert popped(in_one_go) == popped(one_by_one)
