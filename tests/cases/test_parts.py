"""Map over parts: order, errors, and processes that are killed on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from policy.parts import WorkerLost, Workers, map_parts
from policy.simulation.trace import TraceError


@dataclass(frozen=True)
class Squares:
    """The square of each part, with the process that made it; `fatal` kills its process."""

    folder: Path
    fatal: int = -1
    times: int = 1
    wrong: int = -1

    @contextmanager
    def open(self) -> Iterator[Callable[[int], tuple[int, int]]]:
        yield self.square

    def square(self, part: int) -> tuple[int, int]:
        if part == self.wrong:
            raise TraceError("part is wrong", help="take another one")
        if part == self.fatal:
            killed = len(list(self.folder.iterdir()))
            if killed < self.times:
                (self.folder / str(killed)).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return part * part, os.getpid()


@pytest.mark.parametrize("jobs", [1, 3])
def test_results_come_in_the_order_of_the_parts(tmp_path: Path, jobs: int) -> None:
    """Whoever does them, and however long each takes."""
    found = list(map_parts(Squares(tmp_path), range(20), Workers(jobs)))
    assert [square for square, _ in found] == [n * n for n in range(20)]
    assert (os.getpid() in {process for _, process in found}) == (jobs == 1)


def test_a_part_of_a_killed_process_is_done_again(tmp_path: Path) -> None:
    """One process is killed in the middle; nothing is missing, nothing comes twice."""
    found = list(map_parts(Squares(tmp_path, fatal=7), range(20), Workers(2)))
    assert [square for square, _ in found] == [n * n for n in range(20)]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_part_that_kills_every_process_is_an_error(tmp_path: Path) -> None:
    """It is tried three times."""
    with pytest.raises(WorkerLost, match="ended from outside 3 times"):
        list(map_parts(Squares(tmp_path, fatal=2, times=9), range(5), Workers(2)))


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_comes_as_it_was_raised(tmp_path: Path, jobs: int) -> None:
    """With its words and its help, from another process too."""
    with pytest.raises(TraceError, match="part is wrong") as caught:
        list(map_parts(Squares(tmp_path, wrong=3), range(5), Workers(jobs)))
    assert caught.value.help == "take another one"


@dataclass(frozen=True)
class Masks:
    """Whether the process of each part takes SIGINT."""

    @contextmanager
    def open(self) -> Iterator[Callable[[int], tuple[int, bool]]]:
        yield self.interruptible

    def interruptible(self, part: int) -> tuple[int, bool]:
        return os.getpid(), signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_no_process_is_interrupted_also_not_the_first() -> None:
    """A terminal sends SIGINT to them all; the first one starts a process of Python's own."""
    script = (
        "from tests.cases.test_parts import Masks\n"
        "from policy.parts import Workers, map_parts\n"
        "if __name__ == '__main__':\n"
        "    print({taken for _, taken in map_parts(Masks(), range(8), Workers(2))})\n"
    )
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("{False}\n", "")


def test_whoever_stops_ends_the_processes(tmp_path: Path) -> None:
    """No process stays behind an iteration that is given up."""
    found = map_parts(Squares(tmp_path), range(1000), Workers(2))
    processes = {next(found)[1] for _ in range(30)}
    found.close()  # type: ignore[attr-defined]
    assert [pid for pid in processes if Path(f"/proc/{pid}").exists()] == []
