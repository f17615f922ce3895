"""What goes into the store comes out of it."""

from __future__ import annotations

import os
import pwd
import shutil
from dataclasses import replace

import pytest
from sqlalchemy import text

from policy.cluster.digest import GENESIS, chain_changes, snapshot_digest
from policy.cluster.objects import key_of, kind_of
from policy.decision.model import Outcome
from policy.decision.record import record_of
from policy.scheduling.state import StateTracker
from policy.store import (
    ChangesSince,
    HypotheticalDecision,
    NominationRow,
    NotFound,
    Origin,
    QueueInfo,
    SnapshotMismatch,
    StaleRevision,
    Store,
    StoredDecision,
    StoreError,
)
from policy.store.connection import parse_url
from policy.store.journal import StoreJournal
from policy.store.model.decisions import LedgerPosition
from policy.store.model.state import Cause
from policy.store.read import queries
from policy.store.read.saved_queries import saved_query
from tests.contract.builders import (
    BY_HAND,
    NOW,
    RULES,
    RULES_DIGEST,
    a_cluster,
    a_decision,
    a_node,
    a_pod,
    a_victim,
    made_on,
    the_changes,
)
from tests.contract.plans import plan, statements
from tests.contract.test_ledger import tampering
from tests.support.golden_decisions import decisions

GOLDEN = decisions()


def by_key(objects):
    return {(kind_of(o), key_of(o)): o for o in objects}


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", a_cluster(), at_ms=NOW - 1000, source="dump.json")
        opened.record.create_environment("prod", "default", at_ms=NOW - 900, actor="ann")
        opened.record.activate(
            "prod", rules=BY_HAND, reason="test", source="test", at_ms=NOW - 800, actor="ann"
        )
        yield opened


def record(store, decision=None, changes=None, **options):
    settings = {
        "expected_revision": 1,
        "rules": BY_HAND,
        "environment": "prod",
        "actor": "ann",
        "at_ms": NOW + 5,
        **options,
    }
    return store.record.decision(
        "default",
        made_on(store, decision or a_decision(), revision=settings["expected_revision"]),
        the_changes() if changes is None else changes,
        **settings,
    )


def test_an_imported_cluster_is_loaded_as_it_was(store):
    """Every object comes back equal, with the digest that chains over the whole import."""
    state = store.state.load("default")
    objects = a_cluster()
    expected = chain_changes(GENESIS, ((kind_of(o), key_of(o), o) for o in objects))
    assert (by_key(state.objects), state.revision, state.state_digest) == (
        by_key(objects),
        1,
        expected,
    )


def who_wrote(database_url) -> dict[str, object]:
    """The process's user, and the database's where there is one."""
    uid = os.getuid()
    user = parse_url(database_url).username or ""
    names = {"process_user": pwd.getpwuid(uid).pw_name, "database_user": user}
    return {"process_uid": uid, **names}


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_recorded_decision_comes_back_whole(store, database_url, name):
    """Every field of what is kept of a decision is read back as it was, and so is its line."""
    figures = {"preemptedCount/3600": {"shop/ReplicaSet/web": 2}}
    decision = replace(
        GOLDEN[name], rule_set="by-hand", rule_set_digest=RULES_DIGEST, history=figures
    )
    decision = made_on(store, decision)
    queue = QueueInfo(attempt=3, queued_ms=NOW - 50)
    before = store.ledger.head("default")
    recorded = record(store, decision, queue=queue)
    whole = record_of(decision)
    unsaved = StoredDecision.unsaved(
        whole,
        cluster="default",
        environment="prod",
        base_revision=1,
        at_ms=NOW + 5,
        actor="ann",
    )
    row = replace(
        unsaved.row,
        id=recorded.decision_id,
        revision=2,
        hypothetical=False,
        attempt=3,
        queued_ms=NOW - 50,
        **who_wrote(database_url),
    )
    position = LedgerPosition(
        sequence=before.sequence + 1, hash=recorded.ledger_hash, previous=before.hash
    )
    assert store.read.decision(recorded.decision_id) == StoredDecision(
        row=row, record=whole, ledger=position
    )
    assert store.read.decisions() == [row]


def test_what_is_left_out_of_a_record_stays_out(store):
    """A decision without history and extenders has the record that it would have in a dry run."""
    decision = made_on(store, a_decision())
    recorded = record(store, decision, candidates_kept=1)
    assert store.read.decision(recorded.decision_id).record == record_of(decision, keep="chosen")


