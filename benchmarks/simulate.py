"""Simulations: how long a trace takes, and how much memory.

    python -m benchmarks.simulate --trace FOLDER [--nodes FILE]
    python -m benchmarks.simulate --days 1

`--days` goes through the first days of the generated week of `workloads/week.yaml`, in which a
million pods come to 5,000 nodes. One process, one rule set (kube-1.36), nothing recorded; reading
or generating the trace is not counted. Prints JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path
from typing import Final

from policy.garbage import collect_seldom
from policy.rules import RuleSet
from policy.simulation.folder import read_trace
from policy.simulation.run import simulate
from policy.simulation.trace import Trace
from policy.simulation.workload import Generated, read_workload

WEEK: Final = Path(__file__).parent / "workloads" / "week.yaml"
TRACES: Final = "BENCHMARK_TRACES"
"""Environment variable: the folder that holds the traces `google2011` and `openb2023`."""


def measure(trace: Trace) -> dict[str, float]:
    """CPU seconds of the simulation, milliseconds for each pod, and the process's memory."""
    begun, used = time.perf_counter(), time.process_time()
    result = simulate(trace, RuleSet.load("kube-1.36"))
    begun, used = time.perf_counter() - begun, time.process_time() - used
    pods = result.everyone.pods
    return {
        "pods": pods,
        "cycles": result.cycles,
        "cpu_seconds": round(used, 1),
        "seconds": round(begun, 1),
        "cpu_ms_a_pod": round(1000 * used / pods, 3),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def of_folder(folder: Path, nodes: Path | None = None) -> dict[str, float]:
    """`measure` of a trace folder."""
    collect_seldom()
    return measure(read_trace(folder, cluster=nodes))


def of_days(days: float) -> dict[str, float]:
    """`measure` of the first days of the generated week."""
    collect_seldom()
    seconds = round(days * 24 * 3600)
    workload = read_workload(WEEK).model_copy(update={"length": f"{seconds}s"})
    return measure(Generated(workload, ())(0))


def named(name: str) -> dict[str, float]:
    """`measure` of one of the traces of `BENCHMARK_TRACES`."""
    where = os.environ.get(TRACES)
    if not where:
        raise SystemExit(f"{TRACES} has to name the folder that holds the trace {name}")
    folder = Path(where) / name
    fit = folder / "nodes-fit.json.gz"
    return of_folder(folder, fit if fit.exists() else None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--trace", type=Path, help="a trace folder")
    source.add_argument("--days", type=float, help="of the generated week")
    parser.add_argument("--nodes", type=Path, help="manifests in place of the trace's nodes")
    options = parser.parse_args()
    if options.trace is None:
        print(json.dumps(of_days(options.days)))
    else:
        print(json.dumps(of_folder(options.trace, options.nodes)))


if __name__ == "__main__":
    main()
