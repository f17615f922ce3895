"""Answers of nodes that are kept for a class of tasks are those of nodes that are asked anew."""

from __future__ import annotations

from random import Random

import pytest

from policy.batch import SessionResult, run_session
from policy.batch.volcano.framework.answers import NodeAnswers
from policy.cluster.snapshot import Snapshot
from tests.support.batch import NOW_MS
from tests.support.golden_sessions import a_crowded_cluster, for_volcano, volcano_rules


def sessions(seed: int) -> dict[str, SessionResult]:
    objects = for_volcano(list(a_crowded_cluster(Random(seed))))
    snapshot = Snapshot.from_objects(objects, now_ms=NOW_MS)
    return {name: run_session(snapshot, rules) for name, rules in volcano_rules().items()}


@pytest.mark.parametrize("seed", range(4))
def test_kept_answers_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without classes of tasks every step, score and reason of a session is the same."""
    fast = sessions(seed)
    assert sum(len(result.binds) for result in fast.values()) > 20
    monkeypatch.setattr(NodeAnswers, "class_of", lambda self, task: None)
    plain = sessions(seed)
    assert {n: r.canonical for n, r in fast.items()} == {n: r.canonical for n, r in plain.items()}
