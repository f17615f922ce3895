"""A real Dask cluster on this machine: a scheduler and workers, each a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Cluster:
    """A scheduler on a loopback port, and its workers, which work in another folder."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "scheduler.json"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("dask_scheduler", "--host", "127.0.0.1", "--port", "0")
        self.address = str(self._described()["address"])

    def worker(self) -> int:
        """Start one, and give its process id."""
        started = self._start("dask_worker", "--nthreads", "1", "--no-nanny")
        return started.pid

    def end(self) -> None:
        for process in reversed(self._processes):
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()

    def _start(self, program: str, *options: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", f"distributed.cli.{program}", "--no-dashboard"),
                *("--scheduler-file", str(self._file), *options),
            ],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=(self._folder / f"{program}-{len(self._processes)}.log").open("wb"),
        )
        self._processes.append(process)
        return process

    def _described(self) -> dict[str, object]:
        given_up = time.monotonic() + 120
        while True:
            with suppress(FileNotFoundError, ValueError):
                found: dict[str, object] = json.loads(self._file.read_text())
                return found
            assert time.monotonic() < given_up, "the scheduler does not start"
            time.sleep(0.05)


@contextmanager
def cluster(folder: Path, workers: int) -> Iterator[Cluster]:
    """A cluster that ends with the block."""
    made = Cluster(folder)
    try:
        for _ in range(workers):
            made.worker()
        yield made
    finally:
        made.end()
