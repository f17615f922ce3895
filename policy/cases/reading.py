"""From a file of cases to clusters: a short form of the Kubernetes objects, with its own checks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from policy.cases.fields import Fields, before, known, priority_of, seconds
from policy.cases.groups import membership, pod_key, read_groups, require_group, want_of_group
from policy.cases.manifests import complain_of_doubles, read_manifests
from policy.cases.model import Case, Want
from policy.cluster import times
from policy.cluster.leaving import DEFAULT_GRACE_SECONDS
from policy.cluster.objects import (
    ClusterObject,
    Condition,
    Container,
    LabelSelector,
    Namespace,
    Node,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
    PodSpec,
    PodStatus,
    PriorityClass,
    Quantity,
    ResourceRequirements,
    SchedulingPodGroup,
    Taint,
    Toleration,
    key_of,
)
from policy.cluster.pod_groups import group_key
from policy.decision.model import Outcome
from policy.preemption.columns import history_key
from policy.rules.documents import Item, Leaf, Series, parse_any
from policy.rules.expressions.variables import HISTORY_FUNCTIONS
from policy.rules.problems import RulesError
from policy.text.problems import Problem

NOW: Final = "2026-01-01T00:00:00Z"
"""The time of a case that gives none."""

_STARTED: Final = 86_400
_NEVER: Final = "never"
_POLICIES: Final = ("Never", "PreemptLowerPriority")
_TAINT: Final = re.compile(r"([^=:]+)(?:=([^=:]*))?:(NoSchedule|PreferNoSchedule|NoExecute)")
_FIGURE: Final = re.compile(r"([A-Za-z]+)(?:\(([0-9a-z]+)\))?")


def read_cases(text: str, shown: str) -> tuple[Case, ...]:
    """The cases of a file. Raises RulesError with every problem found."""
    problems: list[Problem] = []
    root = parse_any(text, shown, problems)
    if not isinstance(root, Series):
        raise RulesError([root.place.problem("", "a file of cases is a list of cases")])
    cases = [case for i, item in enumerate(root.items) if (case := _case(item, i, problems))]
    if problems:
        raise RulesError(problems)
    return tuple(cases)


def _refused(shown: str, message: str) -> RulesError:
    return RulesError([Problem(source=shown, message=message)])


def _case(item: Item, index: int, problems: list[Problem]) -> Case | None:
    fields = Fields.of(item, f"[{index}]", problems)
    if fields is None:
        return None
    note = fields.text("note")
    if not note:
        fields.complain(item.place, "note", "missing key `note`", "say what the case shows")
    now_ms = _now(fields)
    classes = list(_classes(fields))
    whole = list(read_manifests(fields))
    nodes = [*_nodes(fields), *(found for found in whole if isinstance(found, Node))]
    priorities = {
        found.metadata.name: found.value
        for found in (*classes, *whole)
        if isinstance(found, PriorityClass)
    }
    short = list(_pods(fields, now_ms, priorities, {node.metadata.name for node in nodes}))
    short_groups = list(read_groups(fields, now_ms, priorities))
    objects: tuple[ClusterObject, ...] = (
        *nodes,
        *short,
        *short_groups,
        *_budgets(fields),
        *_namespaces(fields),
        *classes,
        *(found for found in whole if not isinstance(found, Node)),
    )
    complain_of_doubles(fields, objects)
    pods = [found for found in objects if isinstance(found, Pod)]
    groups = [key_of(found) for found in objects if isinstance(found, SchedulingPodGroup)]
    preemptor, group = _question(fields, pods, groups)
    history = _history(fields)
    seed = fields.number("seed", 0)
    want = _want(fields, group=bool(group))
    fields.close()
    if not (preemptor or group) or want is None:
        return None
    return Case(
        note=" ".join(note.split()),
        place=str(item.place),
        objects=objects,
        now_ms=now_ms,
        history=history,
        preemptor=preemptor,
        seed=seed or 0,
        want=want,
        group=group,
    )


def _now(fields: Fields) -> int:
    text = fields.text("now", NOW)
    try:
        return times.parse(text)
    except times.TimeError as exc:
        item = fields.get("now")
        assert item is not None
        fields.complain(item.place, "now", str(exc), f"write it as `{NOW}`")
        return times.parse(NOW)


# --- the cluster ---------------------------------------------------------------------------------


def _nodes(fields: Fields) -> Iterator[Node]:
    for name, node in fields.named("nodes"):
        amounts: dict[str, Quantity] = {"pods": 110}
        for resource in ("cpu", "memory", "pods"):
            amount = node.quantity(resource)
            if amount is not None:
                amounts[resource] = amount
        amounts |= node.quantities("allocatable")
        labels = {"kubernetes.io/hostname": name, **node.texts("labels")}
        taints = [
            Taint(key=key, value=value, effect=effect)
            for key, value, effect in _taints(node, "taints")
        ]
        cordoned = node.word("unschedulable", ("true", "false")) == "true"
        node.close()
        yield Node(
            metadata=ObjectMeta(name=name, labels=labels),
            spec=NodeSpec(unschedulable=cordoned, taints=taints or None),
            status=NodeStatus(allocatable=amounts),
        )


def _taints(fields: Fields, key: str) -> Iterator[tuple[str, str, str]]:
    for leaf in fields.list(key):
        found = _TAINT.fullmatch(leaf.text)
        if found:
            yield found[1], found[2] or "", found[3]
        else:
            fields.complain(
                leaf.place, key, f"`{leaf.text}` is no taint", "write `key=value:NoSchedule`"
            )


def _classes(fields: Fields) -> Iterator[PriorityClass]:
    for name, entry in fields.named("classes"):
        value = entry.number("priority")
        if value is None and not entry.has("priority"):
            entry.complain(entry.branch.place, "priority", "missing key `priority`")
        annotations = entry.texts("annotations")
        entry.close()
        meta = ObjectMeta(name=name, annotations=annotations or None)
        yield PriorityClass(metadata=meta, value=value or 0)


def _namespaces(fields: Fields) -> Iterator[Namespace]:
    for name, entry in fields.named("namespaces"):
        labels = entry.texts("labels")
        entry.close()
        yield Namespace(metadata=ObjectMeta(name=name, labels=labels or None))


def _budgets(fields: Fields) -> Iterator[PodDisruptionBudget]:
    for text, entry in fields.named("pdbs"):
        namespace, _, name = pod_key(text).partition("/")
        selector = entry.texts("selector")
        allowed = entry.number("allowed", 0)
        disrupted: dict[str, str | None] = dict.fromkeys(
            (leaf.text for leaf in entry.list("disrupted")), NOW
        )
        entry.close()
        yield PodDisruptionBudget(
            metadata=ObjectMeta(name=name, namespace=namespace),
            spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels=selector)),
            status=PodDisruptionBudgetStatus(
                disruptions_allowed=allowed or 0, disrupted_pods=disrupted or None
            ),
        )


def _pods(
    fields: Fields, now_ms: int, priorities: Mapping[str, int], names: Collection[str]
) -> Iterator[Pod]:
    """names: of the case's nodes."""
    for text, entry in fields.named("pods"):
        pod = _pod(text, entry, now_ms, priorities)
        entry.close()
        for key, node in (
            ("node", pod.spec.node_name),
            ("nominated", pod.status.nominated_node_name),
        ):
            if node and node not in names:
                place = entry.branch.entries[key].place
                entry.complain(place, key, f"no node `{node}` in this case", known(node, names))
        require_group(entry, pod, fields)
        yield pod


