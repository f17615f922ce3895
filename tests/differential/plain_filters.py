"""The filters of the plain implementation: one pod, one node at a time, as kube-scheduler has them.

Every filter looks at the whole cluster once (PreFilter), follows pods that come and go on the node
being tried (AddPod, RemovePod), and answers for that node (Filter). Volumes and node conditions
are left out: the clusters that are compared have none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

from policy.cluster.objects import (
    Node,
    Pod,
    PodAffinityTerm,
    Taint,
    TopologySpreadConstraint,
)
from policy.cluster.requests import RequestRules, amounts, pod_requests
from policy.cluster.selectors import (
    Selector,
    compile_selector,
    required_nodes,
    tolerates,
)
from policy.rules.ruleset import RuleSet

SUCCESS, UNSCHEDULABLE, UNRESOLVABLE, ERROR = range(4)

Labels = Mapping[str, str]


class Verdict(NamedTuple):
    """The status of one node: its code, the filter that decided, and why."""

    code: int
    filter: str
    reasons: tuple[str, ...]


PASSED = Verdict(SUCCESS, "", ())


def namespace_of(pod: Pod) -> str:
    return pod.metadata.namespace or "default"


def key_of(pod: Pod) -> str:
    return f"{namespace_of(pod)}/{pod.metadata.name}"


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def labels_of(thing: Pod | Node) -> Labels:
    return thing.metadata.labels or {}


@dataclass
class NodeState:
    """A node with the pods on it."""

    node: Node
    pods: list[Pod] = field(default_factory=list)
    #: (ip, protocol, port): a set, so of two pods with one port the first to leave frees it
    ports: set[tuple[str, str, int]] = field(default_factory=set)
    #: those of app containers alone, for generations that overlook sidecars'
    app_ports: set[tuple[str, str, int]] = field(default_factory=set)

    @property
    def name(self) -> str:
        return self.node.metadata.name

    def copy(self) -> NodeState:
        return NodeState(self.node, list(self.pods), set(self.ports), set(self.app_ports))

    def add(self, pod: Pod) -> None:
        self.pods.append(pod)
        self.ports |= set(ports_of(pod))
        self.app_ports |= set(ports_of(pod, sidecars=False))

    def remove(self, pod: Pod) -> None:
        self.pods = [p for p in self.pods if p is not pod]
        self.ports -= set(ports_of(pod))
        self.app_ports -= set(ports_of(pod, sidecars=False))


@dataclass(frozen=True)
class Cluster:
    """What the filters see of the cluster."""

    nodes: Sequence[NodeState]  #: in name order
    namespaces: Mapping[str, Labels]


@dataclass(frozen=True)
class Said:
    """What a filter says before it looks at nodes."""

    rejected: tuple[str, ...] = ()
    error: str = ""
    names: frozenset[str] | None = None


def ports_of(pod: Pod, *, sidecars: bool = True) -> list[tuple[str, str, int]]:
    inits = pod.spec.init_containers or () if sidecars else ()
    restartable = [c for c in inits if c.restart_policy == "Always"]
    return [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in [*(pod.spec.containers or ()), *restartable]
        for port in container.ports or ()
        if port.host_port > 0
    ]


class Filter:
    """A filter for one incoming pod; most know nothing about the rest of the cluster."""

    def __init__(self, pod: Pod, cluster: Cluster, parameters: Mapping[str, Any]) -> None:
        self.pod = pod
        self.cluster = cluster
        self.parameters = parameters

    def before(self) -> Said | None:
        """PreFilter."""
        return None

    def copy(self) -> Filter:
        return self

    def moved(self, pod: Pod, node: Node, by: int) -> None:
        """AddPod (by 1) and RemovePod (by -1)."""

    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        """Code and reasons for one node."""
        raise NotImplementedError


class Passing(Filter):
    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        return SUCCESS, ()


class NodeUnschedulable(Filter):
    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        cordon = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
        if state.node.spec.unschedulable and not tolerated(self.pod, cordon):
            return UNRESOLVABLE, ("node(s) were unschedulable",)
        return SUCCESS, ()


class Taints(Filter):
    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        for taint in state.node.spec.taints or ():
            if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(self.pod, taint):
                return UNRESOLVABLE, (self.text(taint),)
        return SUCCESS, ()

    def text(self, taint: Taint) -> str:
        match self.parameters["messages"]:
            case "1.14":
                return "node(s) had taints that the pod didn't tolerate"
            case "1.20":
                named = f"{{{taint.key}: {taint.value}}}"
                return f"node(s) had taint {named}, that the pod didn't tolerate"
            case "1.34.2":
                return "node(s) had untolerated taint(s)"
            case _:
                return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"


def tolerated(pod: Pod, taint: Taint) -> bool:
    return any(tolerates(t, taint) for t in pod.spec.tolerations or ())


OLD_SELECTOR_TEXTS = {
    "1.14": "node(s) didn't match node selector",
    "1.20": "node(s) didn't match Pod's node affinity",
}
SELECTOR_TEXT = "node(s) didn't match Pod's node affinity/selector"


class NodeAffinity(Filter):
    def before(self) -> Said | None:
        if self.parameters["nodeNames"] == "not-narrowed":
            return None
        names = self.names()
        if names is None:
            return None
        if not names:
            return Said(rejected=("pod affinity terms conflict",))
        unknown = sorted(names - {state.name for state in self.cluster.nodes})
        if unknown and self.parameters["nodeNames"] == "dry-run":
            return Said(error=f'nodeinfo not found for node name "{unknown[0]}"')
        return Said(names=frozenset(names))

    def names(self) -> set[str] | None:
        """Node names that all terms together allow, None where a term allows any."""
        affinity = self.pod.spec.affinity and self.pod.spec.affinity.node_affinity
        if not affinity or not affinity.required or not affinity.required.node_selector_terms:
            return None
        names: set[str] = set()
        for term in affinity.required.node_selector_terms:
            allowed: set[str] | None = None
            for field_ in term.match_fields or ():
                if field_.key == "metadata.name" and field_.operator == "In":
                    values = set(field_.values or ())
                    allowed = values if allowed is None else allowed & values
            if allowed is None:
                return None
            names |= allowed
        return names

    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        if matches_node(self.pod, state.node):
            return SUCCESS, ()
        return UNRESOLVABLE, (OLD_SELECTOR_TEXTS.get(self.parameters["messages"], SELECTOR_TEXT),)


def matches_node(pod: Pod, node: Node) -> bool:
    return required_nodes(pod).matches(name=node.metadata.name, labels=labels_of(node))


class DeclaredFeatures(Filter):
    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        text = "node(s) didn't match Pod's required features"
        spec, declared = self.pod.spec, state.node.status.declared_features or ()
        for container in [*(spec.containers or ()), *(spec.init_containers or ())]:
            for rule in container.restart_policy_rules or ():
                restarts = rule.action == "RestartAllContainers"
                if restarts and "RestartAllContainersOnContainerExits" not in declared:
                    return UNRESOLVABLE, (text,)
        own_users = spec.host_network and spec.host_users is False
        if own_users and "UserNamespacesHostNetworkSupport" not in declared:
            return UNRESOLVABLE, (text,)
        return SUCCESS, ()


class NodePorts(Filter):
    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        sidecars = self.parameters["sidecars"]
        held = state.ports if sidecars else state.app_ports
        for ip, protocol, port in ports_of(self.pod, sidecars=sidecars):
            for held_ip, held_protocol, held_port in held:
                same = (protocol, port) == (held_protocol, held_port)
                if same and (ip == held_ip or "0.0.0.0" in (ip, held_ip)):
                    text = "node(s) didn't have free ports for the requested pod ports"
                    return UNSCHEDULABLE, (text,)
        return SUCCESS, ()


class Resources(Filter):
    NAMED = ("cpu", "memory", "ephemeral-storage")

    def __init__(self, pod: Pod, cluster: Cluster, parameters: Mapping[str, Any]) -> None:
        super().__init__(pod, cluster, parameters)
        self.rules = RequestRules(
            sidecars=parameters["sidecars"],
            pod_level=parameters["podLevel"],
            pod_level_resize=parameters["podLevelResize"],
            resize=parameters["resize"],
            overhead=parameters["overhead"],
            running_init=parameters["runningInit"],
        )
        self.wanted = pod_requests(pod, on_node=False, rules=self.rules)
        self.known: dict[int, Mapping[str, int]] = {}

    def requests(self, pod: Pod) -> Mapping[str, int]:
        found = self.known.get(id(pod))
        if found is None:
            found = self.known[id(pod)] = pod_requests(pod, on_node=True, rules=self.rules)
        return found

    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        allocatable = amounts(state.node.status.allocatable)
        reasons = []
        code = SUCCESS
        if len(state.pods) + 1 > allocatable.get("pods", 0):
            old = self.parameters["messages"] == "1.14"
            reasons.append("Insufficient pods" if old else "Too many pods")
            code = UNSCHEDULABLE
        for name in self.compared():
            wanted = self.wanted.get(name, 0)
            used = sum(self.requests(p).get(name, 0) for p in state.pods)
            if wanted > allocatable.get(name, 0) - used:
                reasons.append(f"Insufficient {name}")
                code = max(code, UNSCHEDULABLE)
                if self.parameters[
                    "aboveAllocatable"
                ] == "unresolvable" and wanted > allocatable.get(name, 0):
                    code = UNRESOLVABLE
        return code, tuple(reasons)

    def compared(self) -> list[str]:
        others = sorted(set(self.wanted) - set(self.NAMED))
        if self.parameters["compare"] == "requested":
            return [n for n in [*self.NAMED, *others] if self.wanted.get(n, 0) > 0]
        if not others and not any(self.wanted.get(n, 0) for n in self.NAMED):
            return []
        return [*self.NAMED, *others]


class General(Filter):
    """1.14: resources, host ports and node selector together; all that fails is told."""

    def __init__(self, pod: Pod, cluster: Cluster, parameters: Mapping[str, Any]) -> None:
        super().__init__(pod, cluster, parameters)
        off = ["sidecars", "podLevel", "podLevelResize", "resize", "overhead", "runningInit"]
        old = {**parameters, **dict.fromkeys(off, False)}
        resources = {**old, "aboveAllocatable": "unschedulable", "compare": "all"}
        selector = {**parameters, "nodeNames": "not-narrowed"}
        self.parts: list[Filter] = [
            Resources(pod, cluster, resources),
            NodePorts(pod, cluster, {"sidecars": False}),
            NodeAffinity(pod, cluster, selector),
        ]

    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        answers = [part.check(state) for part in self.parts]
        return max(code for code, _ in answers), tuple(r for _, told in answers for r in told)


class TopologySpread(Filter):
    """Source: PodTopologySpread of 1.20 and 1.35."""

    def __init__(self, pod: Pod, cluster: Cluster, parameters: Mapping[str, Any]) -> None:
        super().__init__(pod, cluster, parameters)
        self.constraints = [
            c
            for c in pod.spec.topology_spread_constraints or ()
            if c.when_unsatisfiable == "DoNotSchedule"
        ]
        self.selectors = [self.selector(c) for c in self.constraints]
        # Per constraint: number of matching pods by value of the topology label.
        self.counts: list[dict[str, int]] = [{} for _ in self.constraints]
        for i, constraint in enumerate(self.constraints):
            for state in cluster.nodes:
                if self.included(constraint, state.node):
                    self.counts[i].setdefault(labels_of(state.node)[constraint.topology_key], 0)
            for state in cluster.nodes:
                value = labels_of(state.node).get(constraint.topology_key)
                # Before the inclusion policies a domain's pods were counted on all of its nodes,
                # also on those that the pod's node affinity keeps it from.
                if (
                    self.included(constraint, state.node)
                    if parameters["nodeInclusionPolicies"]
                    else value in self.counts[i]
                ):
                    self.counts[i][value or ""] += self.matching(self.selectors[i], state.pods)
        if parameters["sameKey"] != "apart":
            self.share(cluster)

    def share(self, cluster: Cluster) -> None:
        """One table of counts for all constraints of a topology key (1.32 and earlier)."""
        tables: dict[str, dict[str, int]] = {}
        for i, constraint in enumerate(self.constraints):
            table = tables.setdefault(constraint.topology_key, {})
            for value, count in self.counts[i].items():
                table[value] = table.get(value, 0) + count
            self.counts[i] = table
        if self.parameters["sameKey"] == "summed":
            return
        for key, table in tables.items():
            of_key = [i for i, c in enumerate(self.constraints) if c.topology_key == key]
            table.update(dict.fromkeys(table, 0))
            for state in cluster.nodes:
                counting = [i for i in of_key if self.included(self.constraints[i], state.node)]
                if counting:  # the last one overwrites what the others counted on the node
                    last = self.selectors[counting[-1]]
                    table[labels_of(state.node)[key]] += self.matching(last, state.pods)

    def selector(self, constraint: TopologySpreadConstraint) -> Selector:
        labels = labels_of(self.pod)
        keys = [k for k in constraint.match_label_keys or () if k in labels]
        return compile_selector(constraint.label_selector).with_labels({k: labels[k] for k in keys})

    def included(self, constraint: TopologySpreadConstraint, node: Node) -> bool:
        if any(c.topology_key not in labels_of(node) for c in self.constraints):
            return False
        if not self.parameters["nodeInclusionPolicies"]:
            return matches_node(self.pod, node)
        if constraint.node_affinity_policy != "Ignore" and not matches_node(self.pod, node):
            return False
        return constraint.node_taints_policy != "Honor" or all(
            tolerated(self.pod, t)
            for t in node.spec.taints or ()
            if t.effect in ("NoSchedule", "NoExecute")
        )

    def matching(self, selector: Selector, pods: Iterable[Pod]) -> int:
        if selector.empty and self.parameters["emptySelector"] == "nothing":
            return 0
        return sum(
            namespace_of(pod) == namespace_of(self.pod)
            and not pod.metadata.deletion_timestamp
            and selector.matches(pod.metadata.labels)
            for pod in pods
        )

    def copy(self) -> Filter:
        other = TopologySpread.__new__(TopologySpread)
        other.__dict__.update(self.__dict__)
        # Constraints that share their counts share the copy, too.
        copies = {id(c): dict(c) for c in self.counts}
        other.counts = [copies[id(c)] for c in self.counts]
        return other

    def moved(self, pod: Pod, node: Node, by: int) -> None:
        if namespace_of(pod) != namespace_of(self.pod):
            return
        for i, constraint in enumerate(self.constraints):
            if self.included(constraint, node) and self.selectors[i].matches(pod.metadata.labels):
                self.counts[i][labels_of(node)[constraint.topology_key]] += by

    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        text = "node(s) didn't match pod topology spread constraints"
        for i, constraint in enumerate(self.constraints):
            value = labels_of(state.node).get(constraint.topology_key)
            if value is None:
                return UNRESOLVABLE, (f"{text} (missing required label)",)
            counts = self.counts[i]
            smallest = min(counts.values(), default=2**31 - 1)
            wanted = constraint.min_domains if self.parameters["minDomains"] else None
            if wanted is not None and len(counts) < wanted:
                smallest = 0
            own = int(self.selectors[i].matches(self.pod.metadata.labels))
            if counts.get(value, 0) + own - smallest > constraint.max_skew:
                return UNSCHEDULABLE, (text,)
        return SUCCESS, ()


@dataclass(frozen=True)
class Term:
    """A pod affinity term with the namespaces that it means."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    @staticmethod
    def of(term: PodAffinityTerm, owner: Pod) -> Term:
        own = not term.namespaces and term.namespace_selector is None
        return Term(
            topology_key=term.topology_key,
            namespaces=frozenset([namespace_of(owner)] if own else term.namespaces or ()),
            namespace_selector=compile_selector(term.namespace_selector),
            selector=compile_selector(term.label_selector),
        )

    def matches(self, pod: Pod, namespace_labels: Labels) -> bool:
        in_namespace = namespace_of(pod) in self.namespaces or self.namespace_selector.matches(
            namespace_labels
        )
        return in_namespace and self.selector.matches(pod.metadata.labels)


