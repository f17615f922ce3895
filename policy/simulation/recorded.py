"""A trace out of the record: what came to a cluster, how long it worked, and what else changed.

Read from the versions of the state, revision by revision. An eviction by a scheduler is no event of
the trace, because the simulation decides who is evicted: a pod that was preempted goes on in the
next pod of its workload that comes, and both are one. Some controllers make that pod as soon as the
other one is leaving, and some when it has gone.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from policy.cluster import times
from policy.cluster.objects import (
    ClusterObject,
    Pod,
    PodDisruptionBudget,
    PodStatus,
    SchedulingPodGroup,
    key_of,
)
from policy.cluster.tables import preempted, terminated
from policy.preemption.columns import workload_of
from policy.scheduling.consequences import LIFE
from policy.simulation.durations import KnownRuntime, tasks
from policy.simulation.options import Durations
from policy.simulation.trace import Trace, TraceError, TraceEvent
from policy.store import Store
from policy.store.state.past import RevisionStep
from policy.text.words import number

_AT_ONCE: Final = 200
"""Revisions that are read together."""


@dataclass(slots=True, kw_only=True)
class _Seen:
    """One pod of the trace: a pod of the record, and those that took its place after evictions."""

    pod: Pod  #: as it comes, or as it runs at the start
    arrives_ms: int
    ran_from_ms: int | None = None
    ends_ms: int | None = None


def from_record(store: Store, cluster: str, *, since_ms: int | None, durations: Durations) -> Trace:
    """The trace of a recorded cluster from an instant on, or from the oldest revision.

    Raises NotFound for an unknown cluster, TraceError where nothing is recorded since then.
    """
    with store.reading() as view:
        state = view.state
        oldest = state.oldest_revision(cluster)
        newest = state.head_revision(cluster)
        first = oldest if since_ms is None else max(oldest, state.revision_at(cluster, since_ms))
        if newest == 0:
            raise TraceError(
                f"no state of cluster `{cluster}` is recorded",
                help="`policy state revisions` lists what is recorded of a cluster",
            )
        if first == newest:
            raise _unchanged(cluster, since_ms, state.load(cluster, at=newest).at_ms)
        loaded = state.load(cluster, at=first)
        start_ms = loaded.at_ms if since_ms is None else max(loaded.at_ms, since_ms)
        gaps = sum(gap.kind == "Pod" and gap.until_ms > start_ms for gap in view.read.gaps(cluster))
        reader = _Reader(list(loaded.objects), start_ms)
        for low in range(first, newest, _AT_ONCE):
            for step in state.steps(cluster, low, min(low + _AT_ONCE, newest)):
                reader.follow(step)
    found, notes = tasks(reader.known(), start_ms=start_ms, durations=durations)
    if since_ms is not None and loaded.at_ms > since_ms:
        notes = [f"the record begins later, at {times.to_text(loaded.at_ms)}", *notes]
    if gaps:
        notes.append(
            f"pods were not seen in {number(gaps, 'gap')} of the record (table `gaps`): what is"
            " known of one comes at its end"
        )
    return Trace(
        name=cluster,
        start_ms=start_ms,
        end_ms=max(start_ms + 1, reader.last_ms),
        objects=[o for o in loaded.objects if not isinstance(o, Pod)],
        tasks=found,
        events=reader.events,
        notes=notes,
    )


def _unchanged(cluster: str, since_ms: int | None, last_ms: int) -> TraceError:
    last = times.to_text(last_ms)
    if since_ms is None:
        return TraceError(
            f"cluster `{cluster}` has not changed since it was first recorded, at {last}",
            help="a trace needs at least two revisions: `policy state revisions` lists them",
        )
    return TraceError(
        f"cluster `{cluster}` has not changed since {times.to_text(since_ms)};"
        f" its last change was at {last}",
        help="give an earlier `--since`, or leave it out; a simulation that was kept has the times"
        " of its trace",
    )


class _Reader:
    """Goes through the revisions and keeps what became of each pod."""

    def __init__(self, objects: list[ClusterObject], start_ms: int) -> None:
        self._start = start_ms
        self._objects: dict[tuple[str, str], ClusterObject] = {}
        self._seen: list[_Seen] = []
        self._by_key: dict[str, _Seen] = {}
        self._expected: dict[str, deque[_Seen]] = defaultdict(deque)  # by workload
        self._names: Counter[str] = Counter()
        self.events: list[TraceEvent] = []
        self.last_ms = start_ms
        for obj in objects:
            self._objects[type(obj).__name__, key_of(obj)] = obj
            if isinstance(obj, Pod) and not terminated(obj):
                self._comes(obj, start_ms)

    def follow(self, step: RevisionStep) -> None:
        at = max(step.at_ms, self._start)
        self.last_ms = max(self.last_ms, at)
        there: list[tuple[str, Pod | None, Pod]] = []
        for kind, key, obj in step.changes:
            before = self._objects.pop((kind, key), None)
            if obj is not None:
                self._objects[kind, key] = obj
            if kind == "Pod":
                assert before is None or isinstance(before, Pod)
                assert obj is None or isinstance(obj, Pod)
                if before is not None and self._has_gone(key, before, obj, at):
                    before = None
                if obj is not None:
                    there.append((key, before, obj))
            elif not _only_status(before, obj):
                self.events.append(TraceEvent(at_ms=at, change=(kind, key, obj)))
        # After those that went or are leaving: one revision may hold a pod and what replaces it.
        for key, pod_before, pod in there:
            self._is_there(key, pod_before, pod, at)

    def known(self) -> Iterator[KnownRuntime]:
        for seen in self._seen:
            yield KnownRuntime(
                pod=seen.pod,
                arrives_ms=seen.arrives_ms,
                ends_ms=seen.ends_ms,
                ran_from_ms=seen.ran_from_ms,
                truth=True,
            )

    def _has_gone(self, key: str, before: Pod, after: Pod | None, at: int) -> bool:
        """Is the pod not there any more, even if another one has its name?"""
        if after is None or before.metadata.uid != after.metadata.uid:
            self._goes(key, before, at)
            return True
        if after.metadata.deletion_timestamp and preempted(after):
            self._goes(key, after, at)
        return False

    def _is_there(self, key: str, before: Pod | None, after: Pod, at: int) -> None:
        if before is None:
            workload = workload_of(after)
            if self._expected[workload]:
                self._by_key[key] = self._expected[workload].popleft()
            elif not terminated(after) or self._came_and_ended(after, at):
                self._comes(after, at)
        seen = self._by_key.get(key)
        if seen is None or seen.ends_ms is not None:
            return
        if after.spec.node_name and (before is None or not before.spec.node_name):
            seen.ran_from_ms = self._began(after, seen, at)
        if terminated(after):
            seen.ends_ms = at

    def _came_and_ended(self, pod: Pod, at: int) -> bool:
        """Did it all happen since the start, and between two revisions?"""
        created = times.parse_optional(pod.metadata.creation_timestamp)
        return bool(pod.spec.node_name) and self._start < created <= at

    def _began(self, pod: Pod, seen: _Seen, at: int) -> int:
        """When the run began; a dump may show it long after."""
        started = times.parse_optional(pod.status.start_time)
        return started if seen.arrives_ms <= started <= at else at

    def _comes(self, pod: Pod, at: int) -> None:
        runs = bool(pod.spec.node_name) and at == self._start
        created = times.parse_optional(pod.metadata.creation_timestamp)
        arrives = created if self._start <= created <= at else at
        seen = _Seen(pod=self._once(pod if runs else _pending(pod)), arrives_ms=arrives)
        self._seen.append(seen)
        self._by_key[key_of(pod)] = seen

    def _once(self, pod: Pod) -> Pod:
        """The pod under a name that no other pod of the trace has, and with a uid."""
        key = key_of(pod)
        self._names[key] += 1
        number = self._names[key]
        meta = pod.metadata
        if number > 1:
            meta = replace(meta, name=f"{meta.name}{LIFE}{number}", uid="")
        return replace(pod, metadata=replace(meta, uid=meta.uid or f"{key}/{number}"))

    def _goes(self, key: str, pod: Pod, at: int) -> None:
        seen = self._by_key.pop(key, None)
        if seen is None or seen.ends_ms is not None:
            return
        # One that was leaving at the start is gone then, and what replaces it is another pod.
        if preempted(pod) and not seen.pod.metadata.deletion_timestamp:
            self._expected[workload_of(pod)].append(seen)
        else:
            seen.ends_ms = at


def _pending(pod: Pod) -> Pod:
    """The pod as it came, before any scheduler saw it."""
    return replace(
        pod,
        metadata=replace(pod.metadata, deletion_timestamp=None),
        spec=replace(pod.spec, node_name=""),
        status=PodStatus(phase="Pending", qos_class=pod.status.qos_class),
    )


def _only_status(before: ClusterObject | None, after: ClusterObject | None) -> bool:
    """Is only the status of a budget or pod group another one? The simulation sets that itself."""
    for kind in (PodDisruptionBudget, SchedulingPodGroup):
        if isinstance(before, kind) and isinstance(after, kind):
            return before.spec == after.spec and before.metadata == after.metadata
    return False
