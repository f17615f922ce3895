"""Two processes decide on one cluster at once, for real."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from policy.cluster.objects import Pod
from policy.store import Store
from tests.support.builders import NOW_MS, a_node, a_pod, objects
from tests.support.tried import Kind, Tried

NODES = 6
PENDING = 10


def test_no_room_is_made_twice(database_url: str, tmp_path: Path, tried: Tried) -> None:
    """Each pod is decided on the state that the decisions before it left, whoever made them."""
    tried(Kind.CONCURRENT)
    with Store.open(database_url) as store:
        store.record.import_objects(
            "default",
            objects(
                *(
                    a_node(f"n{i}")
                    .cpu(4)
                    .running(*(a_pod(f"low-{i}-{j}").priority(j).cpu(1) for j in range(4)))
                    for i in range(NODES)
                ),
                *(a_pod(f"high-{i}").priority(9).cpu(2) for i in range(PENDING)),
            ),
            at_ms=NOW_MS,
            source="test",
        )
    command = [sys.executable, "-m", "policy", "run", "--db", database_url, "--output", "jsonl"]
    runs = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(2)
    ]
    ended = [(run.communicate(timeout=120), run.returncode) for run in runs]
    assert [code for _, code in ended] == [0, 0], ended

    with Store.open(database_url) as store:
        recorded = store.read.decisions("default")
        # A pod that is leaving already may be counted on by a second preemptor, never evicted.
        victims = Counter(
            pod
            for row in recorded
            for pod in store.read.decision(row.id).record.evicted(hypothetical=False)
        )
        nominated = Counter(row.node for row in recorded if row.outcome == "preempt")
        bases = [row.base_revision for row in recorded if row.revision is not None]
        pods = [o for o in store.state.load("default").objects if isinstance(o, Pod)]
        verified = store.ledger.verify()
    leaving = {p.metadata.name for p in pods if p.metadata.deletion_timestamp}
    assert {
        "victims evicted once": set(victims.values()) == {1},
        "victims are leaving": {v.split("/")[1] for v in victims} == leaving,
        "at most two preemptors on a node": max(nominated.values()) <= 2,
        "one decision changed each revision": len(bases) == len(set(bases)),
        "ledger": verified.ok,
    } == dict.fromkeys(
        (
            "victims evicted once",
            "victims are leaving",
            "at most two preemptors on a node",
            "one decision changed each revision",
            "ledger",
        ),
        True,
    )
