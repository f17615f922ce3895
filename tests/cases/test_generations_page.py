"""The page about generations says what the rule sets do."""

from __future__ import annotations

from pathlib import Path

from tests.support.generations import document

PAGE = Path(__file__).parents[2] / "docs" / "generated" / "generations.md"


def test_the_page_is_what_deciding_its_clusters_gives() -> None:
    """`docs/generated/generations.md` is current: made again, it is the same."""
    assert PAGE.read_text() == document()
