"""Kept simulations are no part of what is said of all clusters, on both databases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from policy.audit.health import health
from policy.audit.newest import judge_newest
from policy.rules import RuleSet
from policy.store import Origin, SessionStep, Store
from policy.store.read.figures import DAY_MS
from policy.store.read.hits import EvictionSubject
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_cluster,
    a_decision,
    made_on,
    the_changes,
)
from tests.contract.filled import a_session

REAL, KEPT = "real", "kept-kube-1.36-0"


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        for cluster in (REAL, KEPT):
            record_in(opened, cluster)
        yield opened


def record_in(store: Store, cluster: str, *, now_ms: int = NOW) -> None:
    """A decision took shop/web, and a batch session jobs/batch; in `KEPT` they are simulated."""
    simulated = cluster == KEPT
    evicting = SessionStep(
        action="reclaim",
        operation="evict",
        task="jobs/batch",
        node="n2",
        for_task="lab/waiting",
    )
    written: dict[str, Any] = {"at_ms": now_ms, "actor": "ann", "rules": BY_HAND}
    source = "simulate" if simulated else "dump.yaml"
    store.record.import_objects(cluster, a_cluster(), at_ms=now_ms - 60_000, source=source)
    store.record.decision(
        cluster,
        made_on(store, a_decision(now_ms=now_ms), cluster),
        the_changes(),
        expected_revision=1,
        origin=Origin.SIMULATED if simulated else Origin.DECIDED,
        **written,
    )
    session = dataclasses.replace(a_session(9), now_ms=now_ms, steps=(evicting,), bound_count=0)
    store.record.session(
        cluster,
        made_on(store, session, cluster),
        [("Pod", "jobs/batch", None)],
        expected_revision=2,
        **written,
    )


def found(store: Store, cluster: str | None) -> dict[str, list[str]]:
    """The clusters of what each question is answered with."""
    read = store.read
    web, batch = EvictionSubject(owner=("shop", "web")), EvictionSubject(pod=("jobs", "batch"))
    judged = judge_newest(store, RuleSet.load("kube-1.36"), cluster=cluster, limit=9)
    return {
        "victims": [hit.cluster for hit in read.hits(cluster, web)],
        "of sessions": [hit.cluster for hit in read.hits(cluster, batch)],
        "decisions": [row.cluster for row in read.decisions(cluster, simulated=False)],
        "sessions": [row.cluster for row in read.sessions(cluster, simulated=False)],
        "runs": [run.cluster for run in read.runs_of("shop", "web", cluster=cluster).runs],
        "evictions": [
            one.cluster for one in read.session_evictions("jobs", "batch", cluster=cluster, limit=9)
        ],
        "from a node": [one.cluster for one in read.evictions_on("n2", cluster=cluster, limit=9)],
        "judged": [KEPT if cluster == KEPT else REAL] * judged.decisions,
    }


def test_they_count_where_their_cluster_is_named(store: Store) -> None:
    """Who was evicted, when pods ran, and what other rules would decide: of real clusters else."""

    def all_of(cluster: str) -> dict[str, list[str]]:
        return {
            "victims": [cluster] * 2,
            "of sessions": [cluster],
            "decisions": [cluster],
            "sessions": [cluster],
            "runs": [cluster] * 2,
            "evictions": [cluster],
            "from a node": [cluster],
            "judged": [cluster],
        }

    assert store.read.kept_simulations() == {KEPT}
    assert store.read.real_clusters() == [REAL]
    assert found(store, None) == all_of(REAL)
    assert found(store, REAL) == all_of(REAL)
    assert found(store, KEPT) == all_of(KEPT)


def test_lists_show_them(store: Store) -> None:
    """Decisions with their origin, and an eviction with what it is."""
    assert [row.origin for row in store.read.decisions()] == ["simulated", "decided"]
    assert [row.cluster for row in store.read.sessions()] == [KEPT, REAL]
    marks = {
        cluster: {hit.simulated for hit in store.read.hits(cluster, EvictionSubject(pod=pod))}
        for cluster in (REAL, KEPT)
        for pod in (("jobs", "batch"), ("shop", "web-1"))
    }
    assert marks == {REAL: {False}, KEPT: {True}}


def test_figures_leave_them_out(store: Store) -> None:
    """Of evictions always where all clusters are meant, of bars where that is wanted."""
    read, within = store.read, {"since_ms": NOW - DAY_MS, "until_ms": NOW + DAY_MS}
    taken = {"shop": 2, "jobs": 1}
    for cluster in (None, REAL, KEPT):
        evicted = read.evicted_within(cluster, **within, limit=9)
        assert dict(evicted.namespaces) == taken
        assert {one.cluster for one in evicted.workloads} == {cluster or REAL}
    own = read.evicted_within(**within, namespaces=["jobs"], limit=9)
    assert dict(own.namespaces) == {"jobs": 1}
    hours = read.preemptions_by_hour(**within, simulated=False)
    assert [(one.cluster, one.preemptions) for one in hours] == [(REAL, 2)]
    assert {one.cluster for one in read.preemptions_by_hour(**within)} == {REAL, KEPT}
    days = {"since_ms": NOW // DAY_MS * DAY_MS, "until_ms": NOW // DAY_MS * DAY_MS + DAY_MS}
    assert sum(read.decisions_by_day(**days).values()) == 2
    assert sum(read.decisions_by_day(**days, simulated=False).values()) == 1
    assert sum(read.decisions_by_day(KEPT, **days, simulated=False).values()) == 1
    for ends in (read.days_with_decisions(), read.days_with_decisions(simulated=False)):
        assert ends == (days["since_ms"], days["since_ms"])


def test_what_is_healthy_now_took_place(store: Store) -> None:
    """The sums of all clusters are those of real ones; the simulation has its own line."""
    found = health(store, cluster=None, days=1, now_ms=NOW)
    lines = [(one.cluster, one.simulated, one.preemptions) for one in found.clusters]
    assert (found.preemptions, found.pdb_violations) == (2, 1)
    assert lines == [(KEPT, True, 2), (REAL, False, 2)]
    named = health(store, cluster=KEPT, days=1, now_ms=NOW)
    assert (named.preemptions, named.pdb_violations, len(named.clusters)) == (2, 1, 1)
