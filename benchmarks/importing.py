"""A cluster's way in and out again: import of a dump, of a newer one, loading, and memory.

    python -m benchmarks.importing [--nodes 5000] [--large 15000] [--db URL] [--output FILE]

The dump is made here: a `List` as `kubectl get -o json` gives it, of each kind in order of
namespace and name, 30 pods on every node. In the newer one a hundredth of the pods differ. Every
row is a process of its own; seconds are of the processor, so that a busy machine says the same,
beside those on the clock. Modules are compiled before the first row, as they are where the program
is installed. Memory is the highest of the process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from benchmarks.clusters import PODS_PER_NODE, cluster
from policy.cluster.objects import ClusterObject, Pod, key_of, kind_of
from policy.cluster.snapshot import Snapshot
from policy.manifests import read, resolve
from policy.store import Store

NOW_MS = 1_795_219_200_000
IMPORTS = 3
"""Of which the median is given."""
EVERY = 100
"""One pod of so many differs in the newer dump."""

API_VERSIONS = {"PodDisruptionBudget": "policy/v1"}


def newer(objects: Iterator[ClusterObject]) -> Iterator[ClusterObject]:
    """The objects some time later."""
    for number, obj in enumerate(objects):
        if isinstance(obj, Pod) and number % EVERY == 0:
            obj = replace(obj, status=replace(obj.status, phase="Succeeded"))
        yield obj


def as_listed(objects: Iterator[ClusterObject]) -> list[ClusterObject]:
    """The objects as an API server lists them: of each kind in order of namespace and name."""
    of_kind: dict[str, list[ClusterObject]] = {}
    for obj in objects:
        of_kind.setdefault(kind_of(obj), []).append(obj)
    return [obj for some in of_kind.values() for obj in sorted(some, key=key_of)]


def dump(objects: Iterator[ClusterObject], file: Path) -> None:
    """A List of the objects."""
    encoder = msgspec.json.Encoder()
    with file.open("wb") as stream:
        stream.write(b'{"apiVersion":"v1","kind":"List","items":[')
        for number, obj in enumerate(as_listed(objects)):
            kind = kind_of(obj)
            head = encoder.encode({"apiVersion": API_VERSIONS.get(kind, "v1"), "kind": kind})
            stream.write(b"," * bool(number) + head[:-1] + b"," + encoder.encode(obj)[1:])
        stream.write(b"]}\n")


class Clock:
    """Seconds of the parts of one row."""

    def __init__(self) -> None:
        self.parts: dict[str, float] = {}
        self.wall = 0.0

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        start, wall = time.process_time(), time.perf_counter()
        yield
        self.parts[name] = round(time.process_time() - start, 2)
        self.wall += time.perf_counter() - wall


def import_dump(clock: Clock, file: str, url: str) -> None:
    """What `policy import FILE` does."""
    with clock.part("read"):
        found = read([file])
    with clock.part("resolve"):
        objects = resolve(found.objects, places=found.places)
    with Store.open(url) as store, clock.part("store"):
        store.record.import_objects("default", objects, at_ms=NOW_MS, source="benchmark")


def load(clock: Clock, _: str, url: str) -> None:
    """What every command does that decides."""
    with Store.open(url) as store:
        with clock.part("objects"):
            state = store.state.load("default")
        with clock.part("snapshot"):
            Snapshot.from_objects(state.objects, now_ms=NOW_MS, state_digest=state.state_digest)


STEPS: dict[str, Callable[[Clock, str, str], None]] = {
    "import": import_dump,
    "newer": import_dump,
    "load": load,
}


def step(name: str, file: Path, url: str, *, compiled: Path) -> dict[str, Any]:
    """One row, measured in a process of its own. compiled: folder for compiled modules."""
    command = [sys.executable, "-m", "benchmarks.importing", "--step", name, str(file), url]
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(compiled)
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    row: dict[str, Any] = json.loads(done.stdout)
    return row


def measured(name: str, file: str, url: str) -> dict[str, Any]:
    clock = Clock()
    STEPS[name](clock, file, url)
    return {
        "cpu_seconds": round(sum(clock.parts.values()), 2),
        "wall_seconds": round(clock.wall, 2),
        "parts": clock.parts,
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def run(nodes: int, large: int, db: str | None) -> Iterator[dict[str, Any]]:
    """The rows in order. db: an empty Postgres database instead of SQLite files."""
    with tempfile.TemporaryDirectory() as folder:
        compiled, small = Path(folder, "compiled"), Path(folder, "small.json")
        dump(cluster(nodes=1), small)
        for name in ("import", "load"):
            step(name, small, f"{folder}/small.db", compiled=compiled)
        for size, names in ((nodes, ("import", "newer", "load")), (large, ("import", "load"))):
            if not size or (db and size == large):
                continue
            first, second = Path(folder, "cluster.json"), Path(folder, "newer.json")
            dump(cluster(nodes=size), first)
            if "newer" in names:
                dump(newer(cluster(nodes=size)), second)
            url = db or f"{folder}/{size}.db"
            for name in names:
                file = second if name == "newer" else first
                rows = [step(name, file, url, compiled=compiled)]
                if name == "import" and size == nodes and not db:
                    # Into other files: memory that the machine had not in use takes it longer.
                    rows += [
                        step(name, file, f"{folder}/again-{i}.db", compiled=compiled)
                        for i in range(IMPORTS - 1)
                    ]
                row = sorted(rows, key=itemgetter("cpu_seconds"))[len(rows) // 2]
                yield {"row": name, "nodes": size, "pods": size * PODS_PER_NODE, **row}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--large", type=int, default=15_000, help="for the memory; 0 for none")
    parser.add_argument("--db", help="URL of an empty Postgres database")
    parser.add_argument("--output", type=Path, help="write JSON here too")
    parser.add_argument("--step", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(json.dumps(measured(*options.step)))
        return
    rows = []
    for row in run(options.nodes, options.large, options.db):
        rows.append(row)
        print(json.dumps(row), flush=True)
    if options.output:
        options.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
