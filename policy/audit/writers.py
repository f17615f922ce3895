"""Who wrote a record, by what the system and the database say."""

from __future__ import annotations

from typing import Any, Final, Protocol


class WriterRecord(Protocol):
    """A record that says who wrote it, by what the system and the database say."""

    @property
    def process_uid(self) -> int | None: ...
    @property
    def process_user(self) -> str: ...
    @property
    def database_user(self) -> str: ...


WRITTEN_BY: Final = ("process_uid", "process_user", "database_user")
"""Columns beside `actor`: what the system and the database say, where that is only claimed."""


def written_by(row: WriterRecord) -> dict[str, Any]:
    """The values of `WRITTEN_BY`."""
    return {name: getattr(row, name) for name in WRITTEN_BY}
