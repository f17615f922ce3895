"""Filters that eviction helps: resources, pod count, host ports."""

from __future__ import annotations

from typing import Any

import pytest

from policy.decision.model import Code, Decision, Outcome
from tests.support.builders import PodBuilder, a_node, a_pod, candidates, decided, result

GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35")
HIGH = a_pod("high").priority(10)
GPU = "example.com/gpu"


def status(decision: Decision) -> tuple[Code, tuple[str, ...]]:
    """Code and reasons of n1."""
    found = decision.trace.filter_statuses["n1"]
    return found.code, found.reasons


# --- resources ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_pod_that_fits_to_the_last_unit(name: str) -> None:
    """Requests may add up to exactly what is allocatable."""
    node = a_node("n1").cpu("1500m").memory("1Gi").running(a_pod("a").cpu(1).memory("512Mi"))
    decision = decided(node, HIGH.cpu("500m").memory("512Mi"), rules=name)
    assert result(decision) == ("bind", "n1", [])


@pytest.mark.parametrize("name", GENERATIONS)
def test_one_unit_too_many(name: str) -> None:
    """A single milli cpu or byte more, and somebody has to go."""
    low = a_pod("a").cpu(1).memory("512Mi")
    node = a_node("n1").cpu("1500m").memory("1Gi").running(low)
    pods = HIGH.cpu("501m"), HIGH.memory(2**29 + 1)
    assert [result(decided(node, pod, rules=name)) for pod in pods] == [
        ("preempt", "n1", ["a"])
    ] * 2


def test_all_that_is_short_is_told() -> None:
    """Pod count first, then cpu, memory, storage, and extended resources by name."""
    amounts = {"cpu": 1, "memory": "1Gi", "ephemeral-storage": "1Gi", "b.io/x": 1, "a.io/x": 1}
    node = a_node("n1").allocatable(amounts).pod_limit(1).running(a_pod("a").requesting(amounts))
    assert status(decided(node, HIGH.requesting(amounts))) == (
        Code.UNSCHEDULABLE,
        (
            "Too many pods",
            "Insufficient cpu",
            "Insufficient memory",
            "Insufficient ephemeral-storage",
            "Insufficient a.io/x",
            "Insufficient b.io/x",
        ),
    )


@pytest.mark.parametrize(
    ("name", "wanted"), [("kube-1.28", Code.UNSCHEDULABLE), ("kube-1.35", Code.UNRESOLVABLE)]
)
def test_more_than_the_node_ever_had(name: str, wanted: Code) -> None:
    """From 1.34 on one request above the whole allocatable makes the node unresolvable."""
    node = a_node("n1").cpu(2).memory("1Gi").running(a_pod("a").cpu(2))
    decision = decided(node, HIGH.cpu(1).memory("2Gi"), rules=name)
    assert status(decision) == (wanted, ("Insufficient cpu", "Insufficient memory"))


def test_too_many_pods_is_resolvable_even_without_any_place() -> None:
    """A node that allows no pod at all is a potential node all the same."""
    node = a_node("n1").pod_limit(0).running(a_pod("a"))
    assert status(decided(node, HIGH)) == (Code.UNSCHEDULABLE, ("Too many pods",))


@pytest.mark.parametrize("name", GENERATIONS)
def test_the_pod_count_takes_one_victim(name: str) -> None:
    """A pod that requests nothing still needs a place."""
    node = a_node("n1").pod_limit(2).running(a_pod("a").priority(2), a_pod("b").priority(1))
    assert result(decided(node, HIGH, rules=name)) == ("preempt", "n1", ["b"])


@pytest.mark.parametrize("name", GENERATIONS)
def test_extended_resources(name: str) -> None:
    """Devices are counted like any other resource; a victim that frees none is reprieved."""
    node = a_node("n1").cpu(4).allocatable({GPU: 2})
    node = node.running(
        a_pod("a").cpu(1).requesting({GPU: 2}).priority(5), a_pod("b").cpu(1).priority(1)
    )
    decision = decided(node, HIGH.cpu(1).requesting({GPU: 1}), rules=name)
    assert result(decision) == ("preempt", "n1", ["a"])


@pytest.mark.parametrize(("name", "fits"), [(g, g not in GENERATIONS[:3]) for g in GENERATIONS])
def test_an_over_used_resource_that_is_not_requested(name: str, fits: bool) -> None:
    """Up to 1.27 it keeps the pod out; later only what is requested is compared."""
    node = a_node("n1").cpu(2).memory("1Gi").running(a_pod("a").priority(99).memory("2Gi"))
    assert (decided(node, HIGH.cpu(1), rules=name).outcome is Outcome.BIND) == fits


@pytest.mark.parametrize("name", GENERATIONS)
def test_a_pod_that_requests_nothing_fits_an_over_used_node(name: str) -> None:
    """In every generation nothing is compared for it."""
    node = a_node("n1").cpu(1).running(a_pod("a").priority(99).cpu(2))
    assert result(decided(node, HIGH, rules=name)) == ("bind", "n1", [])