def terms_of(pod: Pod, *, anti: bool) -> list[PodAffinityTerm]:
    affinity = pod.spec.affinity
    chosen = affinity and (affinity.pod_anti_affinity if anti else affinity.pod_affinity)
    return list((chosen and chosen.required) or ())


class PodAffinity(Filter):
    """Source: InterPodAffinity of 1.35; 1.14 differs in what its parameters say."""

    def __init__(self, pod: Pod, cluster: Cluster, parameters: Mapping[str, Any]) -> None:
        super().__init__(pod, cluster, parameters)
        self.namespace_labels = cluster.namespaces.get(namespace_of(pod), {})
        self.affinity = [self.merged(Term.of(t, pod)) for t in terms_of(pod, anti=False)]
        self.anti = [self.merged(Term.of(t, pod)) for t in terms_of(pod, anti=True)]
        # Numbers of pods by (topology key, value).
        self.affine: Counter[tuple[str, str]] = Counter()
        self.hostile: Counter[tuple[str, str]] = Counter()
        self.existing: Counter[tuple[str, str]] = Counter()
        for state in cluster.nodes:
            for other in state.pods:
                self.moved(other, state.node, 1)
        self.skipped = (
            not self.affinity
            and not self.anti
            and not any(self.existing.values())
            and parameters["skip"] == "when-irrelevant"
        )

    def merged(self, term: Term) -> Term:
        """The incoming pod's namespace selectors become names of namespaces."""
        if term.namespace_selector.empty:
            return term
        names = {
            name
            for name, labels in self.cluster.namespaces.items()
            if term.namespace_selector.matches(labels)
        }
        kept = self.parameters["namespaceSelector"] == "kept"
        return Term(
            topology_key=term.topology_key,
            namespaces=term.namespaces | names,
            namespace_selector=term.namespace_selector if kept else compile_selector(None),
            selector=term.selector,
        )

    def before(self) -> Said | None:
        for anti in (False, True):
            terms = terms_of(self.pod, anti=anti)
            chosen = [s for t in terms for s in (t.label_selector, t.namespace_selector)]
            if any(compile_selector(s).invalid for s in chosen):
                shown = msgspec.json.encode(terms).decode()
                return Said(rejected=(f"parsing pod: invalid affinity term in {shown}",))
        return None

    def copy(self) -> Filter:
        other = PodAffinity.__new__(PodAffinity)
        other.__dict__.update(self.__dict__)
        other.affine = self.affine.copy()
        other.hostile = self.hostile.copy()
        other.existing = self.existing.copy()
        return other

    def moved(self, pod: Pod, node: Node, by: int) -> None:
        labels = labels_of(node)
        if self.affinity and all(t.matches(pod, {}) for t in self.affinity):
            _count(self.affine, self.affinity, labels, by)
        _count(self.hostile, [t for t in self.anti if t.matches(pod, {})], labels, by)
        theirs = [Term.of(t, pod) for t in terms_of(pod, anti=True)]
        matching = [t for t in theirs if t.matches(self.pod, self.namespace_labels)]
        _count(self.existing, matching, labels, by)

    def check(self, state: NodeState) -> tuple[int, tuple[str, ...]]:
        if self.skipped:
            return SUCCESS, ()
        labels = labels_of(state.node)
        checks = [
            (self.affinity_holds(labels), UNRESOLVABLE, "node(s) didn't match pod affinity rules"),
            (
                not any(self.hostile[pair] > 0 for pair in _pairs(self.anti, labels)),
                UNSCHEDULABLE,
                "node(s) didn't match pod anti-affinity rules",
            ),
            (
                not any(self.existing[pair] > 0 for pair in labels.items()),
                UNSCHEDULABLE,
                "node(s) didn't satisfy existing pods anti-affinity rules",
            ),
        ]
        if self.parameters["order"] == "existing-first":
            checks = [checks[2], checks[0], checks[1]]
        for holds, code, text in checks:
            if not holds:
                general = "node(s) didn't match pod affinity/anti-affinity"
                precise = self.parameters["messages"] not in ("1.14", "1.20")
                return code, (text,) if precise else (general, text)
        return SUCCESS, ()

    def affinity_holds(self, labels: Labels) -> bool:
        labelled = all(t.topology_key in labels for t in self.affinity)
        if labelled and all(self.affine[pair] > 0 for pair in _pairs(self.affinity, labels)):
            return True
        # The first pod of a group that wants its own kind has nobody to join.
        first = not any(self.affine.values())
        first = first and all(t.matches(self.pod, {}) for t in self.affinity)
        return first and (labelled or self.parameters["firstOfGroup"] == "any-node")


