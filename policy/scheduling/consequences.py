"""What follows from decisions without being decided: the work of kubelets and controllers.

Leaving pods go, placed pods start, and owners make pods again in place of those that went. Who
simulates says which pods go now and how they come back; the rest is the same for settling, for
what-if and between two sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.digest import Change
from policy.cluster.objects import ObjectMeta, Pod, PodStatus, key_of
from policy.cluster.snapshot import Snapshot
from policy.preemption.columns import owner_of

LIFE: Final = "~"
"""Before the number of a pod's life, in its name or uid: no pod of a real cluster is named so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departures:
    """Pods that have gone, and those that owners made in their place."""

    changes: tuple[Change, ...]
    returned: tuple[tuple[str, str], ...]  #: (key of the new pod, key of the one that went)


def departures(
    snapshot: Snapshot, keys: Iterable[str], *, again: Callable[[Pod], Pod | None]
) -> Departures:
    """The pods are gone; `again` gives what comes back in the place of each.

    A pod without a controlling owner does not come back: nothing makes it again.
    """
    changes: list[Change] = []
    returned: list[tuple[str, str]] = []
    for key in keys:
        pod = snapshot.pod(key)
        new = None if pod is None or not owner_of(pod) else again(pod)
        if new is None or key_of(new) != key:
            changes.append(("Pod", key, None))
        if new is not None:
            changes.append(("Pod", key_of(new), new))
            returned.append((key_of(new), key))
    return Departures(changes=tuple(changes), returned=tuple(returned))


def passed(snapshot: Snapshot) -> Iterator[Change]:
    """All that kubelets have left to do: leaving pods are gone for good, pods with a node run."""
    for _, key, pod in snapshot.in_order():
        if pod.metadata.deletion_timestamp:
            yield "Pod", key, None
        elif pod.spec.node_name and pod.status.phase in {"Pending", ""}:
            yield "Pod", key, started(pod, snapshot.now_ms)


def started(pod: Pod, now_ms: int) -> Pod:
    """The pod running; one that has a start time keeps it."""
    start = pod.status.start_time or times.to_text(now_ms)
    return replace(pod, status=replace(pod.status, phase="Running", start_time=start))


def created_anew(pod: Pod, now_ms: int) -> Pod:
    """The pod as its owner creates it again now: same name and spec, nothing of its past."""
    base, _, number = pod.metadata.uid.rpartition(LIFE)
    generation = int(number) + 1 if base and number.isascii() and number.isdigit() else 1
    return replace(
        pod,
        metadata=replace(
            pod.metadata,
            uid=f"{base or pod.metadata.uid}{LIFE}{generation}",
            creation_timestamp=times.to_text(now_ms),
            deletion_timestamp=None,
        ),
        spec=replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending", qos_class=pod.status.qos_class),
    )


def next_life(pod: Pod) -> Pod:
    """The pod under a new name, pending, of the same priority and age.

    It keeps its creation time, so that it stands in the queue where it stood.
    """
    meta = pod.metadata
    name, _, life = meta.name.partition(LIFE)
    again: ObjectMeta = replace(
        meta, name=f"{name}{LIFE}{int(life or 1) + 1}", uid="", deletion_timestamp=None
    )
    return replace(
        pod,
        metadata=again,
        spec=replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending"),
    )
