"""Cycles of pod groups in the store: recorded whole, replayed, seen in the views."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sqlalchemy import update

from policy import RuleSet
from policy.audit.cascade import foresee
from policy.audit.group_causes import Otherwise, beyond_eviction, otherwise, takers
from policy.audit.group_replay import GroupReplayer
from policy.audit.inputs import MissingInput, ReplayVerdict
from policy.audit.session_replay import SessionReplayer
from policy.audit.supposed_groups import GroupChange
from policy.audit.what_if import Supposition, suppose
from policy.cluster.objects import Pod, SchedulingPodGroup
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import Decision
from policy.groups.decide import decide_group
from policy.preemption.decide import DecisionError
from policy.preemption.tally import Tally
from policy.scheduling.cycle import GroupStep, Scheduler, Step
from policy.store import HypotheticalDecision, Store
from policy.store.journal import StoreJournal
from policy.store.model.sessions import RecordedSession
from policy.store.record.basis import SnapshotMismatch
from policy.store.tables import SESSION_STEPS, SESSIONS
from tests.contract.plans import plan, statements
from tests.contract.test_ledger import tampering
from tests.contract.test_what_if import everything_told
from tests.support.builders import NOW_MS, a_node, a_pod, objects
from tests.support.groups import a_group, of_group

RULES = RuleSet.load("kube-1.36-groups")
SAFE = RuleSet.load("groups-safe")  # nominates members where they were placed


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


def pods_of(store):
    return {
        pod.metadata.name: pod for pod in store.state.load("default").objects if type(pod) is Pod
    }


def groups_of(store):
    return [o for o in store.state.load("default").objects if type(o) is SchedulingPodGroup]


def showing(store, name, *, seconds):
    """A watch shows a pod with another label, so many seconds after the cycle."""
    pod = pods_of(store)[name]
    labels = {"seen": str(seconds)}
    shown = replace(pod, metadata=replace(pod.metadata, labels=labels))
    at_ms = NOW_MS + 1000 + seconds * 1000
    store.record.follow(
        "default", [[("Pod", f"default/{name}", shown)]], at_ms=at_ms, source="api", actor="ann"
    )


def test_members_of_a_cycle_that_was_not_carried_out_wait_without_a_nomination(store):
    """As an ordinary preemptor does: the watch shows nothing of victims, members or the group."""
    before, groups = pods_of(store), groups_of(store)
    scheduler_of(store, rules=SAFE).decide_group("default/train")
    assert groups_of(store) != groups
    nominated = [p.status.nominated_node_name for p in pods_of(store).values()]
    showing(store, "taker", seconds=3500)
    after = pods_of(store)
    assert sorted(filter(None, nominated)) == ["n1", "n2"]
    assert {**after, "taker": before["taker"]} == before
    assert groups_of(store) == groups  # without the condition of the cycle
    assert store.ledger.verify().ok


def test_members_keep_their_nominations_where_a_victim_left(store):
    """The other one that is still there is put back, the cycle took place."""
    scheduler_of(store, rules=SAFE).decide_group("default/train")
    groups = groups_of(store)
    gone = [("Pod", "default/low-1", None)]
    store.record.follow("default", [gone], at_ms=NOW_MS + 2000, source="api", actor="ann")
    showing(store, "taker", seconds=3500)
    after = pods_of(store)
    assert sorted(after) == ["low-2", "taker", "train-0", "train-1", "vip"]
    assert after["low-2"].metadata.deletion_timestamp is None
    nodes = sorted(after[f"train-{i}"].status.nominated_node_name for i in (0, 1))
    assert nodes == ["n1", "n2"]
    assert groups_of(store) == groups


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


def test_cycles_of_a_group_are_found_by_an_index(store):
    """However many others there are."""
    scheduler_of(store).decide_group("default/train")
    for group, count in (("default/train", 1), ("default/other", 0)):
        assert len(store.read.sessions(kind="group", group=group)) == count
    with statements(store) as sent:
        store.read.sessions(kind="group", group="default/train", limit=50)
    read = [step for step in plan(store, *sent[-1]) if "ix_sessions_subject_id" in step]
    assert len(read) == 1


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
    decision = replayer.again(row)
    assert list(otherwise(snapshot, rules, decision)) == [
        Otherwise(change="minCount 1", outcome="unschedulable", victims=0),
        Otherwise(change="priority 3", outcome="preempting", victims=2),
    ]
    assert beyond_eviction(snapshot, rules, decision) == ()  # nothing may leave


def test_who_stands_in_the_way(store):
    """Members that find no node whatever leaves, and what another value of each field comes to."""
    parts = [
        *objects(
            a_node("n4").cpu(8).running(of_group(a_pod("u-0").priority(1).cpu(8), "unit")),
            of_group(a_pod("huge").priority(40).cpu(64), "train"),
        ),
        a_group("train", priority=100, least=3),
        a_group("unit", priority=7, mode="PodGroup"),
        of_group(a_pod("alone").priority(90).cpu(1), "waits").pod,
        a_group("waits", priority=90, least=2),
    ]
    store.record.import_objects("default", parts, at_ms=NOW_MS, source="dump.json")
    replayer = GroupReplayer(store)

    def causes(group):
        recording = scheduler_of(store).decide_group(group).recording
        row = store.read.session(recording.session_id).row
        snapshot, rules = replayer.situation(row)
        return snapshot, rules, replayer.again(row)

    stuck = beyond_eviction(*causes("default/train"))
    assert [(one.pod, one.message) for one in stuck] == [
        ("default/huge", "0/4 nodes are available: 4 Insufficient cpu.")
    ]
    assert list(otherwise(*causes("default/train"))) == [
        Otherwise(change="minCount 2", outcome="preempting", victims=2),
        Otherwise(change="priority 501", outcome="unschedulable", victims=0),
    ]
    assert list(otherwise(*causes("default/waits"))) == [
        Otherwise(change="minCount 1", outcome="preempting", victims=1)
    ]
    two = a_group("train", priority=100, least=2)
    store.record.import_objects("default", [two], at_ms=NOW_MS, source="dump.json")
    preempting = causes("default/train")
    assert list(otherwise(*preempting)) == [
        Otherwise(change="minCount 1", outcome="preempting", victims=1),
        Otherwise(change="minCount 3", outcome="unschedulable", victims=0),
        Otherwise(change="priority 2", outcome="unschedulable", victims=0),
        Otherwise(change="disruptionMode Pod of default/unit", outcome="preempting", victims=1),
    ]
    room = takers(*preempting)
    # The gang that waits for a second member takes nothing.
    assert (room.pods, room.tried, room.waiting) == (("default/taker",), 1, 1)


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


# --- only supposed -------------------------------------------------------------------------------

REMEMBERING = RuleSet.load(
    "kube-1.36-groups",
    overrides={
        "groups": {
            "victims": {
                "eligible": {
                    "insert": [
                        {
                            "at": "start",
                            "rule": {
                                "id": "not-again",
                                "verdict": "deny",
                                "reason": "was preempted a moment ago",
                                "when": "history.preemptedCount(unit.workload, duration('1h')) > 0",
                            },
                        }
                    ]
                }
            }
        }
    },
)
MEMORY = {
    ("preemptedCount", 3600),
    ("secondsSinceLastPreempted", None),
    ("namespacePreemptedCount", 3600),
    ("namespacePreemptions", 3600),
}


def supposed(store, *changes, rules=RULES, depth=2):
    """What follows from another value of a group, kept as hypothetical; the steps with it."""
    snapshot = scheduler_of(store, rules=rules).state.snapshot.at(NOW_MS + 1000)
    history = store.read.history("default", rules.history_needs, now_ms=NOW_MS + 1000)
    if rules.history_needs:
        snapshot = snapshot.at(NOW_MS + 1000, history=history)
    made = suppose(
        snapshot, Supposition(group_changes=[GroupChange.parse(text) for text in changes])
    )
    asked = ["default/train-0", "default/taker"]
    steps = [s for s in foresee(made.snapshot, rules, asked, depth=depth, seed=7) if s.decision]
    recorded = store.record.hypothetical(
        "default",
        [
            HypotheticalDecision(
                decision=step.decision,
                supposed=step.supposed if i else (made.changes, *step.supposed),
            )
            for i, step in enumerate(steps)
        ],
        revision=store.state.head_revision("default"),
        rules=rules,
        actor="ann",
        at_ms=NOW_MS + 5,
    )
    return steps, recorded


def test_supposed_cycles_are_in_no_list_and_no_view(store):
    """They are kept with their mark beside decisions, and nothing that counts has them."""
    before = (everything_told(store), store.read.sessions(), store.state.head_revision("default"))
    steps, recorded = supposed(store, "train:minCount=1")
    told = (everything_told(store), store.read.sessions(), store.state.head_revision("default"))
    assert told == before
    kinds = [type(step.decision) for step in steps]
    assert {GroupDecision, Decision} == set(kinds)
    assert [isinstance(one, RecordedSession) for one in recorded] == [
        kind is GroupDecision for kind in kinds
    ]
    rows = store.read.sessions(hypothetical=True)
    assert [(row.subject, row.hypothetical, row.base_revision, row.revision) for row in rows] == [
        ("default/train", True, 1, None) for kind in kinds if kind is GroupDecision
    ]
    assert query(
        store,
        "SELECT DISTINCT operation, reason FROM session_steps"
        " WHERE operation IN ('bind', 'evict') ORDER BY 1",
    ) == [("bind", "hypothetical"), ("evict", "hypothetical")]
    assert store.ledger.verify().ok


def test_a_supposed_cycle_is_replayed_where_its_state_was(store):
    """On the stored state it is made again; on one that never was, that is said."""
    supposed(store)
    supposed(store, "train:minCount=1")
    rows = sorted(store.read.sessions(hypothetical=True), key=lambda row: row.id)
    found = [(r.verdict, r.missing) for r in GroupReplayer(store).replay_all(rows)]
    never = (ReplayVerdict.INCOMPLETE, (MissingInput.HYPOTHETICAL,))
    assert found == [(ReplayVerdict.EQUAL, ()), *[never] * (len(rows) - 1)]
    assert len(rows) > 2


def test_supposed_cycles_are_all_kept_or_none(store):
    """A cycle that was made on another state refuses those before it, too."""
    snapshot = scheduler_of(store).state.snapshot.at(NOW_MS + 1000)
    one = HypotheticalDecision(decision=decide_group(snapshot, RULES, "default/train"))
    other = snapshot.apply([("Node", "n3", None)])
    wrong = HypotheticalDecision(decision=decide_group(other, RULES, "default/train"))
    with pytest.raises(SnapshotMismatch, match="the cycle of pod group `default/train` was not"):
        store.record.hypothetical(
            "default", [one, wrong], revision=1, rules=RULES, actor="ann", at_ms=NOW_MS
        )
    assert store.read.sessions(hypothetical=None) == []


def test_pruning_counts_supposed_cycles_without_their_state(store):
    """Those that stay, on older states than the oldest that stays."""
    scheduler_of(store).decide_group("default/train")
    store.record.hypothetical(
        "default",
        [
            HypotheticalDecision(
                decision=decide_group(
                    Snapshot.from_objects(
                        store.state.load("default", at=1).objects,
                        now_ms=NOW_MS,
                        state_digest=store.state.load("default", at=1).state_digest,
                    ),
                    RULES,
                    "default/train",
                )
            )
        ],
        revision=1,
        rules=RULES,
        actor="ann",
        at_ms=NOW_MS + 100,
    )
    (planned,) = store.ledger.plan_prune(NOW_MS + 50).clusters
    assert (planned.hypothetical_left, planned.sessions) == (1, 1)


def test_rules_of_groups_that_read_the_history(store):
    """What a cycle evicted counts for the next one, what was only supposed does not."""
    supposed(store, rules=REMEMBERING, depth=1)
    figures = store.read.history("default", MEMORY, now_ms=NOW_MS + 2000)
    assert {name: dict(found) for name, found in figures.items() if found} == {}
    first = scheduler_of(store, rules=REMEMBERING).decide_group("default/train").decision
    again = scheduler_of(store, rules=REMEMBERING).decide_group("default/train").decision
    assert (first.effects.evict, again.effects.evict) == (("default/low-2", "default/low-1"), ())
    verdicts = [r.verdict for r in GroupReplayer(store).replay_all(store.read.sessions())]
    assert verdicts == [ReplayVerdict.EQUAL, ReplayVerdict.EQUAL]


def test_a_dry_run_counts_what_a_group_would_evict(store):
    """As the record would: two victims of one preemption."""
    dry = scheduler_of(store, dry_run=True, rules=REMEMBERING)
    first = dry.decide_group("default/train").decision
    real = scheduler_of(store, rules=REMEMBERING).decide_group("default/train").decision
    tally = Tally()
    tally.note_group(first)
    now_ms = NOW_MS + 2000
    assert tally.added_to({}, MEMORY, now_ms=now_ms) == {
        key: dict(figures)
        for key, figures in store.read.history("default", MEMORY, now_ms=now_ms).items()
    }
    assert first.effects.evict == real.effects.evict
    assert dry.decide_group("default/train").decision.effects.evict == ()