def _pod(text: str, entry: Fields, now_ms: int, priorities: Mapping[str, int]) -> Pod:
    namespace, _, name = pod_key(text).partition("/")
    node = entry.text("node")
    requests: dict[str, Quantity] = {}
    for resource in ("cpu", "memory"):
        amount = entry.quantity(resource)
        if amount is not None:
            requests[resource] = amount
    requests |= entry.quantities("requests")
    limits = entry.quantities("limits")
    resources = ResourceRequirements(requests=requests or None, limits=limits or None)
    qos = entry.word("qosClass", ("", "Guaranteed", "Burstable", "BestEffort"))
    leaving, by_preemption = _leaving(entry, now_ms)
    created = entry.ago("created")
    started = _started(entry, now_ms)
    tolerations = [
        Toleration(key=key, operator="Equal", value=value, effect=effect)
        for key, value, effect in _taints(entry, "tolerations")
    ]
    selector = entry.texts("nodeSelector")
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=entry.text("uid") or f"{namespace}/{name}",
            labels=entry.texts("labels") or None,
            annotations=entry.texts("annotations") or None,
            creation_timestamp=before(now_ms, created),
            deletion_timestamp=leaving,
            owner_references=_owner(entry),
        ),
        spec=PodSpec(
            node_name=node,
            priority=priority_of(entry, priorities),
            priority_class_name=entry.text("class"),
            preemption_policy=entry.word("preemptionPolicy", _POLICIES) or None,
            scheduling_group=membership(entry),
            containers=[Container(name="main", resources=resources)],
            tolerations=tolerations or None,
            node_selector=selector or None,
            scheduler_name=entry.text("scheduler"),
        ),
        status=PodStatus(
            phase=entry.word("phase", ("Pending", "Running")) or ("Running" if node else "Pending"),
            qos_class=qos,
            start_time=started if node else None,
            nominated_node_name=entry.text("nominated"),
            conditions=by_preemption,
        ),
    )


