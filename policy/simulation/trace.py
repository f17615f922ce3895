"""A trace: a cluster, the pods that come to it, how long they work, and what else changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from policy.cluster import canonical
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, Pod, encode, key_of, kind_of
from policy.text.words import number


@dataclass(frozen=True, slots=True, kw_only=True)
class TracePod:
    """A pod of a trace, and what is known of its work."""

    pod: Pod  #: as it comes; with its node where it runs at the start
    arrives_ms: int  #: milliseconds since 1970 UTC; not before the start of the trace
    work_ms: int | None  #: how long it works when nothing interrupts it; None: to the very end
    left_ms: int | None = None  #: what of it is left, for a pod that runs at the start
    withdrawn_ms: int | None = None  #: its user takes it away then, whether it runs or not
    censored: bool = False  #: the trace ends before the pod does, and `work_ms` is estimated

    @property
    def key(self) -> str:
        """namespace/name"""
        return key_of(self.pod)

    @property
    def running(self) -> bool:
        """Does the pod have a node at the start?"""
        return bool(self.pod.spec.node_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceEvent:
    """Something other than a pod that changes while the trace runs."""

    at_ms: int
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Everything that a simulation reads, beside rules and options."""

    name: str
    start_ms: int
    end_ms: int  #: the last instant that the trace speaks of
    objects: Sequence[ClusterObject] = field(repr=False)  #: nodes, budgets, classes: no pods
    tasks: Sequence[TracePod] = field(repr=False)  #: by arrival, then as they were read
    events: Sequence[TraceEvent] = field(default=(), repr=False)
    notes: Sequence[str] = ()  #: what was filled in or left out, in words

    FORMAT: ClassVar[int] = 1

    @property
    def digest(self) -> str:
        """`sha256:` and the SHA-256 of everything in the trace but its name and notes."""
        return canonical.digest(
            [
                self.FORMAT,
                self.start_ms,
                self.end_ms,
                sorted(encode(o).decode() for o in self.objects),
                [
                    [encode(t.pod).decode(), t.arrives_ms, t.work_ms, t.left_ms, t.withdrawn_ms]
                    for t in self.tasks
                ],
                [[e.at_ms, e.change[0], e.change[1], _text(e.change[2])] for e in self.events],
            ]
        )


def with_objects(trace: Trace, others: Sequence[ClusterObject]) -> Trace:
    """The trace with other objects, no pods, in place of all that it has of their kinds.

    What the trace says later of one of these kinds is left out with it.
    """
    kinds = {kind_of(o) for o in others}
    if not kinds:
        return trace
    events = [event for event in trace.events if event.change[0] not in kinds]
    left = len(trace.events) - len(events)
    note = (
        f"{number(left, 'change')} of the trace left out, as other objects replace those of"
        f" {'their kinds' if len(kinds) > 1 else 'their kind'}"
    )
    return replace(
        trace,
        objects=[*(o for o in trace.objects if kind_of(o) not in kinds), *others],
        events=events,
        notes=[*trace.notes, *([note] if left else [])],
    )


class TraceError(Exception):
    """What is wrong with a trace, with the place where it is."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help

    def __reduce__(self) -> tuple[type[TraceError], tuple[str], dict[str, str]]:
        return type(self), (str(self),), {"help": self.help}


def _text(obj: ClusterObject | None) -> str | None:
    return None if obj is None else encode(obj).decode()
