"""Predicates and scores of the plain session: one node and one task at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from policy.cluster import quantities
from policy.cluster.objects import NodeSelectorTerm, Pod, PodAffinityTerm
from policy.cluster.selectors import (
    compile_node_term,
    compile_selector,
    go_integer,
    required_nodes,
    tolerates,
)
from tests.differential.batch_plain_model import ALLOCATED, PlainNode, Task, World


class NodeChecks(World):
    """Which nodes may take a task, and which is best."""

    uses: list[Mapping[str, Any]]
    arguments: dict[str, dict[str, str]]

    def on(self, flag: str, *names: str) -> list[str]:
        return [u["name"] for u in self.uses if u["name"] in names and u.get(flag, True)]

    # --- predicates ----------------------------------------------------------------------------

    def passes(self, task: Task, node: PlainNode) -> bool:
        return all(self._predicate(task, node) for _ in self.on("enablePredicate", "predicates"))

    def _predicate(self, task: Task, node: PlainNode) -> bool:
        spec, pod = node.node.spec, task.pod
        if node.pods <= len(node.held):
            return False
        conditions = {c.type: c.status for c in node.node.status.conditions or ()}
        if conditions.get("Ready", "True") != "True" or spec.unschedulable:
            return False
        if conditions.get("NetworkUnavailable", "False") != "False":
            return False
        if not required_nodes(pod).matches(name=node.name, labels=node.labels):
            return False
        if any(
            p.host_port == q.host_port
            and p.protocol == q.protocol
            and (p.host_ip == q.host_ip or {"", "0.0.0.0"} & {p.host_ip, q.host_ip})
            for held, _ in node.tasks()
            for c in held.pod.spec.containers or ()
            for q in c.ports or ()
            for d in pod.spec.containers or ()
            for p in d.ports or ()
        ):
            return False
        for taint in spec.taints or ():
            if taint.effect in ("NoSchedule", "NoExecute") and not any(
                tolerates(t, taint) for t in pod.spec.tolerations or ()
            ):
                return False
        arguments = self.arguments["predicates"]
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure"):
            asked = arguments.get(f"predicate.{kind}Enable", "") in ("true", "1")
            minds = kind != "MemoryPressure" or self._best_effort(pod)
            if asked and minds and conditions.get(kind) == "True":
                return False
        return self._pod_affinity(task, node)

    @staticmethod
    def _best_effort(pod: Pod) -> bool:
        return not any(
            quantities.nano(q) > 0
            for c in (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
            for n, q in ((c.resources.requests if c.resources else None) or {}).items()
            if n in ("cpu", "memory")
        )

    @staticmethod
    def _selects(term: PodAffinityTerm, owner: Pod, pod: Pod) -> bool:
        namespaces = term.namespaces or [owner.metadata.namespace]
        return pod.metadata.namespace in namespaces and compile_selector(
            term.label_selector
        ).matches(pod.metadata.labels)

    @staticmethod
    def _same(node: PlainNode, other: PlainNode, key: str) -> bool:
        return key in node.labels and node.labels.get(key) == other.labels.get(key)

    def _pod_affinity(self, task: Task, node: PlainNode) -> bool:
        existing = [
            (t, self.nodes[t.node])
            for j in self.jobs.values()
            for t in j.of(*ALLOCATED)
            if t.node in self.nodes and (t.node != node.name or t.key in node.held)
        ]
        for other, place in existing:
            for term in _terms(other.pod, anti=True):
                if self._selects(term, other.pod, task.pod) and self._same(
                    node, place, term.topology_key
                ):
                    return False

        def matches(other: Task, terms: Sequence[PodAffinityTerm]) -> bool:
            return all(self._selects(t, task.pod, other.pod) for t in terms)

        own = _terms(task.pod, anti=False)
        if own:
            selected = [(o, place) for o, place in existing if matches(o, own)]
            near = [o for o, p in selected if all(self._same(node, p, t.topology_key) for t in own)]
            if not near and (selected or not matches(task, own)):
                return False
        against = _terms(task.pod, anti=True)
        return not against or not any(
            matches(o, against) and all(self._same(node, p, t.topology_key) for t in against)
            for o, p in existing
        )

    # --- scores --------------------------------------------------------------------------------

    def scores(self, task: Task, nodes: list[PlainNode]) -> dict[str, float]:
        found = dict.fromkeys((n.name for n in nodes), 0.0)
        for _ in self.on("enableNodeOrder", "nodeorder"):
            self._add_scores(task, nodes, found)
        return found

    def _weight(self, name: str, default: int) -> int:
        number = go_integer(self.arguments["nodeorder"].get(f"{name}.weight", ""))
        return default if number is None else number

    def _add_scores(self, task: Task, nodes: list[PlainNode], found: dict[str, float]) -> None:
        preferred = {}
        affinity = task.pod.spec.affinity
        terms = (
            (affinity.node_affinity.preferred or ()) if affinity and affinity.node_affinity else ()
        )
        for node in nodes:
            preferred[node.name] = 0
            for term in terms:
                expressions = NodeSelectorTerm(match_expressions=term.preference.match_expressions)
                compiled = compile_node_term(expressions)
                if compiled and compiled.matches(name=node.name, labels=node.labels):
                    preferred[node.name] += term.weight
        top = max(preferred.values(), default=0)
        near = self._inter_pod(task, nodes)
        for node in nodes:
            asked = [self._nonzero(task.pod)] + [self._nonzero(t.pod) for t, _ in node.tasks()]
            cpu, memory = (sum(part) for part in zip(*asked, strict=True))
            caps = (int(node.allocatable.cpu), int(node.allocatable.memory))
            pairs = list(zip((cpu, memory), caps, strict=True))
            least = [0 if c == 0 or q > c else (c - q) * 10 // c for q, c in pairs]
            most = [0 if c == 0 or q > c else q * 10 // c for q, c in pairs]
            parts = [1.0 if c == 0 else q / c for q, c in pairs]
            balance = 0 if max(parts) >= 1 else int((1 - abs(parts[0] - parts[1])) * 10.0)
            found[node.name] += (
                self._weight("leastrequested", 1) * (sum(least) // 2)
                + self._weight("mostrequested", 0) * (sum(most) // 2)
                + self._weight("balancedresource", 1) * balance
                + self._weight("nodeaffinity", 1) * (10 * preferred[node.name] // top if top else 0)
                + self._weight("podaffinity", 1) * near[node.name]
            )

    @staticmethod
    def _nonzero(pod: Pod) -> tuple[int, int]:
        cpu = memory = 0
        for container in pod.spec.containers or ():
            requests = (container.resources.requests if container.resources else None) or {}
            cpu += quantities.milli(requests["cpu"]) if "cpu" in requests else 100
            memory += (
                quantities.units(requests["memory"]) if "memory" in requests else 200 * 1024 * 1024
            )
        return cpu, memory

    def _inter_pod(self, task: Task, nodes: list[PlainNode]) -> dict[str, int]:
        counts = dict.fromkeys((n.name for n in nodes), 0)
        unnamed = [
            n
            for _, n in sorted(self.nodes.items())
            if any(not t.pod.spec.node_name for t, _ in n.tasks())
        ]
        for holder in nodes:
            for other, _ in holder.tasks():
                place = self.nodes.get(other.pod.spec.node_name) or unnamed[0]

                def count(
                    term: PodAffinityTerm,
                    owner: Pod,
                    selected: Pod,
                    weight: int,
                    place: PlainNode = place,
                ) -> None:
                    if self._selects(term, owner, selected):
                        for node in nodes:
                            if self._same(node, place, term.topology_key):
                                counts[node.name] += weight

                for owner, selected in ((task.pod, other.pod), (other.pod, task.pod)):
                    affinity = owner.spec.affinity
                    for terms, sign in (
                        (affinity and affinity.pod_affinity, 1),
                        (affinity and affinity.pod_anti_affinity, -1),
                    ):
                        for weighted in (terms.preferred or ()) if terms else ():
                            count(
                                weighted.pod_affinity_term, owner, selected, sign * weighted.weight
                            )
                for term in _terms(other.pod, anti=False):
                    count(term, other.pod, task.pod, 1)
        low, high = min([0, *counts.values()]), max([0, *counts.values()])
        if low == high:
            return dict.fromkeys(counts, 0)
        return {n: math.floor(10.0 * ((c - low) / (high - low))) for n, c in counts.items()}


def _terms(pod: Pod, *, anti: bool) -> Sequence[PodAffinityTerm]:
    affinity = pod.spec.affinity
    if affinity is None:
        return ()
    found = affinity.pod_anti_affinity if anti else affinity.pod_affinity
    return () if found is None else found.required or ()
