"""The preemptions of a followed cluster: observed, decided again, recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from policy.audit.observed.moments import Moments
from policy.audit.observed.recording import (
    SchedulerRules,
    ServerRules,
    record_observed,
    server_rules,
)
from policy.cluster.objects import ClusterObject, Pod
from policy.live.mirror import Mirror
from policy.live.patience import Patience
from policy.observing.cutting import SeenChange
from policy.observing.events import Claim
from policy.observing.model import Preemption, marked_at, nominated_to
from policy.observing.observer import Observer
from policy.rules.versions import VersionError, parse_version
from policy.store import Store
from policy.store.observed import Followed, ObservationRow


class Preemptions:
    """Takes what was written of a cluster, and records what it shows of preemptions."""

    def __init__(
        self,
        store: Store,
        cluster: str,
        mirror: Mirror,
        observer: Observer,
        patience: Patience,
        *,
        source: str,
        actor: str,
        clock: Callable[[], int],
    ) -> None:
        """source: where the cluster is read from; clock: milliseconds since 1970 UTC."""
        self.version = ""  #: of the server, as it says it
        self._store = store
        self._cluster = cluster
        self._mirror = mirror
        self._observer = observer
        self._patience = patience
        self._source = source
        self._actor = actor
        self._clock = clock
        self._settled: list[Preemption] = []  # and not recorded yet
        self._rules: ServerRules | None = None
        self._scheduler_rules = SchedulerRules(store, cluster, self._server_rules)
        self._moments = Moments(store, cluster)

    # --- the states -------------------------------------------------------------------------------

    def begin(self, objects: Iterable[ClusterObject], *, revision: int, state_digest: str) -> None:
        """The state that is known from before."""
        self._moments.begin(objects, revision=revision, state_digest=state_digest)

    def written(self, done: Followed) -> None:
        """What was written next."""
        if self._moments.begun:
            self._moments.advance(done.written)
        elif len(done.written) == done.revision == 1:
            self.begin(
                self._mirror.everything(), revision=done.revision, state_digest=done.state_digest
            )

    # --- the evidence -----------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether there is evidence that no observation has taken yet."""
        return bool(self._settled) or self._observer.waiting

    @property
    def settled(self) -> bool:
        """Whether there is one to record now."""
        return bool(self._settled)

    @property
    def oldest_event(self) -> int | None:
        """The lowest resourceVersion among events that no observation has taken yet."""
        victims = (victim for one in self._settled for victim in one.victims)
        versions = [victim.event_version for victim in victims if victim.event_version]
        oldest = self._observer.oldest_event()
        return min(versions if oldest is None else [oldest, *versions], default=None)

    @property
    def marks(self) -> bool:
        """Whether the scheduler marks its victims: from 1.25 on."""
        try:
            major, minor, _ = parse_version(self.version)
        except VersionError:
            return True
        return (major, minor) >= (1, 25)

    def left_over(self) -> None:
        """Evidence in the state that is known from before, without what was recorded."""
        pods = self._mirror.pods()
        marked = {pod.metadata.uid for pod in pods if marked_at(pod) is not None}
        known = self._store.read.known_victims(self._cluster, marked)
        now_ms = self._clock()
        for pod in pods:
            waits = marked_at(pod) is not None and pod.metadata.uid not in known
            if waits or nominated_to(pod) or pod.metadata.deletion_timestamp:
                before = pod if marked_at(pod) is not None and not waits else None
                self._observer.pod(before, pod, version=0, at_ms=now_ms)

    def changed(self, changes: Sequence[SeenChange], *, first: bool = False) -> None:
        """first: of the first lists, where only what is marked or nominated says anything."""
        for change in changes:
            if change.kind == "Pod":
                before, after = _pod(change.before), _pod(change.after)
                if (
                    not first
                    or after is None
                    or marked_at(after) is not None
                    or nominated_to(after)
                ):
                    self._observer.pod(
                        before, after, version=change.resource_version, at_ms=change.at_ms
                    )

    def claims(self, claims: Sequence[Claim], received_ms: int) -> None:
        """Events about preemptions, without those that observations of the record rest on."""
        uids = {claim.event_uid for claim in claims}
        known = (
            self._patience.call(lambda: self._store.read.known_events(self._cluster, uids))
            if uids
            else set()
        )
        for claim in claims:
            if claim.event_uid not in known:
                self._observer.event(claim, at_ms=received_ms)

    # --- what follows from it ---------------------------------------------------------------------

    def conclude(self, now_ms: int) -> list[ObservationRow] | None:
        """Record the first of what is settled; the new observation, None where nothing is settled.

        One at a time, for deciding again takes a while and news wait for it.
        """
        self._settled += self._observer.conclude(now_ms)
        if not self._settled:
            return None
        found = self._settled[:1]
        rows = self._patience.call(lambda: self._record(found))
        del self._settled[0]
        return rows

    def _record(self, found: Sequence[Preemption]) -> list[ObservationRow]:
        numbers = record_observed(
            self._store,
            self._cluster,
            found,
            self._scheduler_rules,
            at_ms=self._clock(),
            source=self._source,
            actor=self._actor,
            states=self._moments.at,
        )
        return [self._store.read.observation(number) for number in numbers]

    def _server_rules(self) -> ServerRules:
        if self._rules is None:
            self._rules = server_rules(self._mirror.nodes(), version=self.version)
        return self._rules


def _pod(obj: ClusterObject | None) -> Pod | None:
    return obj if type(obj) is Pod else None
