"""What the parts of the service share: the store, the desks, the figures, who may do what."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from policy.audit.judged import JudgedBefore
from policy.server.config import Config
from policy.server.extender.child import Child
from policy.server.extender.desks import Desks
from policy.server.extender.spool import Spool
from policy.server.http import LongWork, in_own_thread
from policy.server.interpreter import clock_ms
from policy.server.metrics import Metrics
from policy.server.tracing import tracing
from policy.store import Store, StoreError
from policy.store.model.decisions import CallMode
from policy.store.read.stoppable import Stoppable

if TYPE_CHECKING:
    from policy.server.following import ClusterFollower

log = logging.getLogger("policy.server")

_END_SECONDS: Final = 9.0
_CLOSING_SECONDS: Final = 0.7
"""After SIGTERM a process is given ten seconds. Whatever it holds has to end within so many; the
last of them are for the store, the spool and the traces."""

_CHECKPOINT_SECONDS: Final = 0.25
"""200 calls a second write about 2,000 pages to SQLite's log within that: half as much as a commit
would copy, and little enough that a commit does not wait for the disk meanwhile."""
_LONG_LOG_BYTES: Final = 256 << 20
"""That cannot be copied, from which on the log says so: long after whatever reads for seconds."""


class PolicyService:
    """The service: `open` before it is used, `begin`, and `close` afterwards.

    Those who decide are in a process of their own, see `desks`.
    """

    def __init__(
        self, config: Config, *, clock: Callable[[], int] = clock_ms, child: Child | None = None
    ) -> None:
        """child: the process of the desks, where it was started by now."""
        self.config = config
        self.clock = clock
        self.metrics = Metrics()
        self.spool = Spool(config.spool)
        self.tracing = tracing()
        self.judged = JudgedBefore()
        self.long_work = LongWork(each=2, all=4)
        #: streams begin one after the other: however many are opened at once, no page waits for all
        self.beginning_streams = LongWork(each=1, all=1)
        #: SQL of users that was stopped and may still run, by name of the token
        self.left_behind: dict[str, list[Stoppable]] = {}
        self._store: Store | None = None
        self._reader: Store | None = None
        self.follower: ClusterFollower | None = None
        self.desks = Desks(
            db=config.db, spool=str(config.spool), poll_seconds=config.poll_seconds, child=child
        )
        self._newest_ms: dict[str, int] = {}  #: by environment, when its state was last changed
        self.stopping = threading.Event()
        self._ends = 0.0  #: by `time.monotonic`, once it is stopping
        self._keeper = threading.Thread(target=self._keep_log_short, name="log", daemon=True)

    def open(self) -> None:
        """Raises StoreError where the database cannot be opened."""
        self.spool.remove_unfinished()
        self._store = Store.open(self.config.db, create=False)
        self.desks.identity = self._store.identity
        if self.config.reader_db:
            self._reader = _reader(self.config.reader_db)
        own = ""  # the cluster that is decided about
        if self.config.environment:
            own = self._store.read.environment(self.config.environment).cluster
        if self.config.follow is not None:
            from policy.server.following import ClusterFollower  # needs the extra `live`

            self.follower = ClusterFollower(
                self._store,
                self.config.follow,
                clock=self.clock,
                registry=self.metrics.registry,
            )
            if own not in ("", self.follower.cluster):
                log.warning(
                    "environment `%s` decides on the state of cluster `%s`, and what is followed is"
                    " kept as cluster `%s`: --cluster names it",
                    self.config.environment,
                    own,
                    self.follower.cluster,
                )
        log.info("%s", _how_answered(self.config))
        if self.config.environment or self.spool.depth():
            self.desks.start(self.config.environment)

    async def begin(self) -> None:
        """Listen to the desks, and follow, in the background: once the process listens."""
        if self.store.identity is not None:  # a server has processes of its own for its log
            self._keeper.start()
        if self.desks.begun:
            await self.desks.connect()
        if self.follower is not None:
            self.follower.start()

    def _keep_log_short(self) -> None:
        """Copy the database's log into its file beside the desks, which would wait for it."""
        problem, long = "", False
        while not self.stopping.wait(_CHECKPOINT_SECONDS):
            try:
                left = self.store.checkpoint()
                problem = ""
                if left is not None:
                    self.metrics.sqlite_log.set(left)
                    long = self._tell_long_log(left, before=long)
            except StoreError as exc:
                # Commits copy it all the same, only later.
                if exc.message != problem:
                    log.warning("the database's log could not be copied: %s", exc.message)
                problem = exc.message

    def _tell_long_log(self, left: int, *, before: bool) -> bool:
        """Is too much left in the log? Said once, until nothing is. before: was it said?"""
        if left >= _LONG_LOG_BYTES and not before:
            log.warning(
                "%d MiB of the database's log cannot be copied into its file, because a process has"
                " been reading since before they were written: the log grows until that ends, such"
                " as an export, a backup, or a transaction that was left open",
                left >> 20,
            )
            return True
        if before and not left:
            log.info("the database's log is copied into its file again")
        return before and left > 0

    def stop(self) -> None:
        """From here on it has to end; `close` ends it."""
        if not self.stopping.is_set():
            self._ends = time.monotonic() + _END_SECONDS
            self.stopping.set()

    async def close(self) -> None:
        """End the desks, each after the calls that it holds."""
        self.stop()
        await self.desks.close(seconds=max(0.0, self._left - _CLOSING_SECONDS))
        try:
            async with asyncio.timeout(max(_CLOSING_SECONDS, self._left)):
                await in_own_thread(self._close)
        except TimeoutError:
            log.warning("the database, or who is sent traces, did not answer: it is left at that")

    @property
    def _left(self) -> float:
        return self._ends - time.monotonic()

    def _close(self) -> None:
        if self.follower is not None:
            self.follower.close()
        if self._keeper.ident is not None:
            self._keeper.join()
        for store in (self._reader, self._store):
            if store is not None:
                store.close()
        self.spool.close()
        self.tracing.close()

    @property
    def store(self) -> Store:
        assert self._store is not None  # requests come after `open`
        return self._store

    @property
    def reader(self) -> Store:
        """For SQL of users."""
        return self._reader or self.store

    def environments(self) -> frozenset[str]:
        """Names of all environments. Raises StoreError."""
        return frozenset(row.name for row in self.store.read.environments())

    def problem(self) -> str:
        """Why the service cannot decide now; "" where it can.

        Of the environments only the one that it was started for counts: whoever calls for another
        one, or makes one, would take the service from the schedulers of all.
        """
        own = self.config.environment
        try:
            there = self.environments()
        except StoreError as exc:
            return exc.message
        if own and own not in there:
            return f"there is no environment `{own}` any more"
        problems = [s.problem for s in self.desks.statuses if s.problem and s.environment == own]
        return "; ".join(problems)

    def measure_spool(self) -> None:
        """Bring the figure up to date that is read from the disk."""
        self.metrics.spool.set(self.spool.depth())

    def measure_store(self) -> None:
        """Bring the figures up to date that are read from the database. Raises StoreError."""
        for head in self.store.ledger.heads():
            self.metrics.ledger.labels(head.cluster).set(head.sequence)
        found = {}
        for row in self.store.read.environments():
            newest = self.store.state.revisions(row.cluster, limit=1)
            if newest:
                found[row.name] = newest[0].at_ms
        self._newest_ms = found

    def measure(self) -> None:
        """And those that are known here: how old a state is, also where it cannot be read."""
        now_ms = self.clock()
        for name, at_ms in self._newest_ms.items():
            self.metrics.state_age.labels(name).set(max(0, now_ms - at_ms) / 1000)
        self.metrics.ready.clear()
        self.metrics.revision.clear()
        for status in self.desks.statuses:
            self.metrics.ready.labels(status.environment).set(not status.problem)
            if status.revision is not None:
                self.metrics.revision.labels(status.environment).set(status.revision)


def _how_answered(config: Config) -> str:
    """What the log says first of all, for whoever wonders later."""
    own = "the environments that they name"
    if config.environment:
        own = f"environment `{config.environment}`"
    said = f"calls are answered in {config.mode.value} mode, for {own};"
    said += f" without a decision, by `--on-failure {config.way_out.value}`"
    if config.mode is CallMode.ENFORCE and config.follow is None:
        said += "; the cluster has to be followed: --follow, or `policy follow` beside it"
    return said


def _reader(url: str) -> Store:
    """The store for SQL of users. Raises StoreError, in which its own option is named."""
    try:
        return Store.open(url, read_only=True, create=False)
    except StoreError as exc:
        told = exc.help.replace("--db or POLICY_DB", "--reader-url or POLICY_READER_DB")
        raise StoreError(f"--reader-url: {exc.message}", help=told) from exc
