"""Decisions whose canonical text is committed under `tests/data/decisions`.

Each file holds the bytes that are hashed: `sha256sum` of it is the decision's digest. Where a
text is meant to change, raise `ENGINE_VERSION` and write the files anew with
`python -m tests.support.golden_decisions`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from policy.cluster import times
from policy.decision.model import (
    Decision,
    ExtenderCall,
    LeavingPod,
    Obstacle,
    ObstacleKind,
    OfferedNode,
)
from tests.contract.builders import NOW, a_decision, a_victim
from tests.support.builders import a_node, a_pdb, a_pod, decided

FOLDER: Final = Path(__file__).parents[1] / "data" / "decisions"
_RULES: Final = "sha256:" + 64 * "7"
_SNAPSHOT: Final = "sha256:" + 64 * "5"


def _by_hand() -> Decision:
    """Every part of a decision with something in it."""
    decision = a_decision(
        a_victim("shop/web-2", start_ms=times.MISSING, run_seconds=0),
        a_victim("shop/web-1", pdb_violating=True, already_terminating=True),
        candidates=3,
        clear=("lab/waiting",),
    )
    trace = replace(
        decision.trace,
        rejected=("node(s) had no room at all",),
        dry_run_statuses=decision.trace.filter_statuses,
        scores=(("least-allocated", 1, 57),),
        extender_calls=(
            ExtenderCall(
                extender="https://extender/scheduler",
                verb="preempt",
                request="sha256:" + 64 * "e",
                status=200,
                error="",
                answer='{"n1":["shop/web-1"]}',
            ),
        ),
        offer=(OfferedNode(node="n1", victims=("uid-1", "uid-2"), pdb_violations=1),),
        waits_for=(
            LeavingPod(pod="shop/old", node="n1", priority=1, since_ms=NOW - 5000, until_ms=NOW),
        ),
        obstacles=(
            Obstacle(
                node="n3",
                kind=ObstacleKind.SPREAD,
                pods=("shop/web-3",),
                pod_count=1,
                rule="",
                topology_key="zone",
                domain="a",
                others_min=0,
                max_skew=1,
            ),
            Obstacle(node="n3", kind=ObstacleKind.RULE, pods=("a/b",), pod_count=1, rule="gold"),
        ),
    )
    return replace(decision, trace=trace, history={"preemptedCount/3600": {"a/b/c": 1}})


def decisions() -> dict[str, Decision]:
    """The decisions by file name, free of the digests that other formats determine."""
    web = a_pod("web").priority(2).cpu(1).labelled(app="web")
    busy = a_node("n1").cpu(2).running(a_pod("a").priority(1).cpu(1), web)
    other = a_node("n2").cpu(2).running(a_pod("c").priority(3).cpu(2))
    high = a_pod("high").priority(10).cpu(2)
    budget = a_pdb("web").selecting(app="web").allowing(0)
    made = {
        "preempt": decided(busy, other, budget, high),
        "bind": decided(busy, a_node("n2").cpu(4), a_node("n3").cpu(8), high),
        "not-eligible": decided(busy, other, high.never_preempting()),
        "no-candidate": decided(a_node("n2").cpu(8).cordoned(), busy, high.cpu(4)),
    }
    return {
        "by-hand": _by_hand(),
        **{
            name: replace(decision, rule_set_digest=_RULES, snapshot_digest=_SNAPSHOT)
            for name, decision in made.items()
        },
    }


if __name__ == "__main__":
    for name, decision in decisions().items():
        (FOLDER / f"{name}.json").write_bytes(decision.canonical)