def test_a_changed_row_is_no_decision(store, database_url):
    """Rows that no decision leaves behind are an error that names the decision."""
    number = record(store).decision_id
    with tampering(database_url) as connection:
        connection.execute(text("UPDATE decisions SET outcome = 'nothing'"))
        connection.commit()
    with pytest.raises(StoreError, match=f"the rows of decision {number} are not those of"):
        store.read.decision(number)


def test_a_decision_moves_the_state_by_exactly_its_changes(store):
    """The state after a decision is the state before with the changes applied, digest included."""
    before = store.state.load("default")
    recorded = record(store)
    after = store.state.load("default")
    expected = by_key(before.objects)
    for kind, key, obj in the_changes():
        expected.pop((kind, key), None)
        if obj is not None:
            expected[kind, key] = obj
    assert by_key(after.objects) == expected
    assert recorded.state_digest == chain_changes(before.state_digest, the_changes())
    assert (after.revision, after.state_digest) == (2, recorded.state_digest)


def test_the_past_stays(store):
    """An older revision is loaded as it was before later changes."""
    record(store)
    assert by_key(store.state.load("default", at=1).objects) == by_key(a_cluster())


def test_changes_since_a_revision_lead_to_the_newest_state(store):
    """A process that follows with the net changes sees what one sees that loads afresh."""
    record(store)
    store.record.import_objects(
        "default", [a_pod("shop/web-1", node="n2", uid="second")], at_ms=NOW + 9, source="later"
    )
    found = store.state.changes_since("default", 1)
    state = by_key(store.state.load("default", at=1).objects)
    for kind, key, obj in found.changes:
        state.pop((kind, key), None)
        if obj is not None:
            state[kind, key] = obj
    now = store.state.load("default")
    assert state == by_key(now.objects)
    assert (found.revision, found.state_digest) == (now.revision, now.state_digest)


def test_no_changes_since_the_newest_revision(store):
    """Whoever is up to date gets nothing."""
    state = store.state.load("default")
    expected = ChangesSince(changes=[], revision=1, state_digest=state.state_digest)
    assert store.state.changes_since("default", 1) == expected


@pytest.mark.parametrize("newer", [0, 1])
def test_changes_since_another_revision_of_the_same_number(store, newer):
    """As after a backup was restored: nothing leads on from a state that is in no record."""
    for n in range(newer):
        later = a_pod("shop/web-1", node="n2", uid=f"second-{n}")
        store.record.import_objects("default", [later], at_ms=NOW + 9, source="later")
    digest = store.state.load("default", at=1).state_digest
    found = store.state.changes_since("default", 1, state_digest=digest)
    assert found.revision == 1 + newer
    with pytest.raises(NotFound, match="revision 1 of cluster `default` is another one by now"):
        store.state.changes_since("default", 1, state_digest="sha256:another")


def test_a_change_on_another_state_is_refused(store):
    """Also where that state has the same number."""
    known = {"expected_revision": 1, "expected_digest": "sha256:another"}
    pod = a_pod("shop/web-1", node="n2", uid="second")
    with pytest.raises(StaleRevision):
        store.record.change(
            "default",
            [("Pod", "shop/web-1", pod)],
            at_ms=NOW,
            source="test",
            cause=Cause.EXTENDER,
            **known,
        )
    assert store.state.head_revision("default") == 1


def test_what_is_read_anew_is_told_as_changes(store):
    """Who follows the state of a lost record hears what leads to the one that is there."""
    journal = StoreJournal(store, "default", actor="test", clock=lambda: NOW)
    tracker = StateTracker(journal, clock=lambda: NOW)
    pod = tracker.state.snapshot.pod("shop/web-1")
    supposed = [("Pod", "shop/web-1", None), ("Node", "n9", a_node("n9"))]
    tracker.state = tracker.state.supposing(supposed)  # that came to be in a record that is gone
    steps = []
    tracker.follow(steps.append)
    tracker.keep_up(store.state.head_revision("default"))
    (step,) = steps
    assert step.changes == [("Node", "n9", None), ("Pod", "shop/web-1", pod)]
    assert by_key(step.after.objects()) == by_key(a_cluster())
    assert tracker.state.revision == 1


