"""Cluster state in: one transaction, and a new revision only where something changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

from sqlalchemy import Connection

from policy.cluster import times
from policy.cluster.digest import GENESIS, object_digest
from policy.cluster.objects import NAMESPACED, ClusterObject, Pod, key_of, kind_of
from policy.store.errors import Conflict, ImportConflict
from policy.store.ledger import entries
from policy.store.model.state import Cause, ImportResult, PruneScope, StrayPods
from policy.store.record import outcomes
from policy.store.record.tally import Tally
from policy.store.state.revisions import Put, SingleRevision, puts_of
from policy.store.state.versions import (
    Head,
    chunks,
    find_head,
    live_digests,
    live_versions,
    lock_head,
)

Progress = Callable[[int], None]
"""Called with the number of objects compared, and where they differ written, so far."""

_STEP: Final = 1000
"""Objects after which it is told how many there were."""
_AT_ONCE: Final = 100
"""Objects that are encoded, compared and written together, which the nearest cache holds."""
_EXAMPLES: Final = 3
_MANY: Final = 4
"""Where more than one version in so many ends, all of them are read instead of those alone."""


@dataclass(slots=True)
class ImportedState:
    """What an import holds, ready to be compared and written."""

    objects: dict[str, dict[str, ClusterObject]] = field(default_factory=dict)
    """By kind and key."""

    def namespaces(self) -> frozenset[str]:
        """In which some object is."""
        objects = self.objects.items()
        keys = (key for kind, of_kind in objects if kind in NAMESPACED for key in of_kind)
        return frozenset(key.partition("/")[0] for key in keys)


def read(objects: Iterable[ClusterObject]) -> ImportedState:
    """Look at all objects before anything is written. Raises ImportConflict."""
    incoming = ImportedState()
    given = list(objects)
    for number, obj in enumerate(given):
        kind, key = kind_of(obj), key_of(obj)
        seen = incoming.objects.setdefault(kind, {}).setdefault(key, obj)
        if seen is not obj and object_digest(seen) != object_digest(obj):
            first = next(place for place, one in enumerate(given) if one is seen)
            raise ImportConflict(kind=kind, key=key, first=first, second=number)
    return incoming


def _to_prune(
    kind: str,
    have: Iterable[str],
    incoming: ImportedState,
    scope: PruneScope,
    namespaces: Collection[str],
) -> list[str]:
    kinds = scope.kinds if scope.kinds is not None else incoming.objects.keys()
    if kind not in kinds:
        return []
    given = incoming.objects.get(kind, {})
    lacking = [key for key in have if key not in given]
    if kind not in NAMESPACED:
        return lacking
    return [key for key in lacking if key.partition("/")[0] in namespaces]


def write(
    connection: Connection,
    cluster: str,
    incoming: ImportedState,
    *,
    at_ms: int,
    of_ms: int | None,
    source: str,
    actor: str,
    scope: PruneScope | None,
    tally: Tally,
    progress: Progress | None,
) -> ImportResult:
    """Compare with what is stored and write the difference as one revision.

    of_ms: the time of which the objects are; that of the import where it is not known. tally: takes
    what becomes of each object. Raises StoreError for values that are none.
    """
    if not incoming.objects and find_head(connection, cluster) is None:
        # A cluster begins with its first object: each one has an entry in the ledger.
        return ImportResult(
            cluster=cluster, revision=0, state_digest=GENESIS, new_revision=False, kinds={}
        )
    head = lock_head(connection, cluster)
    if of_ms is not None and head.at_ms is not None and of_ms < head.at_ms:
        raise Conflict(
            f"cluster `{cluster}` has a state of {times.to_text(head.at_ms)} already, later than"
            f" {times.to_text(of_ms)}",
            help="states are imported in the order of their times; `--cluster` begins another one",
        )
    pruned = scope.kinds if scope is not None and scope.kinds is not None else frozenset[str]()
    namespaces = frozenset[str]()
    if scope is not None:
        namespaces = incoming.namespaces() if scope.namespaces is None else scope.namespaces
    of_state = at_ms if of_ms is None else of_ms
    revision = SingleRevision(connection, head, at_ms=of_state)
    nodes: Collection[str] | None = None
    told = _Told(progress)
    for kind in sorted(incoming.objects.keys() | pruned):
        given = incoming.objects.get(kind, {})
        have = live_digests(connection, head, kind)
        if kind == "Node":
            nodes = have
        if not have:
            revision.add_first(kind, _ready(kind, sorted(given), given, told), count=len(given))
            tally.imported(kind, "added", given)
            continue
        puts = [
            one
            for some in _ready(kind, list(given), given, told)
            for one in some
            if have.get(one.key) != one.digest
        ]
        removed: list[str] = []
        if scope is not None:
            removed = sorted(_to_prune(kind, have, incoming, scope, namespaces))
        changed = [one.key for one in puts if one.key in have]
        if puts or removed:
            ending = [*changed, *removed]
            few = len(ending) * _MANY < len(have)
            live = live_versions(connection, head, kind, ending if few else None) if ending else {}
            revision.add(kind, puts, removed, live)
        tally.imported(kind, "unchanged", given)
        tally.imported(kind, "added", (one.key for one in puts))
        tally.imported(kind, "changed", changed)
        tally.imported(kind, "removed", removed)
    state, number = head.digest, head.number
    if revision.changes:
        written = revision.conclude(source=source, cause=Cause.IMPORT)
        number, state = written.number, written.digest
        entries.append(
            connection,
            head,
            entries.EntryKind.IMPORT,
            written.lines + outcomes.after_import(connection, head, number, at_ms=of_state),
            subject_digest=state,
            at_ms=at_ms,
            actor=actor,
            revision=number,
        )
    return ImportResult(
        cluster=cluster,
        revision=number,
        state_digest=state,
        new_revision=number != head.number,
        kinds=tally.counts(),
        stray=_stray(connection, head, incoming, nodes),
    )


def _ready(
    kind: str, keys: Sequence[str], given: Mapping[str, ClusterObject], told: _Told
) -> Iterator[list[Put]]:
    """Some objects of a kind after the other, ready to be compared and written."""
    for step in chunks(keys, _STEP):
        for some in chunks(step, _AT_ONCE):
            yield puts_of([(kind, key, given[key]) for key in some])
        told.more(len(step))


class _Told:
    """How many objects were compared so far."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0

    def more(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done)


def _stray(
    connection: Connection, head: Head, incoming: ImportedState, stored: Collection[str] | None
) -> StrayPods:
    """Pods that no node of the import has; looks into the cluster only where there are some."""
    nodes = incoming.objects.get("Node", {})
    pods = cast("Mapping[str, Pod]", incoming.objects.get("Pod", {}))
    stray = [
        (key, node)
        for key, pod in pods.items()
        if (node := pod.spec.node_name) and node not in nodes
    ]
    if stray:
        known = stored if stored is not None else live_digests(connection, head, "Node")
        stray = sorted(pair for pair in stray if pair[1] not in known)
    return StrayPods(count=len(stray), examples=tuple(stray[:_EXAMPLES]))
