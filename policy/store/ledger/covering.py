"""Reading back, for a stretch of ledger entries, every line that each of them covers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Table, select

from policy.cluster import canonical
from policy.store import rows
from policy.store.ledger.entries import SUBJECTS
from policy.store.tables import (
    ACTIVATIONS,
    CYCLES,
    DECISION_CHILDREN,
    DECISION_OUTCOMES,
    DECISIONS,
    ENVIRONMENTS,
    GAPS,
    NOMINATION_ENDS,
    NOMINATIONS,
    OBSERVATIONS,
    OBSERVED_VICTIMS,
    PRUNINGS,
    REVISIONS,
    RULE_SETS,
    SCHEDULERS,
    SESSION_OUTCOMES,
    SESSION_STEPS,
    SESSIONS,
    SIMULATIONS,
    VERSIONS,
)
from policy.store.tables.base import LEDGER_FORMAT

_BATCH: Final = 5000
Owner = tuple[str, int]
"""What a row belongs to: the ledger column that names it, and its value there."""


@dataclass(slots=True)
class Covered:
    """What the rows say for a stretch of entries: lines by what they belong to, and defects."""

    lines: dict[Owner, list[bytes]] = field(default_factory=dict)
    digests: dict[Owner, str] = field(default_factory=dict)
    defects: dict[Owner, str] = field(default_factory=dict)

    def add(self, owner: Owner, line: bytes) -> None:
        self.lines.setdefault(owner, []).append(line)


class RuleSetLines:
    """Rule sets by id, read once: few rows, each covered by many entries."""

    def __init__(self, connection: Connection) -> None:
        self._rows: dict[int, rows.Values] = {}
        self._broken: dict[int, str] = {}
        self._lines: dict[tuple[int, int], bytes] = {}
        for row in connection.execute(select(RULE_SETS)).mappings():
            self._rows[row["id"]] = dict(row)
            if canonical.sha256(row["canonical"].encode()) != row["digest"]:
                self._broken[row["id"]] = f"the text of rule set `{row['name']}` was changed"

    def line(self, rule_set_id: int, ledger_format: int) -> bytes | None:
        """The line of a rule set, None where there is no such row."""
        at = (rule_set_id, ledger_format)
        if at not in self._lines and rule_set_id in self._rows:
            row = self._rows[rule_set_id]
            self._lines[at] = rows.line(RULE_SETS, row, ledger_format=ledger_format)
        return self._lines.get(at)

    def defect(self, rule_set_id: int) -> str:
        """What is wrong with the text of a rule set, "" for nothing."""
        return self._broken.get(rule_set_id, "")


def _fetch(
    connection: Connection, table: Table, condition: ColumnElement[bool]
) -> Iterator[rows.Values]:
    query = select(table).where(condition).execution_options(yield_per=_BATCH)
    for part in connection.execute(query).mappings().partitions():
        yield from part


def _ids(entries: Sequence[Row[Any]], column: str) -> list[int]:
    return [e._mapping[column] for e in entries if e._mapping[column] is not None]


_Parts = Sequence[tuple[Table, str]]
_SUBJECT_TABLES: Final[Sequence[tuple[str, Table, _Parts]]] = (
    (
        "decision_id",
        DECISIONS,
        [(CYCLES, "id"), *((table, "decision_id") for table in DECISION_CHILDREN)],
    ),
    ("session_id", SESSIONS, [(SESSION_STEPS, "session_id")]),
    ("environment_id", ENVIRONMENTS, []),
    ("activation_id", ACTIVATIONS, []),
    ("pruning_id", PRUNINGS, []),
    ("observation_id", OBSERVATIONS, [(OBSERVED_VICTIMS, "observation_id")]),
    ("gap_id", GAPS, []),
    ("simulation_id", SIMULATIONS, []),
    ("scheduler_id", SCHEDULERS, []),
)
"""What entries are about by its id: the ledger's column, the table, and tables of its parts."""


def owners_of(entry: Row[Any]) -> list[Owner]:
    """What a ledger entry is about."""
    values = entry._mapping
    return [(column, values[column]) for column in SUBJECTS if values[column] is not None]


