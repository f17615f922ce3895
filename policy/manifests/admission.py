"""What an API server would have refused: names, label syntax, operators, and their like.

Source: Kubernetes' `pkg/apis/core/validation`. Only fields that the engine reads are checked, and
that a required field is there only where a decision needs it: hand-written manifests leave out
much (the name of a container, the port of a container that has a host port).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from policy.cluster.names import (
    is_dns_label,
    is_repeated_subdomain,
    is_subdomain,
    valid_label_key,
    valid_label_value,
)
from policy.cluster.objects import (
    NAMESPACED,
    Affinity,
    ClusterObject,
    Container,
    CSINode,
    DisruptionMode,
    LabelSelector,
    LabelSelectorRequirement,
    Namespace,
    Node,
    NodeSelectorTerm,
    PersistentVolume,
    Pod,
    PodAffinityTerm,
    PodDisruptionBudget,
    PriorityClass,
    ReplicaSet,
    ReplicationController,
    SchedulingPodGroup,
    Service,
    StatefulSet,
    Toleration,
    TopologySpreadConstraint,
)
from policy.cluster.selectors import decimal_integer
from policy.manifests.fields import Mismatch, child, out_of_range
from policy.manifests.problems import shown

ANNOTATION_BYTES: Final = 256 * 1024
"""Most that the annotations of one object may take, keys and values together."""

HIGHEST_USER_PRIORITY: Final = 1_000_000_000
SYSTEM_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""Priority classes that every cluster has, also where a dump has none."""

_Found = list[Mismatch]

_INT32_MAX: Final = 2**31 - 1
_NAME_HELP: Final = (
    "lower case letters, digits, `-` and `.`, a letter or digit first and last,"
    " at most 253 characters"
)
_LABEL_HELP: Final = (
    "lower case letters, digits and `-`, a letter or digit first and last, at most 63 characters"
)
_KEY_HELP: Final = (
    "letters, digits, `-`, `_` and `.`, a letter or digit first and last, at most 63 characters;"
    " before it a DNS name and `/` where wanted"
)
_VALUE_HELP: Final = (
    "letters, digits, `-`, `_` and `.`, a letter or digit first and last, at most 63 characters"
)
_PERCENTAGE: Final = re.compile(r"[0-9]+%")
_LABEL_OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
_NODE_OPERATORS: Final = (*_LABEL_OPERATORS, "Gt", "Lt")
_TOLERATIONS: Final = ("Equal", "Exists", "Lt", "Gt")
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def problems(obj: ClusterObject) -> list[Mismatch]:
    """Everything for which an API server would have refused the object."""
    found: _Found = []
    kind = type(obj)
    meta = obj.metadata
    is_namespace = kind is Namespace
    valid = is_dns_label(meta.name) if is_namespace else is_subdomain(meta.name)
    if not valid and "/" not in meta.name:  # which `checks` refuses: keys are made of names
        _name(meta.name, "metadata.name", found, label=is_namespace)
    namespace = meta.namespace
    valid = not namespace or is_dns_label(namespace) or "/" in namespace
    if not valid and kind.__name__ in NAMESPACED:
        _name(namespace, "metadata.namespace", found, label=True)
    if meta.labels:
        _labels(meta.labels, "metadata.labels", found)
    if meta.annotations:
        check_annotations(meta.annotations, found)
    owners = meta.owner_references
    if owners and len(owners) > 1 and sum(bool(owner.controller) for owner in owners) > 1:
        found.append(Mismatch("metadata.ownerReferences", "more than one owner is the controller"))
    check = _CHECKS.get(kind)
    if check is not None:
        check(obj, found)
    return found


def _name(text: str, path: str, found: _Found, *, label: bool = False) -> None:
    message = f"`{shown(text)}` is not a valid name"
    found.append(Mismatch(path, message, _LABEL_HELP if label else _NAME_HELP))


def _labels(labels: Mapping[str, str], path: str, found: _Found) -> None:
    for key, value in labels.items():
        if not valid_label_key(key):
            _key(key, path, found)
        if not valid_label_value(value):
            message = f"`{shown(value)}` is not a valid label value"
            found.append(Mismatch(child(path, shown(key)), message, _VALUE_HELP))


