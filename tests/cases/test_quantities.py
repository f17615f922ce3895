"""Quantities and requests: exact, and rounded as Kubernetes rounds them."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from policy.cluster.objects import ContainerStatus, Pod, ResourceRequirements
from policy.cluster.quantities import INT64_MAX, QuantityError, milli, nano, units
from policy.cluster.requests import RequestRules, amounts, pod_requests
from tests.support.builders import PodBuilder, a_pod


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("+1", 1),
        ("-1", -1),
        (".5", 1),
        ("1.", 1),
        ("1.5", 2),
        ("-1.5", -2),
        ("100m", 1),
        ("1001m", 2),
        ("1u", 1),
        ("1n", 1),
        ("1k", 10**3),
        ("1M", 10**6),
        ("1G", 10**9),
        ("1T", 10**12),
        ("1P", 10**15),
        ("1E", 10**18),
        ("1Ki", 2**10),
        ("1Mi", 2**20),
        ("1.5Gi", 3 * 2**29),
        ("1Ti", 2**40),
        ("1Pi", 2**50),
        ("1Ei", 2**60),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E+3", 1000),
        ("12e-1", 2),
        ("11400G", 11_400 * 10**9),
        ("100E", INT64_MAX),
        ("-100E", -INT64_MAX),
        (7, 7),
        (0.5, 1),
        (1e3, 1000),
    ],
)
def test_units(text: str | float, value: int) -> None:
    """Whole units, rounded away from zero, and capped at int64."""
    assert units(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("200m", 200),
        ("1", 1000),
        ("0.1", 100),
        ("1n", 1),
        ("1500u", 2),
        ("2k", 2_000_000),
        (3, 3000),
    ],
)
def test_milli(text: str | int, value: int) -> None:
    """Thousandths of a cpu, rounded up."""
    assert milli(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1 ",
        "m",
        "1mm",
        "1ki",
        "1K",
        "1gi",
        "Mi",
        "0x10",
        "1,5",
        "1e",
        "--1",
        "1e99999",
        "9" * 81,
    ],
)
def test_what_is_no_quantity(text: str) -> None:
    """Everything else is an error that shows the text."""
    with pytest.raises(QuantityError) as refused:
        units(text)
    shown = text if len(text) <= 80 else text[:80] + "..."
    assert str(refused.value) == f"`{shown}` is not a quantity"


def test_sums_are_exact_before_they_are_rounded() -> None:
    """A thousand times a millionth is a thousandth, not a thousand times the smallest unit."""
    pod = a_pod("p").cpu("1u")
    for _ in range(999):
        pod = pod.container(cpu="1u")
    assert (pod_requests(pod.pod, on_node=False), nano("1u")) == ({"cpu": 1}, 1000)


def test_what_of_a_node_counts() -> None:
    """Known names, extended resources, hugepages and volumes; unknown plain names do not."""
    listed = {
        "cpu": "1",
        "memory": "1Ki",
        "pods": "10",
        "ephemeral-storage": "1k",
        "hugepages-2Mi": "2Mi",
        "example.com/gpu": 2,
        "attachable-volumes-aws-ebs": 39,
        "storage": "1Gi",
        "requests.example.com/gpu": 1,
    }
    assert amounts(listed) == {
        "cpu": 1000,
        "memory": 1024,
        "pods": 10,
        "ephemeral-storage": 1000,
        "hugepages-2Mi": 2**21,
        "example.com/gpu": 2,
        "attachable-volumes-aws-ebs": 39,
    }


# --- requests by generation --------------------------------------------------------------------

INIT = a_pod("p").cpu(1).init_container(cpu=3)
SIDECAR = a_pod("p").cpu(1).init_container(always=True, cpu=2)
OVERHEAD = a_pod("p").cpu(1).overhead(cpu="500m")
LEVEL = a_pod("p").cpu(1).memory("1Gi").pod_level(cpu=2)


def cpu(pod: PodBuilder | Pod, *, on_node: bool = True, **rules: bool) -> int:
    plain = pod.pod if isinstance(pod, PodBuilder) else pod
    return pod_requests(plain, on_node=on_node, rules=RequestRules(**rules))["cpu"]


def test_what_each_rule_leaves_out() -> None:
    """With its rule switched off, a part of a pod is counted as the older generations did."""
    found = {
        "init on a node": (cpu(INIT), cpu(INIT, running_init=False)),
        "init of the incoming pod": (
            cpu(INIT, on_node=False),
            cpu(INIT, on_node=False, running_init=False),
        ),
        "sidecar": (cpu(SIDECAR), cpu(SIDECAR, sidecars=False)),
        "overhead": (cpu(OVERHEAD), cpu(OVERHEAD, overhead=False)),
        "pod level": (cpu(LEVEL), cpu(LEVEL, pod_level=False)),
    }
    assert found == {
        "init on a node": (3000, 1000),
        "init of the incoming pod": (3000, 3000),
        "sidecar": (3000, 2000),
        "overhead": (1500, 1000),
        "pod level": (2000, 1000),
    }


def test_pod_level_requests_replace_one_resource_at_a_time() -> None:
    """What the pod level does not name stays the sum of the containers."""
    assert pod_requests(LEVEL.pod, on_node=True) == {"cpu": 2000, "memory": 2**30}


def resizing(reason: str = "", **held: str) -> Pod:
    """A pod that asks for one cpu while its kubelet says something else."""
    allocated = {"cpu": held["allocated"]} if "allocated" in held else None
    resources = ResourceRequirements(requests={"cpu": held["actual"]}) if "actual" in held else None
    status = ContainerStatus(name="main", resources=resources, allocated_resources=allocated)
    pod = a_pod("p").cpu(1)
    if reason:
        pod = pod.condition("PodResizePending", "True", reason)
    return replace(pod.pod, status=replace(pod.pod.status, container_statuses=[status]))


@pytest.mark.parametrize(
    ("pod", "milli_cpu"),
    [
        (resizing(actual="2"), 2000),
        (resizing(actual="500m"), 1000),
        (resizing(actual="500m", allocated="3"), 3000),
        (resizing(allocated="3"), 1000),
        (resizing("Deferred", actual="500m"), 1000),
        (resizing("Infeasible", actual="500m"), 500),
        (resizing("Infeasible", actual="500m", allocated="700m"), 700),
    ],
    ids=["larger", "smaller", "allocated", "no-status", "deferred", "infeasible", "both"],
)
def test_a_running_pod_in_resize(pod: Pod, milli_cpu: int) -> None:
    """The larger of what it asks for and what it has; an infeasible wish is left out."""
    assert cpu(pod) == milli_cpu


def test_an_incoming_pod_is_counted_by_its_spec() -> None:
    """Status says nothing about a pod that has no node yet, nor to older generations."""
    pod = resizing(actual="2")
    assert (cpu(pod, on_node=False), cpu(pod, resize=False)) == (1000, 1000)
