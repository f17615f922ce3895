"""Figures of a stretch of time, for the overview and the bars of a list; on both databases."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import create_engine, insert, literal, select, text, update

from policy.audit.health import BudgetHealth, health
from policy.store import NotFound, Store
from policy.store.connection import parse_url
from policy.store.read.figures import (
    DAY_MS,
    HOUR_MS,
    Evicted,
    HourCount,
    NominatedPod,
    StateAge,
    WorkloadCount,
)
from policy.store.read.saved_queries import DEFAULTS, saved_query
from policy.store.tables import OBSERVATIONS
from tests.contract.builders import BY_HAND, NOW, a_cluster, a_decision, a_victim, made_on
from tests.contract.filled import observe

TODAY = NOW // DAY_MS * DAY_MS
TAKEN = (
    # Before, at the beginning, in the whole days, and in the parts of days at both ends.
    (TODAY - 9 * DAY_MS, "shop/a-1", "ReplicaSet/a", False),
    (TODAY - 3 * DAY_MS + HOUR_MS, "shop/a-2", "ReplicaSet/a", True),
    (TODAY - 2 * DAY_MS, "shop/a-3", "ReplicaSet/a", True),
    (TODAY - DAY_MS, "jobs/b-1", "Job/b", False),
    (TODAY - DAY_MS + 1, "jobs/alone", "", False),
    (TODAY + HOUR_MS, "shop/c-1", "ReplicaSet/c", False),
    (TODAY + HOUR_MS, "shop/a-4", "ReplicaSet/a", False),
    (NOW, "jobs/b-2", "Job/b", False),
)
SINCE = TODAY - 3 * DAY_MS + HOUR_MS


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """Single preemptions over nine days, and an observed one in another cluster."""
    with Store.open(database_url) as opened:
        for cluster in ("default", "other"):
            opened.record.import_objects(cluster, a_cluster(), at_ms=TODAY, source="test")
        for seed, (at_ms, pod, owner, broken) in enumerate(TAKEN):
            victim = a_victim(pod, owner=owner, pdb_violating=broken)
            decision = a_decision(victim, seed=seed, now_ms=at_ms)
            opened.record.decision(
                "default",
                made_on(opened, decision),
                [],
                expected_revision=1,
                rules=BY_HAND,
                actor="ann",
                at_ms=NOW + seed,
            )
        observe(opened, "other")
        yield opened


def test_hours_have_what_was_preempted_in_them(store: Store) -> None:
    """Of whole hours from the first that begins in the time; observed preemptions are among them,
    unless an origin is named.
    """
    wanted = {"since_ms": TODAY, "until_ms": TODAY + DAY_MS}
    here = [
        HourCount(
            cluster="default", begin_ms=at, preemptions=count, victims=count, pdb_violations=0
        )
        for at, count in ((TODAY + HOUR_MS, 2), (NOW // HOUR_MS * HOUR_MS, 1))
    ]
    assert store.read.preemptions_by_hour("default", **wanted) == here
    assert store.read.preemptions_by_hour(origins=["decided"], **wanted) == here
    everywhere = store.read.preemptions_by_hour(**wanted)
    assert {one.cluster for one in everywhere} == {"default", "other"}
    with pytest.raises(NotFound):
        store.read.preemptions_by_hour("none", **wanted)


def test_days_have_the_decisions_that_were_made_in_them(store: Store) -> None:
    """By what the totals know of decisions; nothing where nothing is of that kind."""
    wanted = {"since_ms": TODAY - 2 * DAY_MS, "until_ms": TODAY + DAY_MS}
    by_day = {TODAY - 2 * DAY_MS: 1, TODAY - DAY_MS: 2, TODAY: 3}
    read = store.read
    assert read.decisions_by_day("default", **wanted, outcome="preempt") == by_day
    assert read.decisions_by_day(**wanted, rule_set="by-hand", origin="decided") == by_day
    assert read.decisions_by_day(**wanted, rule_set="kube-1.36") == {}
    assert read.decisions_by_day(**wanted, outcome="bind") == {}
    assert read.days_with_decisions() == (TODAY - 9 * DAY_MS, TODAY)
    assert read.days_with_decisions("other") is None


def test_evictions_are_those_that_saved_queries_count(store: Store, database_url: str) -> None:
    """Whole days and the parts of days at both ends; of some namespaces where they are named.

    The last day is a part of one where something is evicted on it afterwards.
    """
    wanted = {"since_ms": SINCE, "until_ms": NOW + 1, "limit": 50}
    found = store.read.evicted_within("default", **wanted)
    expected = Evicted(
        namespaces=(("shop", 4), ("jobs", 3)),
        workloads=(
            WorkloadCount(cluster="default", namespace="shop", owner="ReplicaSet/a", evictions=3),
            WorkloadCount(cluster="default", namespace="jobs", owner="Job/b", evictions=2),
            WorkloadCount(cluster="default", namespace="shop", owner="ReplicaSet/c", evictions=1),
        ),
    )
    assert found == expected
    query = saved_query("victims-by-namespace")
    values = {**DEFAULTS, "cluster": "default", "since": SINCE, "until": NOW + 1}
    with create_engine(parse_url(database_url)).connect() as connection:
        rows = connection.execute(text(query.sql), {n: values[n] for n in query.parameters})
        assert tuple((row.victim_namespace, row.evictions) for row in rows) == found.namespaces
    own = store.read.evicted_within("default", **wanted, namespaces=["jobs"])
    assert own == Evicted(namespaces=expected.namespaces[1:], workloads=expected.workloads[1:2])
    before = store.read.evicted_within("default", **{**wanted, "until_ms": NOW})
    assert before.namespaces == (("shop", 4), ("jobs", 2))
    most = store.read.evicted_within("default", **{**wanted, "limit": 1})
    assert most == Evicted(namespaces=expected.namespaces[:1], workloads=expected.workloads[:1])


def test_what_waits_and_how_old_the_state_is(store: Store) -> None:
    waits = NominatedPod(
        cluster="default",
        pod="lab/waiting",
        priority=10,
        node="n1",
        since_ms=TODAY,
        decision_id=None,
    )
    assert store.read.nominated_pods("default", limit=5) == [waits]
    assert store.read.state_ages()[0] == StateAge(cluster="default", revision=1, at_ms=TODAY)


def test_health_adds_up_a_cluster_or_all(store: Store) -> None:
    """The share of observed preemptions that the rules decide alike is of each cluster's newest;
    a budget is there with its newest eviction.
    """
    found = health(store, cluster=None, days=7, now_ms=NOW)
    figures = {
        one.cluster: (one.preemptions, one.pdb_violations, one.observed) for one in found.clusters
    }
    assert figures == {"default": (7, 2, 0), "other": (1, 0, 1)}
    assert found.budgets == (
        BudgetHealth(
            cluster="default",
            budget="shop/web",
            namespace="shop",
            victims=2,
            newest_ms=TODAY - 2 * DAY_MS,
            newest_decision=3,
        ),
    )
    assert found.outcomes == (("preempt", 7),)
    alone = health(store, cluster="other", days=1, now_ms=NOW)
    assert ([one.cluster for one in alone.clusters], alone.preemptions) == (["other"], 1)
    assert health(store, cluster="default", days=1, now_ms=NOW).preemptions == 3


def test_of_verdicts_of_one_instant_the_one_recorded_last_counts(
    store: Store, database_url: str
) -> None:
    """On both databases, and wherever they keep the rows: what was written last may be older."""
    o = OBSERVATIONS
    names = [column.name for column in o.c if column.name != "id"]
    engine = create_engine(parse_url(database_url))
    with engine.begin() as connection:
        for digest in ("second", "third"):
            copied = {"verdict": literal("same"), "digest": literal(digest)}
            values = [copied.get(name, o.c[name]) for name in names]
            connection.execute(insert(o).from_select(names, select(*values).where(o.c.id == 1)))
        connection.execute(update(o).where(o.c.id == 2).values(verdict="other"))
    engine.dispose()
    newest = [store.read.newest_verdicts(newest=count) for count in (1, 2)]
    listed = [row.verdict for row in store.read.observations("other", limit=2)]
    assert (newest, listed) == (
        [{"other": {"same": 1}}, {"other": {"other": 1, "same": 1}}],
        ["same", "other"],
    )


def test_budgets_of_one_name_are_those_of_their_clusters(store: Store) -> None:
    """Each cluster may have a budget of that name, and victims that violate it."""
    decision = a_decision(a_victim("shop/a-9", pdb_violating=True), seed=99, now_ms=NOW)
    store.record.decision(
        "other",
        made_on(store, decision, cluster="other"),
        [],
        expected_revision=store.state.head_revision("other"),
        rules=BY_HAND,
        actor="ann",
        at_ms=NOW + 99,
    )
    found = health(store, cluster=None, days=7, now_ms=NOW).budgets
    assert [(one.cluster, one.budget, one.victims) for one in found] == [
        ("default", "shop/web", 2),
        ("other", "shop/web", 1),
    ]
