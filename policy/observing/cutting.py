"""Changes of a cluster, cut into revisions where a scheduler's preemptions begin.

A preemption is decided again on the state before its first effect. So that this state is one that
is kept, nothing that was before shares a revision with a first effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from policy.cluster.objects import ClusterObject, Pod
from policy.observing.model import marked_at, nominated_to


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenChange:
    """One change of an object, as a watch or the difference of two lists shows it."""

    kind: str
    key: str
    before: ClusterObject | None  #: as it was known; None where it was not
    after: ClusterObject | None  #: None where it was removed
    resource_version: int  #: 0 where it is unknown
    at_ms: int  #: when it was seen


def in_server_order(changes: Iterable[SeenChange]) -> list[SeenChange]:
    """The changes of all kinds in the order of their API server's counter.

    What has no resourceVersion keeps its place behind the change before it.
    """
    last = 0
    keyed = []
    for place, change in enumerate(changes):
        last = change.resource_version or last
        keyed.append((last, place, change))
    return [change for _, _, change in sorted(keyed, key=lambda one: one[:2])]


def begins_preemption(before: Pod | None, after: Pod | None, *, marks: bool) -> bool:
    """Whether a change of a pod may be the first effect of a preemption.

    It is nominated to a node, or loses its nomination without being placed; it is marked as a
    victim; and where the scheduler sets no marks, its deletion begins. marks: whether it does
    (1.25 and later).
    """
    if after is None:
        return not marks and before is not None and not before.metadata.deletion_timestamp
    if before is not None and before.metadata.uid != after.metadata.uid:
        before = None
    if not after.spec.node_name and nominated_to(after) != nominated_to(before):
        return True
    if marked_at(after) is not None:
        return before is None or marked_at(before) is None
    deleted = bool(after.metadata.deletion_timestamp)
    return not marks and deleted and not (before and before.metadata.deletion_timestamp)


def segments(changes: Iterable[SeenChange], *, marks: bool = True) -> Iterator[list[SeenChange]]:
    """The changes in stretches, each of which is to be one revision.

    A stretch ends before a change that may be the first effect of a preemption. Of several
    changes of one object in a stretch the last one counts.
    """
    stretch: list[SeenChange] = []
    for change in changes:
        before, after = _pod(change.before), _pod(change.after)
        pods = change.kind == "Pod"
        if stretch and pods and begins_preemption(before, after, marks=marks):
            yield stretch
            stretch = []
        stretch.append(change)
    if stretch:
        yield stretch


def _pod(obj: ClusterObject | None) -> Pod | None:
    return obj if type(obj) is Pod else None