def read(
    connection: Connection,
    cluster_id: int,
    entries: Sequence[Row[Any]],
    known_rule_sets: RuleSetLines,
) -> Covered:
    """All lines that belong to the entries."""
    covered = Covered()
    # An entry of an impossible format is found by its hash; its rows are read in the newest one.
    formats = {
        owner: entry.format if 1 <= entry.format <= LEDGER_FORMAT else LEDGER_FORMAT
        for entry in entries
        for owner in owners_of(entry)
    }
    reader = _Reader(connection, cluster_id, covered, known_rule_sets, formats)
    for column, table, parts in _SUBJECT_TABLES:
        reader.subjects(column, table, parts, _ids(entries, column))
    reader.revisions(_ids(entries, "revision"))
    return covered


@dataclass(slots=True)
class _Reader:
    connection: Connection
    cluster_id: int
    covered: Covered
    rule_sets: RuleSetLines
    formats: Mapping[Owner, int]

    def _add(self, owner: Owner, table: Table, row: rows.Values) -> None:
        ledger_format = self.formats.get(owner, LEDGER_FORMAT)
        self.covered.add(owner, rows.line(table, row, ledger_format=ledger_format))

    def _add_rule_set(self, owner: Owner, rule_set_id: int) -> None:
        line = self.rule_sets.line(rule_set_id, self.formats.get(owner, LEDGER_FORMAT))
        if line is not None:
            self.covered.add(owner, line)
        defect = self.rule_sets.defect(rule_set_id)
        if defect:
            self.covered.defects.setdefault(owner, defect)

    def _rows(self, table: Table, condition: ColumnElement[bool]) -> Iterator[rows.Values]:
        return _fetch(self.connection, table, condition)

    def subjects(self, column: str, table: Table, parts: _Parts, ids: Sequence[int]) -> None:
        """The rows that entries are about by their id, with those of their parts."""
        if not ids:
            return
        for row in self._rows(table, table.c.id.in_(ids)):
            owner = (column, row["id"])
            self._add(owner, table, row)
            if "digest" in row:
                self.covered.digests[owner] = row["digest"]
            if row.get("rule_set_id") is not None:
                self._add_rule_set(owner, row["rule_set_id"])
        for part, of in parts:
            for row in self._rows(part, part.c[of].in_(ids)):
                self._add((column, row[of]), part, row)

    def revisions(self, numbers: Sequence[int]) -> None:
        """Revisions, versions and nominations that begin or end, and what they contradict."""
        if not numbers:
            return
        low, high = min(numbers), max(numbers)
        c = REVISIONS.c
        for row in self._of_cluster(REVISIONS, c.number.between(low, high)):
            owner = ("revision", row["number"])
            self._add(owner, REVISIONS, row)
            self.covered.digests[owner] = row["digest"]
        for table in VERSIONS.values():
            self._versions(table, low, high)
        for table, column in (
            (NOMINATIONS, "made_revision"),
            (NOMINATION_ENDS, "ended_revision"),
            (DECISION_OUTCOMES, "revision"),
            (SESSION_OUTCOMES, "revision"),
        ):
            for row in self._of_cluster(table, table.c[column].between(low, high)):
                self._add(("revision", row[column]), table, row)

    def _of_cluster(self, table: Table, condition: ColumnElement[bool]) -> Iterator[rows.Values]:
        return self._rows(table, (table.c.cluster_id == self.cluster_id) & condition)

    def _versions(self, table: Table, low: int, high: int) -> None:
        for row in self._of_cluster(table, table.c.valid_from.between(low, high)):
            owner = ("revision", row["valid_from"])
            self._add(owner, table, row)
            defect = manifest_defect(table, row)
            if defect:
                self.covered.defects.setdefault(owner, defect)
        ended = select(table.c.key, table.c.valid_from, table.c.valid_to).where(
            table.c.cluster_id == self.cluster_id, table.c.valid_to.between(low, high)
        )
        found = self.connection.execute(ended.execution_options(yield_per=_BATCH))
        for part in found.partitions():
            ends = [(end.key, end.valid_from, end.valid_to) for end in part]
            for (_, _, revision), line in zip(
                ends, rows.closed_lines(table.name, ends), strict=True
            ):
                self.covered.add(("revision", revision), line)


def manifest_defect(table: Table, row: rows.Values) -> str:
    """What is wrong with a version whose manifest does not have its digest; "" for nothing."""
    if hashlib.sha256(row["manifest"].encode()).hexdigest() == row["digest"]:
        return ""
    return f"the manifest of {table.name} `{row['key']}` was changed"
