"""The shipped rules: their cases hold, and fail as soon as a rule is another one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from policy.audit.rule_sets import load_shipped, shipped_kinds
from policy.cases import Case, Suite, run, run_suite, suites
from policy.rules import RuleSet
from policy.rules.files import own_name, shipped_environments, shipped_rules
from policy.rules.lint import lint

FOLDER = Path(__file__).parents[2] / "rules"
SUITES = {suite.shown: suite for suite in suites([]) if not suite.batch}
CASES = [(suite, case) for suite in SUITES.values() for case in suite.cases()]


@pytest.mark.parametrize(
    ("suite", "case"), CASES, ids=[f"{s.rules}-{c.note.replace(' ', '-')}" for s, c in CASES]
)
def test_a_case_beside_the_rules_holds(suite: Suite, case: Case) -> None:
    """The rule set decides as the case beside it says."""
    assert run(case, RuleSet.load(suite.rules)) is None


def test_every_shipped_rule_and_environment_has_cases() -> None:
    """No rule without a case: a folder has its `cases.yaml`, an overlay its `.cases.yaml`."""
    assert {str(suite.rules) for suite in SUITES.values()} >= {
        *shipped_rules(),
        *shipped_environments(),
    }


@pytest.mark.parametrize("name", [*shipped_rules(), *shipped_environments()])
def test_shipped_rules_have_no_warnings(name: str) -> None:
    """Each rule is reached, explains itself, gives its reason, and is evaluated over columns."""
    assert lint(RuleSet.load(name)) == ()


def test_a_shipped_file_calls_itself_by_the_last_part_of_its_name() -> None:
    """What `own_name` says without reading the file; and no two of them call themselves alike."""
    names = {name: load_shipped(name).name for name in shipped_kinds()}
    assert names == {name: own_name(name) for name in names}
    assert len(set(names.values())) == len(names)


# -- mutants -------------------------------------------------------------------------------------

Mutant = tuple[str, dict[str, Any]]

_NUMBER = re.compile(r"(?<![\w'.])(\d+)(?![\w'.])")
_LENGTH = re.compile(r"duration\('(\d+)([smh])'\)")
_TEXT = re.compile(r"'([^']+)'")
_UNIT = {"s": 1, "m": 60, "h": 3600}


def rules_of(spec: dict[str, Any]) -> Iterator[tuple[list[Any], int, dict[str, Any]]]:
    """The rules that a file inserts or replaces, each with the list that it stands in."""
    for owner in (spec, spec.get("victims", {})):
        for value in owner.values():
            if isinstance(value, dict):
                for i, entry in enumerate(value.get("insert", ())):
                    yield value["insert"], i, entry["rule"]
                for i, rule in enumerate(value.get("replace", ())):
                    yield value["replace"], i, rule


def changed_conditions(when: str) -> Iterator[tuple[str, str]]:
    """Conditions that are wrong by a little, each with what was done to it."""
    for match in _NUMBER.finditer(when):
        for step in (-1, 1):
            number = str(int(match[1]) + step)
            yield f"{match[1]} is {number}", when[: match.start()] + number + when[match.end() :]
    for match in _LENGTH.finditer(when):
        for step in (-1, 1):
            length = f"duration('{int(match[1]) * _UNIT[match[2]] + step}s')"
            yield f"{match[0]} is {length}", when[: match.start()] + length + when[match.end() :]
    for match in _TEXT.finditer(_LENGTH.sub(lambda m: "_" * len(m[0]), when)):
        text = f"'{match[1]}x'"
        yield f"{match[0]} is {text}", when[: match.start()] + text + when[match.end() :]
    parts = when.split("&&")
    for i, part in enumerate(parts if len(parts) > 1 else ()):
        yield f"without {part.strip()}", "&&".join(parts[:i] + parts[i + 1 :])


def mutants(name: str) -> Iterator[Mutant]:
    """Rule files that are `name`'s but for one thing."""
    file = FOLDER / name / "rules.yaml" if name in shipped_rules() else FOLDER / f"{name}.yaml"
    original = yaml.safe_load(file.read_text())
    spec = original.setdefault("spec", {})
    for number, (_, _, rule) in enumerate(rules_of(spec)):
        without = deepcopy(original)
        entries, i, _ = list(rules_of(without["spec"]))[number]
        del entries[i]
        yield f"no {rule['id']}", without
        for what, when in changed_conditions(rule["when"]):
            other = deepcopy(original)
            list(rules_of(other["spec"]))[number][2]["when"] = when
            yield f"{rule['id']}: {what}", other
    limit = spec.get("victims", {}).get("maxVictims")
    for value in () if limit is None else (limit - 1, limit + 1, None):
        other = deepcopy(original)
        other["spec"]["victims"]["maxVictims"] = value
        yield f"maxVictims: {value}", other
    for included in original.get("include", ()):
        other = deepcopy(original)
        other["include"].remove(included)
        changed = {rule["id"] for _, _, rule in rules_of(spec)}
        victims = RuleSet.load(included).victims
        if not changed & {rule.id for rule in (*victims.eligible, *victims.forbid)}:
            yield f"without {included}", other


MUTANTS = [
    (name, what, value)
    for name in (*shipped_rules(), *shipped_environments())
    for what, value in mutants(name)
]


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, _, value in MUTANTS],
    ids=[f"{name}: {what}" for name, what, _ in MUTANTS],
)
def test_the_cases_fail_for_a_rule_that_is_wrong_by_a_little(
    name: str, value: dict[str, Any]
) -> None:
    """Removed, a threshold or window off by one, another word, a condition less: a case fails."""
    suite = next(suite for suite in SUITES.values() if suite.rules == name)
    assert run_suite(suite, RuleSet.load(value)) != []


def test_there_are_mutants_of_every_shipped_rule() -> None:
    """The list of mutants is not empty by accident: every rule is removed once."""
    removed = sorted({what.removeprefix("no ") for _, what, _ in MUTANTS if what.startswith("no ")})
    assert removed == [
        "cooldown",
        "minimum-run-time",
        "namespace-causes-too-many",
        "namespace-lost-enough",
        "pdb-hard-limit",
        "protected-label",
        "protected-namespace",
        "protected-namespace-label",
        "tolerates-for-a-time",
        "tolerates-for-ever",
    ]
    assert len(MUTANTS) > 50
