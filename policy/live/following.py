"""A cluster followed: what its watches tell becomes revisions, and its preemptions rows.

News of all kinds wait for a moment, so that they can be put into the order of the server's one
counter; then they are cut into revisions (`policy.observing.cutting`) and written, together with
how far each kind was read: who is killed goes on from there, and nothing is lost or there twice.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final, TypeVar

from policy.audit.observed.moments import Moments
from policy.audit.observed.recording import (
    SchedulerRules,
    ServerRules,
    record_observed,
    server_rules,
)
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, Node, Pod, key_of, kind_of
from policy.live.backoff import Backoff
from policy.live.connection import Connection
from policy.live.reaching import Server, reach
from policy.live.resources import EVENT, ApiResource, watched
from policy.live.watching import Changed, KindWatcher, Listed, News, Reached, Trouble
from policy.observing.cutting import SeenChange, in_server_order, segments
from policy.observing.events import Claim
from policy.observing.model import Preemption, marked_at, nominated_to
from policy.observing.observer import PATIENCE_MS, SETTLE_MS, Observer
from policy.rules.versions import VersionError, parse_version
from policy.store import NotFound, Store, StoreError
from policy.store.observed import ObservationRow
from policy.store.record.following import Gap

_T = TypeVar("_T")

WINDOW_MS: Final = 300
"""So long news wait for those of other kinds that are older by the server's counter."""

_MOST_WAITING: Final = 100_000
"""News that wait to be written; beyond, watches are not read on."""

_KEEP_POSITIONS_MS: Final = 60_000
_IDLE_SECONDS: Final = 0.5
"""So often it looks up where nothing comes: whether it is to stop, and what is settled."""


