"""Parts done by processes that are started here and end with the iteration."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from policy.garbage import collect_seldom
from policy.parts.work import AHEAD, ATTEMPTS, Work, WorkerLost


class _Worker:
    """A process that does one part after the other."""

    def __init__(self, work: Work[Any, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_serve, args=(theirs, work), daemon=True)
        with _without_interrupt():
            self.process.start()
        theirs.close()
        self.number = -1  #: of the part that it does; -1: none

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


class ProcessPool:
    """Processes that do parts; one that is ended from outside is replaced."""

    def __init__(self, work: Work[Any, Any], jobs: int) -> None:
        self._work = work
        self._jobs = jobs
        self._workers: list[_Worker] = []
        self._again: deque[int] = deque()
        self._parts: dict[int, Any] = {}
        self._attempts: dict[int, int] = {}
        self._results: dict[int, Any] = {}
        self._taken = 0

    def results(self, parts: Iterator[Any]) -> Iterator[Any]:
        """One per part, in their order."""
        wanted = 0
        more = True
        while True:
            while wanted in self._results:
                yield self._results.pop(wanted)
                wanted += 1
            while more and self._has_room(wanted):
                try:
                    self._parts[self._taken] = next(parts)
                except StopIteration:
                    more = False
                    break
                self._again.append(self._taken)
                self._taken += 1
                self._hand_out()
            self._hand_out()
            if not more and wanted == self._taken:
                return
            if wanted not in self._results:
                self._receive()

    def close(self) -> None:
        """End every process, whatever it does."""
        for worker in self._workers:
            worker.end()

    def _has_room(self, wanted: int) -> bool:
        return self._taken - wanted < self._jobs * AHEAD

    def _hand_out(self) -> None:
        while self._again:
            worker = next((w for w in self._workers if w.number < 0), None)
            if worker is None:
                if len(self._workers) == self._jobs:
                    return
                worker = _Worker(self._work)
                self._workers.append(worker)
            number = self._again.popleft()
            worker.number = number
            self._attempts[number] = self._attempts.get(number, 0) + 1
            with suppress(BrokenPipeError, ConnectionResetError):  # the end is noticed below
                worker.pipe.send(self._parts[number])

    def _receive(self) -> None:
        """Wait until a process has done its part, failed, or is gone."""
        busy = [worker for worker in self._workers if worker.number >= 0]
        ready = wait([worker.pipe for worker in busy])
        for worker in busy:
            if worker.pipe not in ready:
                continue
            try:
                kind, content = worker.pipe.recv()
            except (EOFError, ConnectionResetError):
                self._lost(worker)
                continue
            if kind == "failed":
                raise content
            self._results[worker.number] = content
            del self._parts[worker.number]
            worker.number = -1

    def _lost(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        worker.end()
        if self._attempts[worker.number] == ATTEMPTS:
            raise WorkerLost(
                f"a process was ended from outside {ATTEMPTS} times while it did the same part"
            )
        self._again.appendleft(worker.number)


def _serve(pipe: Connection, work: Work[Any, Any]) -> None:
    """What a process does: part after part, as long as it gets any."""
    collect_seldom()
    try:
        with work.open() as do:
            while True:
                pipe.send(("done", do(pipe.recv())))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return  # whoever wanted the results has ended
    except Exception as exc:  # noqa: BLE001  # the outermost frame here; raised again over there
        with suppress(BrokenPipeError):
            pipe.send(("failed", exc))


@contextmanager
def _without_interrupt() -> Iterator[None]:
    """Processes that are started in the block never get SIGINT; the parent ends them.

    A terminal sends it to all processes of a command, and each would print where it was, also
    while it still imports. What comes meanwhile reaches the parent after the block: a process
    that is half started would complain, too.
    """
    # It is started with the first process, and takes SIGINT off the mask that is set below.
    resource_tracker.ensure_running()
    came: list[int] = []

    def later(number: int, _: FrameType | None) -> None:
        came.append(number)

    # The mask is what a new process inherits. It does not keep the signal from this one, where
    # another thread (numpy has some) may take it, and only the main thread may set a handler.
    in_main = threading.current_thread() is threading.main_thread()
    handler = signal.signal(signal.SIGINT, later) if in_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main:
            signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(signal.SIGINT)