def _key(key: str, path: str, found: _Found, what: str = "label key") -> None:
    found.append(Mismatch(path, f"`{shown(key)}` is not a valid {what}", _KEY_HELP))


def check_annotations(of: Mapping[str, str], found: _Found) -> None:
    """What an API server would refuse in the annotations of one object."""
    length = 0
    for key, value in of.items():
        length += len(key) + len(value)
        if not valid_label_key(key) and not valid_label_key(key.lower()):
            _key(key, "metadata.annotations", found, "annotation key")
    if length * 4 > ANNOTATION_BYTES:  # no character takes more than four bytes
        size = sum(len(key.encode()) + len(value.encode()) for key, value in of.items())
        if size > ANNOTATION_BYTES:
            found.append(
                Mismatch(
                    "metadata.annotations",
                    f"{size} bytes of annotations; an object may have {ANNOTATION_BYTES}",
                )
            )


def _one_of(
    text: str | None, allowed: Collection[str], path: str, what: str, found: _Found
) -> None:
    if text and text not in allowed:
        words = ", ".join(f"`{word}`" for word in allowed)
        found.append(Mismatch(path, f"`{shown(text)}` is not {what}", f"one of {words}"))


def _whole(
    value: int | None, path: str, found: _Found, *, least: int, most: int = _INT32_MAX
) -> None:
    if value is not None and not least <= value <= most:
        found.append(out_of_range(value, path, least=least, most=most))


# --- selectors -----------------------------------------------------------------------------------


def _requirements(
    requirements: Iterable[LabelSelectorRequirement] | None,
    path: str,
    found: _Found,
    operators: Collection[str] = _LABEL_OPERATORS,
) -> None:
    for i, requirement in enumerate(requirements or ()):
        at = f"{path}[{i}]"
        values = requirement.values or []
        operator = requirement.operator
        if not valid_label_key(requirement.key):
            _key(requirement.key, f"{at}.key", found)
        if operator not in operators:
            words = ", ".join(f"`{word}`" for word in operators)
            message = f"`{shown(operator)}` is not an operator"
            found.append(Mismatch(f"{at}.operator", message, f"one of {words}"))
        elif operator in ("In", "NotIn") and not values:
            found.append(Mismatch(f"{at}.values", f"`{operator}` needs at least one value"))
        elif operator in ("Exists", "DoesNotExist") and values:
            found.append(Mismatch(f"{at}.values", f"`{operator}` takes no values"))
        elif operator in ("Gt", "Lt") and len(values) != 1:
            found.append(Mismatch(f"{at}.values", f"`{operator}` needs exactly one value"))
        if operators is _LABEL_OPERATORS:
            for value in values:
                if not valid_label_value(value):
                    message = f"`{shown(value)}` is not a valid label value"
                    found.append(Mismatch(f"{at}.values", message, _VALUE_HELP))


def _selector(selector: LabelSelector | None, path: str, found: _Found) -> None:
    if selector is not None:
        if selector.match_labels:
            _labels(selector.match_labels, f"{path}.matchLabels", found)
        _requirements(selector.match_expressions, f"{path}.matchExpressions", found)


def _node_term(term: NodeSelectorTerm, path: str, found: _Found) -> None:
    _requirements(term.match_expressions, f"{path}.matchExpressions", found, _NODE_OPERATORS)
    for i, field in enumerate(term.match_fields or ()):
        at = f"{path}.matchFields[{i}]"
        _one_of(field.key or "(none)", ("metadata.name",), f"{at}.key", "a field of a node", found)
        _one_of(field.operator or "(none)", ("In", "NotIn"), f"{at}.operator", "an operator", found)
        if len(field.values or ()) != 1:
            found.append(Mismatch(f"{at}.values", "a field needs exactly one value"))


# --- pods ----------------------------------------------------------------------------------------


