"""Sessions end as Volcano's own tests expect."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest

from policy import RuleSet
from policy.conformance import Agreement, run, volcano

DATA = Path(__file__).parents[1] / "data" / "conformance" / "volcano.jsonl.gz"

NOT_MODELLED = {"networkTopology", "hyperNodes", "subGroupPolicy", "sharding", "dra", "volumes"}


def cases() -> dict[str, volcano.VolcanoCase]:
    with gzip.open(DATA, "rb") as lines:
        return {case.id: case for case in map(volcano.parse, lines)}


def test_every_case_agrees_or_names_what_is_missing() -> None:
    """Core cases agree, all of them; another that differs says what sessions here do not model."""
    results = {r.id: r for r in run([DATA], RuleSet.load("kube-1.36"))}
    found = cases()
    assert len(results) == 144
    differing = {name: r for name, r in results.items() if r.verdict is not Agreement.AGREE}
    assert {name: r.differences for name, r in differing.items() if found[name].core} == {}
    for name, result in differing.items():
        named = {d.removeprefix("not modelled: ") for d in result.differences}
        assert named & NOT_MODELLED & set(found[name].needs), result.differences
    assert len(differing) <= 10


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("allocate/TestAllocate/one-job-with-two-pods-on-one-node", {"binds": {"c1/p1": "n9"}}),
        ("allocate/TestAllocate/one-job-with-two-pods-on-one-node", {"evicted": ["c1/p1"]}),
        ("overcommit/TestOvercommitPlugin/overcommitfactor-is-more-than-0", {"jobEnqueueable": 0}),
        ("binpack/TestNode/single-job", {"nodeScores": {"c1/p1": {"n1": 1.0}}}),
        ("enqueue/TestEnqueue/when-podgroup-status-is-inqueue", {"podGroupPhase": {"c1/pg1": ""}}),
    ],
)
def test_a_change_of_any_expectation_is_found(name: str, change: dict[str, object]) -> None:
    """The comparison looks at every kind of expectation: one changed value makes a case differ."""
    case = cases()[name]
    expect = msgspec.to_builtins(case.expect)
    expect.update({key: bool(v) if v == 0 else v for key, v in change.items()})
    changed = msgspec.structs.replace(case, expect=msgspec.convert(expect, volcano.VolcanoExpect))
    assert volcano.compare(case).verdict is Agreement.AGREE
    assert volcano.compare(changed).verdict is Agreement.DIFFER
