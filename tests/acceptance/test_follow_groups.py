"""Pod groups of a running cluster: listed and watched in each version of their API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from policy.cluster.objects import ObjectMeta, Pod, SchedulingPodGroup, Workload, kind_of
from policy.cluster.pod_groups import disruption_mode
from policy.groups.decide import decide_group
from policy.manifests import from_dicts
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


WORKLOADS = "/apis/scheduling.k8s.io/{version}/workloads"
TEMPLATES: dict[str, dict[str, Any]] = {
    "v1alpha1": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 2}}}]},
    "v1alpha2": {"podGroupTemplates": [{"name": "workers"}]},
    "v1alpha3": {"podGroupTemplates": [{"name": "workers"}]},
}


def workload(version: str, number: int, *more: str) -> dict[str, Any]:
    """A workload with a template `workers`, and others."""
    (field, templates), *_ = TEMPLATES[version].items()
    extra = [{**templates[0], "name": name} for name in more]
    return {
        "kind": "Workload",
        "apiVersion": f"scheduling.k8s.io/{version}",
        "metadata": {
            "name": "train",
            "namespace": "default",
            "uid": "uid-workload",
            "resourceVersion": str(number),
        },
        "spec": {field: [*templates, *extra]},
    }


def referring() -> dict[str, Any]:
    """A pod of 1.35, which names its workload."""
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": "m0",
            "namespace": "default",
            "uid": "uid-m0",
            "resourceVersion": "12",
        },
        "spec": {
            "priority": 5,
            "workloadRef": {"name": "train", "podGroup": "workers"},
            "containers": [{"name": "c", "image": "i"}],
        },
        "status": {"phase": "Pending"},
    }


def followed(url: str) -> tuple[list[list[str]], list[Any]]:
    """Names of the templates of each workload, and what pods say of theirs."""
    with Store.open(url, read_only=True) as store:
        if CLUSTER not in {cluster.name for cluster in store.state.clusters()}:
            return [], []
        found = store.state.load(CLUSTER).objects
    workloads = [one for one in found if isinstance(one, Workload)]
    refs = [one.spec.workload_ref for one in found if isinstance(one, Pod)]
    return (
        [
            [t.name for t in one.spec.pod_group_templates or one.spec.pod_groups or ()]
            for one in workloads
        ],
        [None if ref is None else (ref.name, ref.pod_group) for ref in refs],
    )


@pytest.mark.parametrize("version", sorted(TEMPLATES))
def test_workloads_are_followed(version: str, database_url: str, tmp_path: Path) -> None:
    """In each version of their API, with the pods that name one (1.35); one that goes is gone."""
    with ApiServer(more={"Workload": WORKLOADS.format(version=version)}) as server:
        server.load([workload(version, 11), referring()])
        refs = [("train", "workers")]
        with following(database_url, server, tmp_path):
            until(lambda: followed(database_url) == ([["workers"]], refs), what="list")
            server.publish("MODIFIED", workload(version, 20, "more"))
            until(lambda: followed(database_url) == ([["workers", "more"]], refs), what="change")
            server.publish("DELETED", workload(version, 21, "more"))
            until(lambda: followed(database_url) == ([], refs), what="its end")


# --- kinds that only some servers have -----------------------------------------------------------

STORAGE = ("v1", "v1beta1")
CLAIMS = ("v1", "v1beta2", "v1beta1")


KUBE_SYSTEM = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "kube-system", "uid": "kube-system", "resourceVersion": "1"},
}
"""By its uid a cluster is known again."""


def of_storage(kind: str, version: str, number: int, **fields: Any) -> dict[str, Any]:
    """A driver, a capacity, or a device claim."""
    group = "resource.k8s.io" if kind == "ResourceClaim" else "storage.k8s.io"
    meta = {"name": "one", "uid": f"uid-{kind}", "resourceVersion": str(number)}
    if kind != "CSIDriver":
        meta["namespace"] = "default"
    return {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": meta, **fields}


KINDS: dict[str, tuple[str, tuple[str, ...], dict[str, Any], dict[str, Any]]] = {
    "CSIDriver": (
        "/apis/storage.k8s.io/{version}/csidrivers",
        STORAGE,
        {"spec": {"storageCapacity": True}},
        {"spec": {"storageCapacity": False}},
    ),
    "CSIStorageCapacity": (
        "/apis/storage.k8s.io/{version}/csistoragecapacities",
        STORAGE,
        {"storageClassName": "fast", "capacity": "1Gi"},
        {"storageClassName": "fast", "capacity": "2Gi"},
    ),
    "ResourceClaim": (
        "/apis/resource.k8s.io/{version}/resourceclaims",
        CLAIMS,
        {"spec": {}, "status": {}},
        {"spec": {}, "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}},
    ),
}
VERSIONS = [(kind, version) for kind, (_, versions, _, _) in KINDS.items() for version in versions]


def stored(url: str, kind: str) -> list[Any]:
    """What of the kind is in the state, as it was written."""
    with Store.open(url, read_only=True) as store:
        if CLUSTER not in {cluster.name for cluster in store.state.clusters()}:
            return []
        found = store.state.load(CLUSTER).objects
    return [replace(one, metadata=ObjectMeta()) for one in found if kind_of(one) == kind]


def kept(item: dict[str, Any]) -> Any:
    (found,) = from_dicts([item])
    return replace(found, metadata=ObjectMeta())


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_storage_and_devices_are_followed(
    kind: str, version: str, database_url: str, tmp_path: Path
) -> None:
    """In the newest version that the server has; other kinds of these are absent there."""
    path, _, first, second = KINDS[kind]
    with ApiServer(more={kind: path.format(version=version)}) as server:
        item = of_storage(kind, version, 11, **first)
        server.load([KUBE_SYSTEM, item])
        with following(database_url, server, tmp_path) as found:
            until(lambda: stored(database_url, kind) == [kept(item)], what="list")
            changed = of_storage(kind, version, 20, **second)
            server.publish("MODIFIED", changed)
            until(lambda: stored(database_url, kind) == [kept(changed)], what="change")
            server.publish("DELETED", of_storage(kind, version, 21, **second))
            until(lambda: stored(database_url, kind) == [], what="its end")
            assert (found.follower.figures.troubles, found.error) == (0, None)
    newest = KINDS[kind][1][0]
    probes = server.requests[f"{path.format(version=newest)} probe"]
    assert probes == 1


def test_a_cluster_is_followed_without_the_rights_to_devices(
    database_url: str, tmp_path: Path
) -> None:
    """The kind is named; all else is followed, and the kind, too, once it may be."""
    path = KINDS["ResourceClaim"][0].format(version="v1")
    with ApiServer(more={"ResourceClaim": path}) as server:
        server.load([KUBE_SYSTEM, *objects("v1alpha2")[:1]])
        server.forbidden = {"ResourceClaim"}
        with following(database_url, server, tmp_path) as found:
            until(lambda: found.follower.figures.synced, what="the first lists")
            (said,) = found.follower.figures.failing.items()
            server.forbidden = set()
            until(lambda: found.follower.figures.gaps == 1, what="the list of the kind")
            failing = found.follower.figures.failing
    with Store.open(database_url) as store:
        (gap,) = store.read.gaps(CLUSTER)
    assert (said[0], gap.kind, failing) == ("ResourceClaim", "ResourceClaim", {})
    assert 'cannot list resource "resourceclaims"' in said[1]
    assert gap.reason == f"it could not be read before: {said[1]}"
