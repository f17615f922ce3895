"""The same work on contiguous parts of a history, in several processes.

Each process gets one stretch of decisions, so that successive ones share the work of rebuilding
their state; results come back in batches while it works.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final, Protocol, TypeVar

from policy.store import Store
from policy.workers import collect_seldom, without_interrupt

_Result = TypeVar("_Result", covariant=True)

_BATCH: Final = 50
_WORTH: Final = 100
"""Decisions that make starting a process worth while."""


class Work(Protocol[_Result]):
    """A picklable function from a store and decision numbers to one result per decision."""

    def __call__(self, store: Store, ids: Sequence[int]) -> Iterator[_Result]: ...


class WorkerLost(Exception):  # told to people in the words of its message
    """A process ended without having finished its part."""


def run(
    url: str, store: Store, ids: Sequence[int], work: Work[_Result], *, jobs: int
) -> Iterator[_Result]:
    """One result per decision, in any order where there are several processes.

    url: of the database that `store` has open; each process opens it for reading. Raises what
    the work raises, WorkerLost where a process was ended from outside.
    """
    parts = split(ids, min(jobs, max(1, len(ids) // _WORTH)))
    if len(parts) < 2:
        yield from work(store, ids)
        return
    context = multiprocessing.get_context("spawn")
    running: dict[Connection, BaseProcess] = {}
    try:
        for part in parts:
            reader, writer = context.Pipe(duplex=False)
            running[reader] = process = context.Process(
                target=_work, args=(writer, url, part, work), daemon=True
            )
            with without_interrupt():
                process.start()
            writer.close()
        yield from _collected(running)
    finally:
        for started in running.values():
            started.terminate()
            started.join()


def split(ids: Sequence[int], parts: int) -> list[Sequence[int]]:
    """Contiguous parts of nearly equal length, none of them empty."""
    bounds = [len(ids) * i // parts for i in range(parts + 1)]
    return [ids[a:b] for a, b in pairwise(bounds) if a < b]


def _collected(running: dict[Connection, BaseProcess]) -> Iterator[Any]:
    open_ = list(running)
    while open_:
        for reader in wait(open_):
            assert isinstance(reader, Connection)
            try:
                kind, content = reader.recv()
            except EOFError:
                raise WorkerLost("a process that took part was ended from outside") from None
            if kind == "failed":
                raise content
            if kind == "done":
                open_.remove(reader)
            else:
                yield from content


def _work(writer: Connection, url: str, ids: Sequence[int], work: Callable[..., Any]) -> None:
    """What a process does: its part, reported in batches, and how it ended."""
    batch: list[Any] = []
    collect_seldom()
    try:
        with Store.open(url, read_only=True, create=False) as store:
            for result in work(store, ids):
                batch.append(result)
                if len(batch) == _BATCH:
                    writer.send(("results", batch))
                    batch = []
        writer.send(("results", batch))
        writer.send(("done", None))
    except BrokenPipeError:
        return  # whoever wanted the results has ended
    except Exception as exc:  # noqa: BLE001  # the outermost frame here; raised again over there
        with suppress(BrokenPipeError):
            writer.send(("failed", exc))
