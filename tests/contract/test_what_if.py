"""What-if: suppositions, the cascade, and that nothing is recorded as if it were true."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec.structs import replace as with_fields

from policy.audit.cascade import CascadeStep, foresee
from policy.audit.what_if import Supposition, WhatIfError, suppose
from policy.decision.model import Outcome
from policy.preemption.decide import DecisionError
from policy.scheduling.consequences import next_life
from policy.store import HypotheticalDecision, Store
from policy.store.migrate import VIEWS
from policy.store.read.evictions import Range
from policy.store.read.saved_queries import DEFAULTS, saved_queries
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_decision,
    made_on,
)
from tests.contract.filled import fill
from tests.support.builders import PodBuilder, a_node, a_pdb, rule_set, snapshot
from tests.support.builders import a_pod as a_bare_pod

RULES = rule_set("kube-1.35")


def a_pod(name: str) -> PodBuilder:
    """A pod that its owner makes again."""
    return a_bare_pod(name).owned_by("ReplicaSet", name)


def told(steps: list[CascadeStep]):
    """Each step as (pod, cause, outcome, node)."""
    return [
        (
            s.pod.removeprefix("default/"),
            s.cause,
            s.decision.outcome.value if s.decision else None,
            s.decision.node if s.decision else None,
        )
        for s in steps
    ]


def stairs():
    """Three nodes of falling size and priority: who is evicted fits only one step below."""
    return snapshot(
        a_node("n1").cpu("4").running(a_pod("p8").priority(8).cpu("3")),
        a_node("n2").cpu("3").running(a_pod("p6").priority(6).cpu("2")),
        a_node("n3").cpu("2").running(a_pod("p4").priority(4).cpu("1")),
        a_pod("high").priority(10).cpu("4"),
    )


def test_victims_come_back_and_preempt_in_turn():
    """Each takes the place of the one below; the last finds nobody below itself."""
    steps = foresee(stairs(), RULES, ["default/high"], depth=9, seed=0)
    assert told(steps) == [
        ("high", None, "preempt", "n1"),
        ("p8~2", 1, "preempt", "n2"),
        ("p6~2", 2, "preempt", "n3"),
        ("p4~2", 3, "no-candidate", None),
    ]
    assert [(s.depth, s.was) for s in steps] == [
        (1, ""),
        (2, "default/p8"),
        (3, "default/p6"),
        (4, "default/p4"),
    ]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_the_cascade_is_followed_as_deep_as_asked(depth):
    """Pods beyond the depth are named, and not decided."""
    steps = foresee(stairs(), RULES, ["default/high"], depth=depth, seed=0)
    assert [s.decision is not None for s in steps] == [True] * depth + [False]


def test_the_queue_takes_the_higher_priority_first():
    """A victim that came back is decided before what was asked but stands below it."""
    state = snapshot(
        a_node("n1").cpu("2").running(a_pod("mid").priority(5).cpu("2")),
        a_node("n2").cpu("1").running(a_pod("low").priority(1).cpu("1")),
        a_pod("high").priority(10).cpu("2"),
        a_pod("late").priority(3).cpu("1"),
    )
    steps = foresee(state, RULES, ["default/late", "default/high"], depth=3, seed=0)
    assert told(steps) == [
        ("high", None, "preempt", "n1"),
        ("mid~2", 1, "no-candidate", None),
        ("late", None, "preempt", "n2"),
        ("low~2", 3, "no-candidate", None),
    ]


def test_a_pod_comes_back_pending_of_the_same_priority_and_age():
    """The next life has another name, no node and no history, and stands where it stood."""
    pod = a_pod("web").priority(7).created(30).terminating().on("n1").started(20).pod
    again = next_life(next_life(pod))
    assert (again.metadata.name, again.metadata.uid, again.spec.node_name) == ("web~3", "", "")
    assert (again.spec.priority, again.metadata.creation_timestamp) == (
        7,
        pod.metadata.creation_timestamp,
    )
    assert (again.metadata.deletion_timestamp, again.status.start_time) == (None, None)


# --- suppositions ------------------------------------------------------------------------------


def a_state():
    return snapshot(
        a_node("n1").cpu("4").running(a_pod("a").priority(1).cpu("2"), a_pod("b").cpu("1")),
        a_node("n2").cpu("2"),
        a_pod("high").priority(10).cpu("4"),
    )


def test_the_pods_of_a_removed_node_look_for_another():
    """They come back pending, as new pods."""
    supposed = suppose(a_state(), Supposition(removed_nodes=["n1"]))
    assert supposed.waiting == ("default/a~2", "default/b~2")
    assert supposed.snapshot.nodes.names == ("n2",) or list(supposed.snapshot.nodes.names) == ["n2"]
    steps = foresee(supposed.snapshot, RULES, supposed.waiting, depth=1, seed=0)
    assert told(steps) == [("a~2", None, "bind", "n2"), ("b~2", None, "no-candidate", None)]


def test_a_class_with_another_value_moves_its_pods():
    """Pods of the class count as created under the new value; others keep theirs."""
    classy = [
        with_fields(p, spec=with_fields(p.spec, priority_class_name="gold"))
        for p in (a_pod("a").priority(1).pod, a_pod("b").priority(1).pod)
    ]
    state = snapshot(a_node("n1"), *classy, a_pod("c").priority(1))
    after = suppose(state, Supposition(priority_classes={"gold": 500})).snapshot
    priorities = {key: after.pod(key).spec.priority for key in after.keys}
    assert priorities == {"default/a": 500, "default/b": 500, "default/c": 1}
    assert after.priority_classes["gold"].value == 500


def test_a_supposed_pod_waits_with_the_others():
    """It is decided as if it had been created."""
    new = a_pod("new").priority(5).cpu("2").pod
    supposed = suppose(a_state(), Supposition(pods=[new]))
    steps = foresee(supposed.snapshot, RULES, supposed.waiting, depth=1, seed=0)
    assert told(steps) == [("new", None, "bind", "n2")]


@pytest.mark.parametrize(
    ("supposition", "message"),
    [
        (Supposition(removed_nodes=["n9"]), "no node `n9`"),
        (Supposition(pods=[a_pod("x").on("n1").pod]), "is on node `n1` already"),
        (Supposition(pods=[a_pod("high").pod]), "has a pod `default/high`"),
    ],
)
def test_a_supposition_that_does_not_go_with_the_cluster_is_refused(supposition, message):
    """Neither unknown nodes nor pods that are there or placed can be supposed."""
    with pytest.raises((WhatIfError, DecisionError), match=message):
        suppose(a_state(), supposition)


def test_a_pod_that_is_placed_cannot_be_asked():
    """The question is where a waiting pod would go."""
    with pytest.raises(DecisionError, match="is on node"):
        foresee(a_state(), RULES, ["default/a"], depth=1, seed=0)


def test_the_snapshot_that_is_asked_stays_as_it_is():
    """A trial copies what it changes."""
    state = a_state()
    before = (state.digest, list(state.pods), state.node.tolist())
    supposed = suppose(state, Supposition(removed_nodes=["n2"], priority_classes={"x": 1}))
    foresee(supposed.snapshot, RULES, ["default/high"], depth=3, seed=0)
    assert (state.digest, list(state.pods), state.node.tolist()) == before


# --- recorded ----------------------------------------------------------------------------------


def everything_told(store: Store) -> dict[str, object]:
    """What every view, saved query, list and report says."""
    asked = Range(cluster="default")
    told: dict[str, object] = {
        "decisions": store.read.decisions(),
        "ids": store.read.decision_ids("default"),
        "nominations": store.read.nominations("default"),
        "evictions": store.read.evictions(asked),
        "past preemptions": list(store.read.past_preemptions(asked)),
        "tries": store.read.tries_while_nominated(store.read.nominations("default")),
        "rule sets used": store.read.rule_sets_used(asked),
        "rule uses": store.read.rule_uses(asked),
        "history": store.read.history(
            "default",
            {
                ("preemptedCount", 3600),
                ("secondsSinceLastPreempted", None),
                ("namespacePreemptedCount", 3600),
                ("namespacePreemptions", 3600),
            },
            now_ms=NOW + 1000,
        ),
    }
    queries = {view: f"SELECT * FROM {view}" for view in sorted(VIEWS - {"v_cluster_at"})}
    queries |= {saved.name: saved.sql for saved in saved_queries().values()}
    for name, query in queries.items():
        saved = {} if name in VIEWS else DEFAULTS
        with store.sql(query, saved, trust_connection=True) as found:
            told[name] = sorted(found, key=str)
    return told


@pytest.mark.parametrize("outcome", ["preempt", "bind", "no-candidate"])
def test_hypothetical_decisions_are_in_no_list_and_no_view(database_url, outcome):
    """They are kept with their mark, chained like all others, and nothing that counts has them."""
    with Store.open(database_url) as store:
        fill(store)
        before = everything_told(store)
        decision = replace(a_decision(seed=99), outcome=Outcome(outcome))
        (recorded,) = store.record.hypothetical(
            "default",
            [HypotheticalDecision(decision=made_on(store, decision, revision=1))],
            revision=1,
            rules=BY_HAND,
            actor="ann",
            at_ms=NOW,
        )
        row = store.read.decision(recorded.decision_id).row
        assert (row.hypothetical, row.base_revision, row.revision) == (True, 1, None)
        assert everything_told(store) == before
        assert [d.id for d in store.read.decisions(hypothetical=True)] == [row.id]
        assert store.ledger.verify("default").ok


def test_budgets_follow_the_pods_that_go():
    """As the disruption controller sets them: the evicted pod is missing until it runs again."""
    cluster = snapshot(
        a_node("n1")
        .cpu(4)
        .running(
            a_pod("web-1").labelled(app="web").cpu(2), a_pod("web-2").labelled(app="web").cpu(2)
        ),
        a_pdb("web").selecting(app="web").allowing(1),
        a_pod("first").priority(10).cpu(2),
        a_pod("second").priority(9).cpu(2),
    )
    steps = foresee(cluster, RULES, ["default/first", "default/second"], depth=1, seed=0)
    taken = [s for s in steps if s.decision]
    assert [[(m.budget, m.before, m.after) for m in s.budgets] for s in taken] == [
        [("default/web", 1, 0)],
        [],
    ]
    assert [s.decision.candidates.pdb_violations[0] for s in taken] == [0, 1]


def test_a_pod_without_owner_does_not_come_back():
    """Nothing makes it again: neither after a preemption nor when its node is removed."""
    cluster = snapshot(
        a_node("n1").cpu(2).running(a_bare_pod("alone").cpu(2)),
        a_pod("high").priority(10).cpu(2),
    )
    steps = foresee(cluster, RULES, ["default/high"], depth=5, seed=0)
    assert told(steps) == [("high", None, "preempt", "n1")]
    assert suppose(cluster, Supposition(removed_nodes=("n1",))).waiting == ()
