"""Old stretches go; what stays is whole, can be verified, and can still be tampered-evident."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from policy.observing.model import Confidence, Preemption
from policy.store import (
    HypotheticalDecision,
    KeptHead,
    NotFound,
    PrunedCluster,
    PrunePlan,
    Pruning,
    Store,
    StoreError,
    TamperKind,
)
from policy.store.observed import NewObservation
from tests.contract.builders import BY_HAND, NOW, a_decision, made_on
from tests.contract.filled import fill, observe
from tests.contract.test_ledger import tampering

CUT = NOW + 12
"""Before the third decision: entries 1 to 6 are older, revisions 1 and 2."""


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        fill(opened)
        yield opened


def prune(store, older_than_ms=CUT):
    return store.ledger.prune(older_than_ms, actor="ann", at_ms=NOW + 100)


def test_the_plan_says_what_can_no_longer_be_replayed(store):
    """Nothing is taken by looking; pruning takes what the plan named."""
    heads = store.ledger.heads()
    plan = store.ledger.plan_prune(CUT)
    assert plan.clusters == (
        PrunedCluster(
            cluster="default",
            last_sequence=6,
            last_hash=plan.clusters[0].last_hash,
            last_revision=2,
            decisions=2,
            first_decision=1,
            last_decision=2,
            first_ms=NOW,
            last_ms=NOW + 11,
            sessions=0,
            versions=4,
            hypothetical_left=0,
        ),
    )
    assert store.ledger.heads() == heads
    done = prune(store)
    head = store.ledger.head("default").hash
    assert done == PrunePlan(older_than_ms=CUT, clusters=(replace(plan.clusters[0], head=head),))


def test_what_stays_is_as_before_and_verifies(store):
    """Later decisions, states and the ledger from the signed-off head on."""
    later = store.read.decision(3)
    states = {n: store.state.load("default", at=n).objects for n in range(2, 7)}
    plan = prune(store)
    assert store.ledger.verify().findings == ()
    for start in (plan.clusters[0].head, store.ledger.heads()[0].hash):
        assert store.ledger.verify(from_hash=start, kept=[start]).ok
    assert store.read.decision(3) == later
    assert {n: store.state.load("default", at=n).objects for n in range(2, 7)} == states
    assert [d.id for d in store.read.decisions()] == [3]


def test_what_is_gone_is_gone(store):
    """Older decisions and states are not found, and nobody gets their numbers again."""
    prune(store)
    with pytest.raises(NotFound, match="there is no decision `1`"):
        store.read.decision(1)
    with pytest.raises(NotFound) as caught:
        store.state.load("default", at=1)
    assert caught.value.help == "it has revisions 2 to 6"
    with pytest.raises(NotFound):
        store.state.changes_since("default", 1)


def test_pruning_goes_on_from_pruning(store):
    """A second time, further; the newest entry stays in any case."""
    prune(store)
    prune(store, NOW + 10**9)
    assert store.ledger.verify().findings == ()
    assert [(h.cluster, h.sequence) for h in store.ledger.heads()] == [("default", 12)]
    assert store.read.decisions() == []
    assert store.state.load("default").revision == 6
    assert store.ledger.plan_prune(NOW).clusters == ()
    fill(store, "other")
    assert store.read.decisions("other")[0].id > 3
    assert store.ledger.verify().ok


def test_a_list_goes_on_behind_what_was_pruned_meanwhile(store):
    """Of observations, which are listed by their times: an older one was recorded later."""
    observe(store, "default")
    (listed,) = store.read.observations()
    seen = Preemption(
        preemptor="team/late",
        preemptor_uid="late",
        preemptor_kind="Pod",
        node="n2",
        scheduler="default-scheduler",
        at_ms=listed.now_ms - 1,
        confidence=Confidence.CERTAIN,
        victims=(),
    )
    found = NewObservation(preemption=seen, situation=store.read.situation("default", seen))
    store.record.observations("default", [found], at_ms=NOW + 90_000, source="", actor="ann")
    prune(store, NOW + 30)
    behind = store.read.observations(before=(listed.now_ms, listed.id))
    assert [row.preemptor for row in behind] == ["team/late"]
    assert behind == store.read.observations()


def test_hypothetical_decisions_without_their_state_are_counted(store):
    """One on a state that goes stays in the record, and is said to be cut off from it."""
    for revision in (1, 3):
        supposed = made_on(store, a_decision(seed=revision), revision=revision)
        store.record.hypothetical(
            "default",
            [HypotheticalDecision(decision=supposed)],
            revision=revision,
            rules=BY_HAND,
            actor="ann",
            at_ms=NOW + 50,
        )
    assert [cluster.hypothetical_left for cluster in store.ledger.plan_prune(CUT).clusters] == [1]


def test_a_mistyped_cluster_is_not_pruned(store):
    """Nothing is that old in no cluster; it is an error."""
    for attempt in (
        store.ledger.plan_prune,
        lambda older, **c: store.ledger.prune(older, actor="", at_ms=0, **c),
    ):
        with pytest.raises(NotFound, match="no cluster `defualt`"):
            attempt(CUT, cluster="defualt")


def test_nothing_old_nothing_pruned(store):
    """Where no entry is older than the instant, nothing is written."""
    assert prune(store, NOW).clusters == ()
    assert store.ledger.head("default").sequence == 10


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE pods SET priority = 77 WHERE valid_from <= 2 AND valid_to IS NULL",
        "UPDATE pods SET valid_from = 1 WHERE valid_from = 2",
        "UPDATE nodes SET manifest = '{}' WHERE name = 'n2'",
        "UPDATE revisions SET at_ms = 0 WHERE number = 2",
        "DELETE FROM nodes WHERE name = 'n2'",
        "UPDATE activations SET reason = 'none'",
        "UPDATE environments SET created_by = 'nobody'",
        "UPDATE rule_sets SET canonical = '{}'",
        "UPDATE prunings SET last_sequence = 7",
        "UPDATE prunings SET last_revision = 3",
        "UPDATE prunings SET checkpoint_digest = 'x'",
        "DELETE FROM prunings",
        "INSERT INTO nominations VALUES (1, 1, 'a/b', 'u', 1, 'n1', NULL, 1)",
        "INSERT INTO nomination_ends VALUES (1, 1, 'lab/waiting', 2, NULL, 'bound', 1)",
        "UPDATE nominations SET node = 'n9' WHERE made_revision = 2",
        "INSERT INTO ledger SELECT cluster_id, 6, format, kind, revision, NULL, session_id,"
        " environment_id, activation_id, pruning_id, observation_id, gap_id, simulation_id,"
        " scheduler_id,"
        " subject_digest, rows_digest, at_ms, actor, environment, 'a', 'b', process_uid,"
        " process_user, database_user FROM ledger"
        " WHERE sequence = 9",
    ],
)
def test_what_pruning_left_is_still_guarded(store, database_url, harm):
    """Changes to the state that the pruning left are found as before."""
    prune(store)
    with tampering(database_url) as connection:
        assert connection.execute(text(harm)).rowcount > 0
        connection.commit()
    found = store.ledger.verify().findings
    assert {f.harm for f in found} & {TamperKind.CHANGED, TamperKind.INSERTED, TamperKind.REMOVED}


def test_a_pruning_is_no_witness_unless_it_is_accepted(store):
    """A head whose decisions were pruned is reported, by hash or by number, and as a beginning."""
    before = store.ledger.heads()[0]
    old = store.ledger.plan_prune(CUT).clusters[0]
    prune(store)
    numbered = KeptHead(hash=old.last_hash, cluster="default", sequence=6)
    earlier = KeptHead(hash="sha256:" + 64 * "1", cluster="default", sequence=3, source="heads:1")
    lost = KeptHead(hash="sha256:" + 64 * "1", cluster="default", sequence=6)
    assert store.ledger.verify(kept=[before.hash]).ok
    asked = [{"kept": [old.last_hash]}, {"from_hash": old.last_hash}, {"kept": [numbered]}]
    for how in (*asked, {"kept": [earlier]}):
        assert [f.harm for f in store.ledger.verify(**how).findings] == [TamperKind.PRUNED]
        assert store.ledger.verify(**how, accept_pruning=True).ok
    for accept in (False, True):
        result = store.ledger.verify(kept=[lost], accept_pruning=accept)
        assert [f.harm for f in result.findings] == [TamperKind.REMOVED]
    detail = store.ledger.verify(kept=[earlier]).findings[0].detail
    assert detail == (
        "heads:1: its entry was pruned with all before it, 6 entries with 2 decisions before"
        " 2026-09-21T14:13:20.012Z in all: nothing shows any more that they were as they had been"
        " written"
    )


def pruned_thrice(store):
    """The second leaves the entry of the first, which is the newest then; the third takes it."""
    return [prune(store, older).clusters[0] for older in (CUT, NOW + 10**9, NOW + 10**9)]


def test_prunings_are_listed_for_ever(store):
    """Also those whose own entry a later pruning took, and verification gives them."""
    hashes = [pruned.last_hash for pruned in pruned_thrice(store)]
    who = {n: getattr(store.ledger.prunings()[0], n) for n in ("process_uid", "process_user")}
    user = store.ledger.prunings()[0].database_user
    expected = [
        Pruning(
            cluster="default",
            at_ms=NOW + 100,
            actor="ann",
            **who,
            database_user=user,
            older_than_ms=older,
            entries=entries,
            decisions=decisions,
            versions=versions,
            last_sequence=last,
            last_hash=last_hash,
        )
        for last_hash, older, entries, decisions, versions, last in (
            (hashes[0], CUT, 6, 2, 4, 6),
            (hashes[1], NOW + 10**9, 4, 1, 22, 10),
            (hashes[2], NOW + 10**9, 1, 0, 0, 11),
        )
    ]
    assert store.ledger.prunings("default") == expected
    assert store.ledger.verify().prunings == tuple(expected)
    assert store.ledger.verify().ok


def test_an_earlier_pruning_is_a_beginning_too(store):
    """What was pruned in two steps: the end of the first is let pass where prunings are."""
    first = prune(store).clusters[0].last_hash
    store.ledger.prune(NOW + 14, actor="ann", at_ms=NOW + 101)
    assert store.ledger.verify(from_hash=first, accept_pruning=True).ok
    assert [f.harm for f in store.ledger.verify(from_hash=first).findings] == [TamperKind.PRUNED]


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE prunings SET decision_count = 0 WHERE id = 1",
        "DELETE FROM prunings WHERE id = 1",
        "UPDATE prunings SET actor = 'eve' WHERE id = 1",
    ],
)
def test_an_earlier_pruning_is_guarded(store, database_url, harm):
    """The checkpoint of the later one covers it."""
    pruned_thrice(store)
    with tampering(database_url) as connection:
        assert connection.execute(text(harm)).rowcount == 1
        connection.commit()
    assert {f.harm for f in store.ledger.verify().findings} == {TamperKind.CHANGED}


def test_a_head_before_the_beginning_is_refused(store):
    """`from_hash` takes what is before it on trust: it is no proof of an earlier head."""
    prunable = store.ledger.plan_prune(CUT).clusters[0].last_hash
    head = store.ledger.head("default").hash
    with pytest.raises(StoreError, match="entry 6 of cluster `default`, which is before entry 10"):
        store.ledger.verify(from_hash=head, kept=[prunable])
