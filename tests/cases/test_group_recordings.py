"""`kube-1.36-groups` decides cycles of pod groups as kube-scheduler 1.36.2 did."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from policy import RuleSet
from policy.conformance import Agreement, RecordingError, run
from policy.conformance.compare import OVERRIDES

DATA = Path(__file__).parents[1] / "data" / "conformance" / "pod-groups.jsonl.gz"
SHARED = Path(os.environ.get("POLICY_SHARED", Path(__file__).parents[3] / "shared"))
FILES = [DATA, *sorted((SHARED / "conformance" / "pod-groups").glob("*.gz"))]


def rules() -> RuleSet:
    return RuleSet.load("kube-1.36-groups", overrides=OVERRIDES)


@pytest.mark.slow
@pytest.mark.parametrize("file", [pytest.param(f, id=f"{f.parent.name}-{f.name}") for f in FILES])
def test_no_recorded_cycle_differs(file: Path) -> None:
    """Order, members, texts, nominations, conditions, units, victims and deletions are equal."""
    results = list(run([file], rules()))
    apart = {r.id: r.differences for r in results if r.verdict is not Agreement.AGREE}
    assert apart == {}
    assert results


def changed(record: dict[str, Any], field: str) -> dict[str, Any]:
    """The record with another value in one field of its first cycle."""
    expect = json.loads(json.dumps(record["expect"]))
    if field == "nominatedNode":
        next(iter(expect["pods"].values()))[field] = "elsewhere"
    elif field == "message":
        next(iter(expect["pods"].values()))[field] = "another text"
    elif field == "reprieved":
        unit = expect["preemption"]["units"][0]
        unit[field] = not unit[field]
    elif field == "condition":
        expect[field] = {**expect[field], "message": "another text"}
    else:
        expect[field] = expect[field][::-1]
    return {**record, "expect": expect, "alternatives": []}


@pytest.mark.parametrize(
    "field",
    ["order", "nominatedNode", "message", "reprieved", "condition", "victims", "deleted"],
)
def test_another_value_in_a_recording_is_noticed(field: str, tmp_path: Path) -> None:
    """The comparison looks at every field that is promised to be equal."""
    with gzip.open(DATA, "rt") as lines:
        records = [json.loads(line) for line in lines]
    one = next(
        r
        for r in records
        if len(r["expect"]["deleted"]) > 1 and "units" in (r["expect"]["preemption"] or {})
    )
    file = tmp_path / "changed.jsonl"
    file.write_text(json.dumps(changed(one, field)))
    (result,) = run([file], rules())
    assert result.verdict is Agreement.DIFFER


def test_an_alternative_of_the_real_scheduler_is_a_tie(tmp_path: Path) -> None:
    """Where the canonical outcome is not ours, one that was seen under other ties will do."""
    with gzip.open(DATA, "rt") as lines:
        one = json.loads(next(lines))
    other = changed(one, "message")
    other["alternatives"] = [{"count": 1, "expect": one["expect"]}]
    file = tmp_path / "tie.jsonl"
    file.write_text(json.dumps(other))
    (result,) = run([file], rules())
    assert result.verdict is Agreement.TIE


def test_rules_without_groups_are_refused() -> None:
    with pytest.raises(RecordingError) as caught:
        list(run([DATA], RuleSet.load("kube-1.36")))
    assert "which these rules do not decide" in str(caught.value)
