"""A cluster followed: what its watches tell becomes revisions, and its preemptions rows.

News of all kinds wait for a moment, so that they can be put into the order of the server's one
counter; then they are cut into revisions (`policy.observing.cutting`) and written, together with
how far each kind was read: who is killed goes on from there, and nothing is lost or there twice.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from policy.cluster.digest import Change
from policy.live.backoff import Backoff
from policy.live.connection import Connection, Interrupted
from policy.live.figures import FollowerFigures, Occasion
from policy.live.mirror import Mirror
from policy.live.patience import Patience
from policy.live.positions import Positions
from policy.live.preemptions import Preemptions
from policy.live.reaching import Server, cluster_uid, reach
from policy.live.resources import ApiResource, watched
from policy.live.watching import Changed, KindWatcher, Listed, News, Trouble
from policy.observing.cutting import SeenChange, segments
from policy.observing.observer import PATIENCE_MS, SETTLE_MS, Observer
from policy.store import NotFound, OtherCluster, Store
from policy.store.observed import ClusterIdentity
from policy.store.record.following import Gap

WINDOW_MS: Final = 300
"""So long news wait for those of other kinds that are older by the server's counter."""

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
        self._store = store
        self._cluster = cluster
        self._connection = connection
        self._actor = actor
        self._clock = clock
        self._tell = tell
        self._resources = tuple(resources) if resources is not None else watched()
        self._window_ms = window_ms
        self._backoff = backoff
        self._reaching = backoff()
        self._news: queue.Queue[News] = queue.Queue(_MOST_WAITING)
        self._stop = threading.Event()
        self._pending: list[Changed] = []  # not yet written
        self._unsynced = {one.kind for one in self._resources}
        self._first_lists: dict[str, Listed] = {}
        self._identity: ClusterIdentity | None = None  # until it is kept
        self._positions = Positions()
        self._mirror = Mirror()
        self._patience = Patience(self.figures, tell, stop=self._stop, backoff=backoff)
        self._preemptions = Preemptions(
            store,
            cluster,
            self._mirror,
            Observer(settle_ms=settle_ms, patience_ms=patience_ms),
            self._patience,
            source=connection.source,
            actor=actor,
            clock=clock,
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
        server = reach(self._connection, self._resources, again=self._busy)
        if server is None:
            return
        self._preemptions.version = server.version
        self._resources = tuple(one for one in self._resources if one.kind not in server.closed)
        self._unsynced = {one.kind for one in self._resources}
        for kind, said in server.closed.items():
            self._trouble(Trouble(kind=kind, message=said))
        self._patience.call(lambda: self._load(server))
        for resource in self._resources:
            since = self._positions.read.get(resource.kind, 0)
            if since:
                self._unsynced.discard(resource.kind)
            watcher = KindWatcher(
                self._connection,
                resource,
                self._put,
                stop=self._stop,
                clock=self._clock,
                since=since,
                backoff=self._backoff(),
            )
            threading.Thread(target=watcher.run, name=f"watch-{resource.kind}", daemon=True).start()
        self.figures.synced = not self._unsynced

    def _busy(self, failed: Interrupted) -> bool:
        self._trouble(Trouble(kind=self._resources[0].kind, message=str(failed)))
        return not self._stop.wait(self._reaching.next(failed))

    def _load(self, server: Server) -> None:
        """What is known from before: the state, how far it was read, evidence that waits."""
        self._recognize(server.uid)
        stored = self._store.read.follow_positions(self._cluster)
        self._positions.begin(stored, newest=server.newest)
        self.figures.kinds = dict(self._positions.read)
        try:
            state = self._store.state.load(self._cluster)
        except NotFound:
            return
        self.figures.revision = state.revision
        self._mirror.load(state.objects)
        self._preemptions.begin(
            state.objects, revision=state.revision, state_digest=state.state_digest
        )
        if self._positions.read:
            self._preemptions.left_over()

    def _recognize(self, uid: str) -> None:
        """Raises OtherCluster where another one was followed under the name."""
        if not uid:
            said = "the server does not show the uid of the namespace kube-system:"
            said += " that it is the cluster of before cannot be checked"
            self._trouble(Trouble(kind="Namespace", message=said))
            return
        found = ClusterIdentity(uid=uid, server=self._connection.source)
        known = self._store.read.cluster_identity(self._cluster)
        if known is None:
            self._identity = found
        elif known.uid != uid:
            raise OtherCluster(name=self._cluster, known=known, found=found)

    def _still_the_same(self) -> bool:
        """Whether what is listed again may be taken; False where it was stopped meanwhile.

        Raises OtherCluster where another cluster answers at the address now.
        """
        while True:
            try:
                uid = cluster_uid(self._connection)
                break
            except Interrupted as exc:
                if not self._busy(exc):
                    return False
        if uid:
            self._patience.call(lambda: self._recognize(uid))
        return True

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
        if self._pending:
            due = self._pending[0].received_ms + self._window_ms - self._clock()
            return max(0.0, due / 1000)
        return _IDLE_SECONDS

    def _step(self, wait_seconds: float) -> None:
        """Take what has come, and write what has waited long enough."""
        with contextlib.suppress(queue.Empty):
            self._take(self._news.get(timeout=max(0.001, wait_seconds)))
            while True:
                self._take(self._news.get_nowait())
        self._flush()

    def _take(self, news: News) -> None:
        if isinstance(news, Trouble):
            self._trouble(news)
            return
        self.figures.last_news_ms = max(self.figures.last_news_ms, news.received_ms)
        if isinstance(news, Listed):
            self._listed(news)
            return
        self.figures.events += 1
        self._positions.heard(news.kind, news.received_ms)
        if isinstance(news, Changed):
            self._pending.append(news)
        elif all(one.kind != news.kind for one in self._pending):
            self._positions.read[news.kind] = news.version

    def _trouble(self, news: Trouble) -> None:
        if news.fatal is not None:
            self._stop.set()
            raise news.fatal
        if news.not_served:
            required = any(one.kind == news.kind and one.required for one in self._resources)
            self._first_lists.pop(news.kind, None)
            self._unsynced.discard(news.kind)
            self._write_first_lists()
            if not required:
                return
        self.figures.troubles += 1
        self.figures.last_trouble = f"{news.kind}: {news.message}"
        self._tell(Occasion(trouble=self.figures.last_trouble))

    # --- lists ------------------------------------------------------------------------------------

    def _listed(self, news: Listed) -> None:
        if self._unsynced:
            # Also where it was known, and expired while others were still being listed.
            self._first_lists[news.kind] = news
            self._positions.listed_again_at_start(news.kind)
            self._unsynced.discard(news.kind)
            self._pending = [
                one for one in self._pending if one.kind != news.kind or one.claim is not None
            ]
            self._write_first_lists()
            return
        if not self._still_the_same():
            return
        since_version = self._positions.read.get(news.kind, 0)
        gap = self._positions.gap(news, news.reason or "listed again", since_version)
        self._flush(everything=True)
        self._preemptions.claims(news.claims, news.received_ms)
        self._positions.read[news.kind] = news.version
        self._write(self._mirror.differences(news), gaps=[gap])
        self._report([gap])

    def _write_first_lists(self) -> None:
        """The lists of all kinds are one revision, once the last of them has come."""
        if self._unsynced or not self._first_lists:
            self.figures.synced = not self._unsynced
            return
        lists, self._first_lists = list(self._first_lists.values()), {}
        changes = [change for one in lists for change in self._mirror.differences(one)]
        for one in lists:
            self._preemptions.claims(one.claims, one.received_ms)
            self._positions.read[one.kind] = one.version
        gaps = self._positions.gaps_at_start(lists)
        self._write(changes, gaps=gaps, first=True)
        self.figures.synced = True
        self._report(gaps)

    def _report(self, gaps: Sequence[Gap]) -> None:
        self.figures.gaps += len(gaps)
        for gap in gaps:
            self._tell(Occasion(gap=gap))

    # --- writing ----------------------------------------------------------------------------------

    def _flush(self, *, everything: bool = False, final: bool = False) -> None:
        """Write the news whose time has come, and the preemptions that are settled."""
        now_ms = self._clock()
        if self._unsynced:
            return  # the watches of kinds that were listed wait for the others
        cutoff = now_ms if everything or final else now_ms - self._window_ms
        ready = [one for one in self._pending if one.received_ms <= cutoff]
        if ready:
            last = max(one.version for one in ready)
            ready = [
                one for one in self._pending if one.received_ms <= cutoff or 0 < one.version <= last
            ]
            taken = set(map(id, ready))
            self._pending = [one for one in self._pending if id(one) not in taken]
            self._write_news(ready)
        elif self._positions.due(now_ms):
            self._commit([], ())
        if final and self._positions.unkept:
            self._commit([], ())
        self._conclude(now_ms)
        while final and self._preemptions.settled:
            self._conclude(now_ms)

    def _write_news(self, ready: Sequence[Changed]) -> None:
        changes = self._mirror.changes(ready)
        # Before the positions are written: what waits in the observer holds that of events back.
        claims = [one.claim for one in ready if one.claim is not None]
        self._preemptions.claims(claims, ready[-1].received_ms)
        for news in ready:
            self._positions.reached(news.kind, news.version)
        self._write(changes)
        self.figures.lag_ms = self._clock() - min(one.received_ms for one in ready)

    def _write(
        self, changes: Sequence[SeenChange], *, gaps: Sequence[Gap] = (), first: bool = False
    ) -> None:
        """first: what the first lists hold is one revision."""
        self._preemptions.changed(changes, first=first)
        if not changes and not gaps:
            return
        stretches = [list(changes)] if first else segments(changes, marks=self._preemptions.marks)
        self._commit(
            [[(one.kind, one.key, one.after) for one in stretch] for stretch in stretches], gaps
        )

    def _commit(self, stretches: Sequence[Sequence[Change]], gaps: Sequence[Gap]) -> None:
        """One transaction."""
        positions = self._positions.safe(self._preemptions.oldest_event)
        done = self._patience.call(
            lambda: self._store.record.follow(
                self._cluster,
                stretches,
                at_ms=self._clock(),
                source=self._connection.source,
                actor=self._actor,
                positions=positions,
                gaps=gaps,
                identity=self._identity,
            )
        )
        self._identity = None
        self._positions.kept(self._clock())
        self.figures.kinds = positions
        self.figures.revision = done.revision
        self.figures.revisions += len(done.written)
        self.figures.changes += sum(len(one.changes) for one in done.written)
        self._preemptions.written(done)

    def _conclude(self, now_ms: int) -> None:
        rows = self._preemptions.conclude(now_ms)
        self.figures.waiting = self._preemptions.waiting
        if rows is None:
            return
        self.figures.observed += len(rows)
        self._positions.keep_soon()  # the events are taken: their position may move on
        if rows:
            self._tell(Occasion(observations=rows))
