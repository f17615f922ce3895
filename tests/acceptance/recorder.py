"""Processes that record decisions until they are killed, for the tests beside this file."""

from __future__ import annotations

import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

from policy.store import StaleRevision, Store
from tests.contract.builders import (
    BY_HAND,
    NOW,
    a_decision,
    a_pod,
    a_victim,
    made_on,
)


def record(store: Store, *, revision: int, seed: int, actor: str) -> int:
    """One decision that evicts a pod and nominates the preemptor; gives the decision's number."""
    victim = f"shop/web-{seed % 7}"
    urgent = a_pod("team/urgent", priority=100, cpu="4", nominated=f"n{seed}")
    recorded = store.record.decision(
        "default",
        made_on(store, a_decision(a_victim(victim), seed=seed, candidates=12), revision=revision),
        [
            ("Pod", victim, a_pod(victim, node="n1", uid=f"uid-{seed}")),
            ("Pod", "team/urgent", urgent),
        ],
        expected_revision=revision,
        rules=BY_HAND,
        actor=actor,
        at_ms=NOW + seed,
    )
    return recorded.decision_id


def record_for_ever(url: str, journal: str, seed: int) -> None:
    """Record and write down each commit when it is reported, until somebody kills the process."""
    told = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    with Store.open(url) as store:
        while True:
            seed += 1
            number = record(
                store, revision=store.state.head_revision("default"), seed=seed, actor="victim"
            )
            os.write(told, f"{number}\n".encode())


def record_at_once(url: str, rounds: int, start: Barrier, journal: str, actor: str) -> None:
    """Decide on the same revision as everybody else, round after round; write down each win."""
    with Store.open(url) as store:
        for seed in range(rounds):
            revision = store.state.head_revision("default")
            start.wait(timeout=60)
            try:
                number = record(store, revision=revision, seed=seed, actor=actor)
            except StaleRevision as stale:
                line = f"stale {stale.expected} {stale.actual}"
            else:
                line = f"won {revision} {number}"
            with Path(journal).open("a") as told:
                told.write(line + "\n")
            start.wait(timeout=60)
