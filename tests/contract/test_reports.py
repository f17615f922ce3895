"""Reports: who was hit again and again, in chains, at what cost; what rules would have saved."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace
from itertools import pairwise

import pytest
from click.testing import CliRunner

from policy.audit import reports, reports_prevented
from policy.audit.reports_coverage import coverage
from policy.cli.app import cli
from policy.cluster import times
from policy.cluster.objects import ObjectMeta, PriorityClass
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Cause, Store
from policy.store.journal import StoreJournal
from policy.store.read.evictions import Range
from policy.store.read.rule_counts import RuleCounts
from tests.contract.builders import NOW, a_cluster, a_node, a_pod
from tests.contract.filled import observe

MINUTE = 60_000
STARTED = times.parse("2026-11-20T00:00:00Z")  # of every pod that `a_pod` puts on a node
T0 = STARTED + 300_000
"""Five minutes after the start of the first pods."""


class Cluster:
    """One node with room for one pod, on which pods take each other's place."""

    def __init__(self, store: Store, rules: str = "kube-1.35") -> None:
        self.store = store
        self.now = T0
        self.rules = RuleSet.load(rules)
        first = a_pod("shop/web-1", node="n1", cpu="8", owner="ReplicaSet/web")
        patient = {
            "preemption-toleration.scheduling.sigs.k8s.io/minimum-preemptable-priority": "50",
            "preemption-toleration.scheduling.sigs.k8s.io/toleration-seconds": "600",
        }
        store.record.import_objects(
            "default",
            [
                a_node("n1"),
                first,
                PriorityClass(metadata=ObjectMeta(name="p0", annotations=patient), value=0),
            ],
            at_ms=NOW,
            source="dump",
        )

    def change(self, *changes):
        self.store.record.change(
            "default", changes, at_ms=NOW, source="test", cause=Cause.SIMULATION
        )

    def preempt(self, pod, *, victim, priority, owner, after=0):
        """`pod` takes the place of `victim`, which goes."""
        self.now += after
        self.change(("Pod", pod, a_pod(pod, priority=priority, cpu="8", owner=owner)))
        journal = StoreJournal(self.store, "default", actor="ann", clock=lambda: NOW)
        step = Scheduler(journal, self.rules, clock=lambda: self.now, seed=0).decide(pod)
        assert [v.pod for v in step.decision.victims] == [victim]
        running = a_pod(pod, node="n1", priority=priority, cpu="8", owner=owner)
        self.change(("Pod", victim, None), ("Pod", pod, running))


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        yield opened


@pytest.fixture
def history(store):
    """web-1 < api-1 < job-1, and an hour and a half later job-1 < web-2 < top."""
    cluster = Cluster(store)
    cluster.preempt("shop/api-1", victim="shop/web-1", priority=1, owner="ReplicaSet/api")
    cluster.preempt(
        "lab/job-1", victim="shop/api-1", priority=2, owner="Job/job", after=10 * MINUTE
    )
    cluster.preempt(
        "shop/web-2", victim="lab/job-1", priority=3, owner="ReplicaSet/web", after=90 * MINUTE
    )
    cluster.preempt("ops/top", victim="shop/web-2", priority=4, owner="", after=5 * MINUTE)
    return store


ALL = Range(cluster="default")


def rows(found, *names):
    return [tuple(getattr(row, name) for name in names) for row in found]


def test_workloads_that_were_hit(history):
    """Each owner with its evictions and the shortest time between two; the most hit first."""
    found = reports.workloads(history.read.evictions(ALL))
    names = ("workload", "evictions", "pods", "shortest_gap_seconds", "seconds_lost")
    assert rows(found, *names) == [
        ("shop/ReplicaSet/web", 2, 2, 105 * 60, 300 + 300 + 105 * 60),
        ("lab/Job/job", 1, 1, None, 300 + 100 * 60),
        ("shop/ReplicaSet/api", 1, 1, None, 300 + 10 * 60),
    ]


def test_pairs_of_preemptor_and_victim(history):
    """Workloads, also of the preemptor: the owner that it had when it was decided."""
    found = reports.pairs(history.read.evictions(ALL))
    assert rows(found, "preemptor", "victim", "evictions") == [
        ("lab/Job/job", "shop/ReplicaSet/api", 1),
        ("ops/Pod/top", "shop/ReplicaSet/web", 1),
        ("shop/ReplicaSet/api", "shop/ReplicaSet/web", 1),
        ("shop/ReplicaSet/web", "lab/Job/job", 1),
    ]


