"""Law: put back alone, no victim leaves the preemptor room.

Holds where filters only count what is there: resources, pod count, host ports, anti-affinity (own
and of pods that are there), nominated pods. It does not hold where a pod's return may help: the
preemptor's own affinity, and topology spread (a terminating pod that leaves lowers a count that it
never raised). It needs nodes on which no two pods hold one host port, which no kubelet admits: the
scheduler forgets both when the first one leaves.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from policy.decision.model import Code
from policy.preemption.decide import decide
from tests.support.builders import rule_set
from tests.support.clusters import Example, clusters

ENOUGH = 8  #: candidates of one cluster that are looked at


@pytest.mark.parametrize("name", ["kube-1.14", "kube-1.20", "kube-1.27", "kube-1.35"])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=clusters(without=["affinity", "spread", "node-names"]))
def test_no_victim_is_needless(name: str, case: Example) -> None:
    """With all other victims gone and one put back, the preemptor does not fit on the node."""
    rules = rule_set(name)
    snapshot = case.snapshot()
    decision = decide(snapshot, rules, case.pod, evaluate_all=True)
    shared = case.nodes_with_shared_ports()
    needless = []
    for candidate in decision.candidates[:ENOUGH]:
        if candidate.node in shared:
            continue
        for back in candidate.victims:
            gone = [("Pod", key, None) for key in candidate.victims if key != back]
            after = decide(snapshot.apply(gone), rules, case.pod)
            if after.trace.filter_statuses[candidate.node].code is Code.SUCCESS:
                needless.append((candidate.node, back))
    assert needless == []
