"""Batch sessions in the store: recorded whole, replayed, seen in the views, held again."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields
from sqlalchemy import update

from policy.audit.inputs import MissingInput, ReplayVerdict
from policy.audit.session_replay import SessionReplayer, recorded_result
from policy.batch import BatchRules
from policy.cluster.objects import (
    ObjectMeta,
    Pod,
    PodGroup,
    PodGroupSpec,
    Queue,
    QueueSpec,
    encode,
)
from policy.rules.files import shipped_folder
from policy.scheduling.sessions import SessionScheduler
from policy.scheduling.state import ATTEMPTS, Contended, StateMoved
from policy.store import Cause, NotFound, SnapshotMismatch, Store
from policy.store.journal import StoreJournal
from policy.store.read.evictions import Range
from policy.store.read.history import Moment
from policy.store.read.hits import EvictionSubject
from policy.store.tables import PODS, RULE_SETS, SESSION_OUTCOMES, SESSION_STEPS
from tests.contract.builders import BY_HAND, a_decision, a_victim, made_on
from tests.contract.test_ledger import tampering
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pod, objects

RULES = BatchRules.load("kube-batch-sample")
HOUR = 60


def a_task(name, namespace, group):
    pod = a_pod(name).in_namespace(namespace).scheduled_by("kube-batch").cpu(2).memory("1Gi").pod
    annotations = {"scheduling.k8s.io/group-name": group}
    return PodBuilder(with_fields(pod, metadata=with_fields(pod.metadata, annotations=annotations)))


def a_group(key, minimum, queue):
    namespace, _, name = key.partition("/")
    return PodGroup(
        metadata=ObjectMeta(name=name, namespace=namespace),
        spec=PodGroupSpec(min_member=minimum, queue=queue),
    )


def a_queue(name, weight):
    return Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(weight=weight))


def a_worker(node):
    return a_node(node).cpu(4).memory("8Gi")


def a_cluster():
    """Two nodes full of the bronze queue's pods, and a gang of two of the gold queue."""
    crunch = [a_task(f"crunch-{i}", "lab", "crunch").priority(1).started(HOUR) for i in range(4)]
    return objects(
        a_worker("n1").running(*crunch[:2]),
        a_worker("n2").running(*crunch[2:]),
        *(a_task(f"train-{i}", "ml", "train").priority(10) for i in range(2)),
        a_group("lab/crunch", 1, "bronze"),
        a_group("ml/train", 2, "gold"),
        a_queue("bronze", 1),
        a_queue("gold", 3),
    )


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", a_cluster(), at_ms=NOW_MS, source="dump.json")
        yield opened


def journal_of(store):
    return StoreJournal(store, "default", actor="ann", clock=lambda: NOW_MS + 5)


def scheduler_of(store, *, journal=None, rules=RULES, **options):
    return SessionScheduler(
        journal or journal_of(store), rules, clock=lambda: NOW_MS + 1000, **options
    )


def verdicts(store):
    rows = sorted(store.read.sessions(), key=lambda row: row.id)
    return [(r.row.id, r.verdict) for r in SessionReplayer(store).replay_all(rows)]


def query(store, text):
    with store.sql(text, trust_connection=True) as result:
        return [tuple(row) for row in result]


def meddle(store):
    """Somebody else changes the cluster."""
    store.record.change(
        "default",
        [("Node", "n3", a_worker("n3").node)],
        at_ms=NOW_MS,
        source="watch",
        cause=Cause.LIVE,
    )


# --- recorded ----------------------------------------------------------------------------------


def test_a_session_is_read_back_whole(store):
    """What comes out of the record is what the session decided, to the digest."""
    held = scheduler_of(store).run()
    stored = store.read.session(held.recording.session_id)
    found = recorded_result(stored)
    assert found == replace(held.result, changes=())
    assert found.digest == held.result.digest == stored.row.digest
    assert stored.document["queues"] == {"lab/crunch": "bronze", "ml/train": "gold"}


