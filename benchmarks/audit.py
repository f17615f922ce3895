"""How fast the past is replayed and compared: 10,000 decisions over a changing cluster.

    python -m benchmarks.audit [--decisions 10000] [--nodes 100] [--jobs 2] [--db FILE]

Rounds of 50 urgent pods preempt on a full cluster; after each round the pods that left are back
and the urgent ones are gone, as one live change. Prints Markdown.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.clusters import cluster
from policy.audit.decisions import over
from policy.audit.recorded import Comparing
from policy.audit.replay import replay_all, replayed
from policy.cluster.digest import Change
from policy.cluster.objects import Pod, key_of
from policy.parts import Workers
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Cause, Store
from policy.store.journal import StoreJournal

ROUND = 50
START_MS = 1_730_000_000_000


def make(store: Store, *, nodes: int, decisions: int) -> None:
    """A cluster with that many recorded decisions."""
    objects = list(cluster(nodes=nodes, pending=ROUND))
    store.record.import_objects("default", objects, at_ms=START_MS, source="generated")
    rules = RuleSet.load("kube-1.35")
    clock = itertools.count(START_MS, 1000)
    journal = StoreJournal(store, "default", actor="benchmark", clock=lambda: START_MS)
    first = {key_of(o): o for o in objects if isinstance(o, Pod)}
    made = 0
    while made < decisions:
        scheduler = Scheduler(journal, rules, clock=lambda: next(clock), seed=made)
        made += sum(1 for _ in scheduler.run())
        restore(store, first)


def restore(store: Store, first: dict[str, Pod]) -> None:
    """Every pod as it was at first."""
    now = {key_of(o): o for o in store.state.load("default").objects if isinstance(o, Pod)}
    changes: list[Change] = [("Pod", k, pod) for k, pod in first.items() if now.get(k) != pod]
    store.record.change("default", changes, at_ms=START_MS, source="round", cause=Cause.LIVE)


class Taken(NamedTuple):
    """What going through the record took."""

    wall: float  #: seconds on the clock
    cpu: float  #: seconds of the processor, of all processes


def used() -> float:
    """Seconds of the processor so far, of this process and of those that it has ended."""
    both = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(of.ru_utime + of.ru_stime for of in both)


@contextmanager
def timed(times: dict[str, Taken], name: str) -> Iterator[None]:
    begun, cpu = time.perf_counter(), used()
    yield
    times[name] = Taken(time.perf_counter() - begun, used() - cpu)


def timings(url: str, *, jobs: int, alone: bool = True) -> dict[str, Taken]:
    """Seconds for each way of going through the record; all decisions must replay as they are.

    alone: also in one process.
    """
    times: dict[str, Taken] = {}
    with Store.open(url, read_only=True) as store:
        ids = store.read.decision_ids("default")
        verdicts: Counter[str] = Counter()
        if alone:
            with timed(times, "replay, 1 process"):
                verdicts.update(r.verdict.value for r in over(url, ids, replayed))
        with timed(times, f"replay, {jobs} processes"):
            found = over(url, ids, replayed, Workers(jobs=jobs))
            verdicts.update(r.verdict.value for r in found)
        with timed(times, f"compare, {jobs} processes"):
            list(over(url, ids, Comparing(RuleSet.load("kube-1.14")).compared, Workers(jobs=jobs)))
        with timed(times, "replay of one decision, the last"):
            (last,) = replay_all(store, ids[-1:])
    assert set(verdicts) == {"equal"}
    assert last.verdict.value == "equal"
    return times


def measure(url: str, *, decisions: int, jobs: int) -> None:
    print(f"{decisions} decisions; {os.cpu_count()} cores, Python {platform.python_version()}.\n")
    print("| what | seconds | CPU | decisions per second |\n| --- | ---: | ---: | ---: |")
    for name, taken in timings(url, jobs=jobs).items():
        pace = f"{decisions / taken.wall:.0f}" if "one decision" not in name else ""
        print(f"| {name} | {taken.wall:.1f} | {taken.cpu:.1f} | {pace} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--decisions", type=int, default=10_000)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--db", help="keep the database in this file, or use one that is there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(options.db or Path(folder) / "audit.db")
        if not path.exists():
            begun = time.perf_counter()
            with Store.open(str(path)) as store:
                make(store, nodes=options.nodes, decisions=options.decisions)
            print(f"{options.nodes} nodes, {30 * options.nodes} pods; made in", end=" ")
            print(f"{time.perf_counter() - begun:.0f} s, {path.stat().st_size >> 20} MiB.")
        measure(str(path), decisions=options.decisions, jobs=options.jobs)


if __name__ == "__main__":
    main()