def test_a_stale_decision_is_refused_and_leaves_nothing(store):
    """A decision on an older revision raises StaleRevision and writes no row."""
    record(store)
    with pytest.raises(StaleRevision) as caught:
        record(store, a_decision(seed=8))
    assert (caught.value.expected, caught.value.actual) == (1, 2)
    assert len(store.read.decisions()) == 1
    assert store.state.load("default").revision == 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"snapshot_digest": "sha256:" + 64 * "5"},
        {"now_ms": NOW + 1},
        {"history": {"preemptedCount/60": {}}},
    ],
)
def test_a_decision_on_another_state_is_refused_and_leaves_nothing(store, wrong):
    """What does not follow from the revision, the time and the figures could never be replayed."""
    decision = replace(made_on(store, a_decision()), **wrong)
    to = {"rules": BY_HAND, "actor": "ann", "at_ms": NOW}
    with pytest.raises(SnapshotMismatch, match="`team/urgent` was not made on revision 1 of"):
        store.record.decision("default", decision, [], expected_revision=1, **to)
    with pytest.raises(SnapshotMismatch):
        store.record.hypothetical(
            "default", [HypotheticalDecision(decision=decision)], revision=1, **to
        )
    assert store.read.decisions(hypothetical=None) == []


def test_hypothetical_decisions_follow_from_what_is_supposed(store):
    """Each is checked on the state that the suppositions before it lead to; all or none is kept."""
    node, pod = ("Node", "n9", a_node("n9")), ("Pod", "lab/x", a_pod("lab/x"))
    state = store.state.load("default").state_digest
    decisions = []
    for seed, changes in enumerate(([node], [pod])):
        state = chain_changes(state, changes)
        decision = a_decision(snapshot_digest=snapshot_digest(state, now_ms=NOW), seed=seed)
        decisions.append(HypotheticalDecision(decision=decision, supposed=[changes]))
    to = {"revision": 1, "rules": BY_HAND, "actor": "ann", "at_ms": NOW}
    with pytest.raises(SnapshotMismatch):
        store.record.hypothetical("default", [decisions[0], decisions[0]], **to)
    assert store.read.decisions(hypothetical=None) == []
    recorded = store.record.hypothetical("default", decisions, **to)
    found = [(row.id, row.base_revision) for row in store.read.decisions(hypothetical=True)]
    assert found == [(one.decision_id, 1) for one in reversed(recorded)]


def test_a_decision_by_other_rules_is_refused(store):
    """A decision is kept with the rule set that made it, and with no other."""
    decision = replace(made_on(store, a_decision()), rule_set_digest="sha256:" + 64 * "0")
    with pytest.raises(StoreError, match="was not made by rule set `by-hand`"):
        record(store, decision)


def test_a_decision_without_effect_makes_no_revision(store):
    """A cycle that changes nothing is recorded at the revision that it looked at."""
    recorded = record(store, changes=[])
    row = store.read.decision(recorded.decision_id).row
    assert (recorded.revision, row.revision, row.base_revision) == (1, None, 1)


def test_a_failing_record_leaves_nothing(store):
    """A change of an object that does not exist undoes the whole transaction."""
    with pytest.raises(StoreError, match="cannot be removed"):
        record(store, changes=[("Pod", "shop/nobody", None)])
    assert (store.read.decisions(), store.state.load("default").revision) == ([], 1)


@pytest.mark.parametrize(("keep", "kept"), [("all", 40), ("chosen", 1), (10, 10), (0, 0)])
def test_as_many_candidates_are_kept_as_asked_for(store, keep, kept):
    """`candidates_kept` limits the rows and nothing else."""
    recorded = record(store, a_decision(candidates=40), candidates_kept=keep)
    stored = store.read.decision(recorded.decision_id)
    assert (
        len(stored.record.candidates.best),
        stored.row.kept_candidates,
        stored.row.candidate_count,
    ) == (
        kept,
        kept,
        40,
    )


def test_a_rule_set_is_kept_whole_under_its_digest(store):
    """The canonical text comes back by the digest, or the beginning of it."""
    record(store)
    digest = a_decision().rule_set_digest
    assert [store.read.rule_set(digest), store.read.rule_set(digest[7:19])] == [RULES, RULES]


def test_a_rule_set_text_of_another_digest_is_refused(store):
    """What is kept under a digest has that digest."""
    with pytest.raises(StoreError, match="does not have the digest"):
        replace(BY_HAND, canonical=RULES + " ")


def test_nominations_have_a_life(store):
    """Made by import and by a decision, taken away by a decision, ended by binding."""
    record(store, a_decision(clear=("lab/waiting",)), the_changes(clear=("lab/waiting",)))
    bound = a_pod("team/urgent", node="n1", priority=100, cpu="4")
    store.record.import_objects("default", [bound], at_ms=NOW + 9, source="later")
    assert store.read.nominations("default") == [
        NominationRow(
            cluster="default",
            pod="team/urgent",
            uid="uid-urgent",
            priority=100,
            node="n1",
            made_revision=2,
            made_decision=1,
            made_ms=NOW,
            ended_by="bound",
            ended_revision=3,
            ended_decision=None,
            ended_ms=NOW + 9,
            outcome="",
        ),
        NominationRow(
            cluster="default",
            pod="lab/waiting",
            uid="uid-waiting",
            priority=10,
            node="n1",
            made_revision=1,
            made_decision=None,
            made_ms=NOW - 1000,
            ended_by="taken-away",
            ended_revision=2,
            ended_decision=1,
            ended_ms=NOW,
            outcome="",
        ),
    ]
    assert store.read.nominations(standing=True) == []


