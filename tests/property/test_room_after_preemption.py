"""Law: what the preemptor requests fits once the victims have left.

Holds for every candidate and generation on nodes that were not over-committed: afterwards no
resource of the node is used up beyond what is allocatable, also none that the preemptor does not
request. (On an over-committed node only what is requested has to fit, from 1.28 on.)
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings

from policy.cluster.objects import Node, Pod, key_of
from policy.cluster.requests import PODS, RequestRules, amounts, pod_requests
from tests.support.builders import rule_set
from tests.support.clusters import Example, clusters

#: what the generation counts as a pod's request
COUNTED = {
    "kube-1.20": RequestRules(sidecars=False, pod_level=False, resize=False),
    "kube-1.28": RequestRules(pod_level=False, resize=False),
    "kube-1.35": RequestRules(),
}


def used(requests: list[Mapping[str, int]]) -> dict[str, int]:
    total = {PODS: len(requests)}
    for one in requests:
        for name, amount in one.items():
            total[name] = total.get(name, 0) + amount
    return total


def beyond(node: Node, requests: list[Mapping[str, int]]) -> set[str]:
    """Resources of which more is used than there is."""
    there = amounts(node.status.allocatable)
    return {name for name, amount in used(requests).items() if amount > there.get(name, 0)}


@pytest.mark.parametrize("name", COUNTED)
@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(case=clusters())
def test_the_preemptor_fits_when_the_victims_have_left(name: str, case: Example) -> None:
    """On every candidate, those that stay and the preemptor use no more than there is."""
    rules = COUNTED[name]
    pods = {key_of(o): o for o in case.objects if isinstance(o, Pod)}
    own = pod_requests(pods[case.pod], on_node=False, rules=rules)
    nodes = {o.metadata.name: o for o in case.objects if isinstance(o, Node)}
    short = {}
    for candidate in case.decided(rule_set(name), evaluate_all=True).candidates:
        here = {
            key: pod_requests(pod, on_node=True, rules=rules)
            for key, pod in pods.items()
            if pod.spec.node_name == candidate.node and pod.status.phase == "Running"
        }
        node = nodes[candidate.node]
        if beyond(node, list(here.values())):
            continue
        staying = [r for key, r in here.items() if key not in candidate.victims]
        if missing := beyond(node, [*staying, own]):
            short[candidate.node] = missing
    assert short == {}
