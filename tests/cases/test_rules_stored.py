"""A stored rule set, read by a later release, goes on meaning what it meant."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import Field, create_model

from policy import RuleSet
from policy.filters.base import FilterInfo, Parameter
from policy.filters.registry import FILTERS
from policy.rules import files, loading, stored
from policy.rules.problems import RulesError
from policy.rules.schema import CandidatesModel, RuleFileModel
from policy.scoring.registry import SCORERS

NAMES = sorted(name for name in files.shipped() if files.is_of_kind(name, files.PREEMPTION_RULES))


def later(parameter: Parameter) -> dict[str, FilterInfo]:
    """The filters of a release in which `taints` has one more parameter."""
    info = FILTERS["taints"]
    grown = replace(info, parameters={**info.parameters, "effects": parameter})
    return {**FILTERS, "taints": grown}


def parameters(rules: RuleSet, name: str) -> dict[str, Any]:
    return next(dict(use.parameters) for use in rules.filters if use.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_a_stored_rule_set_is_complete(name: str) -> None:
    """The canonical form holds every setting and parameter, defaults included."""
    value = json.loads(RuleSet.load(name).canonical)
    registries = {"filters": FILTERS, "scoring": SCORERS}
    assert stored.complete(value, registries) == []
    assert value == json.loads(RuleSet.load(name).canonical)


def test_a_parameter_added_later_keeps_the_old_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file gets the new default; what was stored gets the value that means what it meant."""
    text = RuleSet.load("kube-1.35").canonical
    parameter = Parameter(doc="d", default="all", choices=("all", "some"), before="some")
    monkeypatch.setattr(loading, "FILTERS", later(parameter))
    old, new = RuleSet.from_canonical(text), RuleSet.load("kube-1.35")
    assert [parameters(r, "taints")["effects"] for r in (old, new)] == ["some", "all"]
    assert (old.canonical, old.digest == new.digest) == (text, False)


def test_a_changed_default_changes_nothing_that_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was a default when the rule set was stored stays as it was."""
    text = RuleSet.load("kube-1.35").canonical
    info = FILTERS["resources"]
    compare = replace(info.parameters["compare"], default="all")
    changed = {
        **FILTERS,
        "resources": replace(info, parameters={**info.parameters, "compare": compare}),
    }
    monkeypatch.setattr(loading, "FILTERS", changed)
    sets = (RuleSet.from_canonical(text), RuleSet.load("kube-1.35"))
    assert [parameters(r, "resources")["compare"] for r in sets] == ["requested", "all"]


def test_a_parameter_whose_old_meaning_nobody_named_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stored rule set is never read with a newer default."""
    text = RuleSet.load("kube-1.35").canonical
    monkeypatch.setattr(loading, "FILTERS", later(Parameter(doc="d", default="all")))
    with pytest.raises(RulesError) as caught:
        RuleSet.from_canonical(text)
    assert [(p.field, p.message) for p in caught.value.problems] == [
        ("spec.filters[2].effects", "stored without `effects`, by a release that did not know it")
    ]


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"before": 7}, (7, [])),
        ({}, (None, ["spec.candidates.maxSeconds"])),
    ],
)
def test_a_setting_added_later_is_treated_alike(
    monkeypatch: pytest.MonkeyPatch, extra: dict[str, Any], expected: tuple[Any, list[str]]
) -> None:
    """So is a setting outside the filters: its declared value, or a refusal."""
    field = Field(3, json_schema_extra=extra)
    grown = create_model("Grown", __base__=CandidatesModel, maxSeconds=(int, field))
    monkeypatch.setattr(stored, "RuleFileModel", _with_candidates(grown))
    value = json.loads(RuleSet.load("kube-1.35").canonical)
    problems = stored.complete(value, {})
    found = value["spec"]["candidates"].get("maxSeconds")
    assert (found, [problem.field for problem in problems]) == expected


def _with_candidates(model: Any) -> Any:
    spec = RuleFileModel.model_fields["spec"].annotation
    grown = create_model("GrownSpec", __base__=spec, candidates=(model, model.model_validate({})))
    return create_model("GrownFile", __base__=RuleFileModel, spec=(grown, ...))
