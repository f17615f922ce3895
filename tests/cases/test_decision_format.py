"""The canonical decision is a promise: its digests are in every record."""

from __future__ import annotations

import hashlib
import json
import pickle
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Table

from policy.cluster import canonical
from policy.decision.columns import Deferred, Runs
from policy.decision.model import (
    Candidate,
    RuleFired,
    StatusCount,
    Victim,
    document_of,
    field_names,
)
from policy.decision.record import record_of
from policy.store.decision_rows import DecisionPlace, rows_of
from policy.store.model.decisions import Origin
from policy.store.tables import CANDIDATES, DECISION_FILTERS, DECISION_RULES, VICTIMS
from policy.store.types import Json
from tests.support.golden_decisions import FOLDER, decisions

GOLDEN = decisions()


def test_stored_json_is_canonical() -> None:
    """What is stored of a decision as JSON has sorted keys, no blanks, and no other form."""
    place = DecisionPlace(
        decision_id=1,
        cluster_id=1,
        rule_set_id=1,
        base_revision=1,
        revision=2,
        origin=Origin.DECIDED,
        hypothetical=False,
    )
    texts = [
        row[at]
        for table, found in rows_of(record_of(GOLDEN["by-hand"]), place)
        for at, column in enumerate(table.columns)
        for row in found
        if isinstance(column.type, Json)
    ]
    plain = [json.dumps(json.loads(t), sort_keys=True, separators=(",", ":")) for t in texts]
    assert texts == plain


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_the_canonical_text_is_that_of_the_document(name: str) -> None:
    """What is hashed is written out part by part, and is the same text as the whole document's."""
    decision = GOLDEN[name]
    assert decision.canonical == canonical.encode(document_of(decision))


def test_every_committed_decision_is_compared() -> None:
    """The folder holds the texts of these decisions and no others."""
    assert {path.stem for path in FOLDER.iterdir()} == set(GOLDEN)


@pytest.mark.parametrize("name", sorted(GOLDEN))
def test_a_decision_has_the_committed_text(name: str) -> None:
    """Names, values and bytes are those of the file, whose hash is the decision's digest."""
    committed = (FOLDER / f"{name}.json").read_bytes()
    assert json.loads(GOLDEN[name].canonical) == json.loads(committed)
    assert (GOLDEN[name].canonical, GOLDEN[name].digest) == (
        committed,
        f"sha256:{hashlib.sha256(committed).hexdigest()}",
    )


@pytest.mark.parametrize(
    ("part", "table"),
    [
        (Victim, VICTIMS),
        (Candidate, CANDIDATES),
        (RuleFired, DECISION_RULES),
        (StatusCount, DECISION_FILTERS),
    ],
)
def test_every_field_of_a_part_has_a_column(part: type, table: Table) -> None:
    """What a decision says of a victim, a candidate, a rule or a status is in the tables."""
    known = {"values": "criteria_values", "nodes": "node_count"}
    wanted = {known.get(name, name) for name in field_names(part)}
    assert wanted - set(table.columns.keys()) == set()


def test_the_decision_by_hand_has_something_in_every_field() -> None:
    """Reading it back as it was proves something of each field, also of those with a default."""
    record = record_of(GOLDEN["by-hand"])
    defaults = {f.name: f.default for f in (*fields(record), *fields(record.trace))}
    default = [
        name
        for part in (record, record.trace, record.victims[0], record.candidates.best[0])
        for name in field_names(type(part))
        if getattr(part, name) in (defaults.get(name), (), None) and name != "engine_version"
    ]
    assert default == []


def test_a_column_that_waits_is_computed_once_and_equals_its_values() -> None:
    """Also after it has travelled to another process, where it is a plain tuple."""
    computed: list[str] = []

    def compute() -> list[int]:
        computed.append("now")
        return [3, 1, 2]

    column = Deferred(3, compute)
    before = (len(column), list(computed))
    read = (column[0], column[1:], list(column), column == (3, 1, 2), column == [3])
    travelled = pickle.loads(pickle.dumps(column))
    assert (before, read, travelled, computed) == (
        (3, []),
        (3, [1, 2], [3, 1, 2], True, False),
        (3, 1, 2),
        ["now"],
    )


@pytest.mark.parametrize("times", [1, 30])
@pytest.mark.parametrize(
    ("numbers", "missing", "labels"),
    [
        ([], None, None),
        ([7], None, None),
        ([7] * 40, None, None),
        ([*range(600)], None, None),
        ([*[-1] * 20, *[2**40] * 19, 3], None, None),
        ([*range(40)], None, None),
        ([1] * 40, [*[False] * 20, *[True] * 20], None),
        ([*[-1], *[0] * 20, *[1] * 20], None, ["a", 'b"', ""]),
    ],
)
def test_a_column_of_runs_is_written_as_its_values(
    numbers: list[int], missing: list[bool] | None, labels: list[str] | None, times: int
) -> None:
    """A short one and a long one."""
    numbers = [n for n in numbers for _ in range(times)]
    missing = missing and [none for none in missing for _ in range(times)]
    values: list[Any] = [labels[n] if labels else n for n in numbers]
    if missing:
        values = [None if none else v for v, none in zip(values, missing, strict=True)]

    def read() -> tuple[Any, Any]:
        return np.array(numbers), None if missing is None else np.array(missing)

    column = Runs[Any](len(numbers), read, labels=labels)
    assert canonical.encode(column.canonical()) == canonical.encode(values)
    assert [*column[15:25]] == values[15:25]
    assert list(column) == values
