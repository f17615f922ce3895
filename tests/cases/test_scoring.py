"""Where a pod goes that fits on several nodes, and why."""

from __future__ import annotations

import gzip
import json
import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policy import Snapshot
from policy.decision.model import Decision
from policy.filters.base import Incoming
from policy.manifests import from_dicts
from policy.preemption.decide import decide
from policy.preemption.placing import values
from policy.rules import RulesError, RuleSet
from policy.rules.ruleset import ScorerUse
from policy.scoring.registry import SCORERS

NOW = datetime(2026, 11, 21, tzinfo=UTC)
RECORDED = Path(__file__).parents[1] / "data" / "extender" / "placements-1.35.json.gz"
GIB = 1024**3
Manifest = dict[str, Any]


def node(name: str, *, cpu: int = 8, memory: int = 16, **parts: Any) -> Manifest:
    labels = {"kubernetes.io/hostname": name, **parts.pop("labels", {})}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": parts.pop("taints", [])},
        "status": {
            "allocatable": {"cpu": str(cpu), "memory": f"{memory}Gi", "pods": "110"},
            **parts,
        },
    }


def pod(
    name: str,
    *,
    on: str = "",
    cpu: str | None = "1",
    memory: str | None = "1Gi",
    labels: dict[str, str] | None = None,
    image: str = "app:1",
    **spec: Any,
) -> Manifest:
    requests = {k: v for k, v in (("cpu", cpu), ("memory", memory)) if v is not None}
    container = {"name": "main", "image": image, "resources": {"requests": requests}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "labels": labels or {}},
        "spec": {"nodeName": on, "containers": [container], **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }


def scored(
    scorer: str, *objects: Manifest, pod: str = "shop/new", **parameters: Any
) -> dict[str, int] | None:
    """Values that one scorer gives all nodes; None where it has nothing to go by."""
    return scored_on(Snapshot.from_manifests(objects, now=NOW), scorer, pod, **parameters)


def scored_on(
    snapshot: Snapshot, scorer: str, pod: str = "shop/new", **parameters: Any
) -> dict[str, int] | None:
    """The same on a snapshot."""
    row, of_pod = snapshot.row(pod), snapshot.pod(pod)
    assert row is not None
    assert of_pod is not None
    incoming = Incoming(snapshot=snapshot, pod=of_pod, key=pod, row=row)
    given = {**SCORERS[scorer].defaults(), **parameters}
    use = ScorerUse(name=scorer, weight=1, parameters=given)
    (found,) = values(incoming, [use], np.arange(len(snapshot.nodes)))
    if found is None:
        return None
    return dict(zip(snapshot.nodes.names, found.tolist(), strict=True))


def decided(*objects: Manifest, scoring: list[Manifest] | None = None) -> Decision:
    overrides = None if scoring is None else {"scoring": scoring}
    rules = RuleSet.load("kube-1.35", overrides=overrides)
    return decide(Snapshot.from_manifests(objects, now=NOW), rules, "shop/new")


# --- resources ------------------------------------------------------------------------------------


