"""The shipped rule sets decide as the real schedulers of their generation did."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from policy import RuleSet
from policy.conformance import Agreement, ConformanceSummary, RecordingError, run
from policy.conformance.compare import OVERRIDES
from policy.parts import Workers

DATA = Path(__file__).parents[1] / "data" / "conformance"
SHARED = Path(os.environ.get("POLICY_SHARED", Path(__file__).parents[3] / "shared"))
GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35", "kube-1.36")
VARIANTS = {
    "kube-1.29": "1.29.14",
    "kube-1.30": "1.30.10",
    "kube-1.31.2": "1.31.2",
    "kube-1.31": "1.31.8",
    "kube-1.32": "1.32.5",
    "kube-1.33": "1.33.3",
    "kube-1.34.1": "1.34.1",
    "kube-1.34": "1.34.7",
    "kube-1.35": "1.35.4",
}
"""Rule sets, and the recorded version that each stands for."""


def recordings() -> list[tuple[str, Path]]:
    """(rule set, file): the part in this repository, and the whole where it is at hand."""
    found = [(name, DATA / f"{name}.jsonl.gz") for name in GENERATIONS]
    running = [DATA / "running-1.35.jsonl.gz"]
    running += sorted((SHARED / "conformance" / "running-1.35").glob("*.gz"))
    found.extend(("kube-1.35", file) for file in running)
    for name in sorted({*GENERATIONS, *VARIANTS}):
        found.extend((name, file) for file in sorted((SHARED / "conformance" / name).glob("*.gz")))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "file"),
    [
        pytest.param(*pair, id=f"{pair[0]}-{pair[1].parent.name}-{pair[1].name}")
        for pair in recordings()
    ],
)
def test_no_recorded_decision_differs(rules: str, file: Path) -> None:
    """On every recorded cluster our decision is one that the real scheduler may have made."""
    rule_set = RuleSet.load(rules, overrides=OVERRIDES)
    results = list(run([file], rule_set))
    differing = {r.id: r.differences for r in results if r.verdict is Agreement.DIFFER}
    assert differing == {}
    assert results


def test_every_first_cycle_of_a_running_1_36_is_ours() -> None:
    """Node, nomination, victims and message, with nothing left to chance."""
    rule_set = RuleSet.load("kube-1.36", overrides=OVERRIDES)
    results = list(run([DATA / "running-1.36.jsonl.gz"], rule_set))
    assert [r.id for r in results if r.verdict is not Agreement.AGREE] == []
    assert len(results) == 72


def test_a_running_scheduler_leaves_little_to_chance() -> None:
    """Few first cycles and score tables of a running scheduler tie; each says where."""
    rule_set = RuleSet.load("kube-1.35", overrides=OVERRIDES)
    file = DATA / "running-1.35.jsonl.gz"
    results = list(run([file], rule_set))
    assert {r.id: r.differences for r in results if r.verdict is not Agreement.AGREE} == {
        "neg-2022.0": ("node: c2022-n001, recorded c2022-n012",),
        "score-images-514.0": (
            "an image has several sizes, of which the scheduler met another first",
        ),
    }


@pytest.mark.parametrize(
    ("rules", "differ"),
    [
        ({"scoring": {"replace": [{"scorer": "topology-spread", "defaultingType": "list"}]}}, True),
        ({"scoring": {"replace": [{"scorer": "image-locality", "weight": 2}]}}, True),
        ({"victims": {"importance": [{"ascending": "victim.priority"}]}}, True),
        ({}, False),
    ],
)
def test_other_rules_differ_from_the_running_scheduler(
    rules: dict[str, object], differ: bool, tmp_path: Path
) -> None:
    """The comparison finds another weight, other defaults and another order of victims."""
    path = tmp_path / "rules.yaml"
    text = {
        "apiVersion": "policy/v1",
        "kind": "PreemptionRules",
        "metadata": {"name": "changed"},
        "extends": "kube-1.35",
        "spec": rules,
    }
    path.write_text(json.dumps(text))
    rule_set = RuleSet.load(path, overrides=OVERRIDES)
    results = run([DATA / "running-1.35.jsonl.gz"], rule_set)
    assert any(r.verdict is Agreement.DIFFER for r in results) is differ


def test_ties_are_rare_on_small_clusters() -> None:
    """Almost everywhere we agree to the letter, not only up to the order of equal pods."""
    rule_set = RuleSet.load("kube-1.35", overrides=OVERRIDES)
    summary = ConformanceSummary.of(r.verdict for r in run([DATA / "kube-1.35.jsonl.gz"], rule_set))
    assert summary.tie * 100 <= summary.total


def test_texts_are_those_of_the_real_scheduler() -> None:
    """Codes, plugins, reasons and messages of 1.35 are reproduced word for word."""
    rule_set = RuleSet.load("kube-1.35", overrides=OVERRIDES)
    results = list(run([DATA / "kube-1.35.jsonl.gz"], rule_set, strict=True))
    assert {r.id: r.differences for r in results if r.verdict is Agreement.DIFFER} == {}


@pytest.mark.parametrize("rules", VARIANTS)
def test_clusters_that_tell_versions_apart(rules: str) -> None:
    """Each rule set decides them as its version did, also with deletions in the background."""
    rule_set = RuleSet.load(rules, overrides=OVERRIDES)
    results = list(run([DATA / "minor.jsonl.gz"], rule_set, strict=True))
    assert [(r.verdict, r.differences) for r in results] == [(Agreement.AGREE, ())] * 14


def test_a_rule_set_for_which_no_version_is_recorded_is_refused() -> None:
    """A recording by version is not compared with rules that stand for none of its versions."""
    with pytest.raises(RecordingError) as caught:
        list(run([DATA / "minor.jsonl.gz"], RuleSet.load("kube-1.36")))
    assert str(caught.value).endswith(
        "minor.jsonl.gz:1: nothing is recorded for a version of rule set `kube-1.36`"
    )


def test_several_processes_give_the_same_results_in_the_same_order() -> None:
    """The order of the results is that of the file, whoever finishes first."""
    rule_set = RuleSet.load("kube-1.28", overrides=OVERRIDES)
    file = DATA / "kube-1.28.jsonl.gz"
    assert list(run([file], rule_set, workers=Workers(jobs=2))) == list(run([file], rule_set))


def test_families_and_limit_select() -> None:
    """`families` and `limit` choose scenarios in the order of the file."""
    rule_set = RuleSet.load("kube-1.35", overrides=OVERRIDES)
    file = DATA / "kube-1.35.jsonl.gz"
    results = list(run([file], rule_set, families=frozenset({"pdb", "taints"}), limit=14))
    every = [r.id for r in run([file], rule_set) if r.family in {"pdb", "taints"}]
    assert [r.id for r in results] == every[:14]
    assert {r.family for r in results} == {"pdb", "taints"}
