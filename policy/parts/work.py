"""What is mapped, who does it, and the one function that maps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from policy.extras import require

Part = TypeVar("Part")
Result = TypeVar("Result")
PartOf = TypeVar("PartOf", contravariant=True)
ResultOf = TypeVar("ResultOf", covariant=True)

ATTEMPTS: Final = 3
"""How often a part is tried whose workers are lost."""

AHEAD: Final = 3
"""Parts per worker that may be done before the one whose result is wanted next."""


class Work(Protocol[PartOf, ResultOf]):
    """Picklable; what it opens serves all parts that one worker does, one after the other."""

    def open(self) -> AbstractContextManager[Callable[[PartOf], ResultOf]]: ...


@dataclass(frozen=True, slots=True)
class Workers:
    """Who does the parts: this process, processes that it starts, or the workers of a cluster."""

    jobs: int = 1  #: processes; 1: this one
    dask: str = ""  #: address of a Dask scheduler, whose workers do them; `jobs` counts for nothing

    @property
    def here(self) -> bool:
        """Is it this process that does everything?"""
        return self.jobs <= 1 and not self.dask


HERE: Final = Workers()


class PartsError(Exception):  # reported in the words of its message
    """The parts cannot be done: nothing is there to do them, or it is of another version."""

    def __init__(self, message: str, help: str = "") -> None:
        super().__init__(message, help)
        self.message = message
        self.help = help

    def __str__(self) -> str:
        return self.message


class WorkerLost(PartsError):
    """A part was lost with the worker that did it, again and again."""


def map_parts(
    work: Work[Part, Result], parts: Iterable[Part], workers: Workers = HERE
) -> Iterator[Result]:
    """One result per part, in the order of the parts.

    Raises what the work raises; WorkerLost where a part was lost with its worker three times;
    PartsError where a cluster cannot be reached or is of another version; ExtraMissing. Whoever
    stops iterating ends the processes, and cancels what a cluster has not begun.
    """
    if workers.dask:
        require("dask", "`--dask` needs")
        from policy.parts.on_dask import results

        yield from results(work, parts, workers.dask)
    elif workers.jobs > 1:
        from policy.parts.processes import ProcessPool

        pool = ProcessPool(work, workers.jobs)
        try:
            yield from pool.results(iter(parts))
        finally:
            pool.close()
    else:
        with work.open() as do:
            for part in parts:
                yield do(part)
