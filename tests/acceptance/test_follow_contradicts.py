"""Decisions of ours in a followed cluster that the cluster does not carry out."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from policy.cluster.objects import Pod
from policy.manifests import from_dicts
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from policy.store.model.state import Cause
from policy.store.read.evictions import Range
from tests.support.api_server import serving
from tests.support.live import CLUSTER, Identity, following, identity, until

VIEWS = ("v_preemptions", "v_victims WHERE evicted", "v_who_preempts_whom")
NEEDS = [("preemptedCount", 3600), ("namespacePreemptions", 3600)]


def a_node(name: str, cpu: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "10"},
        "status": {"allocatable": {"cpu": str(cpu), "memory": "8Gi", "pods": "10"}},
    }


def a_pod(
    name: str, *, cpu: int, node: str = "", priority: int = 0, at: int = 11
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "resourceVersion": str(at),
        },
        "spec": {
            "priority": priority,
            "nodeName": node,
            "preemptionPolicy": "PreemptLowerPriority",
            "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": str(cpu)}}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


FULL = [
    a_node("n1", 4),
    a_node("n2", 1),
    a_pod("a", cpu=2, node="n1"),
    a_pod("b", cpu=2, node="n1"),
    a_pod("high", cpu=4, priority=9),
    a_pod("bystander", cpu=1, node="n2", priority=9),
]
BYSTANDER = {**FULL[5], "metadata": {**FULL[5]["metadata"], "labels": {"a": "b"}}}


@pytest.fixture(autouse=True)
def soon_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not waited for what a watch has to tell first."""
    monkeypatch.setattr("policy.live.positions._CATCH_UP_MS", 100)


AFTERWARDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "placed elsewhere": (
        "MODIFIED",
        a_pod("high", cpu=4, priority=9, node="n2", at=20),
        "preemptor-elsewhere",
    ),
    "gone": ("DELETED", a_pod("high", cpu=4, priority=9, at=20), "preemptor-gone"),
    "victims are still there": (
        "MODIFIED",
        {**BYSTANDER, "metadata": {**BYSTANDER["metadata"], "resourceVersion": "20"}},
        "no-victim-left",
    ),
}


