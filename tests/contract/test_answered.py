"""What a follower sees of a preemption that the service answered: one preemption, counted once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from policy.audit.observed.against import compare
from policy.cluster.digest import Change
from policy.decision.model import Outcome
from policy.manifests import from_dicts
from policy.rules import RuleSet
from policy.store import Store
from policy.store.model.decisions import CallMode
from tests.support.answered import HIGH, SECOND, answer, fill, observe, offer, pod
from tests.support.builders import NOW_MS

NEEDS = [("namespacePreemptedCount", 3600), ("namespacePreemptions", 3600)]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        fill(opened)
        yield opened


def counted(store: Store) -> dict[str, Any]:
    """Preemptions and evictions wherever they are summed up."""

    def one(query: str) -> int:
        with store.sql(query, trust_connection=True) as found:
            ((value,),) = found
            return int(value or 0)

    history = store.read.history("default", NEEDS, now_ms=NOW_MS + 60 * SECOND)
    return {
        "preemptions": one("SELECT count(*) FROM v_preemptions"),
        "evictions": one("SELECT count(*) FROM v_victims WHERE evicted"),
        "who": one("SELECT sum(evictions) FROM v_who_preempts_whom"),
        "by the hour": one("SELECT sum(preemptions) FROM v_preemptions_hourly"),
        "by the day": one("SELECT sum(evictions) FROM v_evictions_daily WHERE day >= 0"),
        "history": [dict(figures) for figures in history.values()],
    }


ONCE = {
    "preemptions": 1,
    "evictions": 1,
    "who": 1,
    "by the hour": 1,
    "by the day": 1,
    "history": [{"shop": 1}, {"shop": 1}],
}


def test_it_names_the_decision_and_counts_no_second_time(store: Store) -> None:
    """History too: rules with a budget for evictions would spend it twice."""
    answer(store)
    assert counted(store) == ONCE
    row = observe(store, "a")
    assert (row.verdict, row.reason, row.rule_set, row.detail) == (
        "answered",
        "decision 1",
        "dev",
        {"decision": 1},
    )
    assert [(v.victim, v.counted, v.pdb_violating) for v in row.victims] == [
        ("shop/a", False, False)
    ]
    assert counted(store) == ONCE
    assert store.ledger.verify().ok


def test_an_answered_preemption_is_compared_with_other_rules(store: Store) -> None:
    """Its evictions took place."""
    answer(store)
    (one,) = compare(store, [observe(store, "a")], RuleSet.load("kube-1.36"))
    assert (one.theirs, one.victims) == ({"shop/a"}, ("shop/a",))


def test_more_than_was_answered_is_decided_again(store: Store) -> None:
    """What the decision evicts is counted by it, the rest by the observation."""
    answer(store)
    row = observe(store, "a", "b")
    assert row.verdict != "answered"
    assert [(v.victim, v.counted) for v in row.victims] == [("shop/a", False), ("shop/b", True)]
    assert counted(store) == {
        **ONCE,
        "preemptions": 2,
        "by the hour": 2,
        "evictions": 2,
        "who": 2,
        "by the day": 2,
        "history": [{"shop": 2}, {"shop": 2}],
    }
    assert store.ledger.verify().ok


def test_a_pod_that_two_decisions_take_is_counted_by_the_first(store: Store) -> None:
    """A scheduler that does not see the deletion yet evicts it again: it left once."""
    assert answer(store).effects.evict == ("shop/a",)
    assert answer(store, preemptor=pod("higher", 12)).effects.evict == ()
    first, second = observe(store, "a"), observe(store, "a", preemptor="higher")
    assert [(row.verdict, row.reason) for row in (first, second)] == [
        ("answered", "decision 1"),
        ("answered", "decision 2"),
    ]
    assert [v.counted for row in (first, second) for v in row.victims] == [False, False]
    assert counted(store) == {
        **ONCE,
        "preemptions": 2,
        "by the hour": 2,
        "history": [{"shop": 1}, {"shop": 2}],
    }
    assert store.ledger.verify().ok


@pytest.mark.parametrize(
    "other",
    [
        {"node": "n2"},
        {"preemptor_uid": "uid-of-a-later-pod"},
        {"at_ms": NOW_MS + 601 * SECOND},
        {"at_ms": NOW_MS - 61 * SECOND},
    ],
)
def test_another_preemption_of_the_pod_is_not_the_answer(
    store: Store, other: dict[str, Any]
) -> None:
    """Another node, another pod of that name, or another time."""
    answer(store)
    row = observe(store, "a", **other)
    assert (row.verdict == "answered", [v.counted for v in row.victims]) == (False, [True])


def test_in_shadow_mode_the_scheduler_decides(store: Store) -> None:
    """The call evicted nothing."""
    answer(store, CallMode.SHADOW)
    row = observe(store, "a")
    assert (row.verdict == "answered", [v.counted for v in row.victims]) == (False, [True])
    assert counted(store) == ONCE


def follow(store: Store, *items: dict[str, Any], after_ms: int) -> list[Change]:
    """What the follower hears, that much after the decision; gives what it changed."""
    changes: list[Change] = [("Pod", f"shop/{o.metadata.name}", o) for o in from_dicts(items)]
    at_ms = NOW_MS + after_ms
    done = store.record.follow("default", [changes], at_ms=at_ms, source="t", actor="ann")
    return [change for one in done.written for change in one.changes]


def nominated(store: Store) -> list[str]:
    return [one.pod for one in store.read.nominated_to("n1")]


def test_news_from_before_the_answer_take_nothing_back(store: Store) -> None:
    """The pod as it was: the room that was promised to it is promised to no other pod."""
    answer(store)
    labelled = {**HIGH, "metadata": {**HIGH["metadata"], "labels": {"a": "b"}}}
    assert (follow(store, HIGH, after_ms=SECOND), nominated(store)) == ([], ["shop/high"])
    # What is new is the cluster's word.
    assert len(follow(store, labelled, after_ms=SECOND)) == 1
    assert nominated(store) == []
    assert store.ledger.verify().ok


def test_a_pod_that_is_refused_stays_nominated(store: Store) -> None:
    """As for its scheduler: the cluster shows nothing that would put a nomination back."""
    waits = {**HIGH, "status": {**HIGH["status"], "nominatedNodeName": "n1"}}
    follow(store, waits, after_ms=-SECOND)
    assert offer(store, "unknown", preemptor=waits).outcome is Outcome.NO_CANDIDATE
    assert nominated(store) == ["shop/high"]


def test_a_pod_that_stays_as_it_was_loses_its_nomination(store: Store) -> None:
    """After half a minute the decision was not carried out."""
    answer(store)
    assert len(follow(store, HIGH, after_ms=40 * SECOND)) == 1
    assert nominated(store) == []


def test_a_bound_pod_waits_for_no_node(store: Store) -> None:
    """Schedulers before 1.34 leave the nomination in its status."""
    answer(store)
    bound = pod("high", 9, "n1")
    bound["status"]["nominatedNodeName"] = "n1"
    follow(store, bound, after_ms=SECOND)
    assert (nominated(store), store.read.nominated_pods(limit=10)) == ([], [])
