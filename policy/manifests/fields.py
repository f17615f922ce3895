"""Every field of an object that has the wrong type, with its exact path.

The typed decoder stops at the first error and does not name map keys; this walk is slow, runs
only on objects that the decoder refused, and finds all of them. It also does what Kubernetes'
own decoder does with `null`: a field that cannot be null is as good as absent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect

from policy.cluster.objects import ClusterObject
from policy.typed import prepared

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class Mismatch:
    field: str
    message: str
    help: str = ""


def convert(
    value: dict[str, Any], kind: type[ClusterObject]
) -> tuple[ClusterObject | None, list[Mismatch]]:
    """The typed object, and everything that is wrong with its types.

    Where only numbers are out of range there is an object all the same, for further checks.
    """
    found: list[Mismatch] = []
    cleaned = _clean(value, _type(kind), "", found)
    try:
        return msgspec.convert(cleaned, prepared(kind)), found
    except msgspec.ValidationError as exc:
        return None, found or [Mismatch("", str(exc).split(" - at ")[0].lower())]


@cache
def _type(kind: type[ClusterObject]) -> inspect.Type:
    return inspect.type_info(kind)


def child(path: str, key: str) -> str:
    """`path.key`, or `path["odd key"]`."""
    if not _PLAIN_KEY.fullmatch(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def _clean(value: Any, wanted: inspect.Type, path: str, found: list[Mismatch]) -> Any:
    if isinstance(wanted, inspect.UnionType):
        return _clean_union(value, wanted, path, found)
    if isinstance(wanted, inspect.StructType) and isinstance(value, dict):
        return dict(_clean_struct(value, wanted, path, found))
    if isinstance(wanted, inspect.ListType) and isinstance(value, list):
        return [
            _clean({} if item is None else item, wanted.item_type, f"{path}[{i}]", found)
            for i, item in enumerate(value)
        ]
    if isinstance(wanted, inspect.DictType) and isinstance(value, dict):
        return {
            key: _clean(item, wanted.value_type, child(path, key), found)
            for key, item in value.items()
        }
    if not _fits(value, wanted):
        found.append(_mismatch(value, (wanted,), path))
        if isinstance(wanted, inspect.IntType) and type(value) is int:
            return wanted.ge  # in its place, so that the other fields can be checked
    return value


def _clean_union(value: Any, wanted: inspect.UnionType, path: str, found: list[Mismatch]) -> Any:
    options = [t for t in wanted.types if not isinstance(t, inspect.NoneType)]
    if value is None and len(options) < len(wanted.types):
        return None
    if len(options) == 1:
        return _clean(value, options[0], path, found)
    if not any(_fits(value, option) for option in options):
        found.append(_mismatch(value, tuple(options), path))
    return value


def _clean_struct(
    value: dict[str, Any], wanted: inspect.StructType, path: str, found: list[Mismatch]
) -> Iterator[tuple[str, Any]]:
    for field in wanted.fields:
        name = field.encode_name
        if name in value and not (value[name] is None and not _takes_null(field.type)):
            yield name, _clean(value[name], field.type, child(path, name), found)
        elif field.required:
            found.append(Mismatch(child(path, name), "missing"))


def _takes_null(wanted: inspect.Type) -> bool:
    return isinstance(wanted, inspect.AnyType) or (
        isinstance(wanted, inspect.UnionType)
        and any(isinstance(option, inspect.NoneType) for option in wanted.types)
    )


def _fits(value: Any, wanted: inspect.Type) -> bool:
    match wanted:
        case inspect.AnyType():
            return True
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool) and _within(value, wanted)
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case inspect.ListType():
            return isinstance(value, list)
        case inspect.DictType() | inspect.StructType():
            return isinstance(value, dict)
    return False


def _within(value: int, wanted: inspect.IntType) -> bool:
    return (wanted.ge is None or value >= wanted.ge) and (wanted.le is None or value <= wanted.le)


_WORDS: Final = (
    (inspect.StrType, "a string"),
    (inspect.BoolType, "`true` or `false`"),
    (inspect.FloatType, "a number"),
    (inspect.IntType, "a whole number"),
    (inspect.ListType, "a list"),
    ((inspect.DictType, inspect.StructType), "a mapping"),
)


def _mismatch(value: Any, wanted: tuple[inspect.Type, ...], path: str) -> Mismatch:
    if isinstance(value, int) and not isinstance(value, bool):
        for option in wanted:
            if isinstance(option, inspect.IntType):
                return out_of_range(value, path, least=option.ge, most=option.le)
    names = [word for types, word in _WORDS if any(isinstance(t, types) for t in wanted)]
    if "a number" in names and "a whole number" in names:
        names.remove("a whole number")
    hint = ""
    if "a string" in names and isinstance(value, int | float):
        hint = f'quote it: "{_shown(value)}"'
    return Mismatch(path, f"expected {' or '.join(names)}, got {described(value)}", hint)


def out_of_range(value: int, path: str, *, least: int | None, most: int | None) -> Mismatch:
    """A whole number that its field cannot hold."""
    return Mismatch(path, f"`{_shown(value)}` is out of range", f"from {least} to {most}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:80]


def described(value: Any) -> str:
    """A value of the wrong type, as a message names it."""
    if value is None:
        return "`null`"
    if isinstance(value, str):
        return f"the string `{value[:80]}`"
    if isinstance(value, bool):
        return f"`{_shown(value)}`"
    if isinstance(value, int | float):
        return f"the number `{_shown(value)}`"
    return "a list" if isinstance(value, list) else "a mapping"