@pytest.mark.parametrize(
    ("after", "cause"),
    [
        (a_pod("lab/waiting", priority=10, node="n2"), "bound-elsewhere"),
        (a_pod("lab/waiting", priority=10, nominated="n2"), "superseded"),
        (a_pod("lab/waiting", priority=10), "cleared"),
        (a_pod("lab/waiting", priority=10, nominated="n1", uid="another"), "pod-gone"),
        (a_pod("lab/waiting", priority=10, nominated="n1", phase="Failed"), "pod-gone"),
    ],
)
def test_how_a_nomination_ends(store, after, cause):
    """The cause tells what became of the pod."""
    store.record.import_objects("default", [after], at_ms=NOW, source="later")
    ended = store.read.nominations("default", pod="lab/waiting", standing=False)
    assert [n.ended_by for n in ended] == [cause]


def test_decisions_are_listed_newest_first_and_by_pages(store):
    """`limit` and `before_id` walk back through the list, `after_id` forward."""
    ids = [record(store, a_decision(seed=i), changes=[]).decision_id for i in range(5)]
    assert [d.id for d in store.read.decisions(limit=2)] == [ids[4], ids[3]]
    assert [d.id for d in store.read.decisions(limit=2, before_id=ids[3])] == [ids[2], ids[1]]
    assert [d.id for d in store.read.decisions(limit=2, after_id=ids[1])] == [ids[2], ids[3]]


def test_decisions_are_found_by_what_they_are_about(store):
    """Every filter keeps the decisions that it names, and no others."""
    one = record(store, changes=[]).decision_id
    other = record(
        store,
        a_decision(a_victim("jobs/batch", node="n2"), preemptor="lab/waiting", now_ms=NOW + 60_000),
        changes=[],
    ).decision_id
    found = {
        name: [d.id for d in store.read.decisions("default", **options)]
        for name, options in {
            "since": {"since_ms": NOW + 60_000},
            "until": {"until_ms": NOW + 60_000},
            "preemptor namespace": {"namespace": "team"},
            "victim namespace": {"namespace": "jobs"},
            "preemptor": {"preemptor": "lab/waiting"},
            "name of a victim": {"victim_named": ("jobs", "batch")},
            "name of an owner": {"victim_named": ("shop", "web")},
            "name elsewhere": {"victim_named": ("lab", "web")},
            "node": {"node": "n1"},
            "outcome": {"outcome": "preempt"},
            "other outcome": {"outcome": "bind"},
            "rule set": {"rule_set": "by-hand"},
            "rule set digest": {"rule_set": a_decision().rule_set_digest[:20]},
            "other rule set": {"rule_set": "kube-1.35"},
        }.items()
    }
    assert found == {
        "since": [other],
        "until": [one],
        "preemptor namespace": [one],
        "victim namespace": [other],
        "preemptor": [other],
        "name of a victim": [other],
        "name of an owner": [one],
        "name elsewhere": [],
        "node": [other, one],
        "outcome": [other, one],
        "other outcome": [],
        "rule set": [other, one],
        "rule set digest": [other, one],
        "other rule set": [],
    }


@pytest.mark.parametrize("few", [0, 1, 2, 100])
def test_a_list_is_the_same_wherever_it_begins(store, monkeypatch, few):
    """At a filter that leaves few, at a namespace, or at the newest decision."""
    monkeypatch.setattr(queries, "_FEW", few)
    one, two = (record(store, a_decision(seed=i), changes=[]).decision_id for i in (1, 2))
    other = record(
        store,
        a_decision(a_victim("jobs/batch", node="n2"), preemptor="lab/waiting"),
        changes=[],
        origin=Origin.SIMULATED,
    ).decision_id
    spaces = ({}, {"namespace": "team"}, {"namespaces": frozenset({"shop", "lab"})})
    found = [
        [
            [d.id for d in store.read.decisions(**space, **more)]
            for more in (
                {"outcome": "preempt"},
                {"outcome": "bind"},
                {"origin": "simulated"},
                {"origin": "decided", "outcome": "preempt"},
                {"rule_set": "by-hand", "origin": "decided"},
                {"rule_set": "kube-1.35"},
                {"node": "n1", "outcome": "preempt"},
                {"hypothetical": True},
                {"pod": "lab/waiting"},
                {"victim": "shop/web-1"},
                {"victim_named": ("shop", "web-1"), "limit": 1},
                {"before_id": other, "limit": 1},
                {"after_id": one, "limit": 1},
            )
        ]
        for space in spaces
    ]
    every, decided = [other, two, one], [two, one]
    hit = [decided, [two], [two], [two]]
    assert found == [
        [every, [], [other], decided, decided, [], every, [], [other], *hit],
        [decided, [], [], decided, decided, [], decided, [], [], *hit],
        [every, [], [other], decided, decided, [], every, [], [other], *hit],
    ]


