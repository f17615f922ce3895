"""The rows that keep a decision, and the decision out of its rows.

Columns are filled by the names of fields. What has no column of its own, and no table, is in the
document of `decision_traces`, under its name in camel case; what is there by default is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from itertools import repeat
from operator import attrgetter
from typing import Any, Final, TypeAlias

import msgspec
from sqlalchemy import Table

from policy.cluster import canonical, times
from policy.decision.model import (
    BudgetViolation,
    Candidate,
    RuleFired,
    StatusCount,
    Victim,
    camel_case,
    field_names,
)
from policy.decision.record import DecisionRecord, TraceRecord, line_of, values_of
from policy.store import rows
from policy.store.errors import DamagedRows
from policy.store.model.decisions import Origin
from policy.store.tables import (
    CANDIDATE_VIOLATIONS,
    CANDIDATES,
    DECISION_FILTERS,
    DECISION_RULES,
    DECISION_TRACES,
    DECISIONS,
    VICTIMS,
)
from policy.store.types import Json
from policy.typed import prepared

Row: TypeAlias = dict[str, Any]
Values: TypeAlias = Mapping[str, Any]

_PHASES: Final = {"filter_statuses": "filter", "dry_run_statuses": "dry-run"}
"""What a row of `decision_filters` says of the field that it belongs to."""

_OF_RULE_SET: Final = ("rule_set", "rule_set_digest")
"""Fields that are columns of another table, to which the row points."""

_ELSEWHERE: Final = frozenset(
    {*DECISIONS.c.keys(), *_OF_RULE_SET, *_PHASES, "rules", "victims", "candidates", "trace"}
)
"""Fields that are not in the document: they have columns or tables."""

_FIELDS: Final = {f.name: f for f in (*fields(DecisionRecord), *fields(TraceRecord))}
_IN_DOCUMENT: Final = {name: f for name, f in _FIELDS.items() if name not in _ELSEWHERE}
_IN_ROW: Final = tuple(n for n in _FIELDS if n in DECISIONS.c or n in _OF_RULE_SET)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionPlace:
    """Where a decision stands in the database."""

    decision_id: int
    cluster_id: int
    rule_set_id: int
    base_revision: int
    revision: int | None  #: the state it led to; None where it changed nothing
    origin: Origin
    hypothetical: bool
    effective: bool = True  #: what it decided happens


def rows_of(
    record: DecisionRecord, place: DecisionPlace
) -> list[tuple[Table, list[tuple[Any, ...]]]]:
    """All rows of a decision by table, each with all of the table's columns in their order."""
    line = line_of(record)
    shared = {
        **values_of(place),
        "id": place.decision_id,
        "origin": place.origin.value,
        "now_ms": record.now_ms,
        "preemptor_namespace": _namespace(record.preemptor),
    }
    criteria, best, victims = record.candidates.criteria, record.candidates.best, record.victims
    evicted = record.evicted(hypothetical=place.hypothetical or not place.effective)
    trace = record.trace
    phased = [(phase, s) for field, phase in _PHASES.items() for s in getattr(trace, field)]
    single = {**shared, **line, "document": canonical.text(_document(record, line))}
    return [
        (DECISIONS, [rows.of_table(DECISIONS, single)]),
        (DECISION_TRACES, [rows.of_table(DECISION_TRACES, single)]),
        (
            DECISION_FILTERS,
            _rows_by_field(
                DECISION_FILTERS,
                shared,
                StatusCount,
                [status for _, status in phased],
                {
                    "phase": [phase for phase, _ in phased],
                    "code": [status.code.value for _, status in phased],
                    "node_count": [status.nodes for _, status in phased],
                },
            ),
        ),
        (DECISION_RULES, _rows_by_field(DECISION_RULES, shared, RuleFired, trace.rules)),
        (
            CANDIDATES,
            _rows_by_field(
                CANDIDATES,
                shared,
                Candidate,
                best,
                {
                    "victim_count": [len(one.victims) for one in best],
                    "criteria_values": [[one.values[name] for name in criteria] for one in best],
                },
            ),
        ),
        (
            CANDIDATE_VIOLATIONS,
            _rows_by_field(
                CANDIDATE_VIOLATIONS, shared, BudgetViolation, record.candidates.violations
            ),
        ),
        (
            VICTIMS,
            _rows_by_field(
                VICTIMS,
                shared,
                Victim,
                victims,
                {
                    "namespace": [_namespace(victim.pod) for victim in victims],
                    "evicted": [victim.pod in evicted for victim in victims],
                    "start_ms": [
                        None if victim.start_ms == times.MISSING else victim.start_ms
                        for victim in victims
                    ],
                },
            ),
        ),
    ]


