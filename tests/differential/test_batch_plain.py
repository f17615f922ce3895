"""The engine and its slow twin run sessions alike, on generated clusters and configurations.

POLICY_DIFFERENTIAL_EXAMPLES says how many clusters are tried (default 800).
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from policy.batch import BatchRules, SessionResult, run_session
from policy.cluster.snapshot import Snapshot
from tests.differential.batch_plain import Plain
from tests.differential.batch_plain_model import Crash
from tests.support.batch_clusters import cluster, configuration

EXAMPLES = int(os.environ.get("POLICY_DIFFERENTIAL_EXAMPLES", "800"))
PARTS = 8


def told(result: SessionResult) -> dict[str, Any]:
    """What the twin tells, of a result of the engine."""
    return {
        "binds": dict(result.binds),
        "evicts": list(result.evicts),
        "pipelined": dict(result.pipelined),
        "allocated": dict(result.allocated),
        "groups": {name: group.phase for name, group in result.pod_groups.items()},
        "drf": dict(result.drf),
        "queues": dict(result.queue_share),
    }


def both(seed: int) -> tuple[dict[str, Any] | None, SessionResult]:
    """(what the twin tells, None where it crashed; the engine's result)."""
    dice = Random(seed)
    objects, config = cluster(dice), configuration(dice)
    result = run_session(Snapshot.from_objects(objects, now_ms=0), BatchRules.load(config))
    try:
        return Plain(objects, config).run(), result
    except Crash:
        return None, result


@pytest.mark.parametrize("part", range(PARTS))
def test_both_run_the_same_session(part: int) -> None:
    """Same tasks to the same nodes, same victims in the same order, the same shares to the bit."""
    differing = {}
    for seed in range(part, EXAMPLES, PARTS):
        plain, result = both(seed)
        if plain is not None and plain != told(result):
            differing[seed] = [k for k, v in told(result).items() if v != plain[k]]
    assert differing == {}


def test_the_engine_notes_exactly_the_crashes_of_the_twin() -> None:
    """Where the description ends the process, the engine goes on and says so; nowhere else."""
    wrong = {}
    for seed in range(min(EXAMPLES, 400)):
        plain, result = both(seed)
        if (plain is None) != bool(result.crashes):
            wrong[seed] = result.crashes
    assert wrong == {}


def test_the_clusters_are_worth_comparing() -> None:
    """Enough of the generated sessions bind, evict, promise, hold back and discard."""
    seen: Counter[str] = Counter()
    for seed in range(300):
        _, result = both(seed)
        seen["binds"] += bool(result.binds)
        seen["evicts"] += bool(result.evicts)
        seen["pipelined"] += bool(result.pipelined)
        seen["allocated"] += bool(result.allocated)
        seen["discarded"] += any(not s.committed for s in result.statements)
        seen["crashes"] += bool(result.crashes)
    assert {name for name, number in seen.items() if number >= 5} == set(seen), seen
    assert len(seen) == 6