def test_the_outcome_of_a_namespace_is_looked_up_in_an_index(store, monkeypatch):
    """Also one that many others have; pods that would have preempted have victims too."""
    monkeypatch.setattr(queries, "_FEW", 0)  # the outcome is not rare
    fits = replace(a_decision(preemptor="lab/fits"), outcome=Outcome.BIND, evaluate_all=True)
    bound = record(store, fits, changes=[]).decision_id
    record(store, a_decision(seed=2), changes=[])
    spaces = ("nowhere", "shop", "lab", "team")
    with statements(store) as sent:
        found = {
            space: [d.id for d in store.read.decisions(namespaces={space}, outcome="bind")]
            for space in spaces
        }
    assert found == {"nowhere": [], "shop": [bound], "lab": [bound], "team": []}
    listing = next(one for one in sent if "UNION ALL" in one[0])
    steps = " ".join(plan(store, *listing))
    assert "ix_decisions_would_preempt" in steps, steps
    if store._database.is_sqlite:  # Postgres looks a handful of rows up by any index
        assert "ix_decisions_preemptor_namespace_outcome_id" in steps, steps


_ANY = {"cluster": "", "since": 0, "until": 1, "limit": 1}


def test_what_is_true_now_is_read_along_an_index_of_it_alone(sqlite_template, tmp_path):
    """Not through every version that there ever was, nor through all pods for those of a node."""
    file = tmp_path / "policy.db"
    shutil.copy(sqlite_template, file)
    with Store.open(str(file)) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="dump.json")
        with statements(store) as sent:
            store.state.load("default")
            store.state.on_node("node-1")
            store.state.changes_since("default", 0)
        read = [one for one in sent if "FROM pods" in one[0]]
        read.append((saved_query("standing-nominations").sql, _ANY))
        live, on_node, begun, ended, standing = [" ".join(plan(store, *one)) for one in read]
    assert "uq_pods_live" in live
    assert "ix_pods_on_node" in on_node
    assert "ix_pods_cluster_id_valid_from" in begun
    assert "ix_pods_ended" in ended
    assert "ix_pods_nominated" in standing


def test_the_few_hypothetical_decisions_are_read_from_their_index(sqlite_template, tmp_path):
    """In words that SQLite takes for those of the index."""
    file = tmp_path / "policy.db"
    shutil.copy(sqlite_template, file)
    with Store.open(str(file)) as store:
        with statements(store) as sent:
            store.read.decisions(hypothetical=True, limit=50)
        steps = plan(store, *sent[-1])
    assert any("ix_decisions_hypothetical" in step for step in steps), steps


def test_a_decision_is_found_by_the_beginning_of_its_digest(store):
    """With or without `sha256:`; what does not exist is NotFound."""
    recorded = record(store)
    digest = made_on(store, a_decision(), revision=1).digest
    found = [store.read.decision(text).row.id for text in (digest, digest[:15], digest[7:17])]
    assert found == [recorded.decision_id] * 3
    for lacking in ("4711", "sha256:00000000", "nonsense"):
        with pytest.raises(NotFound, match="there is no decision"):
            store.read.decision(lacking)


def test_clusters_are_kept_apart(store):
    """Revisions, objects and decisions of one cluster are not those of another."""
    store.record.import_objects("other", [a_pod("a/b")], at_ms=NOW, source="x")
    record(store)
    assert [(c.name, c.revision, c.decisions) for c in store.state.clusters()] == [
        ("default", 2, 1),
        ("other", 1, 0),
    ]
    assert [key_of(o) for o in store.state.load("other").objects] == ["a/b"]
    assert store.read.decisions("other") == []
    with pytest.raises(NotFound, match="there is no cluster `third`"):
        store.state.load("third")


def test_the_revision_at_an_instant(store):
    """0 before the first revision, then the newest that had begun."""
    record(store)
    instants = (NOW - 1001, NOW - 1000, NOW - 1, NOW, NOW + 10**6)
    assert [store.state.revision_at("default", t) for t in instants] == [0, 1, 1, 2, 2]
