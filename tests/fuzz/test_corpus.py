"""The kept corpus of the fuzzer: seeds, and everything that it ever found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS
from tests.support.tried import Kind, Tried

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(file for file in CORPUS.rglob("*") if file.is_file())


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_it_ends_in_a_result_or_in_our_error(file: Path, tried: Tried) -> None:
    """What a target is given, it returns from."""
    tried(Kind.FUZZ_CORPUS)
    TARGETS[file.parent.name](file.read_bytes())


def test_every_target_has_a_corpus() -> None:
    """No target starts from nothing."""
    assert {file.parent.name for file in FILES} == set(TARGETS)