def test_least_allocated_is_the_mean_free_part():
    """n1: 7 of 8 cpu and 15 of 16 GiB stay free; n2 would be full of cpu."""
    objects = (node("n1"), node("n2"), pod("a", on="n2", cpu="7"), pod("new"))
    assert scored("least-allocated", *objects) == {"n1": (87 + 93) // 2, "n2": (0 + 87) // 2}


def test_most_allocated_is_the_mean_used_part():
    """The fuller node wins; parts are cut off before the mean is taken."""
    objects = (node("n1"), node("n2"), pod("a", on="n2", cpu="6"), pod("new"))
    assert scored("most-allocated", *objects) == {"n1": (12 + 6) // 2, "n2": (87 + 12) // 2}


def test_resources_may_weigh_differently():
    """cpu: 3 makes free cpu count three times as much as free memory."""
    objects = (node("n1"), pod("new", cpu="4", memory="4Gi"))
    assert [
        scored("least-allocated", *objects, cpu=cpu, memory=memory)
        for cpu, memory in ((3, 1), (0, 1), (0, 0))
    ] == [{"n1": (50 * 3 + 75) // 4}, {"n1": 75}, {"n1": 0}]


GPU = "nvidia.com/gpu"


def devices(name: str, *, on: str = "", count: int = 1) -> Manifest:
    made = pod(name, on=on)
    made["spec"]["containers"][0]["resources"]["requests"][GPU] = str(count)
    return made


def test_devices_weigh_for_pods_that_ask_for_them():
    """Packing by devices: 3 of 4 are in use on n1, one on n2; other pods look at cpu alone."""
    objects = (
        *(node(n, allocatable={"cpu": "8", "memory": "16Gi", GPU: "4"}) for n in ("n1", "n2")),
        devices("a", on="n1", count=2),
        pod("b", on="n2"),
    )
    weights = {"cpu": 1, "memory": 0, "resources": [{"name": GPU, "weight": 3}]}
    assert [
        scored("most-allocated", *objects, devices("new"), **weights),
        scored("most-allocated", *objects, pod("new"), **weights),
    ] == [
        {"n1": (25 + 3 * 75) // 4, "n2": (25 + 3 * 25) // 4},
        {"n1": 25, "n2": 25},
    ]


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ([(0, 0), (100, 10)], {"n1": 75, "n2": 25}),
        ([(0, 10), (100, 0)], {"n1": 25, "n2": 75}),
        ([(0, 0), (50, 10), (100, 0)], {"n1": 50, "n2": 50}),
        ([(40, 3), (60, 7)], {"n1": 70, "n2": 30}),
        ([(0, 0), (30, 0), (75, 7)], {"n1": 70, "n2": 0}),
    ],
)
def test_scores_along_a_line_of_one_s_own(shape: list[tuple[int, int]], expected: dict[str, int]):
    """75 % of cpu is in use on n1 with the pod, 25 % on n2; beyond the ends the line is level."""
    objects = (node("n1"), node("n2"), pod("a", on="n1", cpu="5"), pod("b", on="n2"), pod("new"))
    points = [{"utilization": u, "score": s} for u, s in shape]
    found = scored("requested-to-capacity-ratio", *objects, memory=0, shape=points)
    assert found == expected


def test_balance_may_look_at_devices_too():
    """cpu 25 %, memory 12.5 %, devices 75 %: the deviation of three values counts."""
    objects = (
        node("n1", allocatable={"cpu": "8", "memory": "16Gi", GPU: "4"}),
        devices("a", on="n1", count=2),
        devices("new"),
    )
    parts = [2 / 8, 2 / 16, 3 / 4]
    mean = sum(parts) / 3
    deviation = math.sqrt(sum((p - mean) ** 2 for p in parts) / 3)
    listed = {"resources": [{"name": GPU, "weight": 1}]}
    assert [
        scored("balanced-allocation", *objects, **listed),
        scored("balanced-allocation", *objects, memory=False, **listed),
    ] == [{"n1": int((1 - deviation) * 100)}, {"n1": int((1 - 0.25) * 100)}]


def test_a_container_without_requests_counts_for_a_little():
    """100m and 200Mi per container that names nothing, init containers at their peak."""
    silent = pod("new", cpu=None, memory=None)
    silent["spec"]["initContainers"] = [{"name": "first"}, {"name": "second"}]
    held = pod("held", on="n1", cpu=None, memory=None)
    one = (100 - 2 * 100 * 100 // 1000) * 1
    memory = (1024 - 2 * 200) * 100 // 1024
    objects = (node("n1", cpu=1, memory=1), held, silent)
    assert scored("least-allocated", *objects) == {"n1": (one + memory) // 2}


def test_a_node_without_a_resource_is_scored_by_the_other():
    """Memory that a node does not list is left out of its mean."""
    bare = node("n1")
    del bare["status"]["allocatable"]["memory"]
    assert scored("least-allocated", bare, pod("new", cpu="2", memory=None)) == {"n1": 75}


def test_an_overfull_node_has_nothing_free():
    """Requests beyond the allocatable count as full, not as less than nothing."""
    objects = (node("n1"), pod("a", on="n1", cpu="9", memory="17Gi"), pod("new"))
    assert [scored(s, *objects) for s in ("least-allocated", "most-allocated")] == [
        {"n1": 0},
        {"n1": 100},
    ]


def test_balanced_allocation_prefers_equal_parts():
    """Half the difference between the used parts of cpu and memory is lost."""
    objects = (
        node("even"),
        node("skewed"),
        pod("a", on="skewed", cpu="6", memory="1Gi"),
        pod("new", cpu="1", memory="2Gi"),
    )
    # skewed: 7/8 of the cpu and 3/16 of the memory.
    assert scored("balanced-allocation", *objects) == {"even": 100, "skewed": 65}


def test_balanced_allocation_has_nothing_to_say_of_a_pod_without_requests():
    """A pod that asks for nothing changes no balance, however skewed the nodes are."""
    objects = (node("n1"), pod("a", on="n1"), pod("new", cpu=None, memory=None))
    assert scored("balanced-allocation", *objects) is None


# --- nodes ----------------------------------------------------------------------------------------


def test_preferred_node_affinity_adds_up_and_the_best_gets_100():
    """Weights of matching terms, in proportion to the node that matches most."""
    preferred = [
        {"weight": w, "preference": {"matchExpressions": [{"key": k, "operator": "Exists"}]}}
        for k, w in (("ssd", 30), ("gpu", 10))
    ]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    objects = (
        node("both", labels={"ssd": "", "gpu": ""}),
        node("gpu", labels={"gpu": ""}),
        node("none"),
        pod("new", affinity=affinity),
    )
    assert scored("node-affinity", *objects) == {"both": 100, "gpu": 25, "none": 0}


def test_a_pod_without_preferences_is_not_scored_by_node_affinity():
    """Required affinity is a matter of the filters alone."""
    terms = [{"matchExpressions": [{"key": "ssd", "operator": "DoesNotExist"}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    objects = (node("n1"), pod("new", affinity={"nodeAffinity": required}))
    assert scored("node-affinity", *objects) is None


def test_soft_taints_that_are_not_tolerated_cost():
    """The node with most PreferNoSchedule taints gets 0; tolerated and hard ones do not count."""
    soft = [{"key": k, "effect": "PreferNoSchedule"} for k in ("a", "b", "c")]
    objects = (
        node("clean", taints=[{"key": "hard", "effect": "NoSchedule"}]),
        node("one", taints=soft[1:]),
        node("two", taints=soft),
        pod("new", tolerations=[{"key": "c", "operator": "Exists"}]),
    )
    assert scored("taints", *objects) == {"clean": 100, "one": 50, "two": 0}


def test_images_that_are_there_draw_pods_by_size_and_spread():
    """500 MiB on half of the nodes count as 250 MiB, above the first 23 and out of 1000."""
    image = {"names": ["shop/app:latest", "shop/app@sha256:abc"], "sizeBytes": 500 * 1024**2}
    objects = (node("has", images=[image]), node("lacks"), pod("new", image="shop/app"))
    assert scored("image-locality", *objects) == {"has": 100 * (250 - 23) // 977, "lacks": 0}


def test_images_that_a_node_fetches_or_drops_count_from_then_on():
    """After an update of a node's status, images are scored as on a snapshot made anew."""
    image = {"names": ["shop/app:latest"], "sizeBytes": 500 * 1024**2}
    new = pod("new", image="shop/app")
    before = (node("a", images=[image]), node("b"), new)
    after = (node("a"), node("b", images=[image]), new)
    snapshot = Snapshot.from_manifests(before, now=NOW)
    found = [scored_on(snapshot, "image-locality")]
    changed = Snapshot.from_manifests(after, now=NOW).nodes.nodes
    snapshot = snapshot.apply([("Node", n.metadata.name, n) for n in changed])
    found.append(scored_on(snapshot, "image-locality"))
    assert found == [scored("image-locality", *objects) for objects in (before, after)]
    assert found[0] != found[1]


def test_without_known_images_nothing_is_scored():
    """A dump without status.images gives the scorer nothing to go by."""
    assert scored("image-locality", node("n1"), pod("new")) is None


# --- pods -----------------------------------------------------------------------------------------


def spread(key: str, *, skew: int = 1, **more: Any) -> Manifest:
    return {
        "maxSkew": skew,
        "topologyKey": key,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
        **more,
    }


WEB = {"app": "web"}


def test_topology_spread_prefers_domains_with_few_pods():
    """Two pods in zone a weigh ln(2 + 2) each: 3 after rounding, against none in zone b."""
    objects = (
        node("a1", labels={"zone": "a"}),
        node("b1", labels={"zone": "b"}),
        node("bare"),
        pod("w1", on="a1", labels=WEB),
        pod("w2", on="a1", labels=WEB),
        pod("other", on="b1"),
        pod("new", labels=WEB, topologySpreadConstraints=[spread("zone")]),
    )
    assert scored("topology-spread", *objects) == {"a1": 0, "b1": 100, "bare": 0}


def test_max_skew_waters_spread_down():
    """maxSkew 5 adds 4 to every node, so that two pods more matter less."""
    objects = (
        node("a1", labels={"zone": "a"}),
        node("b1", labels={"zone": "b"}),
        pod("w1", on="a1", labels=WEB),
        pod("w2", on="a1", labels=WEB),
        pod("new", labels=WEB, topologySpreadConstraints=[spread("zone", skew=5)]),
    )
    # 2 ln 4 + 4 = 6.77 rounds to 7; nothing + 4 is 4.
    assert scored("topology-spread", *objects) == {"a1": 100 * 4 // 7, "b1": 100}


def owned(
    name: str, *, kind: str = "ReplicaSet", version: str = "apps/v1", **more: Any
) -> Manifest:
    made = pod(name, labels={**WEB, "hash": "1"}, **more)
    owner = {"apiVersion": version, "kind": kind, "name": "web", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    return made


SERVICE: Manifest = {
    "kind": "Service",
    "apiVersion": "v1",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"selector": WEB},
}
REPLICA_SET: Manifest = {
    "kind": "ReplicaSet",
    "apiVersion": "apps/v1",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"selector": {"matchLabels": {"hash": "1"}}},
}
ZONE = "topology.kubernetes.io/zone"


def test_pods_of_a_service_spread_without_constraints():
    """Hosts with maxSkew 3 and zones with maxSkew 5; a node without a zone counts by its host."""
    objects = (
        node("a1", labels={ZONE: "a"}),
        node("b1", labels={ZONE: "b"}),
        node("bare"),
        SERVICE,
        pod("w1", on="a1", labels=WEB),
        pod("w2", on="a1", labels=WEB),
        pod("w3", on="bare", labels=WEB),
        pod("new", labels=WEB),
    )
    host, zone = math.log(3 + 2), math.log(3 + 2)
    raw = [round(2 * host + 2 + 2 * zone + 4), 2 + 4, round(1 * host + 2)]
    most, least = max(raw), min(raw)
    expected = [100 * (most + least - value) // most for value in raw]
    assert scored("topology-spread", *objects) == dict(
        zip(("a1", "b1", "bare"), expected, strict=True)
    )


@pytest.mark.parametrize(
    ("others", "made", "expected"),
    [
        ([], owned("new"), None),
        ([REPLICA_SET], owned("new"), 1),
        ([SERVICE], owned("new"), 2),
        ([SERVICE, REPLICA_SET], owned("new"), 1),
        ([REPLICA_SET], pod("new", labels={**WEB, "hash": "1"}), None),
        ([REPLICA_SET], owned("new", version="apps.kruise.io/v1beta1"), None),
        ([REPLICA_SET], owned("new", kind="CloneSet"), None),
        ([{**SERVICE, "spec": {"selector": {"app": "db"}}}], owned("new"), None),
        ([{**SERVICE, "spec": {}}], owned("new"), None),
        (
            [
                {
                    **REPLICA_SET,
                    "kind": "ReplicationController",
                    "apiVersion": "v1",
                    "spec": {"selector": {"hash": "1"}},
                }
            ],
            owned("new", kind="ReplicationController", version="v1"),
            1,
        ),
        ([{**REPLICA_SET, "kind": "StatefulSet"}], owned("new", kind="StatefulSet"), 1),
        (
            [SERVICE],
            owned(
                "new", topologySpreadConstraints=[spread("rack", whenUnsatisfiable="DoNotSchedule")]
            ),
            None,
        ),
    ],
)
def test_services_and_the_owner_say_whom_a_pod_spreads_from(
    others: list[Manifest], made: Manifest, expected: int | None
):
    """Pods that all of them select count: here none (no score), one or both on n1."""
    objects = (
        node("n1"),
        node("n2"),
        pod("w1", on="n1", labels={**WEB, "hash": "1"}),
        pod("w2", on="n1", labels={**WEB, "hash": "2"}),
        *others,
        made,
    )
    found = scored("topology-spread", *objects)
    if expected is None:
        assert found is None
        return
    raw = round(expected * math.log(4)) + 2
    assert found == {"n1": 100 * 2 // raw, "n2": 100}


def test_up_to_1_21_all_matching_controllers_count():
    """A pod without an owner spreads from the pods of a replica set that would select it."""
    objects = (
        node("n1"),
        node("n2"),
        pod("w1", on="n1", labels={"hash": "1"}),
        REPLICA_SET,
        pod("new", labels={"hash": "1"}),
    )
    assert [
        scored("topology-spread", *objects, controllers=which) for which in ("owner", "matching")
    ] == [None, {"n1": 100 * 2 // 3, "n2": 100}]


def test_listed_defaults_take_the_place_of_the_system_s():
    """Every node needs all labels then, and DoNotSchedule makes a filter of a constraint."""
    objects = (
        node("a1", labels={"rack": "a"}),
        node("b1", labels={"rack": "b"}),
        node("bare"),
        SERVICE,
        pod("w1", on="a1", labels=WEB),
        pod("new", labels=WEB),
    )

    def listed(when: str) -> Manifest:
        entry = {"maxSkew": 1, "topologyKey": "rack", "whenUnsatisfiable": when}
        return {"defaultConstraints": [entry]}

    soft = scored("topology-spread", *objects, defaultingType="list", **listed("ScheduleAnyway"))
    hard = scored("topology-spread", *objects, defaultingType="list", **listed("DoNotSchedule"))
    assert (soft, hard) == ({"a1": 0, "b1": 100, "bare": 0}, None)
    filters = {"replace": [{"filter": "topology-spread", **listed("DoNotSchedule")}]}
    rules = RuleSet.load("kube-1.35", overrides={"filters": filters})
    decision = decide(Snapshot.from_manifests(objects, now=NOW), rules, "shop/new")
    assert {name: s.reasons for name, s in decision.trace.filter_statuses.items()} == {
        "a1": ("node(s) didn't match pod topology spread constraints",),
        "b1": (),
        "bare": ("node(s) didn't match pod topology spread constraints (missing required label)",),
    }


def test_a_service_that_comes_is_followed():
    """What spreads a pod is found anew when a service comes or goes."""
    objects = (node("n1"), node("n2"), pod("w1", on="n1", labels=WEB), pod("new", labels=WEB))
    before = Snapshot.from_manifests(objects, now=NOW)
    assert scored_on(before, "topology-spread") is None
    (service,) = from_dicts([SERVICE])
    after = before.apply([("Service", "shop/web", service)])
    assert scored_on(after, "topology-spread") == {"n1": 100 * 2 // 3, "n2": 100}
    assert scored_on(after.apply([("Service", "shop/web", None)]), "topology-spread") is None


def test_spread_over_hosts_counts_leaving_pods_no_more():
    """Each node is a domain of its own; terminating pods are as good as gone."""
    leaving = pod("w2", on="n2", labels=WEB)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-21T00:00:00Z"
    objects = (
        node("n1"),
        node("n2"),
        pod("w1", on="n1", labels=WEB),
        leaving,
        pod("new", labels=WEB, topologySpreadConstraints=[spread("kubernetes.io/hostname")]),
    )
    assert scored("topology-spread", *objects) == {"n1": 0, "n2": 100}


def affinity(kind: str, *terms: Manifest, required: bool = False) -> Manifest:
    when = "required" if required else "preferred"
    return {kind: {f"{when}DuringSchedulingIgnoredDuringExecution": list(terms)}}


def term(**labels: str) -> Manifest:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": "zone"}


def weighted(weight: int, **labels: str) -> Manifest:
    return {"weight": weight, "podAffinityTerm": term(**labels)}


ZONES = (
    node("a1", labels={"zone": "a"}),
    node("b1", labels={"zone": "b"}),
    node("c1", labels={"zone": "c"}),
)


def test_preferred_pod_affinity_draws_and_drives():
    """The pod goes near its cache and away from its rival; the third zone lies between."""
    wishes = {
        **affinity("podAffinity", weighted(20, app="cache")),
        **affinity("podAntiAffinity", weighted(60, app="rival")),
    }
    objects = (
        *ZONES,
        pod("cache", on="a1", labels={"app": "cache"}),
        pod("rival", on="b1", labels={"app": "rival"}),
        pod("new", affinity=wishes),
    )
    assert scored("pod-affinity", *objects) == {"a1": 100, "b1": 0, "c1": 75}


def test_affinity_of_pods_that_are_there_counts_too():
    """Preferred and required affinity of running pods draws the pod, their dislike drives it."""
    objects = (
        *ZONES,
        pod("fan", on="a1", affinity=affinity("podAffinity", weighted(9, **WEB))),
        pod("must", on="b1", affinity=affinity("podAffinity", term(**WEB), required=True)),
        pod("foe", on="c1", affinity=affinity("podAntiAffinity", weighted(10, **WEB))),
        pod("new", labels=WEB),
    )
    assert [
        scored("pod-affinity", *objects),
        scored("pod-affinity", *objects, requiredWeight=100),
        scored("pod-affinity", *objects, ignoreTermsOfOthers=True),
    ] == [
        {"a1": 100, "b1": 57, "c1": 0},
        {"a1": 17, "b1": 100, "c1": 0},
        None,
    ]


# --- placement ------------------------------------------------------------------------------------


def test_the_weighted_sum_decides_and_stands_in_the_trace():
    """The emptier node wins; the trace holds what each scorer with something to say gave it."""
    objects = (node("n1"), node("n2"), pod("a", on="n1", cpu="4", memory="8Gi"), pod("new"))
    decision = decided(*objects)
    assert (decision.node, decision.trace.scores) == (
        "n2",
        (("taints", 3, 100), ("least-allocated", 1, 90), ("balanced-allocation", 1, 96)),
    )


def test_a_tie_goes_to_the_first_by_name():
    """Two empty nodes are equal; input order does not matter."""
    assert decided(node("n2"), node("n1"), pod("new")).node == "n1"


def test_weights_are_the_rule_files():
    """Where packing weighs more than spreading, the fuller node wins."""
    objects = (node("n1"), node("n2"), pod("a", on="n2", cpu="4", memory="8Gi"), pod("new"))
    scoring = [{"scorer": "least-allocated"}, {"scorer": "most-allocated", "weight": 2}]
    assert decided(*objects, scoring=scoring).node == "n2"


def test_a_single_node_is_not_scored():
    """With one node left there is nothing to choose, so nothing is recorded."""
    assert decided(node("n1"), pod("new")).trace.scores == ()


def test_a_nominated_node_that_passes_is_taken_without_scoring():
    """The node that was promised wins over a better one."""
    waiting = pod("new")
    waiting["status"]["nominatedNodeName"] = "n2"
    objects = (node("n1"), node("n2"), pod("a", on="n2"), waiting)
    decision = decided(*objects)
    assert (decision.node, decision.trace.scores) == ("n2", ())


def test_without_scorers_the_first_node_by_name_is_taken():
    """An empty list of scorers leaves all nodes equal."""
    objects = (node("n1"), node("n2"), pod("a", on="n1", cpu="4"), pod("new"))
    assert decided(*objects, scoring=[]).node == "n1"


@pytest.mark.parametrize(
    ("scoring", "message"),
    [
        ([{"scorer": "least-alocated"}], "unknown scorer `least-alocated`"),
        ([{"scorer": "taints", "cpu": 1}], "`taints` has no parameter `cpu`"),
    ],
)
def test_rule_files_name_scorers_that_exist(scoring: list[Manifest], message: str):
    """A misspelt scorer or parameter is an error of the rule file."""
    with pytest.raises(RulesError) as error:
        RuleSet.load("kube-1.35", overrides={"scoring": scoring})
    assert [p.message for p in error.value.problems] == [message]


@pytest.mark.parametrize("step", range(6))
def test_a_real_scheduler_chose_among_our_best(step: int):
    """Six pods that kube-scheduler 1.35.3 placed on one of several nodes: ours are as good.

    It draws among nodes of equal score, so its node must have our highest sum.
    """
    with gzip.open(RECORDED) as stream:
        recorded = json.load(stream)["steps"][step]
    snapshot = Snapshot.from_manifests(recorded["objects"], now=NOW)
    key = recorded["pod"]
    row, of_pod = snapshot.row(key), snapshot.pod(key)
    assert row is not None
    assert of_pod is not None
    incoming = Incoming(snapshot=snapshot, pod=of_pod, key=key, row=row)
    scoring = RuleSet.load("kube-1.35").scoring
    nodes = np.array([snapshot.nodes.index[n] for n in recorded["feasible"]])
    found = values(incoming, scoring, nodes)
    totals = sum(u.weight * v for u, v in zip(scoring, found, strict=True) if v is not None)
    best = {n for n, t in zip(recorded["feasible"], totals, strict=True) if t == totals.max()}
    assert recorded["chosen"] in best
