"""A cluster with something supposed: a snapshot in, another one and its waiting pods out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from policy.audit.sentences import names
from policy.audit.supposed_groups import GroupChange
from policy.cluster.digest import Change
from policy.cluster.members import groups_of
from policy.cluster.objects import ObjectMeta, Pod, PriorityClass, SchedulingPodGroup, key_of
from policy.cluster.pod_groups import KIND as POD_GROUP
from policy.cluster.pod_groups import group_key
from policy.cluster.snapshot import Snapshot
from policy.preemption.columns import owner_of
from policy.preemption.decide import NotInCluster
from policy.scheduling.consequences import next_life
from policy.scheduling.disruption import with_budgets

_SHOWN: Final = 5
"""Pod groups of the cluster that an error names."""

_NOT_REPLACED: Final = ("DaemonSet/", "Node/")
"""Owners whose pods belong to one node: they do not come back when the node is gone."""


class WhatIfError(Exception):  # told to people in the words of its message
    """The supposition does not go with the cluster."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposition:
    """What is supposed to be different."""

    pods: Sequence[Pod] = ()  #: that wait as well
    priority_classes: Mapping[str, int] = field(default_factory=dict)
    """Classes with another value; one that the cluster does not know is a new one."""
    removed_nodes: Sequence[str] = ()
    groups: Sequence[SchedulingPodGroup] = ()  #: that are there as well
    group_changes: Sequence[GroupChange] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Supposed:
    """The cluster under a supposition."""

    snapshot: Snapshot
    changes: tuple[Change, ...]  #: what is different
    waiting: tuple[str, ...]  #: pods that have to find a node because of it
    lost: tuple[str, ...]  #: pods of removed nodes that do not come back


def suppose(snapshot: Snapshot, supposition: Supposition) -> Supposed:
    """The snapshot with everything supposed. Raises WhatIfError, NotInCluster."""
    changes: list[Change] = []
    waiting: list[str] = []
    lost: list[str] = []
    for name, value in supposition.priority_classes.items():
        changes += _revalued(snapshot, name, value)
    changed = {key: obj for kind, key, obj in changes if kind == "Pod"}
    changes += _regrouped(snapshot, supposition, changes)
    regrouped = {change.group for change in supposition.group_changes}
    for name in supposition.removed_nodes:
        if name not in snapshot.nodes.index:
            raise NotInCluster(f"node `{name}`", help=_close(snapshot))
        changes.append(("Node", name, None))
        for key, pod in _pods_on(snapshot, name):
            current = changed.get(key, pod)
            assert isinstance(current, Pod)
            changes.append(("Pod", key, None))
            owner = owner_of(pod)
            if owner and not owner.startswith(_NOT_REPLACED) and not _leaving(pod):
                again = next_life(current)
                changes.append(("Pod", key_of(again), again))
                waiting.append(key_of(again))
            else:
                lost.append(key)
    for pod in supposition.pods:
        key = key_of(pod)
        if pod.spec.node_name:
            raise WhatIfError(
                f"pod `{key}` is on node `{pod.spec.node_name}` already",
                help="leave out `spec.nodeName`: the question is where it would go",
            )
        if snapshot.pod(key) is not None:
            raise WhatIfError(
                f"the cluster has a pod `{key}`", help="give the new pod another name"
            )
        priority = supposition.priority_classes.get(pod.spec.priority_class_name)
        if priority is not None:
            pod = replace(pod, spec=replace(pod.spec, priority=priority))
        changes.append(("Pod", key, pod))
        waiting.append(key)
    waiting += [
        key
        for _, key, pod in snapshot.in_order()
        if group_key(pod) in regrouped and not pod.spec.node_name and not _leaving(pod)
    ]
    changes = list(with_budgets(snapshot, changes))
    return Supposed(
        snapshot=snapshot.apply(changes),
        changes=tuple(changes),
        waiting=tuple(waiting),
        lost=tuple(lost),
    )


def _revalued(snapshot: Snapshot, name: str, value: int) -> list[Change]:
    """The class with its value, known or new, and every pod of it as if created under that."""
    old = snapshot.priority_classes.get(name)
    new = replace(old, value=value) if old else new_class(name, value)
    return [
        ("PriorityClass", name, new),
        *(
            ("Pod", key, replace(pod, spec=replace(pod.spec, priority=value)))
            for _, key, pod in snapshot.in_order()
            if pod.spec.priority_class_name == name
        ),
        *(
            (POD_GROUP, key, replace(group, spec=replace(group.spec, priority=value)))
            for key, group in groups_of(snapshot).items()
            if group.spec.priority_class_name == name
        ),
    ]


def _regrouped(
    snapshot: Snapshot, supposition: Supposition, changes: Sequence[Change]
) -> list[Change]:
    """The groups that are new, and those with another field."""
    known = {**groups_of(snapshot)}
    known |= {key: g for _, key, g in changes if isinstance(g, SchedulingPodGroup)}
    found: dict[str, SchedulingPodGroup] = {}
    for group in supposition.groups:
        key = key_of(group)
        if key in known:
            raise WhatIfError(
                f"the cluster has a pod group `{key}`",
                help="suppose another value of it with `--pod-group`",
            )
        found[key] = group
    for change in supposition.group_changes:
        old = found.get(change.group) or known.get(change.group)
        if old is None:
            shown = names(sorted(known)[:_SHOWN], len(known)) or "none"
            raise NotInCluster(f"pod group `{change.group}`", help=f"it has: {shown}")
        try:
            found[change.group] = change.of(old)
        except ValueError as exc:
            raise WhatIfError(str(exc)) from exc
    return [(POD_GROUP, key, group) for key, group in found.items()]


def new_class(name: str, value: int) -> PriorityClass:
    """A priority class that is only supposed."""
    return PriorityClass(metadata=ObjectMeta(name=name), value=value)


def _close(snapshot: Snapshot) -> str:
    return f"it has {len(snapshot.nodes)} nodes; `policy state show nodes` lists them"


def _pods_on(snapshot: Snapshot, node: str) -> list[tuple[str, Pod]]:
    return [
        (key, pod)
        for _, key, pod in snapshot.in_order()
        if pod.spec.node_name == node and pod.status.phase not in {"Succeeded", "Failed"}
    ]


def _leaving(pod: Pod) -> bool:
    return bool(pod.metadata.deletion_timestamp)
