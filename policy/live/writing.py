"""What a follower has heard, into the store: revisions, positions, gaps, observed preemptions.

What is cut into revisions and how far each kind was read are written together: who is killed goes
on from there, and nothing is lost or there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from policy.cluster.digest import Change
from policy.live.figures import FollowerFigures, Occasion
from policy.live.mirror import Mirror
from policy.live.patience import Patience
from policy.live.positions import Positions
from policy.live.preemptions import Preemptions
from policy.live.recognizing import Recognition
from policy.live.watching import Changed, Listed
from policy.observing.cutting import SeenChange, segments
from policy.store import NotFound, Store
from policy.store.record.following import Gap
from policy.store.record.outcomes import ALLOWANCE_MS

_LOOK_BACK_MS: Final = 1000
"""How often, at most, nominations are looked for that were not carried out."""


@dataclass(slots=True)
class _Uncompared:
    """A list of pods that the whole state was not compared with yet."""

    listed_ms: int
    once: bool = False  #: was what was there long before it?


class Writer:
    """Writes what was heard of one cluster; called by one thread."""

    def __init__(
        self,
        store: Store,
        cluster: str,
        mirror: Mirror,
        preemptions: Preemptions,
        recognition: Recognition,
        patience: Patience,
        figures: FollowerFigures,
        *,
        source: str,
        actor: str,
        clock: Callable[[], int],
        tell: Callable[[Occasion], None],
    ) -> None:
        """source: where the cluster is read from; clock: milliseconds since 1970 UTC."""
        self.positions = Positions()
        self._store = store
        self._cluster = cluster
        self._mirror = mirror
        self._preemptions = preemptions
        self._recognition = recognition
        self._patience = patience
        self._figures = figures
        self._source = source
        self._actor = actor
        self._clock = clock
        self._tell = tell
        self._known: tuple[int, str] | None = None  #: the newest revision, and its state's digest
        self._looked_back_ms = 0
        self._uncompared: _Uncompared | None = None

    def load(self, *, newest: int) -> None:
        """What is known from before: how far it was read, the state, evidence that waits.

        newest: the resourceVersion at which the server is.
        """
        stored = self._store.read.follow_positions(self._cluster)
        self.positions.begin(stored, newest=newest)
        self._figures.kinds = dict(self.positions.read)
        try:
            state = self._store.state.load(self._cluster)
        except NotFound:
            return
        self._figures.revision = state.revision
        self._known = state.revision, state.state_digest
        self._mirror.load(state.objects)
        self._preemptions.begin(
            state.objects, revision=state.revision, state_digest=state.state_digest
        )
        if self.positions.read:
            self._preemptions.left_over()

    # --- lists ------------------------------------------------------------------------------------

    def first_lists(self, lists: Sequence[Listed]) -> None:
        """The lists of all kinds, as one revision."""
        changes = [change for one in lists for change in self._mirror.differences(one)]
        for one in lists:
            self._is_listed(one)
            self._preemptions.claims(one.claims, one.received_ms)
            self.positions.read[one.kind] = one.version
        gaps = self.positions.gaps_at_start(lists)
        pods = [one.received_ms for one in lists if one.kind == "Pod"]
        self._write(changes, gaps=gaps, first=True, listed_ms=min(pods, default=None))
        self._report(gaps)

    def listed_again(self, news: Listed, *, since_version: int) -> None:
        """What a new list differs in from what is known, and the time between as a gap."""
        self._is_listed(news)
        gap = self.positions.gap(news, news.reason or "listed again", since_version)
        self._preemptions.claims(news.claims, news.received_ms)
        self.positions.read[news.kind] = news.version
        listed_ms = news.received_ms if news.kind == "Pod" else None
        self._write(self._mirror.differences(news), gaps=[gap], listed_ms=listed_ms)
        self._report([gap])

    def _is_listed(self, news: Listed) -> None:
        if news.kind == "Pod":
            self._uncompared = _Uncompared(listed_ms=news.received_ms)

    def _report(self, gaps: Sequence[Gap]) -> None:
        self._figures.gaps += len(gaps)
        for gap in gaps:
            self._tell(Occasion(gap=gap))

    # --- changes ----------------------------------------------------------------------------------

    def news(self, ready: Sequence[Changed]) -> None:
        """Changes of watches."""
        changes = self._mirror.changes(ready)
        # Before the positions are written: what waits in the observer holds that of events back.
        claims = [one.claim for one in ready if one.claim is not None]
        self._preemptions.claims(claims, ready[-1].received_ms)
        for news in ready:
            self.positions.reached(news.kind, news.version, news.received_ms)
        self._write(changes)
        self._figures.lag_ms = self._clock() - min(one.received_ms for one in ready)

    def look_back(self, now_ms: int) -> None:
        """End what the cluster has not shown half a minute later: nominations of decisions, and
        pods that left unseen.

        A scheduler that nominates says so at once, and a watch that has said later things would
        have shown it. One that does not, as where the gang of the pod got no room, changes nothing
        that could be shown: its pod is as it was, and would keep the room for ever.
        """
        shown_ms = self.positions.reached_ms("Pod", now_ms=now_ms)
        if not shown_ms or 0 <= now_ms - self._looked_back_ms < _LOOK_BACK_MS:
            return
        self._looked_back_ms = now_ms
        made_by_ms = shown_ms - ALLOWANCE_MS
        unseen = self._patience.call(
            lambda: self._store.read.unseen_nominations(self._cluster, made_by_ms=made_by_ms)
        )
        shown = [(one, self._mirror.pod(one.pod)) for one in unseen]
        changes: list[Change] = [
            ("Pod", one.pod, pod)
            for one, pod in shown
            if pod is not None
            and pod.metadata.uid == one.uid
            and pod.status.nominated_node_name != one.node
        ]
        changes += [("Pod", key, None) for key in self._never_shown(shown_ms)]
        if changes:
            self._commit([changes], ())

    def _never_shown(self, shown_ms: int) -> list[str]:
        """Pods of the state that came by calls of schedulers and left while no watch was open.

        No list has them, so nothing else would take them away. shown_ms: what a watch of pods has
        said by then is known.
        """
        of, made_by_ms = self._uncompared, shown_ms - ALLOWANCE_MS
        if of is None or shown_ms <= of.listed_ms:
            return []
        # Those that came a moment before the list may be in it or behind it: they are looked at
        # when a watch would have shown them.
        if of.once and made_by_ms < of.listed_ms:
            return []
        there = self._patience.call(
            lambda: self._store.state.pods_since(self._cluster, at_ms=made_by_ms)
        )
        of.once = True
        if made_by_ms >= of.listed_ms:
            self._uncompared = None
        return [key for key in there if self._mirror.pod(key) is None]

    def keep_positions(self, *, at_once: bool = False) -> None:
        """Write how far each kind was read, where that is due or wanted at once."""
        if self.positions.unkept if at_once else self.positions.due(self._clock()):
            self._commit([], ())

    def conclude(self, now_ms: int) -> None:
        """Record the first of the preemptions that are settled."""
        rows = self._preemptions.conclude(now_ms)
        self._figures.waiting = self._preemptions.waiting
        if rows is None:
            return
        self._figures.observed += len(rows)
        self.positions.keep_soon()  # the events are taken: their position may move on
        if rows:
            self._tell(Occasion(observations=rows))

    def _write(
        self,
        changes: Sequence[SeenChange],
        *,
        gaps: Sequence[Gap] = (),
        first: bool = False,
        listed_ms: int | None = None,
    ) -> None:
        """first: what the first lists hold is one revision. listed_ms: when pods were listed."""
        self._preemptions.changed(changes, first=first)
        if not changes and not gaps:
            return
        stretches = [list(changes)] if first else segments(changes, marks=self._preemptions.marks)
        self._commit(
            [[(one.kind, one.key, one.after) for one in stretch] for stretch in stretches],
            gaps,
            listed_ms=listed_ms,
        )

    def _commit(
        self,
        stretches: Sequence[Sequence[Change]],
        gaps: Sequence[Gap],
        *,
        listed_ms: int | None = None,
    ) -> None:
        """One transaction."""
        shown_ms = listed_ms
        if shown_ms is None:
            shown_ms = self.positions.reached_ms("Pod", now_ms=self._clock())
        positions = self.positions.safe(self._preemptions.oldest_event)
        done = self._patience.call(
            lambda: self._store.record.follow(
                self._cluster,
                stretches,
                at_ms=self._clock(),
                source=self._source,
                actor=self._actor,
                positions=positions,
                gaps=gaps,
                identity=self._recognition.new,
                known=self._known,
                shown_ms=shown_ms,
            )
        )
        self._known = done.revision, done.state_digest
        self._recognition.new = None
        self.positions.kept(self._clock())
        self._figures.kinds = positions
        self._figures.revision = done.revision
        self._figures.revisions += len(done.written)
        self._figures.changes += sum(len(one.changes) for one in done.written)
        self._preemptions.written(done)
