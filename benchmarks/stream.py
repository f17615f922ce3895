"""A stream of preemptions, recorded: how many a second.

    python -m benchmarks.stream [--shape async|kinds] [--db URL] [--one-by-one] [--decisions 1000]

`async` is the shape of kube-scheduler's PreemptionAsync benchmark: 5,000 nodes of 4 CPUs with four
small pods each, and preemptors of 3 CPUs that each evict three of them. `kinds`: 1,000 full nodes
with 30 pods each, 40 budgets, 18 kinds of preemptors. Every decision is recorded, with the default
sample of candidates. `--one-by-one` commits each decision on its own, as a service must.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.clusters import a_node, a_pod, cluster
from policy.cluster.objects import ClusterObject, PodDisruptionBudget
from policy.garbage import collect_seldom
from policy.rules import RuleSet
from policy.scheduling import group
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal

NOW_MS = 1_795_219_200_000
KINDS = 18
BUDGETS = 40
WARM_UP = 100


def asynchronous(*, nodes: int, preemptors: int) -> Iterator[ClusterObject]:
    """The shape of PreemptionAsync."""
    for n in range(nodes):
        yield a_node(f"node-{n:05d}", cpu="4", memory="32Gi")
        for i in range(4):
            yield a_pod(
                f"low-{n:05d}-{i}",
                namespace="low",
                priority=1,
                cpu="900m",
                memory="500Mi",
                node=f"node-{n:05d}",
                start="2024-06-01T00:00:00Z",
            )
    for i in range(preemptors):
        name = f"high-{i:05d}"
        yield a_pod(name, namespace="high", priority=10, cpu="3", memory="500Mi")


def kinds(*, nodes: int, preemptors: int) -> Iterator[ClusterObject]:
    """Full nodes, forty budgets, and preemptors of 18 kinds that differ in size and priority."""
    budgets = 0
    for obj in cluster(nodes=nodes):
        if isinstance(obj, PodDisruptionBudget):
            budgets += 1
            if budgets > BUDGETS:
                continue
        yield obj
    for i in range(preemptors):
        kind = i % KINDS
        yield a_pod(
            f"high-{i:05d}",
            namespace="high",
            priority=10_000 + kind % 2,
            cpu=f"{1000 + 250 * (kind % 9)}m",
            memory=f"{1 + kind % 3}Gi",
        )


SHAPES = {"async": (asynchronous, 5000), "kinds": (kinds, 1000)}


def measure(
    shape: str, *, url: str, nodes: int, decisions: int, one_by_one: bool
) -> dict[str, float]:
    """Decisions a second and milliseconds of this process's CPU for each."""
    collect_seldom()
    make, _ = SHAPES[shape]
    if one_by_one:
        group.LARGEST = 1
    with Store.open(url) as store:
        objects = make(nodes=nodes, preemptors=decisions + WARM_UP)
        store.record.import_objects("default", objects, at_ms=NOW_MS, source="generated")
        journal = StoreJournal(store, "default", actor="benchmark", clock=lambda: NOW_MS)
        run = Scheduler(journal, RuleSet.load("kube-1.36"), clock=lambda: NOW_MS, seed=0).run()
        for _ in range(WARM_UP):
            next(run)
        begun, used = time.perf_counter(), time.process_time()
        outcomes = [next(run).decision.outcome.value for _ in range(decisions)]
        begun, used = time.perf_counter() - begun, time.process_time() - used
    return {
        "decisions": decisions,
        "preemptions": outcomes.count("preempt"),
        "per_second": round(decisions / begun, 1),
        "cpu_ms": round(1000 * used / decisions, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="async")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--decisions", type=int, default=1000)
    parser.add_argument("--db", help="URL of an empty database; a new SQLite file by default")
    parser.add_argument("--one-by-one", action="store_true")
    options = parser.parse_args()
    with ExitStack() as stack:
        url = options.db
        if not url:
            url = stack.enter_context(tempfile.TemporaryDirectory()) + "/policy.db"
        found = measure(
            options.shape,
            url=url,
            nodes=options.nodes or SHAPES[options.shape][1],
            decisions=options.decisions,
            one_by_one=options.one_by_one,
        )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
