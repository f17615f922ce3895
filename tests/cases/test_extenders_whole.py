"""Requests to extenders carry what kube-scheduler's carry: whole pods and nodes."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy import RuleSet, Snapshot
from policy.cluster.objects import Node, Pod
from policy.cluster.whole import whole
from policy.extenders.client import HttpExtenders
from policy.manifests import from_dicts
from policy.preemption.decide import decide
from policy.store import Store
from tests.support.extenders import NOW, Manifest, Server, extender, json_reply

RECORDED = Path(__file__).parents[1] / "data" / "extender" / "requests-1.35.json.gz"


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def recorded() -> dict[str, Manifest]:
    with gzip.open(RECORDED) as stream:
        requests: dict[str, Manifest] = json.load(stream)["requests"]
    return requests


def lasting(value: Any) -> Any:
    """Without the server's bookkeeping and heartbeats, which are not kept."""
    if isinstance(value, dict):
        dropped = {"managedFields", "resourceVersion", "lastHeartbeatTime", "lastProbeTime"}
        return {k: lasting(v) for k, v in value.items() if k not in dropped}
    return [lasting(item) for item in value] if isinstance(value, list) else value


def typed(kind: str, *manifests: Manifest) -> list[Manifest]:
    return [{"apiVersion": "v1", "kind": kind, **m} for m in manifests]


def every_object() -> list[tuple[str, Manifest]]:
    requests = recorded()
    found = [("Pod", requests["preempt"]["Pod"])]
    for victims in requests["preempt"]["NodeNameToVictims"].values():
        found += [("Pod", pod) for pod in victims["Pods"]]
    return found + [("Node", node) for node in requests["filter"]["Nodes"]["items"]]


@pytest.mark.parametrize(
    ("kind", "manifest"),
    [pytest.param(k, m, id=f"{k}-{m['metadata']['name']}") for k, m in every_object()],
)
def test_a_recorded_object_comes_out_whole(kind: str, manifest: Manifest) -> None:
    """Projection and rest together are the manifest that kube-scheduler sent."""
    (obj,) = from_dicts(typed(kind, manifest), whole=True)
    assert isinstance(obj, Pod | Node)
    assert whole(obj) == lasting(manifest)


def test_a_filter_request_is_that_of_the_scheduler(server: Server) -> None:
    """The question about the recorded pod and nodes, whole, in the order of names."""
    request = recorded()["filter"]
    nodes = request["Nodes"]["items"]
    server.verbs["filter"] = lambda _: json_reply({"NodeNames": [], "Nodes": None})
    rules = RuleSet.load(
        "kube-1.35", overrides={"extenders": [extender(server, "filter", nodeCacheCapable=False)]}
    )
    objects = [*typed("Pod", request["Pod"]), *typed("Node", *nodes)]
    snapshot = Snapshot.from_manifests(objects, now=NOW, whole=True)
    meta = request["Pod"]["metadata"]
    pod = f"{meta['namespace']}/{meta['name']}"
    decide(snapshot, rules, pod, extenders=HttpExtenders())
    [(_, sent)] = server.asked
    ordered = sorted(nodes, key=lambda node: node["metadata"]["name"])
    assert sent == lasting({**request, "Nodes": {"metadata": {}, "items": ordered}})


def test_whole_objects_are_kept_and_heartbeats_make_no_versions(database_url: str) -> None:
    """What is stored is whole again; a later heartbeat changes nothing, a new label does."""
    node = recorded()["filter"]["Nodes"]["items"][0]
    name = node["metadata"]["name"]
    beat = json.loads(json.dumps(node))
    beat["metadata"] |= {"resourceVersion": "999999", "managedFields": []}
    for condition in beat["status"]["conditions"]:
        condition["lastHeartbeatTime"] = "2027-01-01T00:00:00Z"
    told = json.loads(json.dumps(beat))
    told["status"]["nodeInfo"]["kernelVersion"] = "9.9"
    with Store.open(database_url) as store:
        revisions = [
            store.record.import_objects(
                "default",
                from_dicts(typed("Node", manifest), whole=True),
                at_ms=i,
                source="dump.json",
            ).revision
            for i, manifest in enumerate((node, beat, told), start=1)
        ]
        [kept] = store.state.objects_at("default", "Node", at=1, key=name)
    assert revisions == [1, 1, 2]
    assert isinstance(kept.object, Node)
    assert whole(kept.object) == lasting(node)


def test_the_projection_wins_where_it_changed() -> None:
    """A node that a pod got since, and a list that is longer now, are those of the projection."""
    manifest = {
        "metadata": {"name": "p", "namespace": "shop"},
        "spec": {"containers": [{"name": "c", "env": [{"name": "A"}]}], "nodeName": ""},
        "status": {"conditions": [{"type": "Ready", "status": "True", "message": "fine"}]},
    }
    (pod,) = from_dicts(typed("Pod", manifest), whole=True)
    assert isinstance(pod, Pod)
    from msgspec.structs import replace

    from policy.cluster.objects import Condition

    conditions = [Condition(type="Ready", status="True"), Condition(type="Other", status="False")]
    changed = replace(
        pod,
        spec=replace(pod.spec, node_name="n1"),
        status=replace(pod.status, conditions=conditions),
    )
    found = whole(changed)
    assert (found["spec"]["nodeName"], found["spec"]["containers"]) == (
        "n1",
        [{"name": "c", "env": [{"name": "A"}]}],
    )
    assert found["status"]["conditions"] == [
        {"type": "Ready", "status": "True"},
        {"type": "Other", "status": "False"},
    ]


def test_a_manifest_cannot_bring_a_rest_of_its_own() -> None:
    """The name under which the rest is kept means nothing in a manifest."""
    manifest = {"metadata": {"name": "n"}, "$rest": '{"spec":{"evil":1}}'}
    (node,) = from_dicts(typed("Node", manifest))
    assert isinstance(node, Node)
    assert (node.rest, whole(node)) == (None, {"metadata": {"name": "n"}, "spec": {}, "status": {}})
