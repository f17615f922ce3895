"""The first command names the true cause where no eviction could help."""

from __future__ import annotations

from tests.acceptance.commands import Policy, a_node, a_pod
from tests.acceptance.test_answers import START, Cluster, cluster, explained, preempted

__all__ = ["cluster"]  # the fixture


def test_a_pod_that_the_room_is_kept_for_is_named(policy: Policy, cluster: Cluster) -> None:
    """It is nominated to the node and more important: the victims alone would have been enough."""
    nominated = a_pod("shop/first", "", 500, 2)
    nominated["status"]["nominatedNodeName"] = "n1"
    database = cluster(
        a_node("n1"),
        a_pod("shop/low", "n1", 0, 2, START),
        nominated,
        a_pod("shop/high", "", 100, 4),
    )
    cause = "the room is kept for shop/first, which is nominated there"
    assert preempted(policy, database, "shop/high")[-1] == f"  n1: {cause}"
    assert explained(policy, database, "--why-not", "n1").endswith(f"; {cause}\n")
    assert policy("replay", "1", "--db", database).status == 0


def test_what_no_eviction_helps_is_said_at_once(policy: Policy, cluster: Cluster) -> None:
    """A taint and a cordon, which kube-scheduler's message only counts."""
    tainted, cordoned = a_node("n1"), a_node("n2")
    tainted["spec"] = {"taints": [{"key": "team", "value": "red", "effect": "NoSchedule"}]}
    cordoned["spec"] = {"unschedulable": True}
    database = cluster(tainted, cordoned, a_pod("shop/high", "", 100, 4))
    assert preempted(policy, database, "shop/high")[-2:] == [
        "  1 node: node-unschedulable: node(s) were unschedulable, whatever pods leave",
        "  1 node: taints: node(s) had untolerated taint(s), whatever pods leave",
    ]
