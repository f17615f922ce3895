"""History figures: what they count, that one indexed statement gives them, that they are kept."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from msgspec import structs

from policy.cluster import times
from policy.cluster.digest import snapshot_digest
from policy.decision.model import Outcome
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import HypotheticalDecision, Store
from policy.store.journal import StoreJournal
from policy.store.model.decisions import Origin
from policy.store.model.sessions import SessionRecord, SessionStep
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_decision,
    a_node,
    a_pod,
    a_victim,
    made_on,
)
from tests.contract.plans import plan, statements

HOUR = 3600
NEEDS = frozenset(
    {
        ("preemptedCount", HOUR),
        ("preemptedCount", 60),
        ("namespacePreemptedCount", HOUR),
        ("namespacePreemptions", HOUR),
        ("secondsSinceLastPreempted", None),
    }
)


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", [a_node("n1")], at_ms=NOW, source="dump.json")
        opened.record.import_objects("other", [a_node("n1")], at_ms=NOW, source="dump.json")
        yield opened


def preempted(
    store,
    *victims,
    seconds_ago,
    cluster="default",
    preemptor="team/urgent",
    hypothetical=False,
    origin=Origin.DECIDED,
    **changed,
):
    """Record a decision that evicts the victims, made so long before NOW."""
    decision = a_decision(*victims, preemptor=preemptor, now_ms=NOW - seconds_ago * 1000)
    decision = made_on(store, replace(decision, **changed), cluster)
    to = {"rules": BY_HAND, "actor": "ann", "at_ms": NOW}
    if hypothetical:
        supposed = HypotheticalDecision(decision=decision)
        store.record.hypothetical(cluster, [supposed], revision=1, **to)
    else:
        store.record.decision(cluster, decision, [], expected_revision=1, origin=origin, **to)


def test_the_figures_count_what_was_evicted_in_the_window(store):
    """Workloads, bare pods and namespaces, each within its window, the far end left out."""
    web, api = a_victim("shop/web-1"), a_victim("shop/api-1", owner="ReplicaSet/api")
    preempted(store, web, api, seconds_ago=HOUR, preemptor="old/a")
    preempted(store, web, api, seconds_ago=HOUR - 1)
    preempted(store, structs.replace(web, pod="shop/web-2"), seconds_ago=30)
    preempted(store, a_victim("test/web-1"), seconds_ago=0, preemptor="lab/b")
    preempted(store, a_victim("shop/single", owner=""), seconds_ago=60)
    assert store.read.history("default", NEEDS, now_ms=NOW) == {
        "preemptedCount/3600": {
            "shop/ReplicaSet/web": 2,
            "shop/ReplicaSet/api": 1,
            "test/ReplicaSet/web": 1,
            "shop/Pod/single": 1,
            "ReplicaSet/web": 3,
            "ReplicaSet/api": 1,
        },
        "preemptedCount/60": {
            "shop/ReplicaSet/web": 1,
            "test/ReplicaSet/web": 1,
            "ReplicaSet/web": 2,
        },
        "namespacePreemptedCount/3600": {"shop": 4, "test": 1},
        "namespacePreemptions/3600": {"team": 3, "lab": 1},
        "secondsSinceLastPreempted": {
            "shop/ReplicaSet/web": 30,
            "test/ReplicaSet/web": 0,
            "shop/ReplicaSet/api": HOUR - 1,
            "shop/Pod/single": 60,
            "ReplicaSet/web": 0,
            "ReplicaSet/api": HOUR - 1,
        },
    }


def test_what_did_not_happen_does_not_count(store):
    """Hypothetical decisions, later ones, other clusters, victims that were leaving, failures."""
    victim = a_victim("shop/web-1")
    nobody = replace(a_decision(victim).effects, evict=(), mark_disrupted=())
    preempted(store, victim, seconds_ago=1, hypothetical=True)
    preempted(store, victim, seconds_ago=-1)
    preempted(store, victim, seconds_ago=1, cluster="other")
    preempted(store, victim, seconds_ago=1, outcome=Outcome.NO_CANDIDATE)
    preempted(store, victim, seconds_ago=1, effects=nobody, preemptor="lab/b")
    assert store.read.history("default", NEEDS, now_ms=NOW) == {
        "preemptedCount/3600": {},
        "preemptedCount/60": {},
        "namespacePreemptedCount/3600": {},
        "namespacePreemptions/3600": {"lab": 1},
        "secondsSinceLastPreempted": {},
    }


def test_one_statement_gives_all_figures(store):
    """However many functions and windows, pods and past evictions: one statement per decision."""
    for number in range(20):
        preempted(store, a_victim(f"shop/web-{number}"), seconds_ago=number)
    with statements(store) as sent:
        store.read.history("default", NEEDS, now_ms=NOW)
    assert len(sent) == 1


def held(store, *, seconds_ago):
    """Record a batch session that tried many pods in vain, and evicted one."""
    rejected = [
        SessionStep(action="allocate", operation="reject", task=f"lab/{n}", reason="no-room")
        for n in range(20)
    ]
    evicted = SessionStep(action="reclaim", operation="evict", task="shop/web", for_task="lab/0")
    record = SessionRecord(
        digest=f"sha256:{seconds_ago:064x}",
        now_ms=NOW - seconds_ago * 1000,
        snapshot_digest="",
        seed=0,
        engine_version="1",
        bound_count=0,
        evicted_count=1,
        steps=[*rejected, evicted],
        document={},
    )
    store.record.session(
        "default",
        made_on(store, record),
        [],
        expected_revision=1,
        rules=BY_HAND,
        actor="ann",
        at_ms=NOW,
    )


def test_the_statement_reads_an_index_by_time(store):
    """No part of it scans a table: each reads one stretch of time."""
    for days in range(300):
        preempted(store, a_victim(f"shop/web-{days}"), seconds_ago=days * 86_400)
        held(store, seconds_ago=days * 86_400)
    with statements(store) as sent:
        store.read.history("default", NEEDS, now_ms=NOW)
    steps = plan(store, *sent[0])
    if store._database.is_sqlite:
        read = [step for step in steps if re.match("(SCAN|SEARCH) (?!clusters)", step)]
        assert [step for step in read if not step.startswith("SEARCH")] == []
        evicted = [step for step in read if "session_steps" in step]
        assert [s for s in evicted if "ix_session_steps_evictions" not in s] == []
        # Of preemptions alone: other decisions of that time may be many times as many.
        (looked_up,) = (step for step in read if step.startswith("SEARCH decisions "))
        assert "INTEGER PRIMARY KEY" in looked_up
        found = [step for step in read if re.search("SEARCH (victims|sessions) ", step)]
    else:
        found = [step for step in steps if "Index Cond" in step and "now_ms" in step]
        assert [step for step in steps if "Seq Scan on" in step and "clusters" not in step] == []
    observed = 0 if store._database.is_sqlite else 4  # looked for by name above
    assert len(found) == 2 * len(NEEDS) + observed  # of decisions, and of sessions
    assert [s for s in found if len(re.findall(r"\bnow_ms ?[<>]", s)) != 2] == []


RULE = {
    "id": "rest",
    "when": "history.preemptedCount(victim.workload, duration('1h')) > 0",
    "verdict": "deny",
}


def rules(*inserted):
    return RuleSet.load(
        {
            "apiVersion": "policy/v1",
            "kind": "PreemptionRules",
            "metadata": {"name": "resting"},
            "extends": "kube-1.35",
            "spec": {
                "victims": {
                    "eligible": {"insert": [{"at": "start", "rule": rule} for rule in inserted]}
                }
            },
        }
    )


def scheduler(store, rule_set):
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW)
    return Scheduler(journal, rule_set, clock=lambda: NOW, seed=0)


def test_a_decision_sees_and_keeps_what_was_decided_before(store):
    """The second preemption spares the workload that the first one hit, and says what it knew."""
    pods = [a_pod(f"shop/web-{n}", node="n1", cpu="3", owner="ReplicaSet/web") for n in (1, 2)]
    others = [a_pod(f"lab/{n}", priority=9, cpu="3") for n in ("a", "b")]
    store.record.import_objects("default", [*pods, *others], at_ms=NOW, source="more.json")
    cycle = scheduler(store, rules(RULE))
    first, second = (cycle.decide(pod) for pod in ("lab/a", "lab/b"))
    assert (first.decision.outcome, second.decision.outcome) == (
        Outcome.PREEMPT,
        Outcome.NO_CANDIDATE,
    )
    records = [store.read.decision(s.recording.decision_id).record for s in (first, second)]
    assert [record.history for record in records] == [
        {"preemptedCount/3600": {}},
        {"preemptedCount/3600": {"ReplicaSet/web": 1, "shop/ReplicaSet/web": 1}},
    ]
    state = store.state.load("default", at=second.recording.revision - 1).state_digest
    assert second.decision.snapshot_digest == snapshot_digest(
        state, now_ms=NOW, history=records[1].history
    )
    assert store.ledger.verify().ok


def test_rules_without_history_keep_none(store):
    """Where no rule looks at the past, nothing is asked and nothing stored."""
    pod = a_pod("shop/web-1", priority=9, cpu="3")
    store.record.import_objects("default", [pod], at_ms=NOW, source="more.json")
    step = scheduler(store, rules()).decide("shop/web-1")
    assert store.read.decision(step.recording.decision_id).record.history is None


def test_instants_are_those_of_the_decisions(store):
    """Windows follow the time that a decision is made for, not the clock of the recording."""
    preempted(store, a_victim("shop/web-1"), seconds_ago=10 * HOUR)
    need = frozenset({("preemptedCount", HOUR)})
    found = [
        store.read.history("default", need, now_ms=NOW - 10 * HOUR * 1000 + at)[
            "preemptedCount/3600"
        ]
        for at in (-1, 0, HOUR * 1000 - 1, HOUR * 1000)
    ]
    hit = {"shop/ReplicaSet/web": 1, "ReplicaSet/web": 1}
    assert found == [{}, hit, hit, {}]
    assert times.to_text(NOW) == "2026-09-21T14:13:20Z"


def test_decisions_tell_whose_they_are(store):
    """In the rows, in the lists, and in the views of preemptions and victims."""
    web = a_victim("shop/web-1")
    preempted(store, web, seconds_ago=3)
    preempted(store, web, seconds_ago=2, origin=Origin.EXTENDER)
    preempted(store, web, seconds_ago=1, origin=Origin.SIMULATED)
    newest_first = ["simulated", "extender", "decided"]
    assert [row.origin for row in store.read.decisions()] == newest_first
    assert [row.now_ms for row in store.read.decisions(origin="extender")] == [NOW - 2000]
    for view in ("v_preemptions", "v_victims"):
        query = f"SELECT origin FROM {view} ORDER BY now_ms DESC"
        with store.sql(query, trust_connection=True) as found:
            # The extender's was answered otherwise: it led to no revision, and evicted nothing.
            assert [row[0] for row in found] == ["simulated", "decided"]