def _pairs(terms: Iterable[Term], labels: Labels) -> list[tuple[str, str]]:
    return [(t.topology_key, labels[t.topology_key]) for t in terms if t.topology_key in labels]


def _count(
    counts: Counter[tuple[str, str]], terms: Iterable[Term], labels: Labels, by: int
) -> None:
    for pair in _pairs(terms, labels):
        counts[pair] += by


FILTERS: Mapping[str, type[Filter]] = {
    "node-unschedulable": NodeUnschedulable,
    "node-name": Passing,  # a pod that waits for a node names none
    "taints": Taints,
    "node-affinity": NodeAffinity,
    "node-ports": NodePorts,
    "resources": Resources,
    "general": General,
    "topology-spread": TopologySpread,
    "pod-affinity": PodAffinity,
    "node-conditions": Passing,
    "declared-features": DeclaredFeatures,
    "volume-restrictions": Passing,
    "volume-limits": Passing,
    "volume-binding": Passing,
    "volume-zone": Passing,
    "resource-claims": Passing,
}


def built(rules: RuleSet, pod: Pod, cluster: Cluster) -> list[tuple[str, Filter]]:
    """The rule set's filters in order, for one pod; each knows whose texts it gives."""
    told = {"messages": rules.messages}
    return [
        (use.name, FILTERS[use.name](pod, cluster, {**use.parameters, **told}))
        for use in rules.filters
    ]
