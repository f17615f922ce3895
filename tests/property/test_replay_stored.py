"""Law: what the store keeps of a decision is enough to make it again.

Holds for every cluster, rule set and seed, however the cluster changed afterwards, in whatever
order the decisions are replayed; and rules compared with themselves change nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.audit.compare import Comparison, DecisionChange, compare
from policy.audit.inputs import ReplayVerdict
from policy.audit.recorded import questions
from policy.audit.replay import Replayer, replay_all
from policy.cluster.objects import key_of, kind_of
from policy.preemption.decide import DecisionError, decide
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.scheduling.order import pending
from policy.store import Cause, PruneScope, Store
from policy.store.journal import StoreJournal
from tests.support.builders import NOW_MS, a_node, a_pod, rule_set
from tests.support.clusters import Example, clusters

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.28", "kube-1.35")
SEEDED = """{
  "candidates": {"minPercentage": 0, "minAbsolute": 1},
  "ranking": {"replace": [{"id": "by-name", "pick": "seeded"}]}
}"""
REMEMBERING = """{
  "victims": {"eligible": {"insert": [{"at": "start", "rule": {
    "id": "not-again", "verdict": "deny", "reason": "was preempted a moment ago",
    "when": "history.preemptedCount(victim.owner, duration('1h')) > 1"
  }}]}}
}"""
NAMES = itertools.count()


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        yield opened


def lived(store: Store, case: Example, rules: RuleSet, turns: list[int]) -> str:
    """A cluster in which decisions were made and other things happened in between."""
    cluster = f"c{next(NAMES)}"
    more = [a_pod(f"urgent-{i}").priority(50 + i).cpu("1").pod for i in range(2)]
    everything = [*case.objects, *more]
    store.record.import_objects(cluster, everything, at_ms=NOW_MS - 5, source="generated")
    clock = itertools.count(NOW_MS, 60_000)
    journal = StoreJournal(store, cluster, actor="law", clock=lambda: NOW_MS)
    for turn in turns:
        scheduler = Scheduler(journal, rules, clock=lambda: next(clock), seed=case.seed)
        waiting = pending(scheduler.snapshot)
        if waiting:
            scheduler.decide(waiting[turn % len(waiting)])
        happen(store, cluster, turn)
    return cluster


def happen(store: Store, cluster: str, turn: int) -> None:
    """Something that no decision did."""
    state = store.state.load(cluster)
    if turn % 3 == 0 and state.objects:
        gone = state.objects[turn % len(state.objects)]
        change: Any = (kind_of(gone), key_of(gone), None)
    elif turn % 3 == 1:
        change = ("Node", f"new-{turn}", a_node(f"new-{turn}").cpu("2").node)
    else:
        kept = state.objects[turn % 2 :: 2]
        scope = PruneScope(kinds=frozenset({"Pod"}), namespaces=frozenset({"shop"}))
        store.record.import_objects(cluster, kept, at_ms=NOW_MS, source="again", prune=scope)
        return
    store.record.change(cluster, [change], at_ms=NOW_MS, source="watch", cause=Cause.LIVE)


LAW = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
RULES = st.tuples(st.sampled_from(GENERATIONS), st.sampled_from(("{}", SEEDED, REMEMBERING)))
TURNS = st.lists(st.integers(0, 20), min_size=1, max_size=6)


@LAW
@given(case=clusters(), chosen=RULES, turns=TURNS, order=st.randoms())
def test_every_recorded_decision_replays_to_its_digest(store, case, chosen, turns, order):
    """Oldest first, and in any other order, whatever happened to the cluster afterwards."""
    cluster = lived(store, case, rule_set(*chosen), turns)
    ids = store.read.decision_ids(cluster)
    results = list(replay_all(store, ids))
    assert [(r.verdict, r.digest) for r in results] == [
        (ReplayVerdict.EQUAL, r.row.digest) for r in results
    ]
    replayer = Replayer(store)
    rows = list(replayer.rows(ids))
    order.shuffle(rows)
    assert {replayer.replay(row).verdict for row in rows} <= {ReplayVerdict.EQUAL}


@LAW
@given(case=clusters(), chosen=RULES, turns=TURNS)
def test_rules_compared_with_themselves_change_nothing(store, case, chosen, turns):
    """Every comparison of a rule set with itself says `same`, with equal results."""
    rules = rule_set(*chosen)
    cluster = lived(store, case, rules, turns)
    ids = store.read.decision_ids(cluster)
    asked = list(questions(Replayer(store), ids, rules))
    found: list[Comparison] = list(compare(asked, rules))  # type: ignore[arg-type]
    assert [c.change for c in found] == [DecisionChange.SAME] * len(asked)
    assert [c.after for c in found] == [c.before for c in found]


@settings(max_examples=100, deadline=None)
@given(case=clusters(), seed=st.integers(0, 9))
def test_a_decision_is_equal_on_a_snapshot_that_lived(case, seed):
    """A state reached by changes, with all that was derived before, decides like a fresh one."""
    rules = rule_set("kube-1.35")
    fresh = case.snapshot()
    lived_on = case.snapshot()
    try:
        decide(lived_on, rules, case.pod, seed=seed)
    except DecisionError:
        return
    gone = lived_on.apply([("Pod", case.pod, None)])
    back = gone.apply([("Pod", case.pod, fresh.pod(case.pod))], state_digest=fresh.state_digest)
    expected = decide(fresh, rules, case.pod, seed=seed)
    assert decide(back, rules, case.pod, seed=seed).canonical == expected.canonical
