"""Damaged rule files: whatever happens to the text, loading gives a rule set or says why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.rules import Problem, RulesError, RuleSet

TEXT = (Path(__file__).parents[2] / "rules" / "kube-1.35.yaml").read_text()
PIECES = [
    *("\n", " ", "  ", "\t", ":", ": ", "-", "- ", "{", "}", "[", "]", ",", "'", '"', "#", " #"),
    *("&a ", "*a", "!x ", "|", ">-\n", "---\n", "...", "? ", "<<: ", "yes", "null", "~", "010"),
    *("\x00", "\x85", "\u2028", "\ufeff", "é", "\U0001f600", "victim", "extends: ", "x" * 99),
]
EDITS = st.lists(
    st.tuples(st.integers(0, len(TEXT)), st.integers(0, 30), st.sampled_from(PIECES) | st.just("")),
    min_size=1,
    max_size=4,
)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(edits=EDITS)
def test_damage_is_loaded_or_explained(edits: list[tuple[int, int, str]], tmp_path: Path) -> None:
    """Each problem of a damaged file points at a line that it has."""
    text = TEXT
    for at, cut, piece in edits:
        text = text[:at] + piece + text[at + cut :]
    path = tmp_path / "damaged.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    problems: tuple[Problem, ...] = ()
    try:
        RuleSet.load(path)
    except RulesError as exc:
        problems = exc.problems
    lines = len(text.splitlines()) + 1
    assert [p for p in problems if not p.message or p.line > lines] == []


@pytest.mark.parametrize("cut", range(0, len(TEXT), 149))
def test_a_file_cut_short_is_refused(cut: int, tmp_path: Path) -> None:
    """No beginning of the default rule set passes for a rule set, but for its optional end."""
    path = tmp_path / "short.yaml"
    path.write_text(TEXT[:cut])
    if "pick:" in TEXT[:cut]:
        return
    with pytest.raises(RulesError):
        RuleSet.load(path)
