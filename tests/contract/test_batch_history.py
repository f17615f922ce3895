"""Evictions of batch sessions count like those of decisions: in history figures and in reports."""

from __future__ import annotations

import pytest
from msgspec.structs import replace as with_fields

from policy.audit import reports, reports_prevented
from policy.cluster.objects import OwnerReference
from policy.decision.model import Outcome
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.read.evictions import Range
from policy.store.read.history import Moment
from tests.contract.test_batch_sessions import (
    a_group,
    a_queue,
    a_task,
    a_worker,
    journal_of,
    scheduler_of,
)
from tests.support.builders import NOW_MS, PodBuilder, a_pod, objects

NOW = NOW_MS + 1000  # when the sessions are held
ALL = Range(cluster="default")


def owned(pod, owner):
    """The pod of a controller."""
    kind, _, name = owner.partition("/")
    reference = OwnerReference(kind=kind, name=name, controller=True)
    meta = with_fields(pod.pod.metadata, owner_references=[reference])
    return PodBuilder(with_fields(pod.pod, metadata=meta))


@pytest.fixture
def store(database_url):
    """Two pods of the job `crunch` had to leave for `train`, and that one for `serve` in turn."""
    crunch = [a_task(f"crunch-{i}", "lab", "crunch").priority(1).started(60) for i in range(2)]
    with Store.open(database_url) as opened:
        opened.record.import_objects(
            "default",
            objects(
                a_worker("n1").running(*(owned(pod, "Job/crunch") for pod in crunch)),
                a_task("train-0", "ml", "train").priority(10).cpu(4),
                a_task("serve-0", "web", "serve").priority(9).cpu(4),
                a_group("lab/crunch", 1, "bronze"),
                a_group("ml/train", 1, "gold"),
                a_group("web/serve", 1, "silver"),
                a_queue("bronze", 1),
                a_queue("gold", 9),
                a_queue("silver", 9),
            ),
            at_ms=NOW_MS,
            source="dump.json",
        )
        list(scheduler_of(opened).until_settled())
        yield opened


def rows(found, *names):
    return [tuple(getattr(row, name) for name in names) for row in found]


def test_reports_show_them(store):
    """Who was evicted for whom, at what cost, and the chain that follows from it."""
    evictions = store.read.evictions(ALL)
    assert rows(evictions, "preemptor", "pod", "owner", "run_seconds") == [
        ("ml/train-0", "lab/crunch-0", "Job/crunch", 3601),
        ("ml/train-0", "lab/crunch-1", "Job/crunch", 3601),
        ("web/serve-0", "ml/train-0", "", 0),
    ]
    pairs = reports.pairs(evictions)
    assert rows(pairs, "preemptor", "victim", "evictions", "preemptions") == [
        ("ml/Pod/train-0", "lab/Job/crunch", 2, 1),
        ("web/Pod/serve-0", "ml/Pod/train-0", 1, 1),
    ]
    assert rows(reports.histogram(evictions), "evictions", "workloads", "pods") == [
        (1, 1, 3),
        (2, 1, 0),
    ]


def test_shipped_rules_are_asked_about_them(store):
    """A pod that a session takes the moment after it started would have kept its place."""
    found = reports_prevented.prevented(store.read.past_preemptions(ALL), store.read.evictions(ALL))
    assert {r.rule: (r.evictions, r.preemptions) for r in found if r.evictions} == {
        "minimum-run-time": (1, 1)
    }


NEEDS = frozenset(
    {
        ("preemptedCount", 3600),
        ("namespacePreemptedCount", 3600),
        ("namespacePreemptions", 3600),
        ("secondsSinceLastPreempted", None),
    }
)


def figures(store, *, seconds_later, before=None):
    return store.read.history("default", NEEDS, now_ms=NOW + seconds_later * 1000, before=before)


def test_history_figures_count_them(store):
    """Workloads and namespaces that lost pods; who took two pods for one preempted once."""
    workloads = ("lab/Job/crunch", "Job/crunch", "ml/Pod/train-0")
    assert figures(store, seconds_later=60) == {
        "preemptedCount/3600": dict(zip(workloads, (2, 2, 1), strict=True)),
        "namespacePreemptedCount/3600": {"lab": 2, "ml": 1},
        "namespacePreemptions/3600": {"ml": 1, "web": 1},
        "secondsSinceLastPreempted": dict.fromkeys(workloads, 60),
    }


def test_windows_and_moments_leave_out_what_is_outside(store):
    """Too long ago, later, of another cluster, or recorded after the moment that is asked for."""
    nothing = {
        "preemptedCount/3600": {},
        "namespacePreemptedCount/3600": {},
        "namespacePreemptions/3600": {},
    }
    store.record.import_objects("other", [a_worker("n1").node], at_ms=NOW_MS, source="dump.json")
    for seconds in (-1, 3600):
        found = figures(store, seconds_later=seconds)
        assert {key: found[key] for key in nothing} == nothing
    assert store.read.history("other", NEEDS, now_ms=NOW)["preemptedCount/3600"] == {}
    first = Moment(decision_id=1, base_revision=1)
    second = Moment(decision_id=1, base_revision=2)
    counted = [
        figures(store, seconds_later=0, before=before)["namespacePreemptedCount/3600"]
        for before in (first, second)
    ]
    assert counted == [{}, {"lab": 2}]


def more_of_crunch(store, *, urgent):
    """A full node with another pod of the workload, and a pod of that priority which waits."""
    crunch = owned(a_task("crunch-9", "lab", "crunch").priority(1).started(60), "Job/crunch")
    store.record.import_objects(
        "default",
        objects(a_worker("n9").running(crunch), a_pod("urgent").priority(urgent).cpu(4)),
        at_ms=NOW_MS,
        source="more.json",
    )


def test_decisions_and_sessions_add_up(store):
    """A workload that both hit counts both; the later of the two is the last."""
    more_of_crunch(store, urgent=99)
    decide = Scheduler(
        journal_of(store), RuleSet.load("kube-1.35"), clock=lambda: NOW + 10_000, seed=0
    ).decide
    assert decide("default/urgent").decision.outcome is Outcome.PREEMPT
    found = figures(store, seconds_later=30)
    assert found["preemptedCount/3600"]["lab/Job/crunch"] == 3
    assert found["preemptedCount/3600"]["Job/crunch"] == 3
    assert found["secondsSinceLastPreempted"]["lab/Job/crunch"] == 20
    assert found["namespacePreemptedCount/3600"] == {"lab": 3, "ml": 1}


def test_a_decision_spares_what_a_session_hit(store):
    """The cooldown of a workload begins with its last eviction, whoever decided that."""
    more_of_crunch(store, urgent=5)
    outcomes = [
        Scheduler(
            journal_of(store),
            RuleSet.load("cooldown"),
            clock=lambda later=later: NOW + later * 60_000,
            seed=0,
            dry_run=True,
        )
        .decide("default/urgent")
        .decision.outcome
        for later in (14, 15)
    ]
    assert outcomes == [Outcome.NO_CANDIDATE, Outcome.PREEMPT]
