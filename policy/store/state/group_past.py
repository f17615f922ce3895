"""A pod group as it was at a revision, with its members and where these are by now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from sqlalchemy import Connection, Text, select
from sqlalchemy import cast as as_type

from policy.cluster import canonical
from policy.cluster.objects import Pod, SchedulingPodGroup
from policy.cluster.pod_groups import KIND, group_key
from policy.store.state.loading import decode, true_at
from policy.store.state.past import kept, objects_at
from policy.store.state.versions import chunks
from policy.store.tables import PODS

_KEYS: Final = 500
_ENDED: Final = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """Where a pod is."""

    node: str  #: "" for a pod that waits
    nominated: str  #: node that it is nominated to; "" without one


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMemberAt:
    """A pod that named the group."""

    pod: str  #: namespace/name
    priority: int
    then: Whereabouts
    now: Whereabouts | None  #: None where it is gone, or ended


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupAt:
    """A pod group of `scheduling.k8s.io` at a revision."""

    group: SchedulingPodGroup | None  #: None where the state had none of that name
    members: tuple[GroupMemberAt, ...]  #: by name; without those that had ended


def group_at(connection: Connection, cluster: str, key: str, at: int) -> GroupAt:
    """A group (namespace/name) at a revision. Raises NotFound for a revision that is not kept."""
    number = kept(connection, cluster, at)
    stored = objects_at(connection, cluster, KIND, at=at, key=key)
    group = cast("SchedulingPodGroup", stored[0].object) if stored else None
    then = _members(connection, number, key, at)
    now = _now(connection, number, then)
    return GroupAt(
        group=group,
        members=tuple(
            GroupMemberAt(
                pod=pod,
                priority=row.priority,
                then=Whereabouts(node=row.node, nominated=row.nominated_node),
                now=now.get(pod),
            )
            for pod, row in then.items()
        ),
    )


def _members(connection: Connection, cluster: int, group: str, at: int) -> dict[str, Any]:
    """Rows of the pods by key."""
    namespace, _, name = group.partition("/")
    c = PODS.c
    said = f'"podGroupName":{canonical.encode(name).decode()}'
    query = select(c.key, c.uid, c.priority, c.node, c.nominated_node, c.manifest).where(
        true_at(PODS, cluster, at),
        # Keys of a namespace lie side by side: "0" is what follows the slash.
        c.key >= f"{namespace}/",
        c.key < f"{namespace}0",
        # Only these are decoded, which takes far longer.
        as_type(c.manifest, Text).contains(said, autoescape=True),
        c.phase.not_in(_ENDED),
    )
    found = {}
    for row in sorted(connection.execute(query), key=lambda row: str(row.key)):
        if group_key(cast("Pod", decode("Pod", row.manifest))) == group:
            found[row.key] = row
    return found


def _now(
    connection: Connection, cluster: int, members: Mapping[str, Any]
) -> dict[str, Whereabouts]:
    c = PODS.c
    found = {}
    for keys in chunks(list(members), _KEYS):
        query = select(c.key, c.uid, c.node, c.nominated_node, c.phase).where(
            c.cluster_id == cluster, c.key.in_(keys), c.valid_to.is_(None)
        )
        for row in connection.execute(query):
            # Another pod of the same name is none of the members of then.
            if row.uid == members[row.key].uid and row.phase not in _ENDED:
                found[row.key] = Whereabouts(node=row.node, nominated=row.nominated_node)
    return found
