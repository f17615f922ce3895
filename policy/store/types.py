"""House column types: one meaning on SQLite (STRICT tables) and Postgres.

| type   | SQLite  | Postgres         | Python |
| ------ | ------- | ---------------- | ------ |
| Int64  | INTEGER | BIGINT           | int    |
| Millis | INTEGER | BIGINT           | int, milliseconds since 1970 UTC |
| Bool   | INTEGER | BOOLEAN          | bool   |
| Str    | TEXT    | TEXT COLLATE "C" | str, ordered by code point on both |
| Json   | TEXT    | JSON             | str, canonical JSON kept byte for byte |
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Dialect, Integer, Text
from sqlalchemy.types import TypeDecorator, TypeEngine, UserDefinedType


class Int64(TypeDecorator[int]):
    """A signed 64-bit integer."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Integer() if dialect.name == "sqlite" else BigInteger())


class Millis(Int64):
    """An instant: milliseconds since 1970 UTC."""

    cache_ok = True


class Bool(TypeDecorator[bool]):
    """True or false."""

    impl = Boolean
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        return dialect.type_descriptor(Integer() if dialect.name == "sqlite" else Boolean())

    def process_bind_param(self, value: bool | None, dialect: Dialect) -> Any:
        return int(value) if value is not None and dialect.name == "sqlite" else value

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        # SQLite would keep a 2 as well: it stays one, so that its row is not taken for what
        # was written.
        return {0: False, 1: True}.get(value, value)


class Str(TypeDecorator[str]):
    """Text, compared and ordered by code point."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(Text(collation="C"))
        return dialect.type_descriptor(Text())


class _JsonText(UserDefinedType[str]):
    """Postgres JSON that goes in and comes out as the very text."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "JSON"


class Json(TypeDecorator[str]):
    """Canonical JSON text: its bytes are hashed, so no driver may parse and rewrite it."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(_JsonText())
        return dialect.type_descriptor(Text())
