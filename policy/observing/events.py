"""Event objects of both API groups, and what those about preemptions say.

| kube-scheduler | text of reason `Preempted` |
| --- | --- |
| 1.8 to 1.16 | `by NAMESPACE/NAME on node NODE` |
| 1.17 to 1.25 | `Preempted by NAMESPACE/NAME on node NODE` |
| 1.26 to 1.28 | `Preempted by a pod on node NODE` |
| 1.29 on | `Preempted by pod UID on node NODE` |
| 1.36 on, of a pod group | `Preempted by podgroup UID on node cluster` |

`events.k8s.io` has the victim in `regarding` and the preemptor in `related`; core/v1 shows the
same event with `involvedObject`, and `related` from 1.17 on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from policy.cluster import times
from policy.typed import prepared

PREEMPTED: Final = "Preempted"
"""`reason` of the events that a scheduler writes about its victims."""

_TEXT: Final = re.compile(
    r"(?:Preempted )?by (?:(?P<kind>pod|podgroup) (?P<uid>[^\s/]+)|(?P<nameless>a pod)"
    r"|(?P<namespace>[^\s/]+)/(?P<name>[^\s/]+)) on node (?P<node>\S+)\.?"
)


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class ObjectReference(_Part, frozen=True):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @property
    def key(self) -> str:
        return f"{self.namespace or 'default'}/{self.name}" if self.name else ""


class EventMeta(_Part, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None


class EventSource(_Part, frozen=True):
    component: str = ""


class Event(_Part, frozen=True):
    """An Event of core/v1 or `events.k8s.io`; each field under the names of both."""

    metadata: EventMeta = msgspec.field(default_factory=EventMeta)
    reason: str = ""
    note: str = ""
    message: str = ""
    regarding: ObjectReference | None = None
    involved_object: ObjectReference | None = None
    related: ObjectReference | None = None
    reporting_controller: str = ""
    reporting_component: str = ""
    source: EventSource | None = None
    deprecated_source: EventSource | None = None
    event_time: str | None = None
    first_timestamp: str | None = None
    deprecated_first_timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one event says: this pod was preempted by that one, on this node."""

    victim: str  #: namespace/name
    victim_uid: str
    preemptor: str  #: namespace/name; "" where the event names a uid only, or nothing
    preemptor_uid: str  #: "" where the event does not say it
    preemptor_kind: str  #: `Pod` or `PodGroup`
    node: str  #: `cluster` for a pod group, which preempts on several
    scheduler: str
    at_ms: int | None  #: when it was preempted, as the event says; None where it does not
    event_uid: str  #: the event's name where it has no uid
    resource_version: int  #: of the event; 0 where it is unknown


class EventError(ValueError):
    """An event whose fields have other types than the API's."""


def claim_of(value: Mapping[str, Any]) -> Claim | None:
    """What an Event object says about a preemption; None where it is about something else.

    Raises EventError for one that is about a preemption and cannot be read.
    """
    if value.get("reason") != PREEMPTED:
        return None
    try:
        event = msgspec.convert(value, prepared(Event))
        at_ms = _time(event)
    except (msgspec.ValidationError, times.TimeError) as exc:
        raise EventError(str(exc)) from exc
    regarding = event.regarding or event.involved_object
    if regarding is None or not regarding.name or regarding.kind not in ("Pod", ""):
        return None  # other programs use the word too: Kueue of its workloads, for example
    text = _TEXT.fullmatch((event.note or event.message).strip())
    if text is None:
        return None
    related = event.related or ObjectReference()
    named = f"{text['namespace']}/{text['name']}" if text["name"] else ""
    group = text["kind"] == "podgroup"
    return Claim(
        victim=regarding.key,
        victim_uid=regarding.uid,
        preemptor=related.key or named,
        preemptor_uid=related.uid or text["uid"] or "",
        preemptor_kind="PodGroup" if group or related.kind == "PodGroup" else "Pod",
        node=text["node"],
        scheduler=_scheduler(event),
        at_ms=at_ms,
        event_uid=event.metadata.uid or f"{event.metadata.namespace}/{event.metadata.name}",
        resource_version=version_of(event.metadata.resource_version),
    )


def version_of(value: object) -> int:
    """A resourceVersion as a number of its API server's one counter; 0 where it is none.

    It is text in every API; what other programs have made a JSON number of means the same.
    """
    text = str(value) if type(value) in (str, int) else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _scheduler(event: Event) -> str:
    source = event.source or event.deprecated_source
    named = event.reporting_controller or event.reporting_component
    return named or (source.component if source is not None else "")


def _time(event: Event) -> int | None:
    for text in (
        event.event_time,
        event.first_timestamp,
        event.deprecated_first_timestamp,
        event.metadata.creation_timestamp,
    ):
        if text:
            return times.parse(text)
    return None
