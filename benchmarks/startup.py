"""What short commands cost before they do anything: CPU of whole processes.

    python -m benchmarks.startup [--runs 9] [--output FILE]

Each command runs as a process of its own, over a small database in which one decision is recorded.
Counted is the CPU of the process, user and system, and the best run is kept: another process on the
machine can only make a run dearer. Modules are compiled before the first run that counts. Prints
Markdown.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.clusters import cluster
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal

NOW_MS = 1_730_000_000_000
MARKS_MS = {"--help": 90, "decisions": 400, "explain 1": 500}
COMMANDS = (
    "--help",
    "decisions",
    "decisions --output json",
    "explain 1",
    "explain 1 --output json",
    "nominations",
    "env list",
    "state show",
    "audit verify",
    "report thrash",
)


def fill(url: str) -> None:
    """A cluster of ten nodes with one recorded decision."""
    with Store.open(url) as store:
        store.record.import_objects(
            "default", cluster(nodes=10, pending=1), at_ms=NOW_MS, source="generated"
        )
        journal = StoreJournal(store, "default", actor="benchmark", clock=lambda: NOW_MS)
        scheduler = Scheduler(journal, RuleSet.load("kube-1.35"), clock=lambda: NOW_MS, seed=0)
        assert sum(1 for _ in scheduler.run()) == 1


def cpu_ms(arguments: Sequence[str], environment: dict[str, str]) -> float:
    """CPU of one process, in milliseconds. Raises SystemExit where it fails."""
    silent = [(os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_WRONLY, 0) for stream in (1, 2)]
    child = os.posix_spawn(arguments[0], arguments, environment, file_actions=silent)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"`{' '.join(arguments)}` failed")
    return 1000 * (used.ru_utime + used.ru_stime)


def measure(url: str, cache: str, *, runs: int) -> dict[str, float]:
    """The best CPU of each command, and of an interpreter that does nothing."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": cache, "POLICY_DB": url}
    python = [sys.executable, "-m", "policy"]
    processes = {"(an empty Python program)": [sys.executable, "-c", "pass"]}
    processes |= {command: [*python, *command.split()] for command in COMMANDS}
    return {
        name: round(min(cpu_ms(process, environment) for _ in range(runs + 1)), 1)
        for name, process in processes.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--output", type=Path, help="write the figures as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "policy.db")
        fill(url)
        found = measure(url, str(Path(folder) / "compiled"), runs=options.runs)
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores.\n")
    print("| `policy` | CPU, ms | mark |\n| --- | ---: | ---: |")
    for name, ms in found.items():
        print(f"| {name} | {ms:.0f} | {MARKS_MS.get(name, '')} |")
    if options.output:
        document = {"python": platform.python_version(), "cpu_ms": found, "marks_ms": MARKS_MS}
        options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
