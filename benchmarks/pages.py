"""How fast pages and lists of the API are on a record of a million decisions (SQLite, Postgres).

    python -m benchmarks.pages [--decisions N] [--database PATH|URL] [--postgres] [--runs 20]

The record is that of `benchmarks.history`. `policy serve` runs in a process of its own, with a
clock that is set back to the newest decision: the last 24 hours of the first page are those of the
record. Every address is asked for over one connection, one request after the other; the first one
is left out. `CPU ms` is what the service worked for an answer on average: less than the time on the
clock where the machine was busy with something else.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote, urlencode

from benchmarks import history, postgres
from policy.store import Store

MARK_MS: Final = 200
RUNS: Final = 20
_STARTING_SECONDS: Final = 60
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_SET_BACK: Final = """
import sys, time
behind, real = int(sys.argv.pop(1)) * 1_000_000, time.time_ns
time.time_ns = lambda: real() - behind
from policy.cli import main
sys.exit(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What the answers to one address took."""

    path: str
    p50_ms: float
    p95_ms: float
    cpu_ms: float
    kib: float  #: size of the answer


def addresses(db: str) -> Iterator[str]:
    """Every page, the list of decisions by each of its filters, and the lists of the API."""
    with Store.open(db, read_only=True) as store:
        [newest] = store.read.decisions(limit=1)
        middle = newest.id // 2
        [hit] = store.read.decisions(limit=1, outcome="preempt", before_id=middle)
        victim = store.read.victims_of([hit.id])[hit.id][0]
        rules, of = hit.rule_set_digest, hit.preemptor.partition("/")[0]
    day = history.DAY_MS
    filters: list[dict[str, str]] = [
        {},
        *({"outcome": outcome} for outcome in ("preempt", "bind", "rejected", "not-carried-out")),
        *({"origin": origin} for origin in ("decided", "extender", "simulated")),
        {"namespace": of},
        {"namespace": "none"},
        {"node": hit.node or ""},
        {"node": hit.node or "", "outcome": "bind"},
        {"node": hit.node or "", "outcome": "rejected"},
        {"preemptor": hit.preemptor},
        {"preemptor": hit.preemptor, "outcome": "rejected"},
        {"rules": hit.rule_set},
        {"rules": rules, "outcome": "error"},
        *({"rule": rule} for rule in ("protect-gold", history.RARE_RULE, "none")),
        {"rule": f"ranking/{hit.decided_by}", "namespace": of},
        {"cluster": newest.cluster},
        {"cluster": newest.cluster, "outcome": "bind", "namespace": of},
        {"since": _instant(newest.now_ms - 7 * day)},
        {"until": _instant(newest.now_ms - 90 * day)},
        {"since": _instant(newest.now_ms - 90 * day), "namespace": victim.pod.partition("/")[0]},
        {"since": _instant(newest.now_ms + day)},
        {"after": str(middle)},
        {"after": str(middle), "outcome": "rejected"},
    ]
    lists = [urlencode(given) for given in filters]
    yield from ("/", "/?days=7", "/api/v1/overview")
    yield from (f"/decisions?{given}" for given in lists)
    yield f"/decisions/{newest.id}"
    yield f"/decisions/{hit.id}"
    namespace, _, name = victim.pod.partition("/")
    for workload in (victim.owner.partition("/")[2] or name, name, "none"):
        yield f"/workloads/{quote(namespace)}/{quote(workload)}"
    yield f"/nodes/{quote(hit.node or '')}"
    yield from ("/rules", "/rules/kube-1.35", "/rules/kube-1.35?diff=kube-1.34")
    yield from ("/compare", "/groups", "/sessions", "/observed", "/environments", "/simulations")
    yield "/api"
    yield from ("/sql", "/sql?" + urlencode({"q": "SELECT * FROM v_victims LIMIT 50"}))
    yield from (f"/api/v1/decisions?{given}" for given in lists)
    yield f"/api/v1/decisions/{hit.id}"
    yield from ("/api/v1/observations", "/api/v1/groups", "/api/v1/sessions", "/api/v1/rule-sets")
    yield "/api/v1/ledger"
    yield f"/api/v1/clusters/{newest.cluster}/revisions"


def _instant(at_ms: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at_ms / 1000))


@contextmanager
def serving(db: str, *, at_ms: int, folder: Path) -> Iterator[tuple[int, int]]:
    """Process and port of a service over the database, whose clock stands at an instant."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    behind_ms = time.time_ns() // 1_000_000 - at_ms
    command = [sys.executable, "-c", _SET_BACK, str(behind_ms), "serve"]
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--db", db, "--port", str(port)],
            cwd=folder,
            # The program beside this file, also where it is not the one that is installed.
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
            stdout=log,
            stderr=log,
        )
        try:
            deadline = time.monotonic() + _STARTING_SECONDS
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except ConnectionRefusedError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError((folder / "serve.log").read_text()) from None
                    time.sleep(0.05)
            yield process.pid, port
        finally:
            process.terminate()
            process.wait()


def _worked(pid: int) -> float:
    """Seconds of the processor that a process used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def run(db: str, *, runs: int = RUNS) -> list[Timed]:
    """Ask for every address several times."""
    with Store.open(db, read_only=True) as store:
        [newest] = store.read.decisions(limit=1)
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(str(db), at_ms=newest.now_ms, folder=Path(folder)) as (pid, port),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        for path in addresses(db):
            taken = []
            for number in range(runs + 1):
                if number == 1:
                    worked = _worked(pid)
                began = time.perf_counter()
                connection.request("GET", path)
                answer = connection.getresponse()
                body = answer.read()
                if answer.status != 200:
                    raise RuntimeError(f"{path}: status {answer.status}")
                if number:
                    taken.append(1000 * (time.perf_counter() - began))
            found.append(
                Timed(
                    path=path,
                    p50_ms=statistics.median(taken),
                    p95_ms=sorted(taken)[max(0, -(-95 * runs // 100) - 1)],
                    cpu_ms=1000 * (_worked(pid) - worked) / runs,
                    kib=len(body) / 1024,
                )
            )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--decisions", type=int, default=1_000_000, metavar="N")
    parser.add_argument(
        "--database",
        metavar="PATH|URL",
        help="make the record in this file and keep it, or ask the one that is in this database",
    )
    parser.add_argument(
        "--postgres", action="store_true", help="make the record on a Postgres server"
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--output", type=Path, metavar="JSON", help="write the figures here too")
    options = parser.parse_args()
    with ExitStack() as stack:
        db = options.database
        if options.postgres:
            db = stack.enter_context(postgres.database())
            history.fill_postgres(db, options.decisions)
        elif db is None or not ("://" in db or Path(db).exists()):
            db = db or stack.enter_context(tempfile.TemporaryDirectory()) + "/policy.db"
            history.fill(Path(db), options.decisions)
        found = run(db, runs=options.runs)
    print("| page | p50 ms | p95 ms | CPU ms | KiB |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for one in sorted(found, key=lambda one: -one.cpu_ms):
        figures = f"{one.p50_ms:.0f} | {one.p95_ms:.0f} | {one.cpu_ms:.0f} | {one.kib:.0f}"
        print(f"| {one.path} | {figures} |")
    slowest = max(one.p95_ms for one in found)
    print(f"\nslowest p95: {slowest:.0f} ms; the mark is {MARK_MS} ms")
    if options.output:
        rows = [{name: getattr(one, name) for name in Timed.__slots__} for one in found]
        options.output.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
