"""Pod groups in the scheduling queue: settled, watched and simulated like single pods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from policy.audit.group_replay import GroupReplayer
from policy.audit.inputs import ReplayVerdict
from policy.cluster.objects import Pod
from policy.rules import RuleSet
from policy.scheduling.cycle import GroupStep, Scheduler, Step
from policy.scheduling.settle import Settled, Settler, VirtualClock
from policy.scheduling.watch import Watcher
from policy.store import Cause, Store
from policy.store.journal import StoreJournal
from tests.support.builders import NOW_MS, Builder, a_node, a_pod, objects
from tests.support.groups import a_group, of_group

RULES = RuleSet.load("kube-1.36-groups")
SECOND = 1000
Told = tuple[str, str, int]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def member(name: str, cpu: int = 4, priority: int = 50) -> Any:
    return of_group(a_pod(name).priority(priority).cpu(cpu), "train")


def full(node: str, pod: str, priority: int = 1) -> Any:
    low = a_pod(pod).priority(priority).cpu(4).started(60).owned_by("ReplicaSet", pod)
    return a_node(node).cpu(4).running(low)


def told(step: Step | GroupStep, now_ms: int) -> Told:
    name = step.decision.group if isinstance(step, GroupStep) else step.decision.preemptor
    outcome = step.decision.outcome.value
    return name.removeprefix("default/"), outcome, (now_ms - NOW_MS) // SECOND


def settled(
    store: Store, *parts: Any, rules: RuleSet = RULES, dry_run: bool = False
) -> tuple[list[Told], Settled]:
    store.record.import_objects("default", objects(*parts), at_ms=NOW_MS, source="test")
    clock = VirtualClock(NOW_MS)
    journal = StoreJournal(store, "default", actor="test", clock=clock)
    scheduler = Scheduler(journal, rules, clock=clock, seed=0, dry_run=dry_run)
    settler = Settler(scheduler, rules, clock, max_cycles=50)
    return [told(step, step.decision.now_ms) for step in settler], settler.result


PREEMPTING = (
    full("n1", "low-1"),
    full("n2", "low-2", 2),
    member("train-0"),
    member("train-1"),
    a_group("train", priority=100, least=2),
)


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_group_starts_when_its_victims_have_left(store: Store, dry_run: bool) -> None:
    """It preempts, is tried in vain while they leave, then all members start at once."""
    steps, result = settled(store, *PREEMPTING, dry_run=dry_run)
    assert (steps, result.finished, result.waiting) == (
        [
            ("train", "preempting", 0),
            ("train", "preempting", 1),
            ("train", "scheduled", 30),
            ("low-2", "no-candidate", 30),
            ("low-1", "no-candidate", 30),
        ],
        True,
        ("default/low-1", "default/low-2"),
    )


def test_what_settling_records_of_groups_replays(store: Store) -> None:
    """Every cycle is an entry of the ledger, and gives the same decision again."""
    settled(store, *PREEMPTING)
    replayer = GroupReplayer(store)
    rows = [store.read.session(number).row for number in (1, 2, 3)]
    assert [replayer.replay(row).verdict for row in rows] == [ReplayVerdict.EQUAL] * 3
    assert store.ledger.verify().ok
    left = store.state.load("default").objects
    assert {p.metadata.name: p.status.phase for p in left if isinstance(p, Pod)} == {
        "train-0": "Running",
        "train-1": "Running",
        "low-1": "Pending",
        "low-2": "Pending",
    }


def test_safe_rules_make_no_second_choice_while_the_victims_leave(store: Store) -> None:
    """The retry is made and preempts nothing further."""
    steps, result = settled(store, *PREEMPTING, rules=RuleSet.load("groups-safe"))
    assert [step[:2] for step in steps if step[0] == "train"] == [
        ("train", "preempting"),
        ("train", "unschedulable"),
        ("train", "scheduled"),
    ]
    assert result.finished


def test_surplus_members_preempt_one_cycle_at_a_time(store: Store) -> None:
    """The quorum starts first; then each cycle makes room for one more."""
    steps, result = settled(
        store,
        *(full(f"n{i}", f"low-{i}") for i in range(3)),
        *(member(f"train-{i}") for i in range(3)),
        a_group("train", priority=100, least=1),
    )
    outcomes = [outcome for name, outcome, _ in steps if name == "train"]
    assert outcomes.count("scheduled") == 3
    assert result.waiting == ("default/low-0", "default/low-1", "default/low-2")


def test_a_group_that_cannot_start_ends_the_simulation(store: Store) -> None:
    """A cycle that changes nothing is not made again until something happens."""
    steps, result = settled(
        store,
        full("n1", "vip", 500),
        member("train-0"),
        a_group("train", priority=100, least=1),
    )
    assert (steps, result.finished, result.waiting) == (
        [("train", "unschedulable", 0)],
        True,
        ("default/train-0",),
    )


def test_members_behind_their_gate_are_in_no_cycle(store: Store) -> None:
    """A gang of three of which two exist waits, and holds back no other pod."""
    steps, result = settled(
        store,
        a_node("n1").cpu(16),
        member("train-0"),
        member("train-1"),
        a_pod("single").priority(1).cpu(1),
        a_group("train", priority=100, least=3),
    )
    assert (steps, result.waiting) == (
        [("single", "bind", 0)],
        ("default/train-0", "default/train-1"),
    )


def watched(store: Store, parts: Sequence[Builder], *turns: Sequence[Any]) -> list[Told]:
    """What is decided; a turn of others' changes whenever nothing is, 20 seconds later."""
    store.record.import_objects("default", objects(*parts), at_ms=NOW_MS, source="test")
    clock = [NOW_MS]
    left = list(turns)

    def pause() -> bool:
        if not left:
            return False
        clock[0] += 20 * SECOND
        changes = left.pop(0)
        if changes:
            store.record.change("default", changes, at_ms=NOW_MS, source="watch", cause=Cause.LIVE)
        return True

    journal = StoreJournal(store, "default", actor="test", clock=lambda: NOW_MS)
    scheduler = Scheduler(journal, RULES, clock=lambda: clock[0], seed=0)
    watcher = Watcher(scheduler, clock=lambda: clock[0], pause=pause)
    return [told(step, clock[0]) for step in watcher]


