"""How fast a decision is, with and without its record, and how fast a cluster is imported.

    python benchmarks/decide.py --output docs/benchmarks.json

Generated clusters (`clusters.py`): full nodes with 30 pods each, five priority levels, budgets on a
third of the workloads, all potential nodes examined. Figures are medians; each size runs in a
process of its own so that the peak of memory is its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from clusters import PODS_PER_NODE, cluster

SIZES = (500, 5_000, 15_000)
DECISIONS = 60
NOW_MS = 1_795_219_200_000
RULES = {"candidates": {"minPercentage": 100}}


def _median_ms(seconds: list[float]) -> float:
    return round(1000 * statistics.median(seconds), 2)


def _slow_tail_ms(seconds: list[float]) -> float:
    return round(1000 * sorted(seconds)[int(len(seconds) * 0.95)], 2)


def measure(nodes: int) -> dict[str, Any]:
    """All figures of one size."""
    from policy.cluster.snapshot import Snapshot
    from policy.preemption.decide import decide
    from policy.rules import RuleSet
    from policy.scheduling.cycle import Scheduler
    from policy.scheduling.effects import changes_of
    from policy.store import Store
    from policy.store.journal import StoreJournal

    rules = RuleSet.load("kube-1.35", overrides=RULES)
    objects = list(cluster(nodes=nodes, pending=2 * DECISIONS))
    start = time.perf_counter()
    snapshot = Snapshot.from_objects(objects, now_ms=NOW_MS)
    built = time.perf_counter() - start

    deciding = []
    gc.freeze()
    for i in range(DECISIONS):
        start = time.perf_counter()
        decision = decide(snapshot, rules, f"urgent/urgent-{i:05d}")
        deciding.append(time.perf_counter() - start)
        snapshot = snapshot.apply(changes_of(snapshot, decision))

    with tempfile.TemporaryDirectory() as folder:
        with Store.open(f"{folder}/policy.db") as store:
            start = time.perf_counter()
            store.record.import_objects("default", objects, at_ms=NOW_MS, source="benchmark")
            imported = time.perf_counter() - start
            journal = StoreJournal(store, "default", actor="benchmark", clock=lambda: NOW_MS)
            start = time.perf_counter()
            scheduler = Scheduler(journal, rules, clock=lambda: NOW_MS, seed=0)
            loaded = time.perf_counter() - start
            recording = []
            for i in range(DECISIONS):
                start = time.perf_counter()
                scheduler.decide(f"urgent/urgent-{i:05d}")
                recording.append(time.perf_counter() - start)
        size = Path(f"{folder}/policy.db").stat().st_size
    return {
        "nodes": nodes,
        "pods": nodes * PODS_PER_NODE,
        "candidates": len(decision.candidates),
        "decide_ms": _median_ms(deciding[5:]),
        "decide_p95_ms": _slow_tail_ms(deciding[5:]),
        "decide_and_record_ms": _median_ms(recording[5:]),
        "decide_and_record_p95_ms": _slow_tail_ms(recording[5:]),
        "decisions_per_second": round(1 / statistics.median(deciding[5:]), 1),
        "recorded_per_second": round(1 / statistics.median(recording[5:]), 1),
        "snapshot_seconds": round(built, 2),
        "import_seconds": round(imported, 2),
        "load_seconds": round(loaded, 2),
        "database_mib": round(size / 2**20, 1),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def _machine() -> dict[str, Any]:
    model = ""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else ""
    return {"python": platform.python_version(), "cpu": model, "cores": os.cpu_count()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--output", type=Path, help="write JSON here too")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one)))
        return
    rows = []
    for nodes in options.sizes:
        command = [sys.executable, __file__, "--one", str(nodes)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        rows.append(json.loads(done.stdout))
        print(table(rows[-1:]), flush=True)
    document = {"machine": _machine(), "results": rows}
    if options.output:
        options.output.write_text(json.dumps(document, indent=2) + "\n")


def table(rows: list[dict[str, Any]]) -> str:
    return "\n".join("  ".join(f"{name} {value}" for name, value in row.items()) for row in rows)


if __name__ == "__main__":
    main()
