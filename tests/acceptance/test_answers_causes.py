"""The first command names the true cause where no eviction could help."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

from tests.acceptance.commands import Policy, a_node, a_pod
from tests.acceptance.test_answers import START, Cluster, cluster, explained, preempted
from tests.support.extenders import Server, extender, json_reply

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


def test_the_extender_that_left_a_node_out_is_named(
    policy: Policy, cluster: Cluster, tmp_path: Path
) -> None:
    """The node was examined and had a victim; the extender's answer to `preempt` leaves it out."""
    database = cluster(
        a_node("n1"), a_pod("shop/low", "n1", 0, 4, START), a_pod("shop/high", "", 100, 4)
    )
    with closing(Server()) as server:
        server.verbs["preempt"] = lambda _: json_reply({"NodeNameToMetaVictims": {}})
        rules = tmp_path / "rules.yaml"
        rules.write_text(
            json.dumps(
                {
                    "apiVersion": "policy/v1",
                    "kind": "PreemptionRules",
                    "metadata": {"name": "extended"},
                    "extends": "kube-1.36",
                    "spec": {"extenders": [extender(server, "preempt")]},
                }
            )
        )
        preempted(policy, database, "shop/high", str(rules))
        url = f"{server.url}/"
    said = explained(policy, database, "--why-not", "n1")
    assert said == f"n1: the extender {url} left it out of its answer to `preempt`\n"


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