def _namespace(pod: str) -> str:
    return pod.partition("/")[0]


def _rows_by_field(
    table: Table,
    shared: Values,
    kind: type,
    values: Sequence[Any],
    also: Mapping[str, Sequence[Any]] | None = None,
) -> list[tuple[Any, ...]]:
    """A row for each of the values, with all of the table's columns in their order.

    Columns are filled by the names of the values' fields, `position` by the number of the row, and
    what is shared stands in each. also: further columns of their own; they stand instead of fields.
    """
    if not values:
        return []
    read, names = _fields_in(table, kind)
    own: dict[str, Sequence[Any]] = dict(
        zip(names, zip(*map(read, values), strict=True), strict=True)
    )
    if also:
        own |= also
    count = len(values)
    columns: list[Iterable[Any]] = []
    for name, json in _columns(table):
        if name in own:
            columns.append(canonical.text_each(own[name]) if json else own[name])
        else:
            columns.append(range(count) if name == "position" else repeat(shared[name], count))
    return list(zip(*columns, strict=True))


@cache
def _fields_in(
    table: Table, kind: type
) -> tuple[Callable[[Any], tuple[Any, ...]], tuple[str, ...]]:
    """What reads the fields that are columns of the table, and their names."""
    names = tuple(name for name in field_names(kind) if name in table.c)
    return attrgetter(*names), names


@cache
def _columns(table: Table) -> tuple[tuple[str, bool], ...]:
    """The columns of a table, and whether each keeps canonical JSON."""
    return tuple((column.name, isinstance(column.type, Json)) for column in table.columns)


def _document(record: DecisionRecord, line: Values) -> dict[str, Any]:
    values = {**line, "effects": record.effects, "criteria": record.candidates.criteria}
    names = ("criteria", *_IN_DOCUMENT)
    return {
        camel_case(name): values[name]
        for name in names
        if name == "criteria" or values[name] != _IN_DOCUMENT[name].default
    }


# --- and back ----------------------------------------------------------------------------------


def record_from(row: Values, children: Mapping[Table, Sequence[Row]]) -> DecisionRecord:
    """The decision out of its row, with names and digest of the rule set, and its other rows.

    Raises DamagedRows for rows that no decision has.
    """
    try:
        (traced,) = children[DECISION_TRACES]
        document = rows.from_json(traced["document"])
        known = {name: row[name] for name in _IN_ROW}
        known |= {n: document[camel_case(n)] for n in _IN_DOCUMENT if camel_case(n) in document}
        criteria = document["criteria"]
        filters = [_values(DECISION_FILTERS, r) for r in children[DECISION_FILTERS]]
        trace = {
            **known,
            "rules": [_values(DECISION_RULES, r) for r in children[DECISION_RULES]],
            **{
                field: [{**r, "nodes": r["node_count"]} for r in filters if r["phase"] == phase]
                for field, phase in _PHASES.items()
            },
        }
        candidates = {
            "count": row["candidate_count"],
            "criteria": criteria,
            "pdb_violations": row["pdb_violations"],
            "best": [
                {**r, "values": dict(zip(criteria, r["criteria_values"], strict=True))}
                for r in (_values(CANDIDATES, r) for r in children[CANDIDATES])
            ],
            "violations": [
                _values(CANDIDATE_VIOLATIONS, r) for r in children[CANDIDATE_VIOLATIONS]
            ],
        }
        victims = [_victim_values(r) for r in children[VICTIMS]]
        parts = {"victims": victims, "candidates": candidates, "trace": trace}
        return msgspec.convert({**known, **parts}, prepared(DecisionRecord))
    except (msgspec.ValidationError, KeyError, ValueError, TypeError) as exc:
        raise DamagedRows(
            f"the rows of decision {row['id']} are not those of a decision",
            help="`policy audit verify` names what was changed",
        ) from exc


def victim_from(row: Values) -> Victim:
    """A victim out of its row."""
    return msgspec.convert(_victim_values(row), prepared(Victim))


def _victim_values(row: Values) -> Row:
    start = times.MISSING if row["start_ms"] is None else row["start_ms"]
    return {**_values(VICTIMS, row), "start_ms": start}


def _values(table: Table, row: Values) -> Row:
    """The values of a row by column, JSON parsed."""
    return {
        str(c.name): rows.from_json(row[c.name]) if isinstance(c.type, Json) else row[c.name]
        for c in table.columns
    }