def _leaving(entry: Fields, now_ms: int) -> tuple[str | None, list[Condition] | None]:
    """Deletion timestamp and conditions: a pod leaves since its grace period, or as long as said.

    An API server sets the deletion timestamp to when the grace period ends.
    """
    leaf = entry.branch.get("terminating")
    words = ("", "true", "false", "by-preemption")
    if isinstance(leaf, Leaf) and leaf.text not in words:
        ago = entry.ago("terminating")
        ends = now_ms + (DEFAULT_GRACE_SECONDS - (ago or 0)) * 1000
        return times.to_text(ends), None
    word = entry.word("terminating", words)
    if word in ("", "false"):
        return None, None
    condition = Condition(type="DisruptionTarget", status="True", reason="PreemptionByScheduler")
    return times.to_text(now_ms), [condition] if word == "by-preemption" else None


def _started(entry: Fields, now_ms: int) -> str | None:
    """A day ago unless the case says something else."""
    leaf = entry.branch.get("started")
    if isinstance(leaf, Leaf) and leaf.text == _NEVER:
        entry.get("started")
        return None
    ago = entry.ago("started")
    return before(now_ms, _STARTED if ago is None else ago)


def _owner(entry: Fields) -> list[OwnerReference] | None:
    text = entry.text("owner")
    if not text:
        return None
    kind, _, name = text.partition("/")
    if not name:
        item = entry.branch.entries["owner"]
        message = f"`{text}` is no owner"
        entry.complain(item.place, "owner", message, "write `ReplicaSet/web`")
    return [OwnerReference(kind=kind, name=name, controller=True)]


# --- the question and the answer -----------------------------------------------------------------


def _question(fields: Fields, pods: list[Pod], groups: list[str]) -> tuple[str, str]:
    """The pod to decide, or the pod group; both "" where neither is named."""
    item = fields.get("decide")
    if isinstance(item, Leaf) and pod_key(item.text) in groups:
        return "", pod_key(item.text)
    waiting = [pod for pod in pods if not pod.spec.node_name]
    named = {group_key(pod) for pod in waiting}
    if item is None and len(named) == 1 and "" not in named:
        return "", named.pop()
    return _preemptor(fields, pods) or "", ""


def _preemptor(fields: Fields, pods: list[Pod]) -> str | None:
    waiting = [key_of(pod) for pod in pods if not pod.spec.node_name]
    item = fields.get("decide")
    if isinstance(item, Leaf):
        key = pod_key(item.text)
        if key in waiting:
            return key
        message = f"no pod `{key}` waits for a node in this case"
        fields.complain(item.place, "decide", message, known(key, waiting) if waiting else None)
        return None
    if len(waiting) == 1:
        return waiting[0]
    message = "no pod waits for a node" if not waiting else "several pods wait for a node"
    advice = "leave out the `node` of one" if not waiting else "name one: `decide: NAME`"
    fields.complain(fields.branch.place, "decide", message, advice)
    return None


def _history(fields: Fields) -> dict[str, dict[str, int]]:
    """`preemptedCount(1h)` -> figures, as snapshots carry them."""
    found: dict[str, dict[str, int]] = {}
    item = fields.get("history")
    inner = None if item is None else Fields.of(item, "history", fields.problems)
    for key, place in inner.branch.keys.items() if inner is not None else ():
        assert inner is not None
        figures = inner.numbers(key)
        match = _FIGURE.fullmatch(key)
        function = HISTORY_FUNCTIONS.get(match[1]) if match else None
        window = seconds(match[2]) if match and match[2] else None
        if function is None or function.windowed != (window is not None):
            forms = (f"{f.name}(1h)" if f.windowed else f.name for f in HISTORY_FUNCTIONS.values())
            inner.complain(place, key, f"`{key}` is no figure of history", known(key, forms))
            continue
        found[history_key(function.name, window)] = figures
    return found


def _want(fields: Fields, *, group: bool) -> Want | None:
    item = fields.get("want")
    if item is None:
        message = "missing key `want`"
        fields.complain(fields.branch.place, "want", message, "say what should be decided")
        return None
    want = Fields.of(item, "want", fields.problems)
    if want is None:
        return None
    if group:
        return want_of_group(want, item)
    node = want.get("node")
    nowhere = node is None or (isinstance(node, Leaf) and node.value is None)
    denied = {
        pod_key(pod): None if leaf.value is None else leaf.text
        for pod, leaf in want.leaves("denied").items()
    }
    found = Want(
        given=frozenset(want.branch.entries),
        node=None if nowhere else want.text("node"),
        victims=frozenset(pod_key(leaf.text) for leaf in want.list("victims")),
        denied=denied,
        outcome=want.word("outcome", [outcome.value for outcome in Outcome]),
        decided_by=want.text("decided-by"),
    )
    want.close()
    if not found.given:
        message = "`want` says nothing"
        fields.complain(item.place, "want", message, "give at least one of `node` and `victims`")
    return found
