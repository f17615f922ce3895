"""Nodes, pods and budgets in one line, for tests whose facts YAML would hide.

    a_node("n1").cpu(8).running(a_pod("low").priority(1).cpu(4))

Builders are immutable: every method gives a new one, so that a common part can be shared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace as with_fields

from policy.cluster import times
from policy.cluster.objects import (
    Affinity,
    ClusterObject,
    Condition,
    Container,
    ContainerPort,
    LabelSelector,
    Namespace,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodStatus,
    Quantity,
    ResourceRequirements,
    Taint,
    Toleration,
    TopologySpreadConstraint,
)
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision
from policy.preemption.decide import decide
from policy.rules import RuleSet

NOW = datetime(2026, 11, 21, tzinfo=UTC)
NOW_MS = times.from_datetime(NOW)
HOSTNAME = "kubernetes.io/hostname"
ZONE = "zone"

Builder: TypeAlias = "PodBuilder | NodeBuilder | BudgetBuilder | ClusterObject"


def minutes_ago(minutes: int) -> str:
    """RFC 3339 text of that instant before NOW (after it where negative)."""
    text = times.to_text(NOW_MS - minutes * 60_000)
    assert text is not None
    return text


def selector(labels: Mapping[str, str] | None = None, **more: str) -> LabelSelector:
    """`matchLabels` of exactly these labels; `selector()` is the empty selector."""
    return LabelSelector(match_labels={**(labels or {}), **more} or None)


@dataclass(frozen=True)
class PodBuilder:
    """A pod in the making; it waits for a node unless it is `on` or `running` on one."""

    pod: Pod

    def _meta(self, **fields: Any) -> PodBuilder:
        return PodBuilder(with_fields(self.pod, metadata=with_fields(self.pod.metadata, **fields)))

    def _spec(self, **fields: Any) -> PodBuilder:
        return PodBuilder(with_fields(self.pod, spec=with_fields(self.pod.spec, **fields)))

    def _status(self, **fields: Any) -> PodBuilder:
        return PodBuilder(with_fields(self.pod, status=with_fields(self.pod.status, **fields)))

    # --- who it is -----------------------------------------------------------------------------

    def in_namespace(self, namespace: str) -> PodBuilder:
        return self._meta(namespace=namespace, uid=f"{namespace}/{self.pod.metadata.name}")

    def labelled(self, labels: Mapping[str, str] | None = None, **more: str) -> PodBuilder:
        return self._meta(labels={**(self.pod.metadata.labels or {}), **(labels or {}), **more})

    def owned_by(self, kind: str, name: str) -> PodBuilder:
        """By a controller."""
        reference = OwnerReference(kind=kind, name=name, uid=name, controller=True)
        return self._meta(owner_references=[reference])

    def priority(self, value: int | None) -> PodBuilder:
        return self._spec(priority=value)

    def never_preempting(self) -> PodBuilder:
        return self._spec(preemption_policy="Never")

    def scheduled_by(self, name: str) -> PodBuilder:
        return self._spec(scheduler_name=name)

    def created(self, minutes: int) -> PodBuilder:
        """Created that many minutes before NOW."""
        return self._meta(creation_timestamp=minutes_ago(minutes))

    # --- where it is, and since when -----------------------------------------------------------

    def on(self, node: str) -> PodBuilder:
        return self._spec(node_name=node)._status(phase="Running")

    def started(self, minutes: int | None) -> PodBuilder:
        """Started that many minutes before NOW; None: no start time."""
        return self._status(start_time=None if minutes is None else minutes_ago(minutes))

    def nominated_to(self, node: str) -> PodBuilder:
        return self._status(nominated_node_name=node)

    def terminating(self) -> PodBuilder:
        return self._meta(deletion_timestamp=minutes_ago(-1))

    def condition(self, type: str, status: str, reason: str) -> PodBuilder:
        conditions = [*(self.pod.status.conditions or ())]
        conditions.append(Condition(type=type, status=status, reason=reason))
        return self._status(conditions=conditions)

    def terminating_by_preemption(self) -> PodBuilder:
        return self.terminating().condition("DisruptionTarget", "True", "PreemptionByScheduler")

    def ended(self, phase: str = "Succeeded") -> PodBuilder:
        return self._status(phase=phase)

    # --- what it asks for ----------------------------------------------------------------------

    def requesting(self, requests: Mapping[str, Quantity]) -> PodBuilder:
        """Requests of the first container, added to those it has."""
        first, *others = self.pod.spec.containers or [Container(name="main")]
        resources = first.resources or ResourceRequirements()
        merged = {**(resources.requests or {}), **requests}
        first = with_fields(first, resources=with_fields(resources, requests=merged))
        return self._spec(containers=[first, *others])

    def cpu(self, amount: Quantity) -> PodBuilder:
        return self.requesting({"cpu": amount})

    def memory(self, amount: Quantity) -> PodBuilder:
        return self.requesting({"memory": amount})

    def container(self, **requests: Quantity) -> PodBuilder:
        """One more app container."""
        containers = self.pod.spec.containers or []
        return self._spec(containers=[*containers, _container(f"app-{len(containers)}", requests)])

    def init_container(self, *, always: bool = False, **requests: Quantity) -> PodBuilder:
        """One more init container; `always`: a sidecar."""
        containers = self.pod.spec.init_containers or []
        one = _container(f"init-{len(containers)}", requests)
        if always:
            one = with_fields(one, restart_policy="Always")
        return self._spec(init_containers=[*containers, one])

    def overhead(self, **amounts: Quantity) -> PodBuilder:
        return self._spec(overhead=dict(amounts))

    def pod_level(self, **requests: Quantity) -> PodBuilder:
        return self._spec(resources=ResourceRequirements(requests=dict(requests)))

    def host_port(self, port: int, *, ip: str = "", protocol: str = "TCP") -> PodBuilder:
        first, *others = self.pod.spec.containers or [Container(name="main")]
        one = ContainerPort(container_port=port, host_port=port, host_ip=ip, protocol=protocol)
        first = with_fields(first, ports=[*(first.ports or ()), one])
        return self._spec(containers=[first, *others])

    # --- where it may go -----------------------------------------------------------------------

    def tolerating(
        self, key: str = "", *, operator: str = "Exists", value: str = "", effect: str = ""
    ) -> PodBuilder:
        one = Toleration(key=key, operator=operator, value=value, effect=effect)
        return self._spec(tolerations=[*(self.pod.spec.tolerations or ()), one])

    def node_selector(self, labels: Mapping[str, str] | None = None, **more: str) -> PodBuilder:
        return self._spec(node_selector={**(labels or {}), **more})

    def node_terms(self, *terms: NodeSelectorTerm) -> PodBuilder:
        required = NodeSelector(node_selector_terms=list(terms))
        return self._affinity(node_affinity=NodeAffinity(required=required))

    def affine_to(self, *terms: PodAffinityTerm) -> PodBuilder:
        return self._affinity(pod_affinity=PodAffinity(required=list(terms)))

    def anti_affine_to(self, *terms: PodAffinityTerm) -> PodBuilder:
        return self._affinity(pod_anti_affinity=PodAffinity(required=list(terms)))

    def _affinity(self, **fields: Any) -> PodBuilder:
        return self._spec(affinity=with_fields(self.pod.spec.affinity or Affinity(), **fields))

    def spread(self, *constraints: TopologySpreadConstraint) -> PodBuilder:
        return self._spec(topology_spread_constraints=list(constraints))


@dataclass(frozen=True)
class NodeBuilder:
    """A node in the making, with the pods that run on it."""

    node: Node
    pods: tuple[Pod, ...] = ()

    def _node(self, **fields: Any) -> NodeBuilder:
        return replace(self, node=with_fields(self.node, **fields))

    def allocatable(self, amounts: Mapping[str, Quantity]) -> NodeBuilder:
        merged = {**(self.node.status.allocatable or {}), **amounts}
        return self._node(status=with_fields(self.node.status, allocatable=merged))

    def cpu(self, amount: Quantity) -> NodeBuilder:
        return self.allocatable({"cpu": amount})

    def memory(self, amount: Quantity) -> NodeBuilder:
        return self.allocatable({"memory": amount})

    def pod_limit(self, limit: int) -> NodeBuilder:
        return self.allocatable({"pods": limit})

    def labelled(self, labels: Mapping[str, str] | None = None, **more: str) -> NodeBuilder:
        merged = {**(self.node.metadata.labels or {}), **(labels or {}), **more}
        return self._node(metadata=with_fields(self.node.metadata, labels=merged))

    def unlabelled(self) -> NodeBuilder:
        return self._node(metadata=with_fields(self.node.metadata, labels=None))

    def tainted(self, key: str, value: str = "", effect: str = "NoSchedule") -> NodeBuilder:
        taints = [*(self.node.spec.taints or ()), Taint(key=key, value=value, effect=effect)]
        return self._node(spec=with_fields(self.node.spec, taints=taints))

    def cordoned(self) -> NodeBuilder:
        return self._node(spec=with_fields(self.node.spec, unschedulable=True))

    def running(self, *pods: PodBuilder) -> NodeBuilder:
        here = tuple(p.on(self.node.metadata.name).pod for p in pods)
        return replace(self, pods=self.pods + here)


@dataclass(frozen=True)
class BudgetBuilder:
    """A pod disruption budget in the making; it selects nothing and allows nothing at first."""

    budget: PodDisruptionBudget

    def selecting(self, labels: Mapping[str, str] | None = None, **more: str) -> BudgetBuilder:
        return self.by(selector(labels, **more))

    def by(self, chosen: LabelSelector | None) -> BudgetBuilder:
        spec = PodDisruptionBudgetSpec(selector=chosen)
        return BudgetBuilder(with_fields(self.budget, spec=spec))

    def allowing(self, disruptions: int) -> BudgetBuilder:
        status = with_fields(self.budget.status, disruptions_allowed=disruptions)
        return BudgetBuilder(with_fields(self.budget, status=status))

    def disrupted(self, *pods: str) -> BudgetBuilder:
        """Names of pods whose disruption is counted already."""
        status = with_fields(self.budget.status, disrupted_pods=dict.fromkeys(pods))
        return BudgetBuilder(with_fields(self.budget, status=status))

    def in_namespace(self, namespace: str) -> BudgetBuilder:
        meta = with_fields(self.budget.metadata, namespace=namespace)
        return BudgetBuilder(with_fields(self.budget, metadata=meta))


def _container(name: str, requests: Mapping[str, Quantity]) -> Container:
    return Container(name=name, resources=ResourceRequirements(requests=dict(requests)))


def a_pod(name: str) -> PodBuilder:
    """A pending pod of namespace `default` that requests nothing."""
    meta = ObjectMeta(name=name, namespace="default", uid=f"default/{name}")
    return PodBuilder(
        Pod(
            metadata=meta,
            spec=PodSpec(containers=[Container(name="main")]),
            status=PodStatus(phase="Pending"),
        )
    )


def a_node(name: str) -> NodeBuilder:
    """A node without cpu or memory, with its hostname label and room for 110 pods."""
    meta = ObjectMeta(name=name, labels={HOSTNAME: name})
    status = NodeStatus(allocatable={"pods": 110})
    return NodeBuilder(Node(metadata=meta, spec=NodeSpec(), status=status))


def a_pdb(name: str) -> BudgetBuilder:
    """A budget of namespace `default` that selects nothing and allows no disruption."""
    meta = ObjectMeta(name=name, namespace="default")
    return BudgetBuilder(PodDisruptionBudget(metadata=meta, status=PodDisruptionBudgetStatus()))


def a_namespace(name: str, labels: Mapping[str, str] | None = None, **more: str) -> Namespace:
    return Namespace(metadata=ObjectMeta(name=name, labels={**(labels or {}), **more}))


def objects(*parts: Builder) -> tuple[ClusterObject, ...]:
    """All objects of the parts, the pods of each node included."""
    return tuple(_objects(parts))


def _objects(parts: Iterable[Builder]) -> Iterable[ClusterObject]:
    for part in parts:
        match part:
            case NodeBuilder():
                yield part.node
                yield from part.pods
            case PodBuilder():
                yield part.pod
            case BudgetBuilder():
                yield part.budget
            case _:
                yield part


@cache
def rule_set(name: str, overrides: str = "{}") -> RuleSet:
    """A shipped rule set, loaded once; overrides as JSON text."""
    return RuleSet.load(name, overrides=msgspec.json.decode(overrides))


def snapshot(*parts: Builder) -> Snapshot:
    """The cluster of these parts, looked at at NOW."""
    return Snapshot.from_objects(objects(*parts), now_ms=NOW_MS)


def decided(
    *parts: Builder,
    rules: str | RuleSet = "kube-1.36",
    pod: str = "default/high",
    seed: int = 0,
    evaluate_all: bool = False,
) -> Decision:
    """What becomes of the pod `high` in the cluster of these parts."""
    return decide(
        snapshot(*parts),
        rule_set(rules) if isinstance(rules, str) else rules,
        pod,
        seed=seed,
        evaluate_all=evaluate_all,
    )


def short(key: str) -> str:
    """`name` of a pod in namespace `default`, `namespace/name` of others."""
    return key.removeprefix("default/")


def result(decision: Decision) -> tuple[str, str | None, list[str]]:
    """How the decision ends: outcome, node, and the pods that it deletes."""
    evicted = [short(key) for key in decision.effects.evict]
    return decision.outcome.value, decision.node, evicted


def candidates(decision: Decision) -> dict[str, list[str]]:
    """Victims by node, best node first, in the order in which ranking reads them."""
    return {c.node: [short(v) for v in c.victims] for c in decision.candidates}
