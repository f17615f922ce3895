"""Keys as Go spells them, in a message whose sender spelt them in another case.

Go matches keys without regard to case everywhere, down to the fields of the pods and nodes of a
message. What the keys are is read off the structs that the objects are decoded with.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from policy.cluster import objects

_Fold: TypeAlias = Callable[[Any], Any]


class _Victims(msgspec.Struct):
    Pods: list[objects.Pod]
    NumPDBViolations: int


class _MetaPod(msgspec.Struct):
    UID: str


class _MetaVictims(msgspec.Struct):
    Pods: list[_MetaPod]
    NumPDBViolations: int


class NodeList(msgspec.Struct):
    """The nodes of a filter or prioritize call, whole."""

    items: list[objects.Node]


class Args(msgspec.Struct):
    """What a scheduler sends, to any verb."""

    Pod: objects.Pod
    Nodes: NodeList
    NodeNames: list[str]
    NodeNameToVictims: dict[str, _Victims]
    NodeToVictims: dict[str, _Victims]  #: its name in the tagged package of 1.16 and before
    NodeNameToMetaVictims: dict[str, _MetaVictims]


def folded(value: Any, kind: type[msgspec.Struct]) -> Any:
    """JSON of that kind with its keys as they are spelt; keys that it does not know stay.

    Of several keys that differ in case the one that is spelt right counts, otherwise the last one
    with a value. What is of another type than it should be stays: whoever decodes it says so.
    """
    return _struct(kind)(value)


@cache
def _struct(kind: type[msgspec.Struct]) -> _Fold:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    fields = {
        key: (field.encode_name, _of(field.type))
        for field in found.fields
        for key in (field.encode_name, field.encode_name.lower())
    }
    unknown = ("", None)

    def fold(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        made: dict[str, Any] = {}
        for key, item in value.items():
            name, inner = fields.get(key) or fields.get(key.lower()) or unknown
            name = name or key
            if name != key and value.get(name) is not None:
                continue
            if item is not None or name not in made:
                made[name] = inner(item) if inner and item is not None else item
        return made

    return fold


def _of(kind: inspect.Type) -> _Fold | None:
    """What folds a value of a type; None where there is no key in it."""
    match kind:
        case inspect.UnionType():
            with_keys = [fold for fold in map(_of, kind.types) if fold]
            assert len(with_keys) <= 1  # beside null no struct has another type
            return with_keys[0] if with_keys else None
        case inspect.StructType():
            return _struct(kind.cls)
        case inspect.DictType():
            inner = _of(kind.value_type)
            return inner and _each_value(inner)
        case inspect.ListType():
            inner = _of(kind.item_type)
            return inner and _each_item(inner)
    return None


def _each_value(inner: _Fold) -> _Fold:
    def fold(value: Any) -> Any:
        return {k: inner(v) for k, v in value.items()} if isinstance(value, dict) else value

    return fold


def _each_item(inner: _Fold) -> _Fold:
    def fold(value: Any) -> Any:
        return [inner(item) for item in value] if isinstance(value, list) else value

    return fold
