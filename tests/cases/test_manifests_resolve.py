"""What an API server adds at admission is added on import, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from policy.cluster.objects import (
    Container,
    ContainerPort,
    ObjectMeta,
    Pod,
    PodDisruptionBudget,
    PodSpec,
    PriorityClass,
    ResourceRequirements,
)
from policy.manifests import ManifestError, ReadFrom, resolve


def a_class(name: str, value: int, **more: Any) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value, **more)


def a_pod(**spec: Any) -> Pod:
    return Pod(metadata=ObjectMeta(name="p", namespace="shop"), spec=PodSpec(**spec))


def resolved(pod: Pod, *classes: PriorityClass, known: tuple[PriorityClass, ...] = ()) -> Pod:
    result = resolve([pod, *classes], known_classes=known)[0]
    assert isinstance(result, Pod)
    return result


GOLD = a_class("gold", 100, preemption_policy="Never")
BASE = a_class("base", 5, global_default=True)


@pytest.mark.parametrize(
    ("spec", "classes", "expected"),
    [
        ({"priority_class_name": "gold"}, (GOLD, BASE), (100, "gold", "Never")),
        ({}, (GOLD, BASE), (5, "base", "PreemptLowerPriority")),
        ({}, (GOLD,), (0, "", "PreemptLowerPriority")),
        ({"priority": 7}, (GOLD, BASE), (7, "", "PreemptLowerPriority")),
        ({"priority": 7, "priority_class_name": "gold"}, (GOLD,), (7, "gold", "Never")),
        (
            {"priority": 7, "priority_class_name": "lost"},
            (GOLD,),
            (7, "lost", "PreemptLowerPriority"),
        ),
        (
            {"priority_class_name": "gold", "preemption_policy": "PreemptLowerPriority"},
            (GOLD,),
            (100, "gold", "PreemptLowerPriority"),
        ),
        (
            {},
            (a_class("high", 9, global_default=True), BASE),
            (5, "base", "PreemptLowerPriority"),
        ),
        (
            {"priority_class_name": "system-node-critical"},
            (),
            (2_000_001_000, "system-node-critical", "PreemptLowerPriority"),
        ),
        (
            {"priority_class_name": "system-cluster-critical"},
            (),
            (2_000_000_000, "system-cluster-critical", "PreemptLowerPriority"),
        ),
    ],
)
def test_priority_and_policy_come_from_the_class(
    spec: dict[str, Any], classes: tuple[PriorityClass, ...], expected: tuple[int, str, str]
) -> None:
    """A number wins over the class, the class over the global default, the lowest default over
    the others; the policy follows the class."""
    pod = resolved(a_pod(**spec), *classes).spec
    assert (pod.priority, pod.priority_class_name, pod.preemption_policy) == expected


def test_classes_of_the_cluster_are_known() -> None:
    """A class imported earlier counts, unless the same import brings a newer one."""
    pod = a_pod(priority_class_name="gold")
    assert resolved(pod, known=(a_class("gold", 50),)).spec.priority == 50
    assert resolved(pod, GOLD, known=(a_class("gold", 50),)).spec.priority == 100


def test_an_unknown_class_is_an_error_with_help() -> None:
    """A pod whose number nobody can know is refused, with its place and a proposal."""
    pods = [a_pod(priority_class_name="gald"), a_pod(priority_class_name="xyz")]
    with pytest.raises(ManifestError) as caught:
        resolve(
            [*pods, GOLD], places=[ReadFrom("a.yaml", 2), ReadFrom("b.json", 0), ReadFrom("c", 0)]
        )
    assert str(caught.value) == (
        "a.yaml: document 2: Pod shop/p: spec.priorityClassName: unknown priority class `gald`\n"
        "  help: did you mean `gold`?\n"
        "b.json: Pod shop/p: spec.priorityClassName: unknown priority class `xyz`\n"
        "  help: import its PriorityClass too (`kubectl get priorityclasses -o json`),"
        " or give a number in `spec.priority`"
    )


def test_requests_come_from_limits() -> None:
    """A resource with a limit and no request is requested up to its limit, per container."""
    container = Container(
        resources=ResourceRequirements(
            requests={"cpu": "1"}, limits={"cpu": "2", "nvidia.com/gpu": 1}
        )
    )
    spec = resolved(a_pod(containers=[container], init_containers=[container])).spec
    expected = {"cpu": "1", "nvidia.com/gpu": 1}
    assert [
        c.resources.requests
        for c in [*(spec.containers or ()), *(spec.init_containers or ())]
        if c.resources
    ] == [expected, expected]


def test_pod_level_requests_come_from_limits_that_no_container_asks_for() -> None:
    """A pod-level limit is a request only for cpu, memory and huge pages without a request."""
    spec = resolved(
        a_pod(
            containers=[Container(resources=ResourceRequirements(requests={"cpu": "1"}))],
            resources=ResourceRequirements(
                limits={"cpu": "4", "memory": "2Gi", "hugepages-2Mi": "4Mi", "storage": "1"}
            ),
        )
    ).spec
    assert spec.resources is not None
    assert spec.resources.requests == {"memory": "2Gi", "hugepages-2Mi": "4Mi"}


def test_ports_on_the_hosts_network_are_host_ports() -> None:
    """With hostNetwork a container port without host port takes the same number on the host."""
    ports = [ContainerPort(container_port=80), ContainerPort(container_port=81, host_port=81)]
    spec = resolved(a_pod(host_network=True, containers=[Container(ports=ports)])).spec
    assert [p.host_port for p in (spec.containers or [])[0].ports or ()] == [80, 81]
    spec = resolved(a_pod(containers=[Container(ports=ports)])).spec
    assert [p.host_port for p in (spec.containers or [])[0].ports or ()] == [0, 81]


def test_namespace_and_scheduler_have_defaults() -> None:
    """Namespaced objects live in `default`, pods belong to the default scheduler."""
    bare = Pod(metadata=ObjectMeta(name="p"))
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="b"))
    pod, pdb = resolve([bare, budget])
    assert isinstance(pod, Pod)
    assert (pod.metadata.namespace, pdb.metadata.namespace) == ("default", "default")
    assert pod.spec.scheduler_name == "default-scheduler"


def test_a_missing_start_time_stays_missing() -> None:
    """Nobody can know when a pod started."""
    assert resolved(a_pod()).status.start_time is None


def test_resolving_twice_changes_nothing() -> None:
    """What an API server stored is taken as it is, object by object."""
    once = resolve([a_pod(priority_class_name="gold"), GOLD])
    twice = resolve(once)
    assert all(a is b for a, b in zip(once, twice, strict=True))