def _pod(pod: Pod, found: _Found) -> None:
    spec = pod.spec
    if spec.node_name and not is_repeated_subdomain(spec.node_name):
        _name(spec.node_name, "spec.nodeName", found)
    if spec.priority_class_name and not is_repeated_subdomain(spec.priority_class_name):
        _name(spec.priority_class_name, "spec.priorityClassName", found)
    nominated = pod.status.nominated_node_name
    if nominated and not is_repeated_subdomain(nominated):
        _name(nominated, "status.nominatedNodeName", found)
    if spec.preemption_policy:
        _preemption_policy(spec.preemption_policy, "spec.preemptionPolicy", found)
    _containers(spec.containers, spec.init_containers, found)
    if spec.overhead:
        _resource_names(spec.overhead, "spec.overhead", found)
    if spec.node_selector:
        _labels(spec.node_selector, "spec.nodeSelector", found)
    if spec.affinity is not None:
        _affinity(spec.affinity, found)
    if spec.tolerations:
        for i, toleration in enumerate(spec.tolerations):
            if toleration not in _GOOD_TOLERATIONS:
                _toleration(toleration, f"spec.tolerations[{i}]", found)
    if spec.topology_spread_constraints:
        for i, constraint in enumerate(spec.topology_spread_constraints):
            _spread(constraint, f"spec.topologySpreadConstraints[{i}]", found)


def _preemption_policy(policy: str | None, path: str, found: _Found) -> None:
    _one_of(policy, ("PreemptLowerPriority", "Never"), path, "a preemption policy", found)


def _containers(
    containers: list[Container] | None, init_containers: list[Container] | None, found: _Found
) -> None:
    names: list[str] = []
    for i, container in enumerate(containers or ()):
        _container(container, "spec.containers", i, names, found)
    for i, container in enumerate(init_containers or ()):
        _container(container, "spec.initContainers", i, names, found)


def _container(container: Container, path: str, i: int, names: list[str], found: _Found) -> None:
    name = container.name
    if name:
        if not is_dns_label(name):
            _name(name, f"{path}[{i}].name", found, label=True)
        if name in names:
            message = f"another container of the pod is named `{shown(name)}`"
            found.append(Mismatch(f"{path}[{i}].name", message))
        names.append(name)
    resources = container.resources
    if resources is not None:
        for resource in resources.requests or ():
            if not valid_label_key(resource):
                _key(resource, f"{path}[{i}].resources.requests", found, "resource name")
        for resource in resources.limits or ():
            if not valid_label_key(resource):
                _key(resource, f"{path}[{i}].resources.limits", found, "resource name")
    if container.ports:
        for j, port in enumerate(container.ports):
            at = f"{path}[{i}].ports[{j}].protocol"
            _one_of(port.protocol, ("TCP", "UDP", "SCTP"), at, "a protocol", found)


def _resource_names(resources: Iterable[str], path: str, found: _Found) -> None:
    for name in resources:
        if not valid_label_key(name):
            _key(name, path, found, "resource name")


def _affinity(affinity: Affinity, found: _Found) -> None:
    node = affinity.node_affinity
    path = "spec.affinity.nodeAffinity"
    if node is not None and node.required is not None:
        at = f"{path}.{_REQUIRED}.nodeSelectorTerms"
        terms = node.required.node_selector_terms
        if not terms:
            found.append(Mismatch(at, "missing", "at least one term"))
        for i, term in enumerate(terms or ()):
            _node_term(term, f"{at}[{i}]", found)
    for i, preferred in enumerate((node.preferred if node is not None else None) or ()):
        at = f"{path}.{_PREFERRED}[{i}]"
        _whole(preferred.weight, f"{at}.weight", found, least=1, most=100)
        _node_term(preferred.preference, f"{at}.preference", found)
    for path, of in (
        ("spec.affinity.podAffinity", affinity.pod_affinity),
        ("spec.affinity.podAntiAffinity", affinity.pod_anti_affinity),
    ):
        if of is not None:
            for i, required in enumerate(of.required or ()):
                _pod_term(required, f"{path}.{_REQUIRED}[{i}]", found)
            for i, weighted in enumerate(of.preferred or ()):
                at = f"{path}.{_PREFERRED}[{i}]"
                _whole(weighted.weight, f"{at}.weight", found, least=1, most=100)
                _pod_term(weighted.pod_affinity_term, f"{at}.podAffinityTerm", found)


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def _pod_term(term: PodAffinityTerm, path: str, found: _Found) -> None:
    _selector(term.label_selector, f"{path}.labelSelector", found)
    _selector(term.namespace_selector, f"{path}.namespaceSelector", found)
    if not valid_label_key(term.topology_key):
        _key(term.topology_key, f"{path}.topologyKey", found)
    for i, namespace in enumerate(term.namespaces or ()):
        if not is_dns_label(namespace):
            _name(namespace, f"{path}.namespaces[{i}]", found, label=True)


