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
    reader.decisions(_ids(entries, "decision_id"))
    reader.sessions(_ids(entries, "session_id"))
    reader.environments(_ids(entries, "environment_id"))
    reader.activations(_ids(entries, "activation_id"))
    reader.prunings(_ids(entries, "pruning_id"))
    reader.observations(_ids(entries, "observation_id"))
    reader.gaps(_ids(entries, "gap_id"))
    reader.simulations(_ids(entries, "simulation_id"))
    reader.schedulers(_ids(entries, "scheduler_id"))
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

    def decisions(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        for row in self._rows(CYCLES, CYCLES.c.id.in_(ids)):
            self._add(("decision_id", row["id"]), CYCLES, row)
        for row in self._rows(DECISIONS, DECISIONS.c.id.in_(ids)):
            owner = ("decision_id", row["id"])
            self._add(owner, DECISIONS, row)
            self.covered.digests[owner] = row["digest"]
            self._add_rule_set(owner, row["rule_set_id"])
        for table in DECISION_CHILDREN:
            for row in self._rows(table, table.c.decision_id.in_(ids)):
                self._add(("decision_id", row["decision_id"]), table, row)

    def sessions(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        for row in self._rows(SESSIONS, SESSIONS.c.id.in_(ids)):
            owner = ("session_id", row["id"])
            self._add(owner, SESSIONS, row)
            self.covered.digests[owner] = row["digest"]
            self._add_rule_set(owner, row["rule_set_id"])
        for row in self._rows(SESSION_STEPS, SESSION_STEPS.c.session_id.in_(ids)):
            owner = ("session_id", row["session_id"])
            self._add(owner, SESSION_STEPS, row)

    def environments(self, ids: Sequence[int]) -> None:
        for row in self._rows(ENVIRONMENTS, ENVIRONMENTS.c.id.in_(ids)) if ids else ():
            self._add(("environment_id", row["id"]), ENVIRONMENTS, row)

    def activations(self, ids: Sequence[int]) -> None:
        for row in self._rows(ACTIVATIONS, ACTIVATIONS.c.id.in_(ids)) if ids else ():
            owner = ("activation_id", row["id"])
            self._add(owner, ACTIVATIONS, row)
            self._add_rule_set(owner, row["rule_set_id"])

    def prunings(self, ids: Sequence[int]) -> None:
        for row in self._rows(PRUNINGS, PRUNINGS.c.id.in_(ids)) if ids else ():
            self._add(("pruning_id", row["id"]), PRUNINGS, row)

    def observations(self, ids: Sequence[int]) -> None:
        if not ids:
            return
        for row in self._rows(OBSERVATIONS, OBSERVATIONS.c.id.in_(ids)):
            owner = ("observation_id", row["id"])
            self._add(owner, OBSERVATIONS, row)
            self.covered.digests[owner] = row["digest"]
        for row in self._rows(OBSERVED_VICTIMS, OBSERVED_VICTIMS.c.observation_id.in_(ids)):
            self._add(("observation_id", row["observation_id"]), OBSERVED_VICTIMS, row)

    def gaps(self, ids: Sequence[int]) -> None:
        for row in self._rows(GAPS, GAPS.c.id.in_(ids)) if ids else ():
            self._add(("gap_id", row["id"]), GAPS, row)

    def simulations(self, ids: Sequence[int]) -> None:
        for row in self._rows(SIMULATIONS, SIMULATIONS.c.id.in_(ids)) if ids else ():
            owner = ("simulation_id", row["id"])
            self._add(owner, SIMULATIONS, row)
            self.covered.digests[owner] = row["digest"]
            self._add_rule_set(owner, row["rule_set_id"])

    def schedulers(self, ids: Sequence[int]) -> None:
        for row in self._rows(SCHEDULERS, SCHEDULERS.c.id.in_(ids)) if ids else ():
            owner = ("scheduler_id", row["id"])
            self._add(owner, SCHEDULERS, row)
            if row["rule_set_id"] is not None:
                self._add_rule_set(owner, row["rule_set_id"])

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
