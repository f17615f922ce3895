"""Settling: time passes, victims leave, preemptors are tried again, everything is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from policy.audit.inputs import ReplayVerdict
from policy.audit.replay import replay_all
from policy.cluster import times
from policy.decision.model import Outcome
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.scheduling.settle import Settled, Settler, VirtualClock
from policy.store import Cause, Store
from policy.store.journal import StoreJournal
from tests.support.builders import NOW_MS, Builder, PodBuilder, a_node, objects
from tests.support.builders import a_pod as a_bare_pod

Told = tuple[str, Outcome, str | None]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def a_pod(name: str) -> PodBuilder:
    """A pod that its owner makes again."""
    return a_bare_pod(name).owned_by("ReplicaSet", name)


def leaving_slowly(pod: PodBuilder) -> PodBuilder:
    """The pod with a minute of grace."""
    spec = replace(pod.pod.spec, termination_grace_period_seconds=60)
    return PodBuilder(replace(pod.pod, spec=spec))


def gone_after(pod: PodBuilder, *, seconds: int) -> PodBuilder:
    """The pod terminating, to be gone so many seconds from now."""
    gone = times.to_text(NOW_MS + seconds * 1000)
    meta = replace(pod.pod.metadata, deletion_timestamp=gone)
    return PodBuilder(replace(pod.pod, metadata=meta))


def settled(
    store: Store, *parts: Builder, max_cycles: int = 100, rules: str = "kube-1.35"
) -> tuple[list[Told], Settled]:
    """Every cycle (pod, outcome, node), and how it ended."""
    store.record.import_objects("default", objects(*parts), at_ms=NOW_MS, source="test")
    clock = VirtualClock(NOW_MS)
    rule_set = RuleSet.load(rules)
    journal = StoreJournal(store, "default", actor="test", clock=clock)
    settler = Settler(
        Scheduler(journal, rule_set, clock=clock, seed=0), rule_set, clock, max_cycles=max_cycles
    )
    told = [(s.decision.preemptor, s.decision.outcome, s.decision.node) for s in settler]
    return told, settler.result


def test_a_preemptor_gets_its_node_once_the_victims_have_left(store: Store) -> None:
    """A preemption is a promise: the pod is bound in a later cycle, and the victim comes back."""
    told, result = settled(
        store,
        a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4)),
        a_pod("high").priority(9).cpu(4),
    )
    assert (told, result.finished, result.waiting, result.end_ms - NOW_MS) == (
        [
            ("default/high", Outcome.PREEMPT, "n1"),
            ("default/high", Outcome.BIND, "n1"),
            ("default/low", Outcome.NO_CANDIDATE, None),
        ],
        True,
        ("default/low",),
        30_000,
    )


def test_a_more_important_preemptor_takes_the_nomination_away(store: Store) -> None:
    """The room that was made goes to the pod of higher priority; the first one loses its node."""
    store.record.import_objects(
        "default",
        objects(
            a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4)),
            a_pod("middle").priority(5).cpu(4),
        ),
        at_ms=NOW_MS,
        source="test",
    )
    clock = VirtualClock(NOW_MS)
    rules = RuleSet.load("kube-1.33")
    journal = StoreJournal(store, "default", actor="test", clock=clock)
    first = Scheduler(journal, rules, clock=clock, seed=0)
    first.decide("default/middle")
    store.record.import_objects(
        "default", objects(a_pod("high").priority(9).cpu(4)), at_ms=NOW_MS, source="test"
    )
    settler = Settler(Scheduler(journal, rules, clock=clock, seed=0), rules, clock, max_cycles=100)
    steps = list(settler)
    assert (
        steps[0].decision.effects.clear_nominations,
        [(s.decision.preemptor, s.decision.node) for s in steps if s.decision.node],
        settler.result.waiting,
    ) == (
        ("default/middle",),
        [("default/high", "n1"), ("default/high", "n1")],
        ("default/low", "default/middle"),
    )


def test_a_node_that_frees_up_first_is_used(store: Store) -> None:
    """A nominated pod goes to another node where room appears earlier."""
    told, _ = settled(
        store,
        a_node("n1").cpu(4).running(leaving_slowly(a_pod("slow").priority(1).cpu(4))),
        a_node("n2").cpu(4).running(gone_after(a_pod("leaving").priority(8).cpu(4), seconds=5)),
        a_pod("high").priority(9).cpu(4),
    )
    assert told[:2] == [
        ("default/high", Outcome.PREEMPT, "n1"),
        ("default/high", Outcome.BIND, "n2"),
    ]


def test_the_limit_of_cycles_ends_a_simulation(store: Store) -> None:
    """A simulation that is cut off says so."""
    told, result = settled(
        store,
        a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4)),
        a_pod("high").priority(9).cpu(4),
        max_cycles=1,
    )
    assert (len(told), result.finished) == (1, False)


def test_every_cycle_and_every_departure_is_a_revision_of_its_own(store: Store) -> None:
    """Decisions and simulated events stand in the history with their causes, in order."""
    settled(
        store,
        a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4)),
        a_pod("high").priority(9).cpu(4),
    )
    causes = [r.cause for r in reversed(store.state.revisions("default"))]
    assert (causes, len(store.read.decisions("default"))) == (
        ["import", "decision", "simulation", "decision", "simulation", "decision"],
        3,
    )


class Beside(StoreJournal):
    """A journal beside which others do something, before the given write (counted from 1)."""

    def __init__(self, store: Store, *, at: int, then: Callable[[], object]) -> None:
        super().__init__(store, "default", actor="test", clock=lambda: NOW_MS)
        self._left, self._then = at, then

    def _others(self) -> None:
        self._left -= 1
        if not self._left:
            self._then()

    def record(self, *arguments: Any, **options: Any) -> Any:
        self._others()
        return super().record(*arguments, **options)

    def change(self, *arguments: Any, **options: Any) -> Any:
        self._others()
        return super().change(*arguments, **options)


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        # while `high` is decided for the first time: others have decided it, and a node has come
        (
            1,
            [("high", "not-eligible", None), ("high", "bind", "n1"), ("low", "no-candidate", None)],
        ),
        # while `low` leaves
        (2, [("high", "preempt", "n1"), ("high", "bind", "n1"), ("low", "no-candidate", None)]),
        # while `high` is decided again: others have bound it
        (3, [("high", "preempt", "n1"), ("low", "no-candidate", None)]),
    ],
)
def test_a_simulation_goes_on_beside_another_run(
    store: Store, at: int, expected: list[tuple[str, str, str | None]]
) -> None:
    """What others decide and change meanwhile is read, and the simulation goes on from there."""
    parts = [
        a_node("n1").cpu(4).running(a_pod("low").priority(1).cpu(4)),
        a_pod("high").priority(9).cpu(4),
    ]
    store.record.import_objects("default", objects(*parts), at_ms=NOW_MS, source="test")
    rules, clock = RuleSet.load("kube-1.35"), VirtualClock(NOW_MS)

    def others() -> None:
        journal = StoreJournal(store, "default", actor="others", clock=lambda: NOW_MS)
        list(Scheduler(journal, rules, clock=lambda: NOW_MS, seed=0).run())
        arrives = ("Node", "n9", a_node("n9").cpu(1).node)
        store.record.change("default", [arrives], at_ms=NOW_MS, source="watch", cause=Cause.LIVE)

    journal = Beside(store, at=at, then=others)
    settler = Settler(Scheduler(journal, rules, clock=clock, seed=0), rules, clock, max_cycles=20)
    decisions = [step.decision for step in settler]
    told = [(d.preemptor.removeprefix("default/"), d.outcome.value, d.node) for d in decisions]
    ids = store.read.decision_ids("default")
    assert (told, settler.result.finished) == (expected, True)
    assert {found.verdict for found in replay_all(store, ids)} == {ReplayVerdict.EQUAL}