def test_the_steps_stand_in_their_order(store):
    """Each step is a row; one that was in vain names the reason."""
    number = scheduler_of(store).run().recording.session_id
    steps = query(
        store,
        "SELECT action, operation, queue, task, for_task, reason FROM session_steps"
        f" WHERE session_id = {number} ORDER BY position",
    )
    assert steps == [
        ("reclaim", "evict", "bronze", "lab/crunch-0", "ml/train-0", ""),
        ("reclaim", "pipeline", "gold", "ml/train-0", "", ""),
        ("allocate", "reject", "gold", "ml/train-1", "", "no-room"),
        ("preempt", "reject", "gold", "ml/train-1", "", "no-potential-victims"),
    ]


def test_record_and_changes_are_one_revision(store):
    """The session's changes are the state that it led to, and the ledger covers both."""
    held = scheduler_of(store).run()
    row = store.read.session(held.recording.session_id).row
    assert (row.base_revision, row.revision, row.evicted_count) == (1, 2, 1)
    assert store.state.head_revision("default") == 2
    assert store.state.load("default").state_digest == held.recording.state_digest
    assert store.ledger.verify().ok


def test_a_changed_step_is_found(store, database_url):
    """Whoever rewrites for whom a pod was evicted is found by the ledger."""
    scheduler_of(store).run()
    with tampering(database_url) as connection:
        connection.execute(
            update(SESSION_STEPS)
            .where(SESSION_STEPS.c.operation == "evict")
            .values(for_task="ml/train-1")
        )
        connection.commit()
    assert [f.harm.value for f in store.ledger.verify().findings] == ["changed"]


def test_a_dry_run_writes_nothing(store):
    """Sessions of a dry run follow one another in memory only."""
    held = list(scheduler_of(store, dry_run=True).until_settled())
    assert [len(h.result.binds) for h in held] == [0, 0, 0, 0, 2, 0]
    assert (store.state.head_revision("default"), store.read.sessions()) == (1, [])


def test_a_session_on_another_state_is_refused(store):
    """A session that does not follow from its revision could never be replayed."""
    held = scheduler_of(store, dry_run=True).run()
    other = replace(held.result, snapshot_digest="sha256:" + 64 * "5")
    with pytest.raises(SnapshotMismatch, match="the session was not made on revision 1 of"):
        journal_of(store).record_session(
            other, held.queues, now_ms=held.now_ms, expected_revision=1, rules=RULES
        )
    assert store.read.sessions() == []


# --- held again --------------------------------------------------------------------------------


class Meddled(StoreJournal):
    """A journal in front of which others change the cluster, so many times."""

    def __init__(self, store, times):
        super().__init__(store, "default", actor="ann", clock=lambda: NOW_MS)
        self.others, self.times = store, times

    def record_session(self, *arguments, **options):
        if self.times:
            self.times -= 1
            meddle(self.others)
        return super().record_session(*arguments, **options)


def test_a_concurrent_change_is_seen(store):
    """A session on a state that has passed is not recorded; it is held on the newer one."""
    held = scheduler_of(store, journal=Meddled(store, 1)).run()
    assert (held.base_revision, held.recording.revision) == (2, 3)
    assert held.result.allocated == {"ml/train-1": "n3"}
    assert [row.base_revision for row in store.read.sessions()] == [2]
    assert verdicts(store) == [(1, ReplayVerdict.EQUAL)]


class NeverCurrent(StoreJournal):
    """A journal for which the cluster has always moved on."""

    tried = 0

    def record_session(self, *arguments, **options):
        self.tried += 1
        raise StateMoved("moved")


def test_a_cluster_that_never_rests_ends_the_attempts(store):
    """After so many attempts nothing is recorded, and that is said."""
    journal = NeverCurrent(store, "default", actor="ann", clock=lambda: NOW_MS)
    with pytest.raises(Contended):
        scheduler_of(store, journal=journal).run()
    assert (journal.tried, store.read.sessions()) == (ATTEMPTS, [])