def test_the_histogram_ends_with_the_maximum(history):
    """One workload was hit twice, two were hit once; each of the four pods was hit once."""
    found = reports.histogram(history.read.evictions(ALL))
    assert rows(found, "evictions", "workloads", "pods") == [(1, 2, 4), (2, 1, 0)]


def test_a_pod_that_comes_back_under_its_name_counts_again(store):
    """A pod without owner, evicted, made again and evicted again: hit twice."""
    cluster = Cluster(store)
    cluster.preempt("ops/a", victim="shop/web-1", priority=1, owner="")
    back = a_pod("shop/web-1", node="n1", cpu="8", owner="ReplicaSet/web")
    cluster.change(("Pod", "ops/a", None), ("Pod", "shop/web-1", back))
    cluster.preempt("ops/b", victim="shop/web-1", priority=1, owner="", after=MINUTE)
    found = reports.histogram(store.read.evictions(ALL))
    assert rows(found, "evictions", "workloads", "pods") == [(2, 1, 1)]


def test_cascades_are_chains_within_the_window(history):
    """Web lost a pod 100 minutes before it preempts: a chain within two hours, not within one."""
    evictions = history.read.evictions(ALL)
    names = ("depth", "preemptions", "evictions", "example")
    first = "shop/ReplicaSet/api > shop/ReplicaSet/web"
    assert [
        rows(reports.cascades(evictions, window_seconds=seconds), *names)
        for seconds in (100 * 60 - 1, 100 * 60)
    ] == [
        [(1, 4, 4, first)],
        [(1, 3, 3, first), (2, 1, 1, f"{first} > lab/Job/job")],
    ]


def test_how_long_preemptors_waited(history):
    """Every nomination of this history was used at once, by the pod that was nominated."""
    found = reports.waiting(history.read.past_nominations(ALL), now_ms=NOW)
    assert rows(found, "ended", "nominations") == [("bound", 4)]


def test_nominations_of_a_range_are_those_made_in_it(history):
    """By the time that they were decided for, from the first instant on and before the last."""
    every = history.read.past_nominations(ALL)
    times = sorted({row.made_ms for row in every})
    found = [
        history.read.past_nominations(replace(ALL, since_ms=since, until_ms=until))
        for since, until in pairwise(times)
    ]
    assert len(times) > 1
    assert found == [[row for row in every if row.made_ms == since] for since in times[:-1]]


def test_what_was_lost(history):
    """Run time of the victims, by namespace, priority and preemptor."""
    evictions = history.read.evictions(ALL)
    web, api, job = 300 + 300 + 105 * 60, 300 + 10 * 60, 300 + 100 * 60
    found = {
        by: rows(reports.cost(evictions, by=by), "name", "seconds_lost")
        for by in ("namespace", "priority")
    }
    assert found == {
        "namespace": [("shop", web + api), ("lab", job)],
        "priority": [("3", 300 + 105 * 60), ("2", job), ("1", api), ("0", 300)],
    }
    (row,) = [r for r in reports.cost(evictions, by="preemptor") if r.name == "ops/Pod/top"]
    assert (row.seconds_lost, row.core_seconds_lost) == (300 + 105 * 60, 8 * (300 + 105 * 60))


def test_what_pods_of_unknown_priority_cost(database_url):
    """They are not counted as pods of priority 0: the view has no priority for them, either."""
    with Store.open(database_url) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="dump")
        observe(store, "default")
        with store.sql("SELECT victim_priority FROM v_victims", trust_connection=True) as found:
            known = [row[0] for row in found]
        (row,) = reports.cost(store.read.evictions(ALL), by="priority")
    assert (known, row.name, row.evictions) == ([None], "unknown", 1)


def test_what_each_shipped_rule_would_have_prevented(history):
    """Asked alone about each eviction, with the objects and the past of that moment."""
    found = reports_prevented.prevented(
        history.read.past_preemptions(ALL), history.read.evictions(ALL)
    )
    assert {row.rule: (row.evictions, row.preemptions, row.seconds_saved) for row in found} == {
        # web-1 had run for five minutes when it was taken.
        "minimum-run-time": (1, 1, 300),
        # Its priority class asked for ten minutes.
        "tolerates-for-a-time": (1, 1, 300),
        "tolerates-for-ever": (0, 0, 0),
        "cooldown": (0, 0, 0),
        "maxVictims": (0, 0, 0),
        "namespace-causes-too-many": (0, 0, 0),
        "namespace-lost-enough": (0, 0, 0),
        "pdb-hard-limit": (0, 0, 0),
        "protected-label": (0, 0, 0),
        "protected-namespace": (0, 0, 0),
        "protected-namespace-label": (0, 0, 0),
    }


