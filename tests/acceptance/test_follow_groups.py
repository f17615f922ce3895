"""Pod groups of a running cluster: listed and watched in each version of their API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from policy.cluster.objects import SchedulingPodGroup
from policy.cluster.pod_groups import disruption_mode
from policy.groups.decide import decide_group
from policy.rules import RuleSet
from policy.store import Store
from tests.acceptance.commands import Policy
from tests.support.api_server import ApiServer, kubeconfig
from tests.support.builders import snapshot
from tests.support.live import CLUSTER, following, until

PATH = "/apis/scheduling.k8s.io/{version}/podgroups"
WHOLE: dict[str, Any] = {"v1alpha2": "PodGroup", "v1alpha3": {"all": {}}}


def objects(version: str) -> list[dict[str, Any]]:
    """A node that is full, two pods that leave together, and a gang of one that needs it."""

    def pod(number: int, name: str, group: str, node: str = "") -> dict[str, Any]:
        resources = {"requests": {"cpu": "2" if node else "4"}}
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": meta(name, number),
            "spec": {
                "priority": 1 if node else 50,
                "schedulingGroup": {"podGroupName": group},
                "containers": [{"name": "c", "image": "i", "resources": resources}],
                **({"nodeName": node} if node else {}),
            },
            "status": {"phase": "Running" if node else "Pending"},
        }

    def group(number: int, name: str, priority: int, **spec: Any) -> dict[str, Any]:
        return {
            "kind": "PodGroup",
            "apiVersion": f"scheduling.k8s.io/{version}",
            "metadata": meta(name, number),
            "spec": {
                "priority": priority,
                "schedulingPolicy": {"gang": {"minCount": 1}},
                **spec,
            },
            "status": {},
        }

    def meta(name: str, number: int, namespace: str = "default") -> dict[str, Any]:
        found = {"name": name, "uid": f"uid-{name}", "resourceVersion": str(number)}
        return {**found, "namespace": namespace} if namespace else found

    node = {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": meta("n1", 10, ""),
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }
    return [
        node,
        pod(11, "u0", "unit", "n1"),
        pod(12, "u1", "unit", "n1"),
        pod(13, "m0", "train"),
        group(14, "unit", 5, disruptionMode=WHOLE[version]),
        group(15, "train", 100),
    ]


def preempted(url: str, cluster: str) -> list[str]:
    """What the gang would preempt, by the state that is stored."""
    with Store.open(url, read_only=True) as store:
        found = snapshot(*store.state.load(cluster).objects)
    rules = RuleSet.load("kube-1.36-groups")
    return list(decide_group(found, rules, "default/train").effects.evict)


@pytest.mark.parametrize("version", sorted(WHOLE))
def test_groups_are_listed(version: str, policy: Policy, tmp_path: Path) -> None:
    """`import --context` reads the newest version that the server has."""
    with ApiServer(more={"PodGroup": PATH.format(version=version)}) as server:
        server.load(objects(version))
        config = kubeconfig(tmp_path, server.url)
        own = f"sqlite:///{tmp_path / 'own.db'}"
        done = policy("import", "--kubeconfig", config, "--cluster", "real", "--db", own)
    assert done.status == 0, done.err
    assert preempted(own, "real") == ["default/u0", "default/u1"]


@pytest.mark.parametrize("version", sorted(WHOLE))
def test_groups_are_followed(version: str, database_url: str, tmp_path: Path) -> None:
    """A group that changes its disruption mode is another one from then on."""
    with ApiServer(more={"PodGroup": PATH.format(version=version)}) as server:
        server.load(objects(version))
        with following(database_url, server, tmp_path):
            until(lambda: modes(database_url) == {"unit": "PodGroup", "train": "Pod"}, what="list")
            (unit,) = (o for o in objects(version) if o["metadata"]["name"] == "unit")
            del unit["spec"]["disruptionMode"]
            unit["metadata"]["resourceVersion"] = "20"
            server.publish("MODIFIED", unit)
            until(lambda: modes(database_url) == {"unit": "Pod", "train": "Pod"}, what="change")


def modes(url: str) -> dict[str, str]:
    with Store.open(url, read_only=True) as store:
        if CLUSTER not in {cluster.name for cluster in store.state.clusters()}:
            return {}
        found = store.state.load(CLUSTER).objects
    return {
        one.metadata.name: disruption_mode(one)
        for one in found
        if isinstance(one, SchedulingPodGroup)
    }
