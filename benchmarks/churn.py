"""Pods that come and go for a long time: time per delta and memory, first and last tenth.

    python -m benchmarks.churn --nodes 5000 --pods 150000 --changes 100000

A pod with labels of its own arrives on a node, and the one that has been there longest leaves. In
the first and the last tenth every change is a delta of its own, as a watch brings them, and is
measured; those in between come several at a time, as a watch brings them that was behind, which
takes less of the benchmark's time and leaves as much behind. A snapshot that follows a cluster for
weeks must neither slow down nor grow.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.clusters import cluster
from policy.cluster.budgets import BudgetIndex
from policy.cluster.objects import Container, ObjectMeta, Pod, PodSpec, PodStatus, key_of
from policy.cluster.objects import ResourceRequirements as Resources
from policy.cluster.occupancy import Occupancy, snapshot_order
from policy.cluster.snapshot import Snapshot

TENTHS = 10


def arriving(number: int, nodes: int) -> Pod:
    """A pod with labels that no other has: interned values come and go with it."""
    # Names in no order, so that pods arrive all over the kept one.
    name = f"job-{number * 2654435761 % 2**32:08x}-{number}"
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=f"team-{number % 200:04d}", labels={"app": "job", "run": name}
        ),
        spec=PodSpec(
            node_name=f"node-{number * 7919 % nodes:05d}",
            priority=number % 5,
            containers=[Container(resources=Resources(requests={"cpu": "1", "memory": "2Gi"}))],
        ),
        status=PodStatus(phase="Running", start_time="2024-06-01T00:00:00Z"),
    )


def resident_mib() -> float:
    """Memory of this process now; the highest so far where the system tells no more."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        return pages * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def derive(snapshot: Snapshot) -> None:
    """What decisions keep on a snapshot, and every delta has to take along.

    Columns follow a delta when they are read: that is part of its time.
    """
    Occupancy.of(snapshot)
    snapshot_order(snapshot)
    BudgetIndex.of(snapshot)


def run(*, nodes: int, pods: int, changes: int, together: int = 10) -> list[dict[str, float]]:
    """A row for the first tenth of the changes, one for the last.

    together: arrivals, or departures, that are one delta in the tenths between them.
    """
    snapshot = Snapshot.from_objects(
        [
            *(o for o in cluster(nodes=nodes) if not isinstance(o, Pod)),
            *(arriving(number, nodes) for number in range(pods)),
        ],
        now_ms=1_800_000_000_000,
    )
    there = deque(key_of(arriving(number, nodes)) for number in range(pods))
    derive(snapshot)
    gc.collect()
    gc.freeze()
    rows = []
    for tenth in range(TENTHS):
        measured = tenth in {0, TENTHS - 1}
        spent: list[float] = []
        arrivals = range(tenth * changes // TENTHS, (tenth + 1) * changes // TENTHS)
        for some in batched(arrivals, 1 if measured else together):
            come = [arriving(pods + number, nodes) for number in some]
            start = time.process_time()
            snapshot = snapshot.apply([("Pod", key_of(pod), pod) for pod in come]).packed()
            derive(snapshot)
            middle = time.process_time()
            snapshot = snapshot.apply([("Pod", there.popleft(), None) for _ in come]).packed()
            derive(snapshot)
            spent += [middle - start, time.process_time() - middle]
            there.extend(map(key_of, come))
        gc.collect()
        if measured:
            rows.append(figures(snapshot, spent, tenth))
            sys.stderr.write(json.dumps(rows[-1]) + "\n")
    return rows


def batched(numbers: range, size: int) -> Iterator[range]:
    """The numbers, so many at a time; fewer at the end."""
    for start in range(0, len(numbers), size):
        yield numbers[start : start + size]


def figures(snapshot: Snapshot, spent: Sequence[float], tenth: int) -> dict[str, float]:
    """spent: seconds of each delta, arrivals and departures in turns."""
    return {
        "tenth": tenth + 1,
        "mean_ms": round(1000 * statistics.fmean(spent), 3),
        "median_ms": round(1000 * statistics.median(spent), 3),
        "arrival_ms": round(1000 * statistics.median(spent[::2]), 3),
        "departure_ms": round(1000 * statistics.median(spent[1::2]), 3),
        "longest_ms": round(1000 * max(spent), 1),
        "rows": len(snapshot.pods),
        "label_sets": len(snapshot.pools.labels),
        "resident_mib": round(resident_mib(), 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--changes", type=int, default=100_000, help="arrivals, and departures")
    parser.add_argument("--together", type=int, default=10, help="as one delta, between the tenths")
    options = parser.parse_args()
    rows = run(
        nodes=options.nodes,
        pods=options.pods,
        changes=options.changes,
        together=options.together,
    )
    first, last = rows[0], rows[-1]
    ratios = {
        name: round(last[name] / first[name], 2)
        for name in ("mean_ms", "median_ms", "rows", "resident_mib")
    }
    print(json.dumps({"tenths": rows, "last_against_first": ratios}, indent=2))


if __name__ == "__main__":
    main()