def test_the_past_counts_for_rules_that_look_back(store):
    """A workload that is hit twice within ten minutes would have been spared the second time."""
    cluster = Cluster(store)
    cluster.preempt("shop/api-1", victim="shop/web-1", priority=1, owner="ReplicaSet/web")
    cluster.preempt("ops/top", victim="shop/api-1", priority=2, owner="", after=10 * MINUTE)
    late = Range(cluster="default", since_ms=T0 + MINUTE)
    for wanted in (ALL, late):
        found = reports_prevented.prevented(
            store.read.past_preemptions(wanted), store.read.evictions(ALL)
        )
        (row,) = [row for row in found if row.rule == "cooldown"]
        assert (row.evictions, row.preemptions) == (1, 1)


def test_a_range_leaves_out_what_was_decided_before(history):
    """`since` counts by the time that a decision was made for."""
    late = Range(cluster="default", since_ms=T0 + 20 * MINUTE)
    early = Range(cluster="default", until_ms=T0 + 20 * MINUTE)
    assert [len(history.read.evictions(wanted)) for wanted in (ALL, late, early)] == [4, 2, 2]


def test_coverage_lists_what_never_decided(history):
    """Every rule of the rule set, with the decisions and pods that it decided about."""
    (used,) = history.read.rule_sets_used(ALL)
    found = rows(
        coverage(used, history.read.rule_uses(ALL)), "section", "rule", "decisions", "pods"
    )
    assert found == [
        ("eligibility", "policy-never", 0, None),
        ("eligibility", "nominated-node-lost", 0, None),
        ("eligibility", "victims-still-leaving", 0, None),
        ("eligibility", "otherwise", 4, None),
        ("victims.eligible", "lower-priority", 4, 4),
        ("ranking", "fewest-pdb-violations", 0, None),
        ("ranking", "lowest-top-priority", 0, None),
        ("ranking", "lowest-priority-sum", 0, None),
        ("ranking", "fewest-victims", 0, None),
        ("ranking", "latest-start", 0, None),
        ("ranking", "by-name", 0, None),
        ("ranking", "(one candidate)", 4, None),
    ]


def test_totals_count_what_coverage_counts(history):
    """By days, of which the last one is today, and over all; nothing under other rules."""
    (used,) = history.read.rule_sets_used(ALL)
    day = 86_400_000
    found = history.read.rule_counts(used.digest, now_ms=T0 + day, days=(1, 2, 7))
    assert found == RuleCounts(
        days=(1, 2, 7),
        decisions=(0, 4, 4, 4),
        rules={
            ("eligibility", "otherwise"): (0, 4, 4, 4),
            ("victims.eligible", "lower-priority"): (0, 4, 4, 4),
            ("ranking", ""): (0, 4, 4, 4),
        },
    )
    other = history.read.rule_counts("sha256:none", now_ms=T0, days=(7,))
    assert other == RuleCounts(days=(7,), decisions=(0, 0), rules={})


def output(*arguments):
    result = CliRunner().invoke(cli, list(arguments), standalone_mode=False, catch_exceptions=False)
    return result.stdout


@pytest.mark.parametrize(
    "part", ["workloads", "pairs", "histogram", "cascades", "waiting", "prevented"]
)
def test_csv_and_json_of_a_part_hold_the_same(history, database_url, part):
    """One part of the report as CSV has the rows that it has as JSON."""
    arguments = ("report", "thrash", "--db", database_url, "--part", part, "--output")
    as_csv = list(csv.DictReader(io.StringIO(output(*arguments, "csv"))))
    as_json = json.loads(output(*arguments, "json"))
    assert as_csv == [
        {name: "" if value is None else str(value) for name, value in row.items()}
        for row in as_json
    ]
    assert as_json


def test_the_table_has_all_parts_and_the_document_too(history, database_url):
    """Without `--part`, people get every table under its heading, and programs one document."""
    report = ("report", "thrash", "--db", database_url)
    table, document = output(*report), json.loads(output(*report, "--output", "json"))
    assert list(document) == ["workloads", "pairs", "histogram", "cascades", "waiting", "prevented"]
    for heading in ("Workloads that were hit", "What each shipped rule alone would have prevented"):
        assert heading in table


def test_costs_on_the_command_line(history, database_url):
    """All three groupings in one CSV, told apart by the column `by`."""
    found = csv.DictReader(
        io.StringIO(output("report", "cost", "--db", database_url, "--output", "csv"))
    )
    assert {row["by"] for row in found} == {"namespace", "priority", "preemptor"}
