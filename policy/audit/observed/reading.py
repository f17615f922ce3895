"""What dumps and recorded watches show of a cluster: its changes in turn, and preemptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, Pod, key_of, kind_of
from policy.manifests.collected import SeenClaim, StreamEntry
from policy.observing.cutting import SeenChange, in_server_order, segments
from policy.observing.model import Preemption, marked_at, nominated_to
from policy.observing.observer import Observer


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was read of a cluster."""

    listed: Sequence[ClusterObject]  #: as lists have it
    entries: Sequence[StreamEntry]  #: what watches changed of that
    claims: Sequence[SeenClaim]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What follows from it."""

    segments: Sequence[Sequence[Change]] = ()  #: of the watches; each is to be one revision
    preemptions: Sequence[Preemption] = field(default=())


def shows_preemptions(seen: Seen) -> bool:
    """Whether there may be a preemption in it, which is worth reading the stored state for."""
    return bool(seen.entries or seen.claims) or any(
        marked_at(obj) is not None or nominated_to(obj) for obj in seen.listed if type(obj) is Pod
    )


def observe(
    seen: Seen,
    stored: Iterable[ClusterObject],
    *,
    at_ms: int,
    known_events: Iterable[str] = (),
) -> Observed:
    """The revisions and preemptions in what was read; stored: the state before it.

    at_ms: when it was read; known_events: uids of events that were observed before.
    """
    pods: list[Pod] = []
    observer = Observer(recorded_events=known_events, pods=lambda: pods)
    state: dict[tuple[str, str], ClusterObject] = {(kind_of(o), key_of(o)): o for o in stored}
    for obj in seen.listed:
        at = (kind_of(obj), key_of(obj))
        if type(obj) is Pod:
            before = state.get(at)
            observer.pod(before if type(before) is Pod else None, obj, version=0, at_ms=at_ms)
        state[at] = obj
    changes = _changes(state, seen.entries, at_ms)
    for change in changes:
        if change.kind == "Pod":
            observer.pod(
                _pod(change.before),
                _pod(change.after),
                version=change.resource_version,
                at_ms=change.at_ms,
            )
    shown = (*state.values(), *(change.after for change in changes))
    pods += [obj for obj in shown if type(obj) is Pod]
    for one in seen.claims:
        observer.event(one.claim, at_ms=at_ms if one.received_ms is None else one.received_ms)
    return Observed(
        segments=[
            [(change.kind, change.key, change.after) for change in stretch]
            for stretch in segments(changes)
        ],
        preemptions=observer.conclude(),
    )


def _changes(
    state: Mapping[tuple[str, str], ClusterObject], entries: Sequence[StreamEntry], at_ms: int
) -> list[SeenChange]:
    """The entries in their server's order, each with what was before it."""
    known = dict(state)
    loose = [
        SeenChange(
            kind=entry.kind,
            key=entry.key,
            before=None,
            after=entry.obj,
            resource_version=entry.resource_version,
            at_ms=at_ms if entry.received_ms is None else entry.received_ms,
        )
        for entry in entries
    ]
    found = []
    for one in in_server_order(loose):
        at = (one.kind, one.key)
        before = known.pop(at, None)
        if one.after is not None:
            known[at] = one.after
        found.append(replace(one, before=before))
    return found


def _pod(obj: ClusterObject | None) -> Pod | None:
    return obj if type(obj) is Pod else None
