"""Rules that look back see one past: deciding, rehearsing, explaining, comparing and supposing."""

from __future__ import annotations

import itertools

import pytest

from policy.audit.cascade import foresee
from policy.audit.compare import DecisionChange, compare
from policy.audit.recorded import questions
from policy.audit.replay import Replayer, replay_all
from policy.audit.why_not import why_not_chosen
from policy.cluster.snapshot import Snapshot
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from policy.store.model.state import Cause
from tests.contract.builders import NOW, a_node, a_pod

RULES = RuleSet.load("cooldown")
NODES = ("n1", "n2", "n3")


@pytest.fixture
def store(database_url):
    """Three nodes with a pod each: two of one workload, one of another; three pods wait."""
    owners = ("ReplicaSet/web", "ReplicaSet/web", "ReplicaSet/api")
    running = [
        a_pod(f"shop/old-{n}", node=node, priority=n, cpu="8", owner=owner)
        for n, (node, owner) in enumerate(zip(NODES, owners, strict=True))
    ]
    waiting = [a_pod(f"lab/new-{n}", priority=9, cpu="8") for n in range(3)]
    with Store.open(database_url) as opened:
        opened.record.import_objects(
            "default",
            [*(a_node(name) for name in NODES), *running, *waiting],
            at_ms=NOW,
            source="dump",
        )
        yield opened


def told(steps):
    return [(s.decision.preemptor, [v.pod for v in s.decision.victims]) for s in steps]


def run(store, *, dry_run=False, clock=lambda: NOW):
    journal = StoreJournal(store, "default", actor="ann", clock=clock)
    return list(Scheduler(journal, RULES, clock=clock, seed=0, dry_run=dry_run).run())


EXPECTED = [
    ("lab/new-0", ["shop/old-0"]),
    ("lab/new-1", ["shop/old-2"]),
    ("lab/new-2", []),
]
"""The second pod of `web` is spared after the first one was taken."""


def test_a_dry_run_decides_as_the_run_would(store):
    """What a dry run evicted counts for its later decisions, though nothing is recorded."""
    rehearsed = run(store, dry_run=True)
    assert store.read.decisions() == []
    assert told(rehearsed) == told(run(store)) == EXPECTED


def test_a_dry_run_knows_when(store):
    """The cooldown of what a dry run evicted ends as well."""
    minutes = itertools.count(step=10)
    steps = run(store, dry_run=True, clock=lambda: NOW + next(minutes) * 60_000)
    assert told(steps)[2] == ("lab/new-2", ["shop/old-1"])


def test_why_not_looks_at_the_past_of_then(store):
    """A node that the cooldown spared stays explained when the past has changed."""
    run(store)
    (last,) = store.read.decisions(preemptor="lab/new-2")
    for key in ("shop/old-0", "lab/new-0"):
        store.record.change(
            "default", [("Pod", key, None)], at_ms=NOW, source="test", cause=Cause.SIMULATION
        )
    answer = why_not_chosen(store, store.read.decision(last.id), "n2")
    assert answer["text"] == (
        "n2: no pod on it may be evicted; shop/old-1 stays by rule `cooldown` (the workload lost a"
        " pod within the last 15 minutes)"
    )


def test_a_comparison_with_the_same_rules_finds_no_difference(store):
    """Each decision is asked with what had happened before it, also within one millisecond."""
    run(store)
    ids = [row.id for row in store.read.decisions()][::-1]
    asked = list(questions(Replayer(store), ids, RULES))
    assert [found.change for found in compare(asked, RULES)] == [DecisionChange.SAME] * 3


def test_a_comparison_with_another_window_asks_the_record(store):
    """Figures that nobody froze are those of the moment before each decision."""
    run(store)
    ids = [row.id for row in store.read.decisions()][::-1]
    when = "history.preemptedCount(victim.workload, duration('1h')) > 0"
    rule = {"id": "hour", "when": when, "verdict": "deny"}
    longer = {"victims": {"eligible": {"insert": [{"at": "start", "rule": rule}]}}}
    asked = list(questions(Replayer(store), ids, RuleSet.load("kube-1.35", overrides=longer)))
    web = {"shop/ReplicaSet/web": 1, "ReplicaSet/web": 1}
    api = {"shop/ReplicaSet/api": 1, "ReplicaSet/api": 1}
    assert [question.snapshot.history["preemptedCount/3600"] for question in asked] == [
        {},
        web,
        web | api,
    ]
    assert all(
        question.snapshot.history["preemptedCount/900"]
        == question.snapshot.history["preemptedCount/3600"]
        for question in asked
    )


def test_a_cascade_counts_for_itself(store):
    """Supposed evictions are evictions: the workload that was hit first is spared then."""
    state = store.state.load("default")
    history = store.read.history("default", RULES.history_needs, now_ms=NOW)
    snapshot = Snapshot.from_objects(state.objects, now_ms=NOW, history=history)
    steps = foresee(snapshot, RULES, [f"lab/new-{n}" for n in range(3)], depth=1, seed=0)
    assert told(step for step in steps if step.decision is not None) == EXPECTED
    assert [step.decision.history for step in steps[:2]] == [
        {"preemptedCount/900": {}},
        {"preemptedCount/900": {"shop/ReplicaSet/web": 1, "ReplicaSet/web": 1}},
    ]


def test_rules_that_begin_to_look_back_see_what_is_being_committed(store):
    """Activated while the first decision is committed, they decide when it is."""
    store.record.create_environment("prod", "default", at_ms=NOW, actor="ann")

    def activate(rules):
        store.record.activate(
            "prod", rules=rules, reason="test", source=rules.name, at_ms=NOW, actor="ann"
        )

    class Overtaken(StoreJournal):
        recorded = 0

        def record_ahead(self, *arguments, **options):
            commit = super().record_ahead(*arguments, **options)
            self.recorded += 1
            if self.recorded == 1:
                activate(RULES)
            return commit

    activate(RuleSet.load("kube-1.35"))
    journal = Overtaken(store, "default", actor="ann", clock=lambda: NOW, environment="prod")
    steps = list(Scheduler(journal, RULES, clock=lambda: NOW, seed=0).run())
    assert told(steps) == EXPECTED
    verdicts = [
        r.verdict.value for r in replay_all(store, [s.recording.decision_id for s in steps])
    ]
    assert verdicts == ["equal"] * 3
