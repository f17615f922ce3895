"""Parts done by the workers of a Dask cluster.

The work goes to every worker once, also to those that join later, as a plugin of theirs: what it
opens there (a database, a trace) serves all the parts that the worker gets. The scheduler gives the
parts of a lost worker to another one.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from distributed import Client, KilledWorker, Worker, WorkerPlugin, get_worker
from distributed.client import FutureCancelledError
from distributed.comm.addressing import get_address_host_port

from policy.parts.work import AHEAD, PartsError, Work, WorkerLost

_CONNECT_SECONDS: Final = 10
_WORKER_SECONDS: Final = 30


class Opened(WorkerPlugin):
    """The work on one worker: opened with its first part, closed with the iteration.

    Parts of a worker with several threads wait for each other: what is opened is made for one.
    """

    def __init__(self, work: Work[Any, Any]) -> None:
        self._work = work
        self._version = _version()
        self._ended = False

    def setup(self, worker: Worker) -> None:
        """Called by Dask when the plugin reaches a worker."""
        self._lock = threading.Lock()
        self._held: AbstractContextManager[Callable[[Any], Any]] | None = None
        self._do: Callable[[Any], Any] | None = None

    def teardown(self, worker: Worker) -> None:
        """Called by Dask when the iteration is over; a part that is being done closes it."""
        self._ended = True
        self._close_if_free()

    def do(self, part: Any) -> Any:
        """The result of a part."""
        if self._version != _version():
            raise PartsError(
                f"a worker has version {_version()} of preemption-policy, not {self._version}",
                help="install the same version on all workers",
            )
        with self._lock:
            try:
                if self._do is None:
                    self._held = self._work.open()
                    self._do = self._held.__enter__()
                return self._do(part)
            finally:
                if self._ended:
                    self._close()

    def _close_if_free(self) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._lock.release()

    def _close(self) -> None:
        held, self._held, self._do = self._held, None, None
        if held is not None:
            held.__exit__(None, None, None)


def results(work: Work[Any, Any], parts: Iterable[Any], address: str) -> Iterator[Any]:
    """One result per part, in their order. Raises what the work raises, PartsError, WorkerLost."""
    with _connected(address) as client:
        name = f"preemption-policy-{uuid4().hex}"
        client.register_plugin(Opened(work), name=name)
        waiting: deque[Any] = deque()
        try:
            yield from _in_order(client, name, iter(parts), waiting)
        finally:
            client.cancel(list(waiting), force=True)
            client.unregister_worker_plugin(name)


def _in_order(
    client: Client, name: str, parts: Iterator[Any], waiting: deque[Any]
) -> Iterator[Any]:
    ahead = AHEAD * len(client.scheduler_info(n_workers=-1)["workers"])
    number = 0
    while True:
        for part in islice(parts, ahead - len(waiting)):
            # Each part is a task of its own, however much it looks like another one.
            waiting.append(client.submit(_do, name, part, key=f"{name}-{number}", pure=False))
            number += 1
        if not waiting:
            return
        try:
            result = waiting[0].result()
        except KilledWorker as exc:
            raise WorkerLost("a part was lost with its worker, again and again") from exc
        except FutureCancelledError as exc:
            raise PartsError("the Dask scheduler has ended, and with it the work") from exc
        waiting.popleft()
        yield result


def _do(name: str, part: Any) -> Any:
    """What a worker does with a part."""
    return _opened(get_worker(), name).do(part)


def _opened(worker: Worker, name: str) -> Opened:
    found = worker.plugins[name]
    assert isinstance(found, Opened)
    return found


def _version() -> str:
    return version("preemption-policy")


@contextmanager
def _connected(address: str) -> Iterator[Client]:
    # A client that is given no address is half made, and complains when the program ends.
    try:
        get_address_host_port(address)
    except ValueError as exc:
        raise PartsError(
            f"`{address}` is no address of a Dask scheduler",
            help="it looks like `tcp://10.0.0.5:8786`; `dask scheduler` prints its own",
        ) from exc
    try:
        client = Client(address, timeout=_CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError) as exc:
        raise PartsError(
            f"{address}: no Dask scheduler answers there",
            help="`dask scheduler` prints its address when it starts",
        ) from exc
    with client:
        try:
            client.wait_for_workers(1, timeout=_WORKER_SECONDS)
        except TimeoutError as exc:
            raise PartsError(
                f"{address}: the scheduler has had no worker for {_WORKER_SECONDS} s",
                help=f"start some with `dask worker {address} --nthreads 1`",
            ) from exc
        yield client