# --- settling ----------------------------------------------------------------------------------


def test_settling_ends_with_the_gang_in_place(store):
    """Victims go, the gang is bound and starts; the last session changes nothing."""
    held = list(scheduler_of(store).until_settled())
    assert [(h.base_revision, len(h.result.evicts), len(h.result.binds)) for h in held] == [
        (1, 1, 0),
        (3, 1, 0),
        (5, 1, 0),
        (7, 1, 0),
        (9, 0, 2),
        (11, 0, 0),
    ]
    pods = [o for o in store.state.load("default").objects if isinstance(o, Pod)]
    assert [(p.metadata.name, p.spec.node_name, p.status.phase) for p in pods] == [
        ("train-0", "n1", "Running"),
        ("train-1", "n2", "Running"),
    ]
    assert verdicts(store) == [(i, ReplayVerdict.EQUAL) for i in range(1, 7)]
    assert store.ledger.verify().ok


def test_a_change_between_two_sessions_takes_part_in_the_settling(store):
    """What follows is computed again for the cluster as others left it."""
    sessions = scheduler_of(store).until_settled()
    next(sessions)
    meddle(store)
    held = list(sessions)
    binds = {pod: node for one in held for pod, node in one.result.binds.items()}
    assert (held[0].base_revision, binds) == (4, {"ml/train-0": "n1", "ml/train-1": "n2"})
    assert "n3" in held[0].before.nodes.index
    assert {verdict for _, verdict in verdicts(store)} == {ReplayVerdict.EQUAL}


# --- replayed ----------------------------------------------------------------------------------


def test_a_session_replays_equal_after_the_cluster_moved_on(store):
    """The state of then is rebuilt, whatever happened since."""
    scheduler_of(store).run()
    meddle(store)
    store.record.change(
        "default",
        [("Queue", "gold", None), ("Pod", "ml/train-0", None)],
        at_ms=NOW_MS,
        source="watch",
        cause=Cause.LIVE,
    )
    assert verdicts(store) == [(1, ReplayVerdict.EQUAL)]


def test_rules_changed_on_disk_do_not_matter(store, tmp_path):
    """A replay uses the stored text of the rules, not the file that they came from."""
    file = tmp_path / "mine.yaml"
    shutil.copy(str(shipped_folder() / "kube-batch-sample.yaml"), file)
    scheduler_of(store, rules=BatchRules.load(file)).run()
    file.write_text(file.read_text().replace("reclaim, ", ""))
    assert BatchRules.load(file).actions == ("allocate", "backfill", "preempt")
    assert verdicts(store) == [(1, ReplayVerdict.EQUAL)]


def test_the_first_difference_is_named(store):
    """A record that says something else differs first in that place."""
    honest = scheduler_of(store, dry_run=True).run()
    forged = replace(honest.result, evicts=("lab/crunch-3",), changes=())
    journal_of(store).record_session(
        forged, honest.queues, now_ms=honest.now_ms, expected_revision=1, rules=RULES
    )
    (found,) = SessionReplayer(store).replay_all(store.read.sessions())
    assert found.verdict is ReplayVerdict.DIFFERENT
    difference = found.difference
    assert (difference.path, difference.recorded, difference.replayed) == (
        "evicts[0]",
        "lab/crunch-3",
        "lab/crunch-0",
    )


def test_another_state_is_no_difference(store, database_url):
    """Where the rows of the state are not those of then, no session is compared."""
    scheduler_of(store).run()
    with tampering(database_url) as connection:
        changed = a_task("train-1", "ml", "crunch").priority(10).pod
        connection.execute(
            update(PODS).where(PODS.c.key == "ml/train-1").values(manifest=encode(changed).decode())
        )
        connection.commit()
    (found,) = SessionReplayer(store).replay_all(store.read.sessions())
    assert (found.verdict, found.missing) == (
        ReplayVerdict.INCOMPLETE,
        (MissingInput.STATE_DIGEST,),
    )