def put(pod: Any) -> Any:
    return "Pod", f"default/{pod.pod.metadata.name}", pod.pod


GROUP = a_group("train", priority=100, least=2)


def test_a_gang_starts_when_its_last_member_comes(store: Store) -> None:
    """The gate opens with the pod that makes the number full."""
    waiting = (a_node("n1").cpu(16), member("train-0"), GROUP)
    assert watched(store, waiting, [], [put(member("train-1"))], []) == [("train", "scheduled", 40)]


def test_a_gang_starts_when_its_group_comes(store: Store) -> None:
    """Pods may be there before the object that they name."""
    waiting = (a_node("n1").cpu(16), member("train-0"), member("train-1"))
    arrives = ("SchedulingPodGroup", "default/train", GROUP)
    assert watched(store, waiting, [], [arrives], []) == [("train", "scheduled", 40)]


def test_a_group_is_tried_again_when_room_is_free(store: Store) -> None:
    """One cycle fails, nothing happens, then a pod goes and the group starts."""
    parts = (full("n1", "vip", 500), member("train-0"), a_group("train", priority=100, least=1))
    gone = ("Pod", "default/vip", None)
    assert watched(store, parts, [], [], [gone], []) == [
        ("train", "unschedulable", 0),
        ("train", "scheduled", 60),
    ]


def test_another_min_count_is_a_reason_to_try_again(store: Store) -> None:
    """minCount is lowered to what fits (1.37 lets it change)."""
    members = (member("train-0", priority=200), member("train-1", priority=200))
    parts = (a_node("n1").cpu(4), *members, GROUP)
    fewer = ("SchedulingPodGroup", "default/train", a_group("train", priority=100, least=1))
    assert watched(store, parts, [], [fewer], []) == [
        ("train", "unschedulable", 0),
        ("train", "scheduled", 40),
        ("train", "unschedulable", 60),
    ]