def test_a_zero_request_of_an_extended_resource() -> None:
    """Up to 1.27 even zero of something makes the scheduler compare everything."""
    node = a_node("n1").cpu(1).running(a_pod("a").priority(99).cpu(2))
    pod = HIGH.requesting({GPU: 0})
    found = {g: decided(node, pod, rules=g).outcome.value for g in ("kube-1.27", "kube-1.28")}
    assert found == {"kube-1.27": "no-candidate", "kube-1.28": "bind"}


# --- what a pod requests -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pod", "milli"),
    [
        (HIGH.cpu(1).container(cpu="500m"), 1500),
        (HIGH.cpu(1).init_container(cpu=3).init_container(cpu=2), 3000),
        (HIGH.cpu(2).init_container(cpu=1), 2000),
        (HIGH.cpu(1).init_container(always=True, cpu=1).init_container(cpu=2), 3000),
        (HIGH.cpu(1).init_container(cpu=2).init_container(always=True, cpu=1), 2000),
        (HIGH.cpu(1).overhead(cpu="250m"), 1250),
        (HIGH.cpu(1).init_container(cpu=2).overhead(cpu=1), 3000),
        (HIGH.cpu(1).container(cpu=1).pod_level(cpu=3).overhead(cpu=1), 4000),
        (HIGH.cpu(3).pod_level(cpu=1), 1000),
        (HIGH.cpu(1).pod_level(memory="1Gi"), 1000),
        (HIGH.cpu("0.1"), 100),
        (HIGH.cpu("100u"), 1),
        (HIGH.cpu("1e3"), 1_000_000),
    ],
    ids=[
        "containers-add-up",
        "highest-init-container",
        "app-containers-are-higher",
        "init-on-top-of-sidecar",
        "sidecar-after-init",
        "overhead",
        "overhead-on-init",
        "pod-level",
        "pod-level-below-the-sum",
        "pod-level-of-another-resource",
        "fraction",
        "rounded-up",
        "exponent",
    ],
)
def test_what_a_pod_asks_for(pod: PodBuilder, milli: int) -> None:
    """The node must have exactly that much (1.35)."""
    enough = a_node("n1").cpu(f"{milli}m").memory("1Gi")
    short = a_node("n1").cpu(f"{milli - 1}m").memory("1Gi")
    outcomes = [decided(node, pod).outcome for node in (enough, short)]
    assert outcomes == [Outcome.BIND, Outcome.NO_CANDIDATE]


# --- host ports --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("held", "wanted", "clash"),
    [
        ({}, {}, True),
        ({"ip": "10.0.0.1"}, {"ip": "10.0.0.1"}, True),
        ({"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}, False),
        ({"ip": "10.0.0.1"}, {}, True),
        ({}, {"ip": "10.0.0.1"}, True),
        ({"ip": "0.0.0.0"}, {"ip": "10.0.0.1"}, True),
        ({"protocol": "UDP"}, {}, False),
        ({"protocol": "UDP"}, {"protocol": "UDP"}, True),
        ({"ip": "::1"}, {"ip": "0.0.0.0"}, True),
    ],
)
@pytest.mark.parametrize("name", ["kube-1.14", "kube-1.35"])
def test_which_host_ports_clash(
    name: str, held: dict[str, Any], wanted: dict[str, Any], clash: bool
) -> None:
    """Address, protocol and port must be equal; 0.0.0.0 stands for every address."""
    node = a_node("n1").running(a_pod("a").host_port(80, **held))
    decision = decided(node, HIGH.host_port(80, **wanted), rules=name)
    assert result(decision) == (("preempt", "n1", ["a"]) if clash else ("bind", "n1", []))


def test_only_the_holder_of_the_port_goes() -> None:
    """Pods beside it are reprieved, however unimportant."""
    node = a_node("n1").running(a_pod("a").priority(5).host_port(80), a_pod("b").host_port(81))
    assert candidates(decided(node, HIGH.host_port(80))) == {"n1": ["a"]}


def test_a_port_of_a_more_important_pod() -> None:
    """Nothing helps where the holder may not go."""
    node = a_node("n1").running(a_pod("a").priority(99).host_port(80), a_pod("b"))
    decision = decided(node, HIGH.host_port(80))
    status = decision.trace.dry_run_statuses["n1"]
    assert (status.filter, status.reasons) == (
        "node-ports",
        ("node(s) didn't have free ports for the requested pod ports",),
    )


def test_a_nominated_pods_port_is_taken() -> None:
    """What a nominated pod will hold is held already."""
    waits = a_pod("waits").priority(20).host_port(80).nominated_to("n1")
    decision = decided(a_node("n1").running(a_pod("a")), waits, HIGH.host_port(80))
    assert decision.outcome is Outcome.NO_CANDIDATE