@dataclass(slots=True)
class FollowerFigures:
    """What a follower did so far, for its status."""

    started_ms: int = 0
    synced: bool = False
    events: int = 0  #: of watches, those that change nothing included
    changes: int = 0  #: of objects, that were written
    revisions: int = 0
    observed: int = 0
    waiting: bool = False  #: whether there is evidence of preemptions that are not recorded yet
    gaps: int = 0
    troubles: int = 0
    last_trouble: str = ""
    last_news_ms: int = 0  #: when the API server was heard last
    lag_ms: int = 0  #: between the arrival of the newest written change and its writing
    writing: bool = True  #: False while the database is away
    revision: int = 0
    kinds: dict[str, int] = field(default_factory=dict)  #: resourceVersion by kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Something that a follower's owner may want to hear of."""

    observations: Sequence[ObservationRow] = ()
    gap: Gap | None = None
    trouble: str = ""


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
        self._observer = Observer(settle_ms=settle_ms, patience_ms=patience_ms)
        self._backoff = backoff
        self._reaching = backoff()
        self._news: queue.Queue[News] = queue.Queue(_MOST_WAITING)
        self._stop = threading.Event()
        self._watchers: list[threading.Thread] = []
        self._objects: dict[str, dict[str, ClusterObject]] = {}
        self._pending: list[Changed] = []  # not yet written
        self._positions: dict[str, int] = {}  # up to which everything is written
        self._kept: dict[str, int] = {}  # the same, as the database has it
        self._kept_ms = 0
        self._lost: dict[str, int] = {}  # positions of kinds that are listed anew at the start
        self._seen_ms: dict[str, int] = {}  # when each kind was heard last
        self._unsynced = {one.kind for one in self._resources}
        self._first_lists: dict[str, Listed] = {}
        self._rules: ServerRules | None = None
        self._version = ""
        self._scheduler_rules = SchedulerRules(store, cluster, self._server_rules)
        self._moments = Moments(store, cluster)

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
        self._version = server.version
        self._resources = tuple(one for one in self._resources if one.kind not in server.closed)
        self._unsynced = {one.kind for one in self._resources}
        for kind, said in server.closed.items():
            self._trouble(Trouble(kind=kind, message=said))
        self._patiently(lambda: self._load(server))
        for resource in self._resources:
            since = self._positions.get(resource.kind, 0)
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
            thread = threading.Thread(
                target=watcher.run, name=f"watch-{resource.kind}", daemon=True
            )
            thread.start()
            self._watchers.append(thread)
        self.figures.synced = not self._unsynced

    def _busy(self, message: str) -> bool:
        self._trouble(Trouble(kind=self._resources[0].kind, message=message))
        return not self._stop.wait(self._reaching.next())

    def _load(self, server: Server) -> None:
        """What is known from before: the state, how far it was read, evidence that waits."""
        positions = self._store.read.follow_positions(self._cluster)
        if positions and server.newest < max(positions.values()):
            # Restored from a backup: a watch from a version that is still to come is silent.
            self._lost, positions = positions, {}
        self._positions = positions
        self._kept = dict(self._positions)
        self.figures.kinds = dict(self._positions)
        try:
            state = self._store.state.load(self._cluster)
        except NotFound:
            return
        self.figures.revision = state.revision
        for obj in state.objects:
            self._objects.setdefault(kind_of(obj), {})[key_of(obj)] = obj
        self._moments.begin(state.objects, revision=state.revision, state_digest=state.state_digest)
        if not self._positions:
            return
        pods = [pod for pod in self._objects.get("Pod", {}).values() if type(pod) is Pod]
        marked = {pod.metadata.uid for pod in pods if marked_at(pod) is not None}
        known = self._store.read.known_victims(self._cluster, marked)
        now_ms = self._clock()
        for pod in pods:
            waits = marked_at(pod) is not None and pod.metadata.uid not in known
            if waits or nominated_to(pod) or pod.metadata.deletion_timestamp:
                before = pod if marked_at(pod) is not None and not waits else None
                self._observer.pod(before, pod, version=0, at_ms=now_ms)

    def _put(self, news: News) -> None:
        while not self._stop.is_set():
            try:
                self._news.put(news, timeout=0.5)
            except queue.Full:
                continue
            return

    # --- news -------------------------------------------------------------------------------------

    def _wait_seconds(self) -> float:
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
        elif isinstance(news, Reached):
            self.figures.events += 1
            self._seen_ms[news.kind] = news.received_ms
            if all(one.kind != news.kind for one in self._pending):
                self._positions[news.kind] = news.version
        else:
            self.figures.events += 1
            self._seen_ms[news.kind] = news.received_ms
            self._pending.append(news)

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
            if news.kind in self._positions:
                self._lost[news.kind] = self._positions[news.kind]
            self._unsynced.discard(news.kind)
            self._pending = [
                one for one in self._pending if one.kind != news.kind or one.claim is not None
            ]
            self._write_first_lists()
            return
        since_version = self._positions.get(news.kind, 0)
        gap = self._gap(news, news.reason or "listed again", since_version)
        self._flush(everything=True)
        self._claims(news.claims, news.received_ms)
        self._positions[news.kind] = news.version
        self._write(self._difference(news), gaps=[gap])
        self._report([gap])

    def _report(self, gaps: Sequence[Gap]) -> None:
        self.figures.gaps += len(gaps)
        for gap in gaps:
            self._tell(Occasion(gap=gap))

    def _gap(self, news: Listed, reason: str, since_version: int) -> Gap:
        return Gap(
            kind=news.kind,
            reason=reason,
            since_ms=self._seen_ms.get(news.kind),
            until_ms=news.received_ms,
            since_version=since_version,
            until_version=news.version,
        )

    def _write_first_lists(self) -> None:
        """The lists of all kinds are one revision, once the last of them has come."""
        if self._unsynced or not self._first_lists:
            self.figures.synced = not self._unsynced
            return
        lists, self._first_lists = list(self._first_lists.values()), {}
        changes = [change for one in lists for change in self._difference(one)]
        for one in lists:
            self._claims(one.claims, one.received_ms)
            self._positions[one.kind] = one.version
        back = "the server's resourceVersions have gone back"
        gaps = [
            self._gap(one, one.reason or back, self._lost[one.kind])
            for one in lists
            if one.kind in self._lost
        ]
        self._lost = {}
        self._write(changes, gaps=gaps, cut=False)
        self.figures.synced = True
        self._report(gaps)

    def _claims(self, claims: Sequence[Claim], received_ms: int) -> None:
        """Events about preemptions, without those that observations of the record rest on."""
        uids = {claim.event_uid for claim in claims}
        known = (
            self._patiently(lambda: self._store.read.known_events(self._cluster, uids))
            if uids
            else set()
        )
        for claim in claims:
            if claim.event_uid not in known:
                self._observer.event(claim, at_ms=received_ms)

    def _difference(self, news: Listed) -> list[SeenChange]:
        """What a list says that is not known: new, changed and vanished objects."""
        if news.kind == EVENT:
            return []
        known = self._objects.get(news.kind, {})
        listed = {key_of(obj): obj for obj in news.objects}
        changes = [
            self._change(news.kind, key, obj, 0, news.received_ms)
            for key, obj in listed.items()
            if known.get(key) != obj
        ]
        changes += [
            self._change(news.kind, key, None, 0, news.received_ms)
            for key in known.keys() - listed.keys()
        ]
        return changes

    def _change(
        self, kind: str, key: str, after: ClusterObject | None, version: int, at_ms: int
    ) -> SeenChange:
        """The change, which is known from now on."""
        known = self._objects.setdefault(kind, {})
        before = known.pop(key, None)
        if after is not None:
            known[key] = after
        return SeenChange(
            kind=kind,
            key=key,
            before=before,
            after=after,
            resource_version=version,
            at_ms=at_ms,
        )

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
        elif self._positions != self._kept and now_ms - self._kept_ms >= _KEEP_POSITIONS_MS:
            self._commit([], ())
        if final and self._positions != self._kept:
            self._commit([], ())
        self._conclude(now_ms)

    def _write_news(self, ready: Sequence[Changed]) -> None:
        loose = [
            SeenChange(
                kind=one.kind,
                key=one.key,
                before=None,
                after=one.after,
                resource_version=one.version,
                at_ms=one.received_ms,
            )
            for one in ready
            if one.claim is None
        ]
        changes = []
        for one in in_server_order(loose):
            known = self._objects.get(one.kind, {}).get(one.key)
            if known != one.after:
                changes.append(
                    self._change(one.kind, one.key, one.after, one.resource_version, one.at_ms)
                )
        # Before the positions are written: what waits in the observer holds that of events back.
        self._claims([one.claim for one in ready if one.claim is not None], ready[-1].received_ms)
        for news in ready:
            self._positions[news.kind] = max(self._positions.get(news.kind, 0), news.version)
        self._write(changes)
        self.figures.lag_ms = self._clock() - max(one.received_ms for one in ready)

    def _write(
        self, changes: Sequence[SeenChange], *, gaps: Sequence[Gap] = (), cut: bool = True
    ) -> None:
        for change in changes:
            if change.kind == "Pod":
                before, after = _pod(change.before), _pod(change.after)
                if cut or after is None or marked_at(after) is not None or nominated_to(after):
                    self._observer.pod(
                        before, after, version=change.resource_version, at_ms=change.at_ms
                    )
        if not changes and not gaps:
            return
        stretches = list(segments(changes, marks=self._marks())) if cut else [list(changes)]
        self._commit(
            [[(one.kind, one.key, one.after) for one in stretch] for stretch in stretches], gaps
        )

    def _commit(self, stretches: Sequence[Sequence[Change]], gaps: Sequence[Gap]) -> None:
        """One transaction."""
        positions = self._safe_positions()
        done = self._patiently(
            lambda: self._store.record.follow(
                self._cluster,
                stretches,
                at_ms=self._clock(),
                source=self._connection.source,
                actor=self._actor,
                positions=positions,
                gaps=gaps,
            )
        )
        self._kept, self._kept_ms = dict(self._positions), self._clock()
        self.figures.kinds = positions
        self.figures.revision = done.revision
        self.figures.revisions += len(done.written)
        self.figures.changes += sum(len(one.changes) for one in done.written)
        if self._moments.begun:
            self._moments.advance(done.written)
        elif len(done.written) == done.revision == 1:
            self._moments.begin(
                self._everything(), revision=done.revision, state_digest=done.state_digest
            )

    def _everything(self) -> Iterator[ClusterObject]:
        return chain.from_iterable(known.values() for known in self._objects.values())

    def _patiently(self, call: Callable[[], _T]) -> _T:
        """What a call of the store returns; while the database is away it is made again.

        Raises StoreError where the follower was stopped meanwhile.
        """
        backoff = self._backoff()
        while True:
            try:
                found = call()
            except StoreError as exc:
                if not self._waited_out(exc, backoff):
                    raise
                continue
            self.figures.writing = True
            return found

    def _waited_out(self, error: StoreError, backoff: Backoff) -> bool:
        """Wait for the database; False where it was stopped meanwhile."""
        self.figures.writing = False
        self.figures.troubles += 1
        self.figures.last_trouble = f"database: {error}"
        self._tell(Occasion(trouble=self.figures.last_trouble))
        return not self._stop.wait(backoff.next())

    def _safe_positions(self) -> dict[str, int]:
        """Events that no observation has taken yet must come again after a stop."""
        oldest = self._observer.oldest_event()
        positions = dict(self._positions)
        if oldest and EVENT in positions:
            positions[EVENT] = min(positions[EVENT], oldest - 1)
        return {kind: version for kind, version in positions.items() if version > 0}

    # --- preemptions ------------------------------------------------------------------------------

    def _conclude(self, now_ms: int) -> None:
        found = self._observer.conclude(now_ms)
        self.figures.waiting = self._observer.waiting or bool(found)
        if not found:
            return
        rows = self._patiently(lambda: self._record(found))
        self.figures.observed += len(rows)
        self.figures.waiting = self._observer.waiting
        self._kept_ms = 0  # the events are taken: their position may move on
        self._kept = {}
        if rows:
            self._tell(Occasion(observations=rows))

    def _record(self, found: Sequence[Preemption]) -> list[ObservationRow]:
        numbers = record_observed(
            self._store,
            self._cluster,
            found,
            self._scheduler_rules,
            at_ms=self._clock(),
            source=self._connection.source,
            actor=self._actor,
            states=self._moments.at,
        )
        return [self._store.read.observation(number) for number in numbers]

    def _server_rules(self) -> ServerRules:
        if self._rules is None:
            nodes = [n for n in self._objects.get("Node", {}).values() if type(n) is Node]
            self._rules = server_rules(nodes, version=self._version)
        return self._rules

    def _marks(self) -> bool:
        """Whether the scheduler marks its victims: from 1.25 on."""
        try:
            major, minor, _ = parse_version(self._version)
        except VersionError:
            return True
        return (major, minor) >= (1, 25)


def _pod(obj: ClusterObject | None) -> Pod | None:
    return obj if type(obj) is Pod else None