# The tolerations that an API server adds to every pod, which need no second look.
_GOOD_TOLERATIONS: Final = tuple(
    Toleration(key=f"node.kubernetes.io/{key}", operator="Exists", effect="NoExecute")
    for key in ("not-ready", "unreachable")
)


def _toleration(toleration: Toleration, path: str, found: _Found) -> None:
    operator = toleration.operator
    _one_of(operator, _TOLERATIONS, f"{path}.operator", "a toleration operator", found)
    _one_of(toleration.effect, _EFFECTS, f"{path}.effect", "a taint effect", found)
    if toleration.key and not valid_label_key(toleration.key):
        _key(toleration.key, f"{path}.key", found)
    if not toleration.key and operator != "Exists":
        message = "missing; only `operator: Exists` tolerates every key"
        found.append(Mismatch(f"{path}.key", message))
    if operator == "Exists" and toleration.value:
        found.append(Mismatch(f"{path}.value", "`Exists` takes no value"))
    elif operator in ("Lt", "Gt") and decimal_integer(toleration.value) is None:
        message = f"`{shown(toleration.value)}` is not a whole number"
        found.append(Mismatch(f"{path}.value", message, f"`{operator}` compares numbers as `950`"))
    elif not valid_label_value(toleration.value):
        message = f"`{shown(toleration.value)}` is not a valid label value"
        found.append(Mismatch(f"{path}.value", message, _VALUE_HELP))


def _spread(constraint: TopologySpreadConstraint, path: str, found: _Found) -> None:
    _whole(constraint.max_skew, f"{path}.maxSkew", found, least=1)
    _whole(constraint.min_domains, f"{path}.minDomains", found, least=1)
    if not valid_label_key(constraint.topology_key):
        _key(constraint.topology_key, f"{path}.topologyKey", found)
    when = constraint.when_unsatisfiable
    allowed = ("DoNotSchedule", "ScheduleAnyway")
    _one_of(when or "(none)", allowed, f"{path}.whenUnsatisfiable", "an action", found)
    if constraint.min_domains is not None and when == "ScheduleAnyway":
        message = "only with `whenUnsatisfiable: DoNotSchedule`"
        found.append(Mismatch(f"{path}.minDomains", message))
    for name, value in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        _one_of(value, ("Honor", "Ignore"), f"{path}.{name}", "a policy", found)
    _selector(constraint.label_selector, f"{path}.labelSelector", found)


# --- other kinds ---------------------------------------------------------------------------------


def _node(node: Node, found: _Found) -> None:
    seen = set()
    for i, taint in enumerate(node.spec.taints or ()):
        path = f"spec.taints[{i}]"
        if not valid_label_key(taint.key):
            _key(taint.key, f"{path}.key", found)
        if not valid_label_value(taint.value):
            message = f"`{shown(taint.value)}` is not a valid label value"
            found.append(Mismatch(f"{path}.value", message, _VALUE_HELP))
        _one_of(taint.effect or "(none)", _EFFECTS, f"{path}.effect", "a taint effect", found)
        if (taint.key, taint.effect) in seen:
            found.append(Mismatch(path, f"a second taint `{shown(taint.key)}:{taint.effect}`"))
        seen.add((taint.key, taint.effect))
    _resource_names(node.status.allocatable or (), "status.allocatable", found)
    _resource_names(node.status.capacity or (), "status.capacity", found)


