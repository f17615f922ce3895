"""Arguments as Volcano reads them: typed YAML, not text.

In a configuration file an integer is taken from an integer alone (`"2"` in quotes is left out with
a warning), a number from either, a boolean also from text. Rules keep what was read as text, a
structure as JSON; in our own files text is taken for what it says.

Source: Volcano `pkg/scheduler/framework/arguments.go`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from policy.batch.plugins.base import go_boolean
from policy.cluster import canonical
from policy.cluster.selectors import go_integer
from policy.rules.documents import Item, Leaf, plain

_WANTED: Final[Mapping[type, str]] = {
    bool: "`true` or `false`",
    int: "a whole number without quotes",
    float: "a number without quotes",
    str: "a single value",
    dict: "a mapping",
}


def kind_of(known: Mapping[str, Any], name: str) -> type | None:
    """The kind of an argument; None where it is not known. A kind may be given by a default."""
    found = known.get(name)
    if found is None:
        found = next(
            (kind for key, kind in known.items() if key[-1:] == "*" and name.startswith(key[:-1])),
            None,
        )
    if found is None:
        return None
    return found if isinstance(found, type) else type(found)


def read(kind: type | None, item: Item, *, quoted: bool) -> tuple[str, str]:
    """The value as text, and what it should be where it cannot be read; then the text is "".

    quoted: text counts as the number that it says.
    """
    wanted = _WANTED[kind or str]
    if kind is dict:
        value = _mapping(item)
        return ("", wanted) if value is None else (canonical.text(_texts(value)), "")
    if not isinstance(item, Leaf):
        return "", wanted
    text = item.text
    if kind is bool:
        ok = go_boolean(text) is not None
    elif kind in {int, float}:
        ok = (quoted or item.plain) and _number(text, whole=kind is int)
    else:
        ok = True
    return (text, "") if ok else ("", wanted)


def _number(text: str, *, whole: bool) -> bool:
    if go_integer(text) is not None:
        return True
    if whole:
        return False
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _mapping(item: Item) -> Mapping[str, Any] | None:
    value = plain(item)
    if isinstance(item, Leaf):
        try:
            value = canonical.parse(item.text)
        except ValueError:
            return None
    return value if isinstance(value, Mapping) else None


def _texts(value: Any) -> Any:
    """With numbers that are not whole as text: canonical JSON knows none."""
    if isinstance(value, Mapping):
        return {str(name): _texts(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_texts(inner) for inner in value]
    return repr(value) if isinstance(value, float) else value
