"""A cluster followed: what its watches tell becomes revisions, and its preemptions rows.

News of all kinds wait for a moment (`policy.live.window`), so that they can be put into the order
of the server's one counter; then they are cut into revisions (`policy.observing.cutting`) and
written (`policy.live.writing`).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Final

from policy.live.backoff import Backoff
from policy.live.connection import Connection, Interrupted
from policy.live.figures import FollowerFigures, Occasion
from policy.live.first_lists import FirstLists
from policy.live.mirror import Mirror
from policy.live.patience import Patience
from policy.live.preemptions import Preemptions
from policy.live.reaching import Server, reach
from policy.live.recognizing import Recognition
from policy.live.resources import ApiResource, watched
from policy.live.troubles import Troubles
from policy.live.watching import Changed, KindWatcher, Listed, News, Recovered, Trouble
from policy.live.window import WINDOW_MS, Window
from policy.live.writing import Writer
from policy.observing.observer import PATIENCE_MS, SETTLE_MS, Observer
from policy.store import Store

_MOST_WAITING: Final = 100_000
"""News that wait to be written; beyond, watches are not read on."""

_IDLE_SECONDS: Final = 0.5
"""So often it looks up where nothing comes: whether it is to stop, and what is settled."""


class Follower:
    """Follows one cluster until it is stopped."""

    def __init__(
        self,
        store: Store,
        cluster: str,
        connection: Connection,
        *,
        actor: str,
        clock: Callable[[], int],
        tell: Callable[[Occasion], None] = lambda _: None,
        resources: Iterable[ApiResource] | None = None,
        window_ms: int = WINDOW_MS,
        settle_ms: int = SETTLE_MS,
        patience_ms: int = PATIENCE_MS,
        backoff: Callable[[], Backoff] = Backoff,
    ) -> None:
        """clock: milliseconds since 1970 UTC. tell: called with what happens, in this thread."""
        self.figures = FollowerFigures()
        self._connection = connection
        self._clock = clock
        self._resources = {one.kind: one for one in (watched() if resources is None else resources)}
        self._backoff = backoff
        self._reaching = backoff()
        self._news: queue.Queue[News] = queue.Queue(_MOST_WAITING)
        self._stop = threading.Event()
        self._window = Window(window_ms)
        self._first_lists = FirstLists(self._resources)
        self._troubles = Troubles(self.figures, tell)
        mirror = Mirror()
        patience = Patience(self.figures, tell, stop=self._stop, backoff=backoff)
        self._patience = patience
        self._recognition = Recognition(store, cluster, connection, patience, self._troubles)
        self._preemptions = Preemptions(
            store,
            cluster,
            mirror,
            Observer(settle_ms=settle_ms, patience_ms=patience_ms, pods=mirror.pods),
            patience,
            source=connection.source,
            actor=actor,
            clock=clock,
        )
        self._writer = Writer(
            store,
            cluster,
            mirror,
            self._preemptions,
            self._recognition,
            patience,
            self.figures,
            source=connection.source,
            actor=actor,
            clock=clock,
            tell=tell,
        )

    def stop(self) -> None:
        """End it soon, from any thread; what was heard by then is written."""
        self._stop.set()

    def run(self) -> None:
        """Follow until `stop`. Raises LiveError where the server refuses for good."""
        self._begin()
        try:
            while not self._stop.is_set():
                self._step(self._wait_seconds())
            self._flush(final=True)
        finally:
            self._stop.set()

    # --- the beginning -------------------------------------------------------------------------

    def _begin(self) -> None:
        self.figures.started_ms = self._clock()
        server = reach(self._connection, tuple(self._resources.values()), again=self._busy)
        if server is None:
            return
        self._preemptions.version = server.version
        self._patience.call(lambda: self._load(server))
        known = self._writer.positions.read
        self._first_lists = FirstLists(
            kind for kind in self._resources if not known.get(kind) and kind not in server.closed
        )
        for kind, said in server.closed.items():
            self._troubles.failing(kind, said)
        for resource in self._resources.values():
            watcher = KindWatcher(
                self._connection,
                resource,
                self._put,
                stop=self._stop,
                clock=self._clock,
                since=known.get(resource.kind, 0),
                refused=server.closed.get(resource.kind, ""),
                backoff=self._backoff(),
            )
            threading.Thread(target=watcher.run, name=f"watch-{resource.kind}", daemon=True).start()
        self.figures.synced = self._first_lists.complete

    def _load(self, server: Server) -> None:
        self._recognition.check(server.uid)
        self._writer.load(newest=server.newest)

    def _busy(self, failed: Interrupted) -> bool:
        self._troubles.said("server", str(failed))
        return not self._stop.wait(self._reaching.next(failed))

    def _put(self, news: News) -> None:
        while not self._stop.is_set():
            try:
                self._news.put(news, timeout=0.5)
            except queue.Full:
                continue
            return

    # --- news -------------------------------------------------------------------------------------

    def _wait_seconds(self) -> float:
        if self._preemptions.settled:
            return 0.0
        if self._window:
            return self._window.due_ms(self._clock()) / 1000
        return _IDLE_SECONDS

    def _step(self, wait_seconds: float) -> None:
        """Take what has come, and write what has waited long enough."""
        with contextlib.suppress(queue.Empty):
            self._take(self._news.get(timeout=max(0.001, wait_seconds)))
            while True:
                self._take(self._news.get_nowait())
        self._flush()

    def _take(self, news: News) -> None:
        match news:
            case Trouble():
                self._trouble(news)
                return
            case Recovered():
                self._troubles.recovered(news.kind)
                return
        self.figures.last_news_ms = max(self.figures.last_news_ms, news.received_ms)
        if isinstance(news, Listed):
            self._listed(news)
            return
        self.figures.events += 1
        self._writer.positions.heard(news.kind, news.received_ms)
        if isinstance(news, Changed):
            self._window.put(news)
        elif not self._window.holds(news.kind):
            self._writer.positions.reached(news.kind, news.version, news.received_ms)

    def _trouble(self, news: Trouble) -> None:
        if news.fatal is not None:
            self._stop.set()
            raise news.fatal
        required = self._resources[news.kind].required
        if news.not_served or (news.failing and news.refused and not required):
            self._first_lists.leave_out(news.kind)
            self._write_first_lists()
            if news.not_served and not required:
                return
        if news.failing:
            self._troubles.failing(news.kind, news.message)
        else:
            self._troubles.said(news.kind, news.message)

    # --- lists ------------------------------------------------------------------------------------

    def _listed(self, news: Listed) -> None:
        positions = self._writer.positions
        if not self._first_lists.complete:
            # Also where it was known, and expired while others were still being listed.
            self._first_lists.take(news)
            positions.listed_again_at_start(news.kind)
            self._window.listed(news.kind)
            self._write_first_lists()
            return
        if not self._recognition.check_again(self._busy):
            return
        since_version = positions.read.get(news.kind, 0)
        self._flush(everything=True)
        self._writer.listed_again(news, since_version=since_version)

    def _write_first_lists(self) -> None:
        lists = self._first_lists.taken()
        if lists:
            self._writer.first_lists(lists)
        self.figures.synced = self._first_lists.complete

    # --- writing ----------------------------------------------------------------------------------

    def _flush(self, *, everything: bool = False, final: bool = False) -> None:
        """Write the news whose time has come, and the preemptions that are settled."""
        now_ms = self._clock()
        if not self._first_lists.complete:
            return  # the watches of kinds that were listed wait for the others
        ready = self._window.take(now_ms, everything=everything or final)
        if ready:
            self._writer.news(ready)
        else:
            self._writer.keep_positions()
        if final:
            self._writer.keep_positions(at_once=True)
        self._writer.look_back(now_ms)
        self._writer.conclude(now_ms)
        while final and self._preemptions.settled:
            self._writer.conclude(now_ms)
