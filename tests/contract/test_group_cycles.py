"""Cycles of pod groups in the store: recorded whole, replayed, seen in the views."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from policy import RuleSet
from policy.audit.group_causes import Otherwise, otherwise, takers
from policy.audit.group_replay import GroupReplayer
from policy.audit.inputs import ReplayVerdict
from policy.audit.session_replay import SessionReplayer
from policy.preemption.decide import DecisionError
from policy.scheduling.cycle import GroupStep, Scheduler, Step
from policy.store import Store
from policy.store.journal import StoreJournal
from policy.store.tables import SESSION_STEPS, SESSIONS
from tests.contract.test_ledger import tampering
from tests.support.builders import NOW_MS, a_node, a_pod, objects
from tests.support.groups import a_group, of_group

RULES = RuleSet.load("kube-1.36-groups")


def a_cluster():
    """Three full nodes; a gang of two that outranks two of them; and a lone pod."""
    return objects(
        a_node("n1").cpu(4).running(a_pod("low-1").priority(1).cpu(4).started(60)),
        a_node("n2").cpu(4).running(a_pod("low-2").priority(2).cpu(4).started(60)),
        a_node("n3").cpu(4).running(a_pod("vip").priority(500).cpu(4).started(60)),
        of_group(a_pod("train-0").priority(50).cpu(4), "train"),
        of_group(a_pod("train-1").priority(50).cpu(4), "train"),
        a_pod("taker").priority(1).cpu(2),
        a_group("train", priority=100, least=2),
    )


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", a_cluster(), at_ms=NOW_MS, source="dump.json")
        yield opened


def scheduler_of(store, *, dry_run=False, rules=RULES):
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW_MS + 5)
    return Scheduler(journal, rules, clock=lambda: NOW_MS + 1000, seed=7, dry_run=dry_run)


def query(store, text):
    with store.sql(text, trust_connection=True) as result:
        return [tuple(row) for row in result]


def test_a_cycle_and_its_changes_are_one_entry(store):
    """Victims leave, the group gets its condition, and the ledger holds all of it."""
    step = scheduler_of(store).decide_group("default/train")
    assert step.recording is not None
    loaded = store.state.load("default")
    leaving = sorted(o.metadata.name for o in loaded.objects if o.metadata.deletion_timestamp)
    (group,) = [o for o in loaded.objects if type(o).__name__ == "SchedulingPodGroup"]
    (condition,) = group.status.conditions
    assert (step.recording.session_id, step.recording.revision, loaded.revision) == (1, 2, 2)
    assert leaving == ["low-1", "low-2"]
    assert (condition.type, condition.status, condition.observed_generation) == (
        "PodGroupScheduled",
        "False",
        1,
    )
    assert store.ledger.verify().ok


def test_the_views_count_what_a_group_evicts(store):
    scheduler_of(store).decide_group("default/train")
    assert query(store, "SELECT victim, preemptor, session_id FROM v_victims ORDER BY 1") == [
        ("default/low-1", "default/train-0", 1),
        ("default/low-2", "default/train-0", 1),
    ]
    assert query(store, "SELECT kind, subject, outcome, evicted_count FROM sessions") == [
        ("group", "default/train", "preempting", 2)
    ]
    steps = query(
        store,
        "SELECT operation, task, reason FROM session_steps WHERE operation <> 'pending'"
        " ORDER BY position",
    )
    assert steps == [
        ("put-back", "default/low-2", "leaves"),
        ("put-back", "default/low-1", "leaves"),
        ("evict", "default/low-2", ""),
        ("evict", "default/low-1", ""),
    ]


def test_a_cycle_replays_to_itself(store):
    scheduler_of(store).decide_group("default/train")
    rows = store.read.sessions(kind="group")
    assert [r.verdict for r in GroupReplayer(store).replay_all(rows)] == [ReplayVerdict.EQUAL]
    assert list(SessionReplayer(store).replay_all(store.read.sessions(kind="batch"))) == []


def test_a_changed_record_is_told(store, database_url):
    """A step that was altered breaks the ledger, a digest that was altered the replay."""
    scheduler_of(store).decide_group("default/train")
    with tampering(database_url) as connection:
        connection.execute(update(SESSION_STEPS).values(reason=""))
        connection.execute(update(SESSIONS).values(digest="sha256:0"))
        connection.commit()
    (result,) = GroupReplayer(store).replay_all(store.read.sessions(kind="group"))
    assert (result.verdict, store.ledger.verify().ok) == (ReplayVerdict.DIFFERENT, False)


def test_a_dry_run_changes_nothing(store):
    step = scheduler_of(store, dry_run=True).decide_group("default/train")
    assert (step.recording, store.read.sessions(), store.state.head_revision("default")) == (
        None,
        [],
        1,
    )


def test_a_run_decides_groups_in_the_queue(store):
    """The group comes with its first member, the lone pod after it."""
    steps = list(scheduler_of(store).run())
    told = [(s.decision.group if isinstance(s, GroupStep) else s.decision.preemptor) for s in steps]
    assert told == ["default/train", "default/taker"]
    assert isinstance(steps[1], Step)


def test_what_else_could_have_come_of_it(store):
    """The freed room is not reserved, and the pod that waits would take it."""
    scheduler_of(store).decide_group("default/train")
    (row,) = store.read.sessions(kind="group")
    replayer = GroupReplayer(store)
    snapshot, rules = replayer.situation(row)
    room = takers(snapshot, rules, replayer.again(row))
    assert room is not None
    assert (room.reserved, room.pods, room.tried, room.waiting) == (
        False,
        ("default/taker",),
        1,
        1,
    )


def test_another_priority_would_have_started_the_group(store):
    """A group that outranks nobody is told which priority would be enough."""
    weak = a_group("train", priority=0, least=2)
    store.record.import_objects("default", [weak], at_ms=NOW_MS, source="dump.json")
    scheduler_of(store).decide_group("default/train")
    (row,) = store.read.sessions(kind="group")
    replayer = GroupReplayer(store)
    snapshot, rules = replayer.situation(row)
    found = list(otherwise(snapshot, rules, replayer.again(row)))
    assert found == [Otherwise(change="priority 501", outcome="preempting", victims=2)]


@pytest.mark.parametrize(
    ("rules", "group", "said"),
    [
        ("kube-1.36", "default/train", "rule set `kube-1.36` does not schedule pod groups"),
        ("kube-1.36-groups", "default/none", "no pod group `default/none` in the cluster"),
    ],
)
def test_what_cannot_be_decided(store, rules, group, said):
    with pytest.raises(DecisionError) as caught:
        scheduler_of(store, rules=RuleSet.load(rules)).decide_group(group)
    assert str(caught.value) == said
