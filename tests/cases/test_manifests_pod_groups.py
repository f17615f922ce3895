"""PodGroups and Workloads of `scheduling.k8s.io`, in the versions of the API that there were."""

from __future__ import annotations

from typing import Any

import pytest

from policy.cluster.objects import (
    GroupSchedulingPolicy,
    ObjectMeta,
    PodGroup,
    PriorityClass,
    SchedulingPodGroup,
    Workload,
)
from policy.cluster.pod_groups import disruption_mode, group_key, min_count
from policy.manifests import ManifestError, from_dicts, read_dicts
from policy.manifests.not_modelled import not_modelled
from policy.manifests.resolve import resolve


def group(version: str = "v1alpha2", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "ml", "generation": 3},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 4}}, **spec},
    }


def read(*objects: dict[str, Any]) -> list[Any]:
    return list(read_dicts(objects).objects)


def facts(value: dict[str, Any]) -> tuple[int | None, str, int]:
    (found,) = read(value)
    return min_count(found), disruption_mode(found), found.metadata.generation


def test_the_api_group_tells_pod_groups_apart() -> None:
    """A group of Volcano of the same name stands beside the one of kube-scheduler."""
    volcano = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"minMember": 2},
    }
    assert [type(found) for found in read(group(), volcano)] == [SchedulingPodGroup, PodGroup]


@pytest.mark.parametrize(
    ("version", "spec", "mode"),
    [
        ("v1alpha2", {}, "Pod"),
        ("v1alpha2", {"disruptionMode": "Pod"}, "Pod"),
        ("v1alpha2", {"disruptionMode": "PodGroup"}, "PodGroup"),
        ("v1alpha2", {"disruptionMode": "podgroup"}, "Pod"),
        ("v1alpha3", {"disruptionMode": {"single": {}}}, "Pod"),
        ("v1alpha3", {"disruptionMode": {"all": {}}}, "PodGroup"),
    ],
)
def test_disruption_modes_of_both_versions(version: str, spec: dict[str, Any], mode: str) -> None:
    """v1alpha2 writes a word, v1alpha3 an object; only the exact word means the whole group."""
    assert facts(group(version, **spec)) == (4, mode, 3)


def test_a_basic_group_has_no_minimum() -> None:
    (found,) = read(group(schedulingPolicy={"basic": {}}))
    assert found.spec.scheduling_policy == GroupSchedulingPolicy(basic={})
    assert min_count(found) is None


def test_a_group_without_kind_is_known_by_its_policy() -> None:
    value = group()
    del value["kind"], value["apiVersion"]
    assert [type(found) for found in read(value)] == [SchedulingPodGroup]


def test_a_pod_names_its_group_in_its_own_namespace() -> None:
    spec = {"schedulingGroup": {"podGroupName": "train"}, "containers": [{"name": "c"}]}
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p", "namespace": "ml"}}
    (found,) = read({**pod, "spec": spec})
    assert group_key(found) == "ml/train"


def test_a_workload_of_1_35_and_the_pod_that_names_it() -> None:
    workload = {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": "train", "namespace": "ml"},
        "spec": {"podGroups": [{"name": "workers", "policy": {"gang": {"minCount": 4}}}]},
    }
    reference = {"name": "train", "podGroup": "workers", "podGroupReplicaKey": "1"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ml"},
        "spec": {"workloadRef": reference, "containers": [{"name": "c"}]},
    }
    kept, naming = read(workload, pod)
    assert isinstance(kept, Workload)
    assert kept.spec.pod_groups is not None
    assert kept.spec.pod_groups[0].policy is not None
    assert kept.spec.pod_groups[0].policy.gang is not None
    assert kept.spec.pod_groups[0].policy.gang.min_count == 4
    ref = naming.spec.workload_ref
    assert (ref.name, ref.pod_group, ref.pod_group_replica_key) == ("train", "workers", "1")


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        ({"priority": 7}, 7),
        ({"priorityClassName": "high"}, 1000),
        ({}, 5),
    ],
)
def test_a_group_takes_the_number_of_its_class(spec: dict[str, Any], priority: int) -> None:
    """Admission fills in the number of the named class, or of the global default."""
    classes = [
        PriorityClass(metadata=ObjectMeta(name="high"), value=1000, preemption_policy="Never"),
        PriorityClass(metadata=ObjectMeta(name="usual"), value=5, global_default=True),
    ]
    found = resolve(read(group(**spec)), known_classes=classes)[0]
    assert isinstance(found, SchedulingPodGroup)
    assert (found.spec.priority, found.spec.preemption_policy) == (priority, None)


