"""Kept simulations are no part of what is said of all clusters, on both databases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from policy.audit.newest import judge_newest
from policy.rules import RuleSet
from policy.store import Origin, SessionStep, Store
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


def record_in(store: Store, cluster: str) -> None:
    """A decision took shop/web, and a batch session jobs/batch; in `KEPT` they are simulated."""
    simulated = cluster == KEPT
    evicting = SessionStep(
        action="reclaim",
        operation="evict",
        task="jobs/batch",
        node="n2",
        for_task="lab/waiting",
    )
    written: dict[str, Any] = {"at_ms": NOW, "actor": "ann", "rules": BY_HAND}
    source = "simulate" if simulated else "dump.yaml"
    store.record.import_objects(cluster, a_cluster(), at_ms=NOW - 60_000, source=source)
    store.record.decision(
        cluster,
        made_on(store, a_decision(), cluster),
        the_changes(),
        expected_revision=1,
        origin=Origin.SIMULATED if simulated else Origin.DECIDED,
        **written,
    )
    session = dataclasses.replace(a_session(9), steps=(evicting,), bound_count=0)
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

    assert list(store.read.kept_simulations().values()) == [KEPT]
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