def test_other_rules_are_no_difference(store, database_url):
    """Where the stored text of the rules is not the one of then, that is what is missing."""
    scheduler_of(store).run()
    with tampering(database_url) as connection:
        connection.execute(update(RULE_SETS).values(canonical=RULES.canonical + " "))
        connection.commit()
    (found,) = SessionReplayer(store).replay_all(store.read.sessions())
    assert (found.verdict, found.missing) == (
        ReplayVerdict.INCOMPLETE,
        (MissingInput.RULE_SET_DIGEST,),
    )


def test_rules_that_are_gone_are_said(store, database_url):
    """The session is still there, and is not taken for replayed."""
    scheduler_of(store).run()
    with tampering(database_url) as connection:
        connection.execute(RULE_SETS.delete())
        connection.commit()
    (found,) = SessionReplayer(store).replay_all(store.read.sessions())
    assert (found.verdict, found.missing) == (ReplayVerdict.INCOMPLETE, (MissingInput.RULE_SET,))


def test_a_session_that_is_not_there_is_said(store):
    """Numbers begin with the first session."""
    with pytest.raises(NotFound, match="no session 1"):
        store.read.session(1)


# --- views -------------------------------------------------------------------------------------


def test_views_show_the_evictions(store):
    """Who was evicted, by whom, when: as for decisions, with the session in place of one."""
    list(scheduler_of(store).until_settled())
    common = {"victim_namespace": "lab", "preemptor": "ml/train-0", "preemptor_priority": 10}
    common |= {"run_seconds": 3601, "cpu_milli": 2000, "action": "reclaim", "decision_id": None}
    common |= {"decided_at": "2026-11-21T00:00:01.000Z", "pdb_violating": None}
    assert query(
        store, f"SELECT victim, node, session_id, {', '.join(common)} FROM v_victims ORDER BY 1"
    ) == [
        ("lab/crunch-0", "n1", 1, *common.values()),
        ("lab/crunch-1", "n1", 2, *common.values()),
        ("lab/crunch-2", "n2", 3, *common.values()),
        ("lab/crunch-3", "n2", 4, *common.values()),
    ]
    assert query(
        store,
        "SELECT preemptor, victim_count, rule_set, actor, session_id, revision"
        " FROM v_preemptions ORDER BY session_id",
    ) == [("ml/train-0", 1, "kube-batch-sample", "ann", i, 2 * i) for i in range(1, 5)]
    assert query(
        store,
        "SELECT preemptor_namespace, victim_namespace, evictions, run_seconds_lost"
        " FROM v_who_preempts_whom",
    ) == [("ml", "lab", 4, 4 * 3601)]
    assert query(
        store, "SELECT preemptions, victims, pdb_violations FROM v_preemptions_hourly"
    ) == [(4, 4, 0)]


def test_views_show_no_eviction_that_was_taken_back(store):
    """A discarded statement evicts nobody, though its steps are kept."""
    rules = BatchRules.load(
        {
            "apiVersion": "policy/v1",
            "kind": "BatchRules",
            "metadata": {"name": "preempting"},
            "spec": {
                "actions": ["preempt"],
                "tiers": [{"plugins": [{"name": "gang"}]}],
            },
        }
    )
    tasks = [a_task(f"small-{i}", "ml", "small").priority(1) for i in range(2)]
    store.record.import_objects(
        "default",
        [
            *objects(
                a_worker("n9").running(*tasks),
                *(a_task(f"big-{i}", "ml", "big").priority(9) for i in range(3)),
            ),
            a_group("ml/small", 1, "gold"),
            a_group("ml/big", 3, "gold"),
        ],
        at_ms=NOW_MS,
        source="more.json",
    )
    held = scheduler_of(store, rules=rules).run()
    tried = [s for s in held.result.steps if s.operation == "evict"]
    assert {step.outcome.value for step in tried} == {"discarded"}
    reasons = "SELECT DISTINCT reason FROM session_steps WHERE operation = 'evict'"
    assert query(store, reasons) == [("discarded",)]
    assert query(store, "SELECT victim FROM v_victims") == []
    assert query(store, "SELECT preemptor FROM v_preemptions") == []


