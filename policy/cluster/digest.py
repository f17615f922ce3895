"""Digests of cluster state: chained over what each revision changed, never over everything."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import TypeAlias

from policy.cluster import canonical
from policy.cluster.objects import ClusterObject, encode

GENESIS = ""
"""The digest before a cluster's first revision."""

Change = tuple[str, str, ClusterObject | None]
"""Kind, key (`objects.key_of`) and the new object, None where it was removed."""

HistoryFigures: TypeAlias = Mapping[str, Mapping[str, int]]
"""Figures of the past by `function/window` and key, as a snapshot carries them."""


def object_digest(obj: ClusterObject) -> str:
    """SHA-256 (hex) of the object's canonical JSON."""
    return encoded_digest(encode(obj))


def encoded_digest(manifest: bytes) -> str:
    """SHA-256 (hex) of an object's canonical JSON, where that is at hand."""
    return hashlib.sha256(manifest).hexdigest()


def chain_state(previous: str, entries: Iterable[tuple[str, str, str | None]]) -> str:
    """Digest of the state that follows `previous` when the entries are applied.

    entries: (kind, key, object digest or None for a removed object), in any order. The digest is
    `sha256:` and the SHA-256 of the JSON list [previous, [[kind, key, op, digest], ...]] with the
    entries sorted by kind and key, op `put` or `delete`.
    """
    rows = [(k, n, "delete" if d is None else "put", d or "") for k, n, d in entries]
    rows.sort(key=itemgetter(1))  # by one text at a time takes half as long as by tuples, ...
    rows.sort(key=itemgetter(0))
    rows.sort()  # ... which finds them in order, unless an object stands twice
    return canonical.digest([previous, rows])


def chain_changes(previous: str, changes: Iterable[Change]) -> str:
    """`chain_state` for changes that carry the objects themselves."""
    return chain_state(
        previous,
        ((kind, key, None if obj is None else object_digest(obj)) for kind, key, obj in changes),
    )


def snapshot_digest(
    state_digest: str, *, now_ms: int, history: HistoryFigures | None = None
) -> str:
    """Digest of all that a decision reads of the cluster: its state, now and history figures."""
    return canonical.digest([state_digest, now_ms, history or {}])
