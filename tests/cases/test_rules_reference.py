"""The pages about rules: their tables are what the code says, and their examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from policy.cases import run_beside
from policy.filters.registry import FILTERS
from policy.rules import RuleSet
from policy.rules.expressions.variables import HISTORY_FUNCTIONS, VARIABLES
from policy.rules.lint import lint
from policy.rules.reference import PARTS, updated

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"


def blocks() -> list[str]:
    """The YAML examples of the page."""
    return re.findall(r"```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_generated_tables_are_up_to_date() -> None:
    """docs/rules.md is what `python -m policy.rules.reference docs/rules.md` makes of it."""
    text = PAGE.read_text("utf-8")
    assert text == updated(text)


def test_everything_that_is_declared_is_on_the_page() -> None:
    """Each variable, history function and filter has its row or heading, and each part is used."""
    text = PAGE.read_text("utf-8")
    expected = [
        *(f"| `{name}` |" for name in VARIABLES),
        *(f"`history.{name}(" for name in HISTORY_FUNCTIONS),
        *(f"#### `{name}`" for name in FILTERS),
        *(f"<!-- generated: {name} -->" for name in PARTS),
    ]
    assert [part for part in expected if part not in text] == []


def test_the_first_example_loads_and_its_case_holds(tmp_path: Path) -> None:
    """The rule file that the page begins with has no warning, and decides as its case says."""
    rules, cases = blocks()[:2]
    file = tmp_path / "my-rules.yaml"
    file.write_text(rules)
    (tmp_path / "my-rules.cases.yaml").write_text(cases)
    assert lint(RuleSet.load(file)) == ()
    assert run_beside(str(file)) == []
    file.write_text(rules.replace("verdict: deny", "verdict: allow"))
    assert len(run_beside(str(file))) == 1


@pytest.mark.parametrize("text", blocks())
def test_every_example_is_yaml(text: str) -> None:
    """What stands on the page can be typed in."""
    assert yaml.safe_load(text)


def test_the_long_case_of_the_page_holds(tmp_path: Path) -> None:
    """The case with all its parts is one that can be run."""
    (tmp_path / "kube.yaml").write_text(
        "{apiVersion: policy/v1, kind: PreemptionRules, metadata: {name: k}, extends: kube-1.35}"
    )
    cases = next(text for text in blocks() if "after ten minutes" in text)
    (tmp_path / "kube.cases.yaml").write_text(cases)
    assert run_beside(str(tmp_path / "kube.yaml")) == []
