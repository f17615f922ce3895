"""Law: a preemptor waits while its victims leave, and is placed when they are gone.

Holds where a victim's leaving changes nothing before it is gone: not with topology spread, which
counts no terminating pod. Not on nodes where two pods hold one host port, which no kubelet admits.
A victim that was terminating already gets no second delete in 1.33 and later, and so no condition
that says who preempted it: such a preemptor does not wait.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings

from policy.decision.model import Outcome
from policy.preemption.decide import decide
from policy.scheduling.effects import changes_of
from tests.support.builders import rule_set
from tests.support.clusters import Example, clusters

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
SETTLING = settings(
    max_examples=120,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@pytest.mark.parametrize("name", GENERATIONS)
@SETTLING
@given(case=clusters(without=["spread", "terminating"]))
def test_a_preemptor_waits_and_is_then_placed(name: str, case: Example) -> None:
    """Decided again it is not eligible; with its victims gone it goes to its nominated node."""
    rules = rule_set(name)
    snapshot = case.snapshot()
    first = decide(snapshot, rules, case.pod, seed=case.seed)
    assume(first.outcome is Outcome.PREEMPT and first.victims)
    assume(first.node not in case.nodes_with_shared_ports())
    leaving = snapshot.apply(changes_of(snapshot, first))
    second = decide(leaving, rules, case.pod, seed=case.seed)
    gone = leaving.apply([("Pod", victim.pod, None) for victim in first.victims])
    third = decide(gone, rules, case.pod, seed=case.seed)
    assert [(second.outcome, second.node), (third.outcome, third.node)] == [
        (Outcome.NOT_ELIGIBLE, None),
        (Outcome.BIND, first.node),
    ]


@pytest.mark.parametrize("name", GENERATIONS)
@SETTLING
@given(case=clusters(without=["spread"]))
def test_effects_name_what_changes(name: str, case: Example) -> None:
    """The changes of a decision are to its evicted, marked and cleared pods and the preemptor."""
    snapshot = case.snapshot()
    decision = decide(snapshot, rule_set(name), case.pod, seed=case.seed)
    effects = decision.effects
    named = {*effects.evict, *effects.mark_disrupted, *effects.clear_nominations, case.pod}
    assert {key for _, key, _ in changes_of(snapshot, decision)} <= named