# --- evictions that were not carried out ---------------------------------------------------------

LATER = NOW_MS + 60_000
AGAIN = "SELECT pod, reason, revision FROM session_outcomes ORDER BY session_id, position"
COUNTING = (
    *("v_preemptions", "v_victims WHERE evicted", "v_who_preempts_whom", "v_preemptions_hourly"),
    "v_victims WHERE outcome = 'not-carried-out'",
)


def counted(store):
    return [query(store, f"SELECT count(*) FROM {view}")[0][0] for view in COUNTING]


def figures(store, **options):
    needs = [
        ("preemptedCount", 3600),
        ("namespacePreemptedCount", 3600),
        ("namespacePreemptions", 3600),
        ("secondsSinceLastPreempted", None),
    ]
    found = store.read.history("default", needs, now_ms=LATER, **options)
    return {name: of_one for name, of_one in found.items() if of_one}


def test_an_eviction_that_an_import_contradicts_leaves_history_views_and_reports(store):
    """The cluster still runs the pod that the session evicted: nothing counts it any more."""
    scheduler_of(store).run()
    everything = Range(cluster="default")
    before = (counted(store), sorted(figures(store)), len(store.read.evictions(everything)))
    as_it_was = [obj for obj in a_cluster() if isinstance(obj, Pod)]
    store.record.import_objects("default", as_it_was, at_ms=LATER, source="dump.json")
    assert before == (
        [1, 1, 1, 1, 0],
        [
            "namespacePreemptedCount/3600",
            "namespacePreemptions/3600",
            "preemptedCount/3600",
            "secondsSinceLastPreempted",
        ],
        1,
    )
    assert (
        query(store, AGAIN),
        counted(store),
        figures(store),
        store.read.evictions(everything),
        list(store.read.past_preemptions(everything)),
    ) == ([("lab/crunch-0", "victim-still-runs", 3)], [0, 0, 0, 0, 1], {}, [], [])
    hit = store.read.hits("default", EvictionSubject(pod=("lab", "crunch-0")))[0]
    assert (hit.session_id, hit.outcome, [one.reason for one in hit.contradicted_by]) == (
        1,
        "not-carried-out",
        ["victim-still-runs"],
    )
    assert store.read.session(1).outcomes == hit.contradicted_by
    # A decision of before knew of none of that.
    known = figures(store, before=Moment(decision_id=9, base_revision=2 + 1))
    assert known == {}
    of_then = figures(store, before=Moment(decision_id=9, base_revision=2))
    assert sorted(of_then) == before[1]
    assert (store.ledger.verify().ok, verdicts(store)) == (True, [(1, ReplayVerdict.EQUAL)])


def test_an_eviction_that_took_place_is_not_contradicted(store):
    """A pod that is leaving, or was made again under its name, is no contradiction."""
    held = scheduler_of(store).run()
    (leaving,) = (pod for kind, key, pod in held.result.changes if key == "lab/crunch-0")
    others = [
        obj for obj in a_cluster() if isinstance(obj, Pod) and obj.metadata.name != "crunch-0"
    ]
    changed = with_fields(leaving, spec=with_fields(leaving.spec, priority=2))
    store.record.import_objects("default", [*others, changed], at_ms=LATER, source="dump.json")
    again = with_fields(
        changed,
        metadata=with_fields(changed.metadata, uid="another", deletion_timestamp=None),
    )
    store.record.import_objects("default", [*others, again], at_ms=LATER + 1, source="dump.json")
    assert (query(store, AGAIN), counted(store)) == ([], [1, 1, 1, 1, 0])