def test_an_unknown_class_is_named_with_the_group() -> None:
    with pytest.raises(ManifestError) as caught:
        resolve(read(group(priorityClassName="hihg")))
    (problem,) = caught.value.problems
    assert (problem.object, problem.field) == ("PodGroup ml/train", "spec.priorityClassName")


@pytest.mark.parametrize(
    ("version", "spec", "field", "said"),
    [
        ("v1alpha2", {"schedulingPolicy": {}}, "schedulingPolicy", "none of `gang` and `basic`"),
        (
            "v1alpha2",
            {"schedulingPolicy": {"gang": {"minCount": 1}, "basic": {}}},
            "schedulingPolicy",
            "both `gang` and `basic`",
        ),
        (
            "v1alpha2",
            {"schedulingPolicy": {"gang": {"minCount": 0}}},
            "schedulingPolicy.gang.minCount",
            "`0` is less than 1",
        ),
        ("v1alpha2", {"priority": 10**9 + 1}, "priority", "`1000000001` is more than 1000000000"),
        (
            "v1alpha3",
            {"disruptionMode": {"single": {}, "all": {}}},
            "disruptionMode",
            "both `single` and `all`",
        ),
        (
            "v1alpha3",
            {"preemptionPolicy": "Sometimes"},
            "preemptionPolicy",
            "`Sometimes` is not a preemption policy",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_an_api_server_refuses(
    version: str, spec: dict[str, Any], field: str, said: str
) -> None:
    """File, object and field are named; nothing is guessed."""
    with pytest.raises(ManifestError) as caught:
        read(group(version, **spec))
    (problem,) = caught.value.problems
    assert (problem.field, said in problem.message) == (f"spec.{field}", True), problem


def test_a_deleted_group_of_a_watch_is_forgotten() -> None:
    events = [{"type": "ADDED", "object": group()}, {"type": "DELETED", "object": group()}]
    assert read(*events) == []


def test_what_groups_ask_for_and_do_not_get_is_said() -> None:
    """Topology, parents, gangs of 1.35, and the sample of nodes."""
    spec = {"schedulingPolicy": {"basic": {}}}
    found = from_dicts(
        [
            *(
                {"kind": "Node", "apiVersion": "v1", "metadata": {"name": f"n{i}"}}
                for i in range(100)
            ),
            {
                "kind": "PodGroup",
                "apiVersion": "scheduling.k8s.io/v1alpha3",
                "metadata": {"name": "one"},
                "spec": {
                    **spec,
                    "schedulingConstraints": {"topology": [{"key": "zone"}]},
                    "parentCompositePodGroupName": "root",
                },
            },
            {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"name": "old"},
                "spec": {
                    "containers": [{"name": "c", "image": "i"}],
                    "workloadRef": {"name": "w", "podGroup": "g"},
                },
            },
        ]
    )
    assert list(not_modelled(list(found))) == [
        "pod groups with a topology key: 1; placements by topology are not modelled, they may be "
        "placed across its values and preempt nothing",
        "pod groups with a parent: 1; composite groups are not modelled",
        "pods with a `workloadRef`: 1; the gangs of 1.35 are not modelled",
        "from 100 nodes on kube-scheduler tries a group on a share of the nodes; here every node "
        "is tried",
    ]
    assert list(not_modelled([])) == []
