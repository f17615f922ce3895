"""A real cluster followed beside the service: one process, one store, one page of metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from prometheus_client import CollectorRegistry

from policy.live.connection import Connection, LiveError, place
from policy.live.figures import Occasion
from policy.live.following import Follower
from policy.live.status import FollowerMetrics, health
from policy.server.config import Follow
from policy.store import Store, StoreError
from policy.store.errors import OtherPast

log = logging.getLogger("policy.server.follow")

_CLOSING_SECONDS: Final = 5.0
_IN_LOG: Final = "see the log of the service"


class ClusterFollower:
    """A follower in a thread of its own; `close` writes what was heard by then."""

    def __init__(
        self,
        store: Store,
        wanted: Follow,
        *,
        clock: Callable[[], int],
        registry: CollectorRegistry,
    ) -> None:
        """Raises LiveError where no cluster is found."""
        at = place(
            kubeconfig=wanted.kubeconfig, context=wanted.context, in_cluster=wanted.in_cluster
        )
        self._store, self._actor, self._clock = store, wanted.actor, clock
        self.cluster = wanted.cluster or at.name  #: under which name it is kept
        self._connection = Connection(at)
        self._follower = self._made()
        self._closing = False
        registry.register(FollowerMetrics(lambda: self._follower.figures, clock))
        self._thread = threading.Thread(target=self._run, name="follow", daemon=True)

    def _made(self) -> Follower:
        return Follower(
            self._store,
            self.cluster,
            self._connection,
            actor=self._actor,
            clock=self._clock,
            tell=self._told,
        )

    def start(self) -> None:
        log.info("following %s as cluster %s", self._connection.source, self.cluster)
        self._thread.start()

    def close(self) -> None:
        self._closing = True
        self._follower.stop()
        if self._thread.ident is not None:  # a process that cannot listen ends before it follows
            self._thread.join(_CLOSING_SECONDS)
        self._connection.close()

    def health(self) -> tuple[int, bytes]:
        """Status and JSON of an answer. What failed is for the log: it names addresses."""
        figures = self._follower.figures
        told = replace(
            figures,
            last_trouble=figures.last_trouble and _IN_LOG,
            failing=dict.fromkeys(figures.failing, _IN_LOG),
        )
        return health(told, self._clock())

    def _run(self) -> None:
        try:
            while not self._closing:
                try:
                    self._follower.run()
                except OtherPast as exc:
                    log.warning("following %s begins anew: %s", self.cluster, exc)
                    self._follower = self._made()
                else:
                    return
        except Exception as exc:  # the outermost frame of this thread
            # The service goes on; its health says what became of the follower.
            self._follower.figures.synced = False
            self._follower.figures.last_trouble = str(exc)
            unforeseen = not isinstance(exc, LiveError | StoreError)
            log.error("following %s has ended: %s", self.cluster, exc, exc_info=unforeseen)

    def _told(self, occasion: Occasion) -> None:
        for row in occasion.observations:
            log.info("observed preemption %d: %s", row.id, row.verdict)
        if occasion.gap is not None:
            log.warning("%s was not seen for a time: %s", occasion.gap.kind, occasion.gap.reason)
        if occasion.trouble:
            log.warning("%s", occasion.trouble)
        if occasion.recovered:
            log.warning("%s: it can be read again", occasion.recovered)