def test_what_a_watch_does_not_show_as_deleted_is_put_back(store):
    """In half a minute nothing showed the deletion: the pod runs in the record, too."""
    scheduler_of(store).run()
    node = a_worker("n3").node
    written = store.record.follow(
        "default",
        [[("Node", "n3", node)]],
        at_ms=NOW_MS + 1000 + 31_000,
        source="https://cluster",
        actor="ann",
    ).written
    changed = [(kind, key) for one in written for kind, key, _ in one.changes]
    assert (query(store, AGAIN), changed) == (
        [("lab/crunch-0", "victim-still-there", 3)],
        [("Node", "n3"), ("Pod", "lab/crunch-0")],
    )
    (pod,) = (pod for _, key, pod in written[-1].changes if key == "lab/crunch-0")
    assert pod.metadata.deletion_timestamp is None
    assert store.ledger.verify().ok


def test_a_changed_outcome_of_a_session_is_found(store, database_url):
    """The entry of the revision covers it, and a row of no revision is none."""
    scheduler_of(store).run()
    as_it_was = [obj for obj in a_cluster() if isinstance(obj, Pod)]
    store.record.import_objects("default", as_it_was, at_ms=LATER, source="dump.json")
    with tampering(database_url) as connection:
        connection.execute(update(SESSION_OUTCOMES).values(at_ms=1))
        connection.commit()
        (changed,) = store.ledger.verify().findings
        connection.execute(update(SESSION_OUTCOMES).values(revision=7))
        connection.commit()
        orphan = store.ledger.verify().findings[-1]
    assert (changed.harm.value, changed.sequence, orphan.detail) == (
        "changed",
        3,
        "a row of session_outcomes without revision",
    )


def test_outcomes_of_sessions_are_pruned_with_their_revision(store):
    """And what stays can be verified."""
    scheduler_of(store).run()
    as_it_was = [obj for obj in a_cluster() if isinstance(obj, Pod)]
    for hours in (1, 2, 3):
        pods = [with_fields(p, spec=with_fields(p.spec, priority=hours)) for p in as_it_was]
        at_ms = NOW_MS + hours * 3_600_000
        store.record.import_objects("default", pods, at_ms=at_ms, source="dump.json")
    found = query(store, AGAIN)
    store.ledger.prune(NOW_MS + 2 * 3_600_000, actor="ann", at_ms=NOW_MS + 4 * 3_600_000)
    assert (len(found), query(store, AGAIN), store.ledger.verify().ok) == (1, [], True)


def test_evictions_of_one_instant_have_one_order(store):
    """On either database decisions come before sessions, and of these the newest first."""
    for cluster in ("default", "other"):
        if cluster == "other":
            store.record.import_objects(cluster, a_cluster(), at_ms=NOW_MS, source="dump.json")
        journal = StoreJournal(store, cluster, actor="ann", clock=lambda: NOW_MS + 5)
        scheduler_of(store, journal=journal).run()
    (now_ms,) = {row.now_ms for row in store.read.sessions()}
    taken = a_victim("lab/crunch-0", owner="")
    decision = store.record.decision(
        "default",
        made_on(store, a_decision(taken, preemptor="ml/train-0", now_ms=now_ms)),
        [],
        expected_revision=2,
        rules=BY_HAND,
        actor="ann",
        at_ms=now_ms,
    )
    found = store.read.hits(None, EvictionSubject(pod=("lab", "crunch-0")))
    sessions = sorted((row.id for row in store.read.sessions()), reverse=True)
    assert [(hit.decision_id, hit.session_id) for hit in found] == [
        (decision.decision_id, None),
        *((None, number) for number in sessions),
    ]
