"""The cluster as it was, and what a change of it costs."""

from __future__ import annotations

import pytest

from policy.cluster import snapshot as snapshots
from policy.cluster.digest import GENESIS
from policy.cluster.objects import key_of, kind_of
from policy.scheduling.cycle import Scheduler
from policy.store import Cause, NotFound, Store
from policy.store.journal import StoreJournal
from policy.store.read.tables import tables
from policy.store.tables import METADATA, VERSIONS
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_cluster,
    a_decision,
    a_pod,
    a_victim,
    made_on,
    the_changes,
)
from tests.contract.filled import fill
from tests.support.builders import a_pod as decided_pod
from tests.support.builders import rule_set


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        yield opened


def by_key(objects):
    return {(kind_of(o), key_of(o)): o for o in objects}


def test_a_kind_at_every_revision_is_what_the_whole_state_holds(store):
    """Objects by kind and their number are those of the state loaded whole."""
    fill(store)
    for revision in range(1, store.state.head_revision("default") + 1):
        whole = by_key(store.state.load("default", at=revision).objects)
        found = {
            (kind, one.key): one.object
            for kind in VERSIONS
            for one in store.state.objects_at("default", kind, at=revision)
        }
        counts = store.state.counts_at("default", at=revision)
        assert found == whole
        assert sum(counts.values()) == len(whole)


def test_one_object_comes_with_the_revisions_between_which_it_was_so(store):
    """A pod that changed at revision 2 has a version that ends there and one that begins there."""
    fill(store)

    def version(at):
        (found,) = store.state.objects_at("default", "Pod", at=at, key="team/urgent")
        return found.valid_from, found.valid_to

    assert [version(1), version(2)] == [(1, 2), (2, 3)]


def test_steps_lead_from_one_revision_to_the_next(store):
    """Each revision's changes have its digest, chained over that of the one before."""
    fill(store)
    head = store.state.head_revision("default")
    steps = store.state.steps("default", 0, head)
    assert [s.revision for s in steps] == list(range(1, head + 1))
    assert all(step.intact for step in steps)
    assert [s.previous for s in steps] == [GENESIS, *(s.state_digest for s in steps[:-1])]


def test_a_revision_that_is_not_there_is_not_found(store):
    """Neither its objects nor the way to it can be asked for."""
    fill(store)
    with pytest.raises(NotFound, match="no revision 99"):
        store.state.objects_at("default", "Pod", at=99)
    with pytest.raises(NotFound, match="no revision"):
        store.state.steps("default", 1, 99)


def rows(store):
    counts = {}
    for table in METADATA.tables:
        with store.sql(f"SELECT count(*) FROM {table}", trust_connection=True) as found:
            counts[table] = next(iter(found))[0]
    return counts


def test_importing_the_same_again_adds_no_version(store):
    """An unchanged dump leaves every table as it was."""
    store.record.import_objects("default", a_cluster(), at_ms=NOW, source="dump.json")
    before = rows(store)
    again = store.record.import_objects("default", a_cluster(), at_ms=NOW + 9, source="dump.json")
    assert (again.new_revision, rows(store)) == (False, before)


@pytest.mark.parametrize("size", [10, 1000])
def test_a_decision_writes_as_many_rows_in_a_large_cluster_as_in_a_small_one(store, size):
    """Three victims: four versions, a revision, a ledger entry, the decision's own, and totals."""
    pods = [a_pod(f"shop/w{i}", node="n1", cpu="1m") for i in range(size)]
    store.record.import_objects("default", [*a_cluster(), *pods], at_ms=NOW, source="dump.json")
    before = rows(store)
    gone = ("shop/w0", "shop/w1", "shop/w2")
    store.record.decision(
        "default",
        made_on(store, a_decision(*(a_victim(pod) for pod in gone))),
        the_changes(*gone),
        expected_revision=1,
        rules=BY_HAND,
        actor="ann",
        at_ms=NOW,
    )
    after = rows(store)
    written = {t: after[t] - before[t] for t in after if after[t] != before[t]}
    assert written == {
        "candidates": 2,
        "cycles": 1,
        "decision_filters": 2,
        "decision_rules": 1,
        "decision_spans": 1,
        "decision_totals": 2,  # of the day and of all days, as other totals are
        "decision_traces": 1,
        "decisions": 1,
        "evicted_workloads": 1,
        "eviction_totals": 1,
        "hour_totals": 1,
        "ledger": 1,
        "nominations": 1,
        "pair_totals": 1,
        "pods": 1,
        "preemptor_totals": 1,
        "priority_totals": 1,
        "revisions": 1,
        "rule_sets": 1,
        "rule_totals": 2,
        "victims": 3,
    }


def test_a_live_change_is_a_revision_with_its_cause(store):
    """Time, source and cause of a change can be asked for."""
    store.record.import_objects("default", a_cluster(), at_ms=NOW, source="dump.json")
    store.record.change(
        "default",
        [("Pod", "jobs/batch", None)],
        at_ms=NOW + 5,
        source="watch",
        cause=Cause.LIVE,
    )
    newest = store.state.revisions("default", limit=1)[0]
    assert (newest.number, newest.at_ms, newest.source, newest.cause, newest.deleted_count) == (
        2,
        NOW + 5,
        "watch",
        "live",
        1,
    )


def test_tables_come_whole_and_in_order(store):
    """Every row of every table, by primary key, with the columns that are named."""
    fill(store)
    numbers = rows(store)
    with store.reading() as rooms:
        for name, columns in tables().items():
            found = [row for batch in rooms.read.rows(name) for row in batch]
            assert len(found) == numbers[name]
            assert all(len(row) == len(columns) for row in found)


def test_a_scheduler_that_runs_for_long_keeps_no_rows_of_removed_pods(store, monkeypatch):
    """Pods that come and go leave its snapshot as large as the cluster is."""
    fill(store)
    monkeypatch.setattr(snapshots, "_CHANGES", 0)
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW)
    scheduler = Scheduler(journal, rule_set("kube-1.35"), clock=lambda: NOW, seed=0)
    there = sum(pod is not None for pod in scheduler.snapshot.pods)
    for i in range(20):
        for pod in (decided_pod(f"gone{i}").pod, None):
            changed = ("Pod", f"default/gone{i}", pod)
            scheduler.change(lambda _, changed=changed: (changed,), source="watch")
    assert there <= len(scheduler.snapshot.pods) <= there + 2
    assert scheduler.snapshot.state_digest == store.state.load("default").state_digest
