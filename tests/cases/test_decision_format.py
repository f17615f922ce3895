"""The canonical decision is a promise: its digests are in every record."""

from __future__ import annotations

import hashlib
import json

import pytest

from tests.support.golden_decisions import FOLDER, decisions

GOLDEN = decisions()


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