@pytest.mark.parametrize("what", AFTERWARDS)
def test_a_decision_that_is_not_carried_out(what: str, database_url: str, tmp_path: Path) -> None:
    """It gets an outcome with the reason, leaves all figures, and the state is the cluster's."""
    kind, item, reason = AFTERWARDS[what]
    earlier = time.time_ns() // 1_000_000 - 120_000
    with serving(FULL) as server, following(database_url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        with Store.open(database_url) as store:
            journal = StoreJournal(store, CLUSTER, actor="ann", clock=lambda: earlier)
            rules = RuleSet.load("kube-1.35")
            scheduler = Scheduler(journal, rules, clock=lambda: earlier, seed=0)
            decision = scheduler.decide("shop/high").decision
            before = figures(store, earlier)
        server.publish(kind, item)
        until(lambda: bool(outcomes(database_url)), what="the outcome")
        listed = identity(from_dicts([*server.listed("Node"), *server.listed("Pod")]))
        until(lambda: state_of(database_url) == listed, what="the state of the cluster")
    with Store.open(database_url) as store:
        after = figures(store, earlier)
        assert store.ledger.verify().ok
    assert decision.effects.evict == ("shop/a", "shop/b")
    assert outcomes(database_url) == [
        ("shop/high", reason),
        ("shop/a", "victim-still-there"),
        ("shop/b", "victim-still-there"),
    ]
    assert (bool(before[0]), after) == (
        True,
        ({}, dict.fromkeys(VIEWS, 0), [], []),
    )


def state_of(url: str) -> Identity:
    with Store.open(url, read_only=True) as store:
        return identity(store.state.load(CLUSTER).objects)


def outcomes(url: str) -> list[tuple[str, str]]:
    with Store.open(url, read_only=True) as store:
        return [(row.pod, row.reason) for row in store.read.outcomes_of([1]).get(1, ())]


def figures(store: Store, earlier: int) -> tuple[Any, ...]:
    """History, rows of views, evictions of reports, nominations."""
    history = store.read.history(CLUSTER, NEEDS, now_ms=earlier + 60_000)
    counted = {}
    for view in VIEWS:
        query = f"SELECT count(*) FROM {view}"
        with closing(store.sql(query, trust_connection=True)) as result:
            ((counted[view],),) = result
    everything = Range(cluster=CLUSTER)
    return (
        {name: figures for name, figures in history.items() if figures},
        counted,
        store.read.evictions(everything),
        store.read.past_nominations(everything),
    )


def decide(url: str, at_ms: int) -> None:
    """A decision that evicts `a` and `b` for `high`."""
    with Store.open(url) as store:
        journal = StoreJournal(store, CLUSTER, actor="ann", clock=lambda: at_ms)
        Scheduler(journal, RuleSet.load("kube-1.35"), clock=lambda: at_ms, seed=0).decide(
            "shop/high"
        )


def nominated(url: str) -> list[tuple[str, str | None]]:
    """Each nomination with its end."""
    query = "SELECT pod, ended_by FROM v_nominations ORDER BY made_revision"
    with Store.open(url, read_only=True) as store, store.sql(query, trust_connection=True) as found:
        return [(pod, ended) for pod, ended in found]


def test_a_nomination_that_the_cluster_never_shows_ends(database_url: str, tmp_path: Path) -> None:
    """Its victims have left, its pod is as it was: the room is not kept for ever.

    As where a scheduler gave up the gang of the pod after the call.
    """
    earlier = time.time_ns() // 1_000_000 - 120_000
    with serving(FULL) as server, following(database_url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        decide(database_url, earlier)
        before = nominated(database_url)
        for name, at in (("a", 20), ("b", 21)):
            server.publish("DELETED", a_pod(name, cpu=2, node="n1", at=at))
        until(lambda: nominated(database_url) != before, what="the end of the nomination")
        listed = identity(from_dicts([*server.listed("Node"), *server.listed("Pod")]))
    assert (before, nominated(database_url), state_of(database_url)) == (
        [("shop/high", None)],
        [("shop/high", "cleared")],
        listed,
    )


def test_a_nomination_that_the_cluster_shows_stays(database_url: str, tmp_path: Path) -> None:
    """However little else is shown of its pod: as the decision has it, it is no change."""
    earlier = time.time_ns() // 1_000_000 - 120_000
    with serving(FULL) as server, following(database_url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        waits = a_pod("high", cpu=4, priority=9, at=20)
        waits["status"] |= {"nominatedNodeName": "n1"}
        decide(database_url, earlier)
        server.publish("MODIFIED", waits)
        for name, at in (("a", 21), ("b", 22)):
            server.publish("DELETED", a_pod(name, cpu=2, node="n1", at=at))
        until(lambda: "shop/b" not in pods(database_url), what="the end of the victims")
        time.sleep(2)  # it is looked for unseen nominations each second
    assert nominated(database_url) == [("shop/high", None)]


def test_what_a_watch_shows_late_was_carried_out(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that was broken for minutes tells first what happened meanwhile, in its order."""
    monkeypatch.setattr("policy.live.positions._CATCH_UP_MS", 10_000)
    skipped_ms = 0
    with (
        serving(FULL) as server,
        following(
            database_url,
            server,
            tmp_path,
            clock=lambda: time.time_ns() // 1_000_000 + skipped_ms,
        ) as found,
    ):
        until(lambda: found.follower.figures.synced, what="the first lists")
        server.publish("MODIFIED", a_pod("a", cpu=2, node="n1", priority=1, at=20))
        until(lambda: found.follower.figures.changes > len(FULL), what="a word of the watch")
        decide(database_url, time.time_ns() // 1_000_000)
        skipped_ms = 120_000
        server.publish("MODIFIED", a_pod("b", cpu=2, node="n1", priority=1, at=21))
        time.sleep(3)  # it is looked for unseen nominations each second
        waits = a_pod("high", cpu=4, priority=9, at=22)
        waits["status"] |= {"nominatedNodeName": "n1"}
        server.publish("MODIFIED", waits)
        for name, at in (("a", 23), ("b", 24)):
            server.publish("DELETED", a_pod(name, cpu=2, node="n1", at=at))
        until(lambda: "shop/b" not in pods(database_url), what="the end of the victims")
    assert (nominated(database_url), outcomes(database_url)) == ([("shop/high", None)], [])


@pytest.mark.parametrize("again", [False, True])
def test_a_pod_that_a_call_brought_and_nobody_saw_leave_is_gone(
    database_url: str, tmp_path: Path, again: bool
) -> None:
    """It came and left while there was no watch, so that neither list nor watch has it."""
    now_ms = time.time_ns() // 1_000_000
    with serving(FULL) as server, following(database_url, server, tmp_path) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        brought = from_dicts([a_pod("brought", cpu=1, node="n1"), a_pod("new", cpu=1, node="n1")])
        with Store.open(database_url) as store:
            for pod, at_ms in zip(brought, (now_ms - 120_000, now_ms + 60_000), strict=True):
                name = f"shop/{pod.metadata.name}"
                store.record.change(
                    CLUSTER,
                    [("Pod", name, pod)],
                    at_ms=at_ms,
                    source="extender",
                    cause=Cause.EXTENDER,
                )
        if again:
            server.compact()
            server.end_watches()
            until(lambda: bool(found.follower.figures.gaps), what="a new list")
        server.publish("MODIFIED", a_pod("a", cpu=2, node="n1", priority=1, at=30))
        until(lambda: "shop/brought" not in pods(database_url), what="the end of the pod")
        # What a call brought a moment ago may be shown yet.
        left = ("a", "b", "bystander", "high", "new")
        assert sorted(pods(database_url)) == [f"shop/{name}" for name in left]
    with Store.open(database_url) as store:
        assert store.ledger.verify().ok


def pods(url: str) -> list[str]:
    with Store.open(url, read_only=True) as store:
        objects = store.state.load(CLUSTER).objects
        return [f"shop/{one.metadata.name}" for one in objects if isinstance(one, Pod)]
