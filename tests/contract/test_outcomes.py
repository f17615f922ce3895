"""Decisions that a later state of the cluster contradicts are recorded as not carried out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from msgspec.structs import replace
from sqlalchemy import text

from policy.cluster.objects import Pod, key_of
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import PruneScope, Store, TamperKind
from policy.store.journal import StoreJournal
from policy.store.read.evictions import Range
from policy.store.read.history import Moment
from tests.contract.plans import plan, statements
from tests.contract.test_ledger import tampering
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pod, objects

SECOND = 1000
DECIDED = NOW_MS + SECOND
VIEWS = (
    *("v_preemptions", "v_pdb_violations", "v_preemptions_hourly", "v_tie_breakers"),
    *("v_who_preempts_whom", "v_victims WHERE evicted"),
)
NEEDS = [
    ("preemptedCount", 3600),
    ("namespacePreemptedCount", 3600),
    ("namespacePreemptions", 3600),
    ("secondsSinceLastPreempted", None),
]


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


def a_victim(name: str) -> PodBuilder:
    return a_pod(name).in_namespace("low").owned_by("ReplicaSet", "web").cpu(2).on("n1").started(90)


A, B = a_victim("a").pod, a_victim("b").pod
P = a_pod("p").in_namespace("high").priority(100).cpu(4).pod


@pytest.fixture
def decided(store: Store) -> Store:
    """Decision 1: both pods of `n1` leave for `high/p`."""
    nodes = objects(a_node("n1").cpu(4), a_node("n2").cpu(1))
    store.record.import_objects("default", [*nodes, A, B, P], at_ms=NOW_MS, source="dump")
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: DECIDED)
    rules = RuleSet.load("kube-1.36")
    made = Scheduler(journal, rules, clock=lambda: DECIDED, seed=0).decide("high/p")
    assert made.decision.effects.evict == ("low/a", "low/b")
    return store


def imported(store: Store, *pods: Pod, seconds: int = 10, prune: bool = False) -> None:
    store.record.import_objects(
        "default",
        pods,
        at_ms=DECIDED + seconds * SECOND,
        source="dump",
        prune=PruneScope(namespaces=frozenset({"low", "high"})) if prune else None,
    )


def watched(store: Store, *pods: Pod, seconds: int) -> None:
    store.record.follow(
        "default",
        [[("Pod", key_of(pod), pod)] for pod in pods],
        at_ms=DECIDED + seconds * SECOND,
        source="https://cluster",
        actor="ann",
    )


def outcomes(store: Store) -> list[tuple[str, str, int]]:
    found = store.read.outcomes_of([1]).get(1, ())
    assert {row.outcome for row in found} <= {"not-carried-out"}
    return [(row.pod, row.reason, row.revision) for row in found]


def history(store: Store) -> dict[str, dict[str, int]]:
    found = store.read.history("default", NEEDS, now_ms=DECIDED + 60 * SECOND)
    return {name.partition("/")[0]: figures for name, figures in found.items() if figures}


def counted(store: Store) -> dict[str, int]:
    found = {}
    for view in VIEWS:
        query = f"SELECT count(*) FROM {view}"
        with closing(store.sql(query, trust_connection=True)) as result:
            ((found[view],),) = result
    return found


def test_outcomes_are_counted_as_lists_find_them(decided: Store) -> None:
    """Before and after the cluster still runs both victims."""
    within = {"since_ms": NOW_MS, "until_ms": NOW_MS + 60 * SECOND}

    def found() -> tuple[list[tuple[str, int]], dict[str, int]]:
        names = ("preempt", "not-carried-out")
        listed = {one: len(decided.read.decisions(outcome=one, **within)) for one in names}
        return decided.read.outcomes_within(**within), listed

    before = found()
    imported(decided, A, B, P)
    assert [before, found()] == [
        ([("preempt", 1)], {"preempt": 1, "not-carried-out": 0}),
        ([("not-carried-out", 1)], {"preempt": 0, "not-carried-out": 1}),
    ]


def test_decisions_that_were_not_carried_out_are_found_from_these(decided: Store) -> None:
    """Not from all decisions, of which there may be a million."""
    with statements(decided) as sent:
        decided.read.outcomes_within(since_ms=NOW_MS, until_ms=NOW_MS + SECOND)
    (asked,) = (one for one in sent if "decision_outcomes" in one[0])
    steps = plan(decided, *asked)
    assert not [step for step in steps if "SCAN decisions" in step or "on decisions " in step]


def test_a_preemption_that_was_not_carried_out_leaves_history_views_and_reports(
    decided: Store,
) -> None:
    """The imported cluster still runs both victims: nothing counts them as evicted any more."""
    before = history(decided)
    imported(decided, A, B, P)
    assert (before, outcomes(decided), history(decided), counted(decided)) == (
        {
            "preemptedCount": {"low/ReplicaSet/web": 2, "ReplicaSet/web": 2},
            "namespacePreemptedCount": {"low": 2},
            "namespacePreemptions": {"high": 1},
            "secondsSinceLastPreempted": {"low/ReplicaSet/web": 60, "ReplicaSet/web": 60},
        },
        [
            ("high/p", "no-victim-left", 3),
            ("low/a", "victim-still-runs", 3),
            ("low/b", "victim-still-runs", 3),
        ],
        {},
        dict.fromkeys(VIEWS, 0),
    )
    everything = Range(cluster="default")
    assert (
        decided.read.evictions(everything),
        list(decided.read.past_preemptions(everything)),
        decided.read.past_nominations(everything),
    ) == ([], [], [])


def test_a_victim_that_left_stays_counted(decided: Store) -> None:
    """Of two victims one still runs: the preemption took place, with one eviction."""
    imported(decided, A, P, prune=True)
    assert (outcomes(decided), history(decided), counted(decided)["v_preemptions"]) == (
        [("low/a", "victim-still-runs", 3)],
        {
            "preemptedCount": {"low/ReplicaSet/web": 1, "ReplicaSet/web": 1},
            "namespacePreemptedCount": {"low": 1},
            "namespacePreemptions": {"high": 1},
            "secondsSinceLastPreempted": {"low/ReplicaSet/web": 60, "ReplicaSet/web": 60},
        },
        1,
    )


@pytest.mark.parametrize(
    ("preemptor", "reason"),
    [
        (None, "preemptor-gone"),
        (replace(P, metadata=replace(P.metadata, uid="another")), "preemptor-gone"),
        (replace(P, spec=replace(P.spec, node_name="n2")), "preemptor-elsewhere"),
        (replace(P, spec=replace(P.spec, node_name="n1")), "no-victim-left"),
    ],
)
def test_the_reason_says_what_became_of_the_preemptor(
    decided: Store, preemptor: Pod | None, reason: str
) -> None:
    """Gone, another pod of its name, or placed: beside the victims that still run."""
    imported(decided, A, B, *([] if preemptor is None else [preemptor]), prune=True)
    assert outcomes(decided)[0] == ("high/p", reason, 3)


def test_what_the_cluster_carried_out_is_not_contradicted(decided: Store) -> None:
    """Leaving, finished, made again under its name, or away."""
    leaving = replace(A, metadata=replace(A.metadata, deletion_timestamp="2030-01-01T00:00:00Z"))
    again = replace(B, metadata=replace(B.metadata, uid="low/b-again"))
    imported(decided, leaving, again, P)
    imported(decided, replace(again, status=replace(again.status, phase="Failed")), prune=True)
    assert outcomes(decided) == []


def test_pods_without_uid_are_told_apart_by_their_start(store: Store) -> None:
    """A dump by hand has no uids: the pod that started later is another one."""
    bare = [replace(pod, metadata=replace(pod.metadata, uid="")) for pod in (A, B, P)]
    nodes = objects(a_node("n1").cpu(4))
    store.record.import_objects("default", [*nodes, *bare], at_ms=NOW_MS, source="dump")
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: DECIDED)
    rules = RuleSet.load("kube-1.36")
    Scheduler(journal, rules, clock=lambda: DECIDED, seed=0).decide("high/p")
    later = replace(bare[1], status=replace(bare[1].status, start_time="2030-01-01T00:00:00Z"))
    imported(store, bare[0], later)
    assert outcomes(store) == [("low/a", "victim-still-runs", 3)]


def test_a_watch_is_given_time(decided: Store) -> None:
    """What it shows within half a minute may be from before the eviction; later it counts."""
    watched(decided, A, B, seconds=5)
    early = outcomes(decided)
    watched(decided, replace(P, spec=replace(P.spec, priority=101)), seconds=40)
    assert (early, [row[:2] for row in outcomes(decided)]) == (
        [],
        [
            ("high/p", "no-victim-left"),
            ("low/a", "victim-still-runs"),
            ("low/b", "victim-still-runs"),
        ],
    )


def test_silence_of_a_watch_is_no_deletion(decided: Store) -> None:
    """Victims of which nothing is shown are there, once their grace period is over."""
    watched(decided, replace(P, spec=replace(P.spec, priority=101)), seconds=45)
    early = outcomes(decided)
    watched(decided, replace(P, spec=replace(P.spec, priority=102)), seconds=65)
    assert (early, [row[:2] for row in outcomes(decided)]) == (
        [],
        [
            ("high/p", "no-victim-left"),
            ("low/a", "victim-still-there"),
            ("low/b", "victim-still-there"),
        ],
    )


def test_a_changed_outcome_is_found(decided: Store, database_url: str) -> None:
    """The entry of the revision covers it, and a row of no revision is none."""
    imported(decided, A, B, P)
    assert decided.ledger.verify().ok
    with tampering(database_url) as connection:
        connection.execute(text("UPDATE decision_outcomes SET at_ms = 1 WHERE position = 0"))
        connection.commit()
        (changed,) = decided.ledger.verify().findings
        connection.execute(text("UPDATE decision_outcomes SET revision = 7"))
        connection.commit()
        orphan = decided.ledger.verify().findings[-1]
    assert (changed.harm, changed.sequence, orphan.detail) == (
        TamperKind.CHANGED,
        3,
        "a row of decision_outcomes without revision",
    )


def test_outcomes_are_pruned_with_their_revision(decided: Store) -> None:
    """And what stays can be verified."""
    imported(decided, A, B, P)
    imported(decided, replace(A, spec=replace(A.spec, priority=3)), seconds=3600)
    imported(decided, replace(A, spec=replace(A.spec, priority=4)), seconds=7200)
    decided.ledger.prune(DECIDED + 600 * SECOND, actor="ann", at_ms=DECIDED + 8000 * SECOND)
    assert (outcomes(decided), decided.ledger.verify().ok) == ([], True)


def test_a_replay_knows_what_was_known(decided: Store) -> None:
    """A decision before the import still has the figures that it was made with."""
    moment = Moment(decision_id=2, base_revision=2)
    imported(decided, A, B, P)
    found = decided.read.history(
        "default", [("preemptedCount", 3600)], now_ms=DECIDED + 1, before=moment
    )
    assert found["preemptedCount/3600"]["low/ReplicaSet/web"] == 2
