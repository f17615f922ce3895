"""A session's digest is a promise: what is recorded is replayed by later versions."""

from __future__ import annotations

import json

from tests.support.golden_sessions import DIGESTS, digests


def test_sessions_have_the_committed_digests() -> None:
    """Every step, answer, reason and share of the generated sessions is what it was."""
    assert digests() == json.loads(DIGESTS.read_text())
