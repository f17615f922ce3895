"""Law: the order in which objects come changes nothing.

Holds for every cluster and rule set: pods stand in order of namespace and name, nodes by name.
"""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.builders import rule_set
from tests.support.clusters import Example, clusters


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    case=clusters(),
    name=st.sampled_from(["kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35"]),
    dice=st.randoms(use_true_random=False),
)
def test_the_order_of_the_input_changes_nothing(case: Example, name: str, dice) -> None:
    """Shuffled objects give the same snapshot digest and the same decision, byte by byte."""
    shuffled = list(case.objects)
    dice.shuffle(shuffled)
    other = Example(tuple(shuffled), case.pod, case.seed, case.now_ms)
    first, second = (c.decided(rule_set(name), evaluate_all=True) for c in (case, other))
    assert (first.digest, first.canonical) == (second.digest, second.canonical)
