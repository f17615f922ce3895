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


def test_what_rejects_a_pod_on_all_nodes_is_said_at_once(policy: Policy, cluster: Cluster) -> None:
    """A claim that is not there, which the scheduler's message does not name."""
    high = a_pod("shop/high", "", 100, 4)
    high["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    other = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {}}
    other["metadata"] = {"name": "other", "namespace": "shop"}
    database = cluster(a_node("n1"), other, high)
    assert preempted(policy, database, "shop/high") == [
        "shop/high (priority 100) is rejected for all nodes at once",
        "  preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.",
        '  persistentvolumeclaim "data" not found',
    ]


def test_the_only_pod_of_an_affinity_that_would_leave_is_named(
    policy: Policy, cluster: Cluster
) -> None:
    """A pod that must stand beside its victim: evicting it would break the affinity."""
    node = a_node("n1")
    node["metadata"]["labels"] = {"zone": "a"}
    high = a_pod("shop/high", "", 100, 4)
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "cache"}}}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    high["spec"]["affinity"] = {"podAffinity": required}
    database = cluster(node, a_pod("shop/cache", "n1", 0, 4, START), high)
    cause = "the only pod with zone=a that its pod affinity matches would leave: shop/cache"
    assert preempted(policy, database, "shop/high")[-1] == f"  n1: {cause}"
    assert explained(policy, database, "--why-not", "n1").endswith(f"; {cause}\n")
    assert policy("replay", "1", "--db", database).status == 0


def test_a_tie_names_the_node_that_is_being_freed_already(policy: Policy, cluster: Cluster) -> None:
    """All nodes are equal by the ranking, which does not see that a pod is leaving one of them."""
    leaving = a_pod("shop/c", "n3", 0, 4, START)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:30Z"
    database = cluster(
        a_node("n1"),
        a_node("n3"),
        a_pod("shop/a", "n1", 0, 4, START),
        leaving,
        a_pod("shop/high", "", 100, 4),
    )
    assert preempted(policy, database, "shop/high")[0].endswith("preempts 1 pod on n1")
    said = "n3 is being freed already by shop/c, and no criterion of the ranking looks at that\n"
    assert said in explained(policy, database)
    assert explained(policy, database, "--why-not", "n3") == (
        "n3 (shop/c is leaving already) equal to n1 in every criterion; `by-name` picked n1\n"
    )
