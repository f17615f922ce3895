"""The evidence of preemptions as it comes in: marks, nominations, pods that leave, events."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from policy.cluster import times
from policy.cluster.objects import Pod, key_of
from policy.observing.events import Claim
from policy.observing.model import marked_at, nominated_to


@dataclass(slots=True)
class Mark:
    """A victim that carries the scheduler's condition."""

    pod: str
    uid: str
    node: str
    priority: int
    at_ms: int
    version: int
    seen_ms: int
    scheduler: str = ""
    #: first claims about it take the mark for themselves
    taken: bool = False


@dataclass(slots=True)
class Nomination:
    """A waiting pod that got a nominated node."""

    pod: str
    uid: str
    node: str
    priority: int
    scheduler: str
    at_ms: int
    version: int
    seen_ms: int
    since: int = 0  #: resourceVersion at which the pod appeared; 0 where that was not seen
    used: bool = False


@dataclass(slots=True)
class Leaving:
    """A placed pod whose deletion has begun, or that is gone."""

    pod: str
    uid: str
    priority: int
    version: int
    seen_ms: int
    gone_ms: int | None = None
    gone_version: int = 0  #: resourceVersion at which it was gone; 0 while it is there, or unknown


@dataclass(slots=True)
class SeenClaim:
    """An event about a preemption, and when it was seen."""

    claim: Claim
    seen_ms: int

    @property
    def at_ms(self) -> int:
        return self.seen_ms if self.claim.at_ms is None else self.claim.at_ms


class Gathered:
    """What was seen and may still be part of a preemption."""

    def __init__(self, recorded_events: Iterable[str] = ()) -> None:
        """recorded_events: uids of events that earlier observations rest on."""
        self.marks: dict[str, Mark] = {}  # by uid
        self.nominations: dict[tuple[str, str], Nomination] = {}  # by uid and node
        self.leaving: dict[str, dict[str, Leaving]] = defaultdict(dict)  # by node and uid
        self.claims: list[SeenClaim] = []
        self._appeared: dict[str, int] = {}  # by uid of a waiting pod, its first version
        self._known: dict[str, int] = {}  # uid of an event, and when it was seen
        self._recorded = set(recorded_events)

    def pod(self, before: Pod | None, after: Pod | None, *, version: int, at_ms: int) -> None:
        """A pod changed. version: its resourceVersion, 0 where unknown; at_ms: when it was seen."""
        if after is not None and before is not None and before.metadata.uid != after.metadata.uid:
            self.pod(before, None, version=version, at_ms=at_ms)
            before = None
        if after is None:
            if before is not None:
                self._appeared.pop(before.metadata.uid, None)
                self._gone(before, version=version, at_ms=at_ms)
            return
        if after.spec.node_name:
            self._appeared.pop(after.metadata.uid, None)
        elif before is None:
            self._appeared[after.metadata.uid] = version
        node = nominated_to(after)
        if node and node != nominated_to(before):
            self._nominated(after, node, version=version, at_ms=at_ms)
        since = marked_at(after)
        if since is not None and (before is None or marked_at(before) is None):
            self._marked(after, since, version=version, at_ms=at_ms)
        if after.spec.node_name and after.metadata.deletion_timestamp:
            self._leaves(after, version=version, at_ms=at_ms)

    def event(self, claim: Claim, *, at_ms: int) -> None:
        """An event about a preemption was seen; one that was seen before says nothing new."""
        if claim.event_uid in self._known or claim.event_uid in self._recorded:
            return
        self._known[claim.event_uid] = at_ms
        self.claims.append(SeenClaim(claim, at_ms))

    def oldest_event(self) -> int | None:
        """The lowest resourceVersion among events that no preemption has taken yet.

        Who stops now must read the events again from before it.
        """
        return min((s.claim.resource_version for s in self.claims), default=None)

    @property
    def waiting(self) -> bool:
        """Whether there is evidence that no preemption has taken yet."""
        return bool(self.claims) or any(not m.taken for m in self.marks.values())

    def _nominated(self, pod: Pod, node: str, *, version: int, at_ms: int) -> None:
        uid = pod.metadata.uid or key_of(pod)
        self.nominations[uid, node] = Nomination(
            pod=key_of(pod),
            uid=pod.metadata.uid,
            node=node,
            priority=pod.spec.priority or 0,
            scheduler=pod.spec.scheduler_name,
            at_ms=_failed_ms(pod, at_ms),
            version=version,
            seen_ms=at_ms,
            since=self._appeared.get(pod.metadata.uid, 0),
        )

    def _marked(self, pod: Pod, since: str, *, version: int, at_ms: int) -> None:
        uid = pod.metadata.uid or key_of(pod)
        self.marks[uid] = Mark(
            pod=key_of(pod),
            uid=pod.metadata.uid,
            node=pod.spec.node_name,
            priority=pod.spec.priority or 0,
            at_ms=_parsed(since, at_ms),
            version=version,
            seen_ms=at_ms,
            scheduler=pod.spec.scheduler_name,
        )

    def _leaves(self, pod: Pod, *, version: int, at_ms: int) -> None:
        uid = pod.metadata.uid or key_of(pod)
        self.leaving[pod.spec.node_name].setdefault(
            uid,
            Leaving(
                pod=key_of(pod),
                uid=pod.metadata.uid,
                priority=pod.spec.priority or 0,
                version=version,
                seen_ms=at_ms,
            ),
        )

    def _gone(self, pod: Pod, *, version: int, at_ms: int) -> None:
        if pod.spec.node_name:
            self._leaves(pod, version=version, at_ms=at_ms)
            uid = pod.metadata.uid or key_of(pod)
            leaving = self.leaving[pod.spec.node_name][uid]
            leaving.gone_ms, leaving.gone_version = at_ms, version

    def forget(self, old: int) -> None:
        """Drop what is done with since before `old`, in milliseconds: no preemption may take it."""
        self.marks = {u: m for u, m in self.marks.items() if not m.taken or m.seen_ms > old}
        self.nominations = {
            at: n for at, n in self.nominations.items() if not n.used or n.seen_ms > old
        }
        for node in list(self.leaving):
            kept = {
                uid: pod
                for uid, pod in self.leaving[node].items()
                if pod.gone_ms is None or pod.gone_ms > old
            }
            if kept:
                self.leaving[node] = kept
            else:
                del self.leaving[node]
        unsettled = {seen.claim.event_uid for seen in self.claims}
        self._known = {
            uid: seen for uid, seen in self._known.items() if seen > old or uid in unsettled
        }


def _failed_ms(pod: Pod, seen_ms: int) -> int:
    """When the scheduler first failed to place the pod; when it was seen, where it is unsaid."""
    for condition in pod.status.conditions or ():
        if condition.type == "PodScheduled" and condition.status == "False":
            return _parsed(condition.last_transition_time, seen_ms)
    return seen_ms


def _parsed(text: str | None, otherwise: int) -> int:
    try:
        return times.parse(text) if text else otherwise
    except times.TimeError:
        return otherwise
