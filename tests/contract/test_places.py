"""What is known of a workload's pods and of a node, on both databases."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from policy.audit.on_node import on_node
from policy.audit.protection import Asked, PodsJudged, Protection, protection
from policy.cluster import times
from policy.cluster.objects import Pod
from policy.observing.model import Confidence, Evidence, Preemption, SeenVictim
from policy.rules import RuleSet
from policy.store import SessionStep, Store
from policy.store.observed import NewObservation
from policy.store.read.nominated import NominatedPod
from policy.store.read.runs import ObservedEviction, PodRun, Runs, SessionEviction
from tests.contract.builders import (
    BY_HAND,
    NOW,
    RULES_DIGEST,
    a_cluster,
    a_decision,
    a_pod,
    made_on,
    the_changes,
)
from tests.contract.filled import a_session, observe
from tests.contract.plans import plan, statements

START = "2026-09-21T12:00:00Z"
ACTIVE = (("base", "kube-1.36"), ("gangs", "kube-1.36-groups"), ("prod", "minimum-run-time"))
START_MS = times.parse(START)


def started(pod: Pod, at: str = START) -> Pod:
    return replace(pod, status=replace(pod.status, start_time=at))


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    """shop/web-1 and web-2 were evicted for team/urgent, and one of them came again."""
    with Store.open(database_url) as opened:
        objects = [
            started(obj) if isinstance(obj, Pod) and obj.spec.node_name else obj
            for obj in a_cluster()
        ]
        opened.record.import_objects("default", objects, at_ms=NOW - 60_000, source="test")
        opened.record.decision(
            "default",
            made_on(opened, a_decision()),
            the_changes(),
            expected_revision=1,
            rules=BY_HAND,
            actor="ann",
            at_ms=NOW,
        )
        for environment, rules in ACTIVE:
            opened.record.create_environment(environment, "default", at_ms=NOW, actor="ann")
            opened.record.activate(
                environment,
                rules=RuleSet.load(rules),
                reason="test",
                source=rules,
                at_ms=NOW,
                actor="ann",
            )
        again = a_pod("shop/web-1", node="n2", priority=5, owner="ReplicaSet/web", uid="uid-again")
        late = started(again, "2026-09-21T14:20:00Z")
        opened.record.import_objects("default", [late], at_ms=NOW + 600_000, source="test")
        yield opened


def a_run(pod: str, **changes: Any) -> PodRun:
    given = {"cluster": "default", "pod": pod, "node": "n1", "priority": 5, "leaving": False}
    return PodRun(**{"started_ms": START_MS, "ended_ms": NOW, **given, **changes})


def test_runs_are_told_from_the_versions(store: Store) -> None:
    """Those that are there now first; a pod that comes again under its name runs anew."""
    late_ms = times.parse("2026-09-21T14:20:00Z")
    whole = Runs(
        runs=(
            a_run("shop/web-1", node="n2", started_ms=late_ms, ended_ms=None),
            a_run("shop/web-2", priority=1),
            a_run("shop/web-1"),
        ),
        whole=True,
    )
    assert store.read.runs_of("shop", "web") == whole
    assert store.read.runs_of("shop", "web-2").runs == (a_run("shop/web-2", priority=1),)
    assert store.read.runs_of("shop", "we").runs == ()
    assert store.read.runs_of("lab", "web", also={"shop/web-2"}).runs == (
        a_run("shop/web-2", priority=1),
    )
    assert store.read.workloads_of("default", {"shop/web-1", "team/urgent", "x/y"}) == {
        "shop/web-1": "shop/ReplicaSet/web",
        "team/urgent": "team/Pod/urgent",
        "x/y": "x/Pod/y",
    }


def test_a_run_is_as_old_as_the_states_that_are_kept(store: Store) -> None:
    """Where its start is not known, and what was first seen of it was pruned."""
    pod = a_pod("lab/web-9", node="n2", owner="ReplicaSet/web")
    there = replace(pod, status=replace(pod.status, start_time=None))
    for at_ms, objects in ((NOW + 700_000, [there]), (NOW + 800_000, [a_pod("lab/a")])):
        store.record.import_objects("default", objects, at_ms=at_ms, source="test")
    store.record.import_objects("default", [a_pod("lab/b")], at_ms=NOW + 900_000, source="test")
    told = {"node": "n2", "priority": 0, "ended_ms": None, "start_known": False}

    def known(since_ms: int) -> Runs:
        return Runs(runs=(a_run("lab/web-9", started_ms=since_ms, **told),), whole=True)

    assert store.read.runs_of("lab", "web") == known(NOW + 700_000)
    store.ledger.prune(NOW + 850_000, actor="ann", at_ms=NOW + 900_000)
    assert store.read.runs_of("lab", "web") == known(NOW + 800_000)


def test_a_node_is_told_with_who_waits_for_it(store: Store) -> None:
    """Also one on which no pod is left: two wait, one of them nominated by a decision."""
    (n1,) = on_node(store, "n1", now_ms=NOW)
    gibibyte = 2**30
    assert (n1.cluster, n1.pods, n1.first_to_go) == ("default", (), "")
    assert n1.nominated == (
        NominatedPod(
            cluster="default",
            pod="team/urgent",
            priority=100,
            cpu_milli=4000,
            memory_bytes=gibibyte,
            since_ms=NOW,
            decision=1,
        ),
        NominatedPod(
            cluster="default",
            pod="lab/waiting",
            priority=10,
            cpu_milli=1000,
            memory_bytes=gibibyte,
            since_ms=NOW - 60_000,
            decision=None,
        ),
    )
    (n2,) = on_node(store, "n2", now_ms=NOW)
    assert [(p.pod, p.priority, p.cpu_milli) for p in n2.pods] == [
        ("shop/web-1", 5, 1000),
        ("jobs/batch", 0, 8000),
    ]
    assert n2.first_to_go == "jobs/batch"
    assert on_node(store, "n9", now_ms=NOW) == []


def test_what_was_observed_is_found_by_pod(store: Store) -> None:
    observe(store, "default")
    found = store.read.observed_evictions("lab", "hit", limit=10)
    assert found == [
        ObservedEviction(
            observation=1,
            cluster="default",
            now_ms=NOW + 6_600,
            pod="lab/hit",
            node="n2",
            priority=0,
            started_ms=None,
            run_seconds=found[0].run_seconds,
            preemptor="team/real",
            confidence="certain",
        )
    ]
    assert store.read.observed_evictions("lab", "other", limit=10) == []
    assert store.read.observed_evictions("lab", "hit", limit=0) == []


def test_a_pod_with_an_owner_is_found_by_its_own_name(store: Store) -> None:
    """Also where another kind of owner has the name, and once where its owner is named like it."""
    pods = [
        a_pod("shop/hit", node="n2", owner="ReplicaSet/web", uid="uid-hit"),
        a_pod("shop/same", node="n2", owner="Job/same", uid="uid-same"),
        a_pod("shop/other", node="n2", owner="Job/hit", uid="uid-other"),
    ]
    store.record.import_objects("default", pods, at_ms=NOW + 700_000, source="test")
    seen = Preemption(
        preemptor="team/real",
        preemptor_uid="uid-real",
        preemptor_kind="Pod",
        node="n2",
        scheduler="default-scheduler",
        at_ms=NOW + 800_000,
        confidence=Confidence.CERTAIN,
        victims=tuple(
            SeenVictim(pod=f"shop/{name}", uid=f"uid-{name}", evidence=(Evidence.EVENT,))
            for name in ("hit", "same", "other")
        ),
    )
    found = NewObservation(preemption=seen, situation=store.read.situation("default", seen))
    store.record.observations("default", [found], at_ms=NOW + 900_000, source="test", actor="carl")
    named = {
        name: sorted(one.pod for one in store.read.observed_evictions("shop", name, limit=9))
        for name in ("hit", "same", "other", "web")
    }
    assert named == {
        "hit": ["shop/hit", "shop/other"],
        "same": ["shop/same"],
        "other": ["shop/other"],
        "web": ["shop/hit"],
    }


def test_what_sessions_evicted_is_found_by_pod_and_owner(store: Store) -> None:
    """As the pod was when the session began; what a later state contradicts is said to be so."""
    step = SessionStep(action="reclaim", operation="evict", task="shop/web-1", node="n2")
    evicting = dataclasses.replace(step, for_task="team/urgent")
    refused = dataclasses.replace(evicting, reason="refused")
    session = dataclasses.replace(a_session(9), steps=(refused, evicting), bound_count=0)
    store.record.session(
        "default",
        made_on(store, session),
        [("Pod", "shop/web-1", None)],
        expected_revision=3,
        at_ms=NOW + 700_000,
        actor="carl",
        rules=BY_HAND,
    )
    expected = SessionEviction(
        session=1,
        kind="batch",
        cluster="default",
        now_ms=NOW,
        pod="shop/web-1",
        node="n2",
        priority=5,
        started_ms=times.parse("2026-09-21T14:20:00Z"),  # later than the session
        run_seconds=0,
        preemptor="team/urgent",
        carried_out=True,
    )
    for name in ("web", "web-1"):
        assert store.read.session_evictions("shop", name, limit=10) == [expected]
    for namespace, name in (("shop", "we"), ("sho", "web"), ("shop", "WEB")):
        assert store.read.session_evictions(namespace, name, limit=10) == []
    assert store.read.session_evictions("shop", "web", limit=0) == []
    again = a_pod("shop/web-1", node="n2", priority=5, owner="ReplicaSet/web", uid="uid-again")
    store.record.import_objects("default", [again], at_ms=NOW + 800_000, source="test")
    (found,) = store.read.session_evictions("shop", "web", limit=10)
    assert found == dataclasses.replace(expected, carried_out=False)


def test_what_left_a_node_is_found(store: Store) -> None:
    """What was observed, and what sessions evicted, the newest first; not what was decided."""
    observe(store, "default")
    step = SessionStep(action="reclaim", operation="evict", task="shop/web-1", node="n2")
    session = dataclasses.replace(
        a_session(9),
        steps=(dataclasses.replace(step, for_task="team/urgent"),),
        bound_count=0,
        now_ms=NOW + 700_000,
    )
    store.record.session(
        "default",
        made_on(store, session),
        [("Pod", "shop/web-1", None)],
        expected_revision=store.state.head_revision("default"),
        at_ms=NOW + 700_000,
        actor="carl",
        rules=BY_HAND,
    )
    (held,) = store.read.session_evictions("shop", "web-1", limit=9)
    (observed,) = store.read.observed_evictions("lab", "hit", limit=9)
    assert (held.node, observed.node) == ("n2", "n2")
    found = [store.read.evictions_on("n2", limit=limit) for limit in (9, 1)]
    assert found == [[held, observed], [held]]
    assert store.read.evictions_on("n2", cluster="default", limit=9) == found[0]
    assert store.read.evictions_on("n1", limit=9) == []


def test_active_rules_say_what_they_protect(store: Store) -> None:
    """A pod that has run for a moment may not go yet; later the base rule allows it."""
    active = store.read.environment("prod").active
    assert active is not None

    def said(now_ms: int, preemptor: str = "team/urgent", environment: str = "prod") -> Protection:
        found = protection(store, "default", ["shop/web-1"], preemptor=preemptor, now_ms=now_ms)
        (one,) = (one for one in found if one.environment == environment)
        return one

    fresh = said(NOW + 600_000)
    assert (fresh.environment, fresh.digest, fresh.unknown) == ("prod", active.rule_set_digest, "")
    assert fresh.asked == Asked(pod="team/urgent", priority=100)
    assert [(j.pods, j.allowed, j.section, j.rule) for j in fresh.judged] == [
        (("shop/web-1",), False, "victims.forbid", "minimum-run-time")
    ]
    later = said(NOW + 10 * 3_600_000)
    assert later.judged == (
        PodsJudged(
            pods=("shop/web-1",),
            allowed=True,
            section="victims.eligible",
            rule="lower-priority",
            why=later.judged[0].why,
        ),
    )
    base = said(NOW + 600_000, environment="base")
    assert [(j.allowed, j.rule) for j in base.judged] == [(True, "lower-priority")]
    assert (base.would_protect, fresh.would_protect) == (("cooldown", "minimum-run-time"), ())
    gangs = said(NOW + 600_000, environment="gangs")
    assert (gangs.judged, gangs.unknown) == ((), "groups")
    supposed = said(NOW + 600_000, preemptor="gone/pod")
    assert supposed.asked == Asked(pod="", priority=100)
    assert protection(store, "default", [], preemptor="", now_ms=NOW) == []


def test_rules_that_cannot_be_read_protect_as_far_as_is_known(store: Store) -> None:
    """Those of an environment that another version activated; the others answer all the same."""
    before = protection(store, "default", ["shop/web-1"], preemptor="", now_ms=NOW)
    store.record.create_environment("odd", "default", at_ms=NOW, actor="ann")
    store.record.activate("odd", rules=BY_HAND, reason="x", source="x", at_ms=NOW, actor="ann")
    found = protection(store, "default", ["shop/web-1"], preemptor="", now_ms=NOW)
    odd = Protection(
        environment="odd",
        rule_set="by-hand",
        digest=RULES_DIGEST,
        asked=before[0].asked,
        judged=(),
        unknown="",
        would_protect=(),
        unreadable="missing key `apiVersion`",
    )
    assert sorted(found, key=lambda one: one.environment) == sorted(
        [*before, odd], key=lambda one: one.environment
    )


def test_what_left_a_node_is_found_by_indexes(store: Store) -> None:
    """However much left others."""
    observe(store, "default")
    with statements(store) as sent:
        store.read.evictions_on("n2", limit=50)
    read = [step for one in sent for step in plan(store, *one)]
    for index in (
        "ix_observed_victims_cluster_id_node_now_ms",
        "ix_session_steps_evictions_by_node",
    ):
        assert any(index in step for step in read), read


def test_what_was_observed_of_a_pod_is_found_by_indexes(store: Store) -> None:
    """However much else was evicted in its namespace."""
    observe(store, "default")
    with statements(store) as sent:
        store.read.observed_evictions("lab", "hit", limit=50)
    read = [step for one in sent for step in plan(store, *one)]
    assert any("ix_observed_victims_victim_cluster_id_now_ms" in step for step in read), read
