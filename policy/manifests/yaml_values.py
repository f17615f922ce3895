"""The documents of a YAML manifest as ordinary values, one at a time and within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any, Final, cast

import yaml

from policy.manifests import limits
from policy.manifests.limits import sized
from policy.manifests.odd import Repeating
from policy.text import yaml12

_DEEPEST: Final = 100
_ITEM_DEPTH: Final = 2
"""Most open collections around an item of a list: the document's mapping and its `items`."""

_OVERHEAD: Final = 2
"""Bytes of JSON around a value: quotes, a comma, brackets."""

_READ_AHEAD: Final = 2**21
"""Bytes that the parser may hold before their first event."""


class TooLarge(Exception):
    """An object that exceeds the limit."""


def documents(stream: IO[bytes], *, most: int = limits.DEFAULT.object_bytes) -> Iterator[Any]:
    """Yield the value of each document that has one.

    most: bytes that an object may take, what aliases repeat included. A mapping with a key that
    stands twice comes as `odd.Repeating`. Raises YamlError, TooLarge.
    """
    counted = _Counted(stream, most)
    for _, value in _Values(counted).documents(cast("IO[bytes]", counted)):
        if value is not None:  # `---` with nothing under it
            yield value


class _Counted:
    """Stops a text that goes on and on without saying anything."""

    def __init__(self, stream: IO[bytes], most: int) -> None:
        self._stream = stream
        self.most = most
        self.silent = 0  #: bytes since the last value

    def read(self, size: int = -1, /) -> bytes:
        data = self._stream.read(size)
        self.silent += len(data)
        if self.silent > self.most + _READ_AHEAD:
            raise TooLarge
        return data


class _Values(yaml12.Composer[Any]):
    """Sizes are about the bytes that values take as JSON."""

    def __init__(self, stream: _Counted) -> None:
        super().__init__(deepest=_DEEPEST)
        self._stream = stream
        self._full = 0  # the size at which the present object, or item of a list, is too large

    def weight(self, event: Any, *, is_key: bool) -> int:
        self._stream.silent = 0
        depth = len(self.open)
        if depth == 0 or (depth <= _ITEM_DEPTH and not self.open[-1].is_mapping):
            self._full = self.size + self._stream.most
        return _OVERHEAD + (len(event.value) if type(event) is yaml.ScalarEvent else 0)

    def check(self, event: Any) -> None:
        if self.size > self._full:
            if type(event) is not yaml.AliasEvent:
                raise TooLarge
            message = f"aliases make the object larger than {sized(self._stream.most)}"
            raise yaml12.error_at(event, message)

    def scalar(self, event: Any) -> Any:
        return yaml12.scalar(event)

    def sequence(self, start: Any, items: list[Any]) -> Any:
        return items

    def mapping(self, start: Any, pairs: list[tuple[Any, Any]]) -> Any:
        """Keys are text, as in JSON: `8080: web` and `"8080": web` are the same."""
        values: dict[str, Any] = {}
        merged: set[str] = set()  # keys that `<<` brought and that may be overridden
        repeated: list[str] = []
        for key, value in pairs:
            if yaml12.is_merge(key):
                for part in value if isinstance(value, list) else [value]:
                    if not isinstance(part, dict):
                        raise yaml12.error_at(key, "`<<` wants a mapping")
                    for name in part:
                        if name not in values:
                            merged.add(name)
                            values[name] = part[name]
                continue
            if key.value in merged:
                merged.discard(key.value)
            elif key.value in values:
                repeated.append(key.value)
            values[key.value] = value
        return Repeating(values, repeated) if repeated else values