def _budget(budget: PodDisruptionBudget, found: _Found) -> None:
    spec, status = budget.spec, budget.status
    _selector(spec.selector, "spec.selector", found)
    if spec.min_available is not None and spec.max_unavailable is not None:
        message = "`minAvailable` and `maxUnavailable` cannot both be set"
        found.append(Mismatch("spec", message))
    for name, value in (
        ("minAvailable", spec.min_available),
        ("maxUnavailable", spec.max_unavailable),
    ):
        if isinstance(value, int):
            _whole(value, f"spec.{name}", found, least=0)
        elif value is not None and not (
            _PERCENTAGE.fullmatch(value) and len(value) < 6 and int(value[:-1]) <= 100
        ):
            message = f"`{shown(value)}` is not a percentage from `0%` to `100%`"
            found.append(Mismatch(f"spec.{name}", message))
    for name, count in (
        ("disruptionsAllowed", status.disruptions_allowed),
        ("currentHealthy", status.current_healthy),
        ("desiredHealthy", status.desired_healthy),
        ("expectedPods", status.expected_pods),
    ):
        _whole(count, f"status.{name}", found, least=0)


def _priority_class(priority_class: PriorityClass, found: _Found) -> None:
    _preemption_policy(priority_class.preemption_policy, "preemptionPolicy", found)
    name, value = priority_class.metadata.name, priority_class.value
    if not name.startswith("system-"):
        _whole(value, "value", found, least=-(2**31), most=HIGHEST_USER_PRIORITY)
    elif name not in SYSTEM_CLASSES:
        message = f"`{shown(name)}`: names that begin with `system-` are Kubernetes' own"
        found.append(Mismatch("metadata.name", message))
    elif value != SYSTEM_CLASSES[name]:
        message = f"`{value}` is not the value of `{name}`"
        found.append(Mismatch("value", message, f"it is {SYSTEM_CLASSES[name]} in every cluster"))


def _csi_node(node: CSINode, found: _Found) -> None:
    for i, driver in enumerate(node.spec.drivers or ()):
        if driver.allocatable is not None:
            path = f"spec.drivers[{i}].allocatable.count"
            _whole(driver.allocatable.count, path, found, least=0)


def _volume(volume: PersistentVolume, found: _Found) -> None:
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        for i, term in enumerate(affinity.required.node_selector_terms or ()):
            _node_term(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{i}]", found)


def _workload(workload: ReplicaSet | StatefulSet, found: _Found) -> None:
    _selector(workload.spec.selector, "spec.selector", found)


def _service(service: Service | ReplicationController, found: _Found) -> None:
    if service.spec.selector:
        _labels(service.spec.selector, "spec.selector", found)


def _scheduling_pod_group(group: SchedulingPodGroup, found: _Found) -> None:
    """Source: `pkg/apis/scheduling/validation`. Any other word as a disruption mode means `Pod`."""
    spec = group.spec
    policy, mode = spec.scheduling_policy, spec.disruption_mode
    parts = {"gang": policy.gang, "basic": policy.basic}
    _exactly_one(parts, "spec.schedulingPolicy", found)
    if policy.gang is not None and policy.gang.min_count < 1:
        message = f"`{policy.gang.min_count}` is less than 1"
        found.append(Mismatch("spec.schedulingPolicy.gang.minCount", message))
    if (spec.priority or 0) > HIGHEST_USER_PRIORITY:
        message = f"`{spec.priority}` is more than {HIGHEST_USER_PRIORITY}"
        found.append(Mismatch("spec.priority", message))
    if isinstance(mode, DisruptionMode):
        _exactly_one({"single": mode.single, "all": mode.all}, "spec.disruptionMode", found)
    if spec.preemption_policy is not None:
        _preemption_policy(spec.preemption_policy, "spec.preemptionPolicy", found)


def _exactly_one(parts: Mapping[str, object], path: str, found: _Found) -> None:
    given = [name for name, value in parts.items() if value is not None]
    if len(given) != 1:
        said = " and ".join(f"`{name}`" for name in parts)
        message = f"both {said}" if given else f"none of {said}"
        found.append(Mismatch(path, message, "give exactly one of them"))


_CHECKS: Final[dict[type[ClusterObject], Callable[[Any, _Found], None]]] = {
    Pod: _pod,
    Node: _node,
    PodDisruptionBudget: _budget,
    PriorityClass: _priority_class,
    CSINode: _csi_node,
    PersistentVolume: _volume,
    ReplicaSet: _workload,
    StatefulSet: _workload,
    ReplicationController: _service,
    Service: _service,
    SchedulingPodGroup: _scheduling_pod_group,
}
