"""Watching: which changes of a cluster make a pod that failed be tried again, and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from policy.cluster.objects import PodAffinityTerm
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.scheduling.watch import Watcher
from policy.store import Cause, Store
from policy.store.journal import StoreJournal
from tests.support.builders import HOSTNAME, NOW_MS, a_node, a_pod, objects, rule_set, selector

SECOND = 1000
KUBE = rule_set("kube-1.35")
PATIENT = rule_set("kube-1.35", '{"queue": {"initialBackoffSeconds": 8, "maxBackoffSeconds": 64}}')


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        yield opened


def watched(
    store: Store, parts: Sequence, *turns: Sequence, rules: RuleSet = KUBE, passes: int = 20
) -> list[tuple[str, str, int]]:
    """(pod, outcome, seconds since the start) of each decision.

    turns: changes of others, one turn whenever nothing is to be decided; some seconds pass each
    time, and once more after the last.
    """
    store.record.import_objects("default", objects(*parts), at_ms=NOW_MS, source="test")
    clock = [NOW_MS]
    left = list(turns)

    def pause() -> bool:
        if not left:
            return False
        clock[0] += passes * SECOND
        changes = left.pop(0)
        if changes:
            store.record.change("default", changes, at_ms=NOW_MS, source="watch", cause=Cause.LIVE)
        return True

    journal = StoreJournal(store, "default", actor="test", clock=lambda: NOW_MS)
    scheduler = Scheduler(journal, rules, clock=lambda: clock[0], seed=0)
    return [
        (
            step.decision.preemptor.removeprefix("default/"),
            step.decision.outcome.value,
            (clock[0] - NOW_MS) // SECOND,
        )
        for step in Watcher(scheduler, clock=lambda: clock[0], pause=pause)
    ]


RUNS = a_pod("runs").cpu(2).priority(9).on("n1")
CROWDED = (a_node("n1").cpu(2), RUNS, a_pod("waits").cpu(2))


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(("Pod", "default/runs", None), id="deleted"),
        pytest.param(("Pod", "default/runs", RUNS.ended().pod), id="completed"),
    ],
)
def test_a_pod_that_goes_makes_room(store, change):
    """A waiting pod is tried again when a placed one is deleted, and when it completes."""
    assert watched(store, CROWDED, [change], []) == [
        ("waits", "no-candidate", 0),
        ("waits", "bind", 20),
    ]


def test_nothing_that_may_help_is_no_reason_to_try_again(store):
    """A pod that fails waits; a pod that is placed beside it does not help it."""
    more = ("Pod", "default/more", a_pod("more").cpu("10m").pod)
    assert watched(store, CROWDED, [more], [], [], rules=KUBE) == [
        ("waits", "no-candidate", 0),
        ("more", "no-candidate", 20),
    ]


def test_a_placed_pod_may_satisfy_a_required_affinity(store):
    """The pod that requires a neighbour is tried again when the neighbour is placed."""
    term = PodAffinityTerm(topology_key=HOSTNAME, label_selector=selector(app="db"))
    waits = a_pod("waits").cpu(1).affine_to(term)
    database = a_pod("db").cpu(1).labelled(app="db")
    arrives = ("Pod", "default/db", database.pod)
    assert watched(store, (a_node("n1").cpu(4), waits), [arrives], [], []) == [
        ("waits", "no-candidate", 0),
        ("db", "bind", 20),
        ("waits", "bind", 20),
    ]


def test_the_queue_of_the_rule_file_is_the_one_that_waits(store):
    """A pod that failed is kept out for the backoff that the rules name, although room is free."""
    gone = ("Pod", "default/runs", None)
    assert watched(store, CROWDED, [gone], [], [], [], rules=PATIENT, passes=3) == [
        ("waits", "no-candidate", 0),
        ("waits", "bind", 9),
    ]


def test_time_alone_is_a_reason_in_the_end(store):
    """After the rules' `unschedulableSeconds` the pod is tried although nothing has happened."""
    assert watched(store, CROWDED, [], [], [], [], passes=100) == [
        ("waits", "no-candidate", 0),
        ("waits", "no-candidate", 300),
    ]


def test_a_fifo_pauses_between_its_rounds(store):
    """A plain FIFO has failed pods back at once: they are tried once per look."""
    fifo = rule_set("kube-1.35", '{"queue": {"kind": "fifo"}}')
    assert watched(store, CROWDED, [], [], rules=fifo) == [
        ("waits", "no-candidate", 0),
        ("waits", "no-candidate", 20),
        ("waits", "no-candidate", 40),
    ]
