"""Cluster state in: one transaction, and a new revision only where something changed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, cast

from sqlalchemy import Connection

from policy.cluster import times
from policy.cluster.digest import GENESIS
from policy.cluster.objects import NAMESPACED, ClusterObject, key_of, kind_of
from policy.store.errors import ImportConflict, StoreError
from policy.store.ledger import entries
from policy.store.model.state import Cause, ImportResult, PruneScope, StrayPods
from policy.store.record import outcomes
from policy.store.record.tally import Tally
from policy.store.state.revisions import Put, puts_of, write_revision
from policy.store.state.versions import (
    Head,
    Live,
    find_head,
    live_digests,
    live_versions,
    lock_head,
)

Progress = Callable[[int], None]
"""Called with the number of objects read so far."""

_STEP: Final = 1000
_AT_ONCE: Final = 100
"""Objects that are encoded together: more of them leave a processor's caches."""
_EXAMPLES: Final = 3
_MANY: Final = 4
"""Where more than one version in so many ends, all of them are read instead of those alone."""


@dataclass(slots=True)
class ImportedState:
    """What an import holds, ready to be compared and written."""

    puts: dict[str, dict[str, Put]] = field(default_factory=dict)

    def namespaces(self) -> frozenset[str]:
        """In which some object is."""
        keys = (key for kind, of_kind in self.puts.items() if kind in NAMESPACED for key in of_kind)
        return frozenset(key.partition("/")[0] for key in keys)


def read(objects: Iterable[ClusterObject], progress: Progress | None) -> ImportedState:
    """Read all objects before anything is written. Raises ImportConflict, StoreError."""
    incoming = ImportedState()
    puts = incoming.puts
    order: list[Put] = []
    remaining = iter(objects)
    while some := list(islice(remaining, _AT_ONCE)):
        for made in puts_of([(kind_of(obj), key_of(obj), obj) for obj in some]):
            of_kind = puts.setdefault(made.kind, {})
            order.append(made)
            seen = of_kind.setdefault(made.key, made)
            if seen is not made and seen.digest != made.digest:
                first = next(place for place, one in enumerate(order) if one is seen)
                raise ImportConflict(
                    kind=made.kind, key=made.key, first=first, second=len(order) - 1
                )
        if progress is not None and len(order) % _STEP == 0:
            progress(len(order))
    if progress is not None:
        progress(len(order))
    return incoming


def _to_prune(
    kind: str,
    have: Iterable[str],
    incoming: ImportedState,
    scope: PruneScope,
    namespaces: Collection[str],
) -> list[str]:
    kinds = scope.kinds if scope.kinds is not None else incoming.puts.keys()
    if kind not in kinds:
        return []
    given = incoming.puts.get(kind, {})
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
) -> ImportResult:
    """Compare with what is stored and write the difference as one revision.

    of_ms: the time of which the objects are; that of the import where it is not known. tally: takes
    what becomes of each object.
    """
    if not incoming.puts and find_head(connection, cluster) is None:
        # A cluster begins with its first object: each one has an entry in the ledger.
        return ImportResult(
            cluster=cluster, revision=0, state_digest=GENESIS, new_revision=False, kinds={}
        )
    head = lock_head(connection, cluster)
    if of_ms is not None and head.at_ms is not None and of_ms < head.at_ms:
        raise StoreError(
            f"cluster `{cluster}` has a state of {times.to_text(head.at_ms)} already, later than"
            f" {times.to_text(of_ms)}",
            help="states are imported in the order of their times; `--cluster` begins another one",
        )
    pruned = scope.kinds if scope is not None and scope.kinds is not None else frozenset[str]()
    namespaces = frozenset[str]()
    if scope is not None:
        namespaces = incoming.namespaces() if scope.namespaces is None else scope.namespaces
    stored: dict[str, dict[str, str]] = {}
    live: dict[str, dict[str, Live]] = {}
    puts: list[Put] = []
    deletes: list[tuple[str, str]] = []
    for kind in sorted(incoming.puts.keys() | pruned):
        given = incoming.puts.get(kind, {})
        have = stored[kind] = live_digests(connection, head, kind)
        other = [one for key, one in given.items() if have.get(key) != one.digest]
        added = [one for one in other if one.key not in have]
        changed = [one for one in other if one.key in have] if have else []
        removed: list[str] = []
        if scope is not None:
            removed = sorted(_to_prune(kind, have, incoming, scope, namespaces))
        ending = [*(one.key for one in changed), *removed]
        few = len(ending) * _MANY < len(have)
        live[kind] = live_versions(connection, head, kind, ending if few else None)
        puts += [*added, *changed]
        deletes += [(kind, key) for key in removed]
        tally.imported(kind, "unchanged", given)
        tally.imported(kind, "changed", (one.key for one in changed))
        tally.imported(kind, "added", (one.key for one in added))
        tally.imported(kind, "removed", removed)
    state, number = head.digest, head.number
    if puts or deletes:
        number, state = _write(connection, head, puts, deletes, live, at_ms, of_ms, source, actor)
    return ImportResult(
        cluster=cluster,
        revision=number,
        state_digest=state,
        new_revision=number != head.number,
        kinds=tally.counts(),
        stray=_stray(connection, head, incoming, stored.get("Node")),
    )


def _stray(
    connection: Connection, head: Head, incoming: ImportedState, stored: dict[str, str] | None
) -> StrayPods:
    """Pods that no node of the import has; looks into the cluster only where there are some."""
    nodes = incoming.puts.get("Node", {})
    pods = cast("Mapping[str, Any]", incoming.puts.get("Pod", {}))
    stray = [
        (key, node)
        for key, one in pods.items()
        if (node := one.obj.spec.node_name) and node not in nodes
    ]
    if stray:
        known = stored if stored is not None else live_digests(connection, head, "Node")
        stray = sorted(pair for pair in stray if pair[1] not in known)
    return StrayPods(count=len(stray), examples=tuple(stray[:_EXAMPLES]))


def _write(
    connection: Connection,
    head: Head,
    puts: list[Put],
    deletes: list[tuple[str, str]],
    live: dict[str, dict[str, Live]],
    at_ms: int,
    of_ms: int | None,
    source: str,
    actor: str,
) -> tuple[int, str]:
    of_state = at_ms if of_ms is None else of_ms
    written = write_revision(
        connection,
        head,
        puts,
        deletes,
        live=live,
        at_ms=of_state,
        source=source,
        cause=Cause.IMPORT,
    )
    entries.append(
        connection,
        head,
        entries.EntryKind.IMPORT,
        written.lines + outcomes.after_import(connection, head, written.number, at_ms=of_state),
        subject_digest=written.digest,
        at_ms=at_ms,
        actor=actor,
        revision=written.number,
    )
    return written.number, written.digest
