"""Whole pods and nodes: what their manifests hold beyond the fields that decide something.

The engine's objects are projections. Where an extender is to get what kube-scheduler would send,
the rest of a manifest is kept beside the projection, as one text, and both are joined on the wire.
What changes without any meaning (heartbeats, the server's bookkeeping) is not part of it, so that
it makes no versions.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec

from policy.cluster import canonical
from policy.cluster.objects import REST, Node, Pod

Value: TypeAlias = Any

_EACH: Final = "$each"
"""Marks the rest of a list whose items stand in the projection, too."""

_BOOKKEEPING: Final = frozenset({"managedFields", "resourceVersion"})
_HEARTBEATS: Final = frozenset({"lastHeartbeatTime", "lastProbeTime"})


def rest_of(manifest: Mapping[str, Value], obj: Pod | Node) -> str | None:
    """What of a manifest is not in its projection, as canonical JSON; None: nothing is."""
    projected = msgspec.to_builtins(obj)
    rest = _less(_lasting(manifest), projected)
    rest.pop("kind", None)
    rest.pop("apiVersion", None)
    return canonical.text(rest) if rest else None


def whole(obj: Pod | Node) -> dict[str, Value]:
    """The projection with the rest of its manifest, as the API has it."""
    projected: dict[str, Value] = msgspec.to_builtins(obj)
    rest = projected.pop(REST, None)
    return projected if rest is None else _joined(json.loads(rest), projected)


def _lasting(manifest: Mapping[str, Value]) -> dict[str, Value]:
    """The manifest without what changes all the time."""
    found = dict(manifest)
    meta = found.get("metadata")
    if isinstance(meta, Mapping):
        found["metadata"] = {k: v for k, v in meta.items() if k not in _BOOKKEEPING}
    status = found.get("status")
    conditions = status.get("conditions") if isinstance(status, Mapping) else None
    if isinstance(conditions, list):
        lasting = [
            {k: v for k, v in c.items() if k not in _HEARTBEATS} if isinstance(c, Mapping) else c
            for c in conditions
        ]
        found["status"] = {**found["status"], "conditions": lasting}
    return found


def _less(manifest: Mapping[str, Value], projected: Mapping[str, Value]) -> dict[str, Value]:
    rest: dict[str, Value] = {}
    for key, value in manifest.items():
        if key not in projected:
            rest[key] = value
            continue
        known = projected[key]
        if isinstance(value, Mapping) and isinstance(known, Mapping):
            inner: Value = _less(value, known)
        elif _pairs(value, known):
            items = [_less(a, b) for a, b in zip(value, known, strict=True)]
            inner = {_EACH: items} if any(items) else None
        else:
            inner = None
        if inner:
            rest[key] = inner
    return rest


def _joined(rest: Mapping[str, Value], projected: Mapping[str, Value]) -> dict[str, Value]:
    joined = dict(projected)
    for key, value in rest.items():
        known = projected.get(key)
        each = value.get(_EACH) if isinstance(value, Mapping) else None
        if each is not None:
            # Of a list that changed since, the projection alone is right.
            if _pairs(each, known):
                items = known or ()
                joined[key] = [_joined(a, b) for a, b in zip(each, items, strict=True)]
        elif isinstance(value, Mapping) and isinstance(known, Mapping):
            joined[key] = _joined(value, known)
        elif key not in projected:
            joined[key] = value
    return joined


def _pairs(one: Value, other: Value) -> bool:
    """Are these lists of mappings that belong together item by item?"""
    return (
        isinstance(one, list)
        and isinstance(other, list)
        and len(one) == len(other)
        and all(isinstance(item, Mapping) for item in (*one, *other))
    )
