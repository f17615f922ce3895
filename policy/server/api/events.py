"""Server-sent events: new decisions, cycles of pod groups and batch sessions, as they are recorded.

Numbers of decisions come from one sequence, but two clusters' transactions may end in another order
than they took their numbers: what has a smaller number may be seen later. Within one cluster they
are seen in their order, for whoever records holds the cluster's lock. So how far a stream has come
is said by cluster.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import msgspec

from policy.server import batch_sessions, cycles, views
from policy.server.api.looks import Look, Looks
from policy.server.http import Failure
from policy.server.security.access import Principal
from policy.server.security.numbers import Numbered
from policy.server.service import PolicyService
from policy.store import Unavailable

_KEEP_ALIVE_SECONDS: Final = 15.0
_AT_ONCE: Final = 100
"""Events of a kind that are read at once."""
_NUMBER: Final = "[0-9]{1,18}"
_EVENT_ID: Final = re.compile(rf"{_NUMBER}(-{_NUMBER})?(,[A-Za-z0-9_.~%-]+:{_NUMBER}-{_NUMBER})*")


class Position(NamedTuple):
    """The newest decision that was seen, and the newest cycle of a pod group or batch session.

    Numbers are as the viewer sees them; 0 for none.
    """

    decision: int
    session: int

    def __str__(self) -> str:
        return f"{self.decision}-{self.session}"


@dataclass
class Positions:
    """How far a stream has come, by cluster; `others` in those that are not named.

    Clusters are named once something of them was seen: a viewer learns of no other one.
    """

    others: Position
    of: dict[str, Position] = field(default_factory=dict)

    def __getitem__(self, cluster: str) -> Position:
        return self.of.get(cluster, self.others)

    def event_id(self) -> str:
        """As `Last-Event-ID` takes it: `12-3,default:15-3`."""
        named = (f"{quote(name, safe='')}:{position}" for name, position in self.of.items())
        return ",".join([str(self.others), *named])


def positions(service: PolicyService, principal: Principal, given: str) -> Positions:
    """Where a stream begins that goes on behind the event `given`; "" for the present.

    What an id does not say is that of the present. A number that is none of a limited viewer's own,
    also one of others and one that was removed meanwhile, is before all. Raises Failure.
    """
    if given and not _EVENT_ID.fullmatch(given):
        raise _no_event()
    first, *named = given.split(",")
    numbers = [int(number) for number in first.split("-") if number]
    if len(numbers) == 2:
        begun = Positions(Position(*numbers))
    else:
        begun = Positions(Position(*numbers, *[0] * (2 - len(numbers))), _now(service, principal))
        if numbers:
            begun.of = {c: at._replace(decision=numbers[0]) for c, at in begun.of.items()}
    for one in named:
        cluster, _, at = one.rpartition(":")
        decision, session = map(int, at.split("-"))
        begun.of[unquote(cluster)] = Position(decision, session)
    if principal.limited:
        known = {at: _known(service, principal, at) for at in (begun.others, *begun.of.values())}
        begun = Positions(known[begun.others], {name: known[at] for name, at in begun.of.items()})
    return begun


def _known(service: PolicyService, principal: Principal, given: Position) -> Position:
    """Raises Failure for what no viewer is shown as a number."""
    found = []
    for of, number in zip((Numbered.DECISION, Numbered.SESSION), given, strict=True):
        actual = principal.actual(of, number) if number else 0
        if actual is None:
            raise _no_event()
        there = actual and views.knows(service, principal, of, actual)
        found.append(number if there else 0)
    return Position(*found)


def _no_event() -> Failure:
    return Failure(
        400,
        "invalid",
        "`Last-Event-ID` is not the id of an event, like `12-3` or `0-0,default:12-3`",
    )


def _now(service: PolicyService, principal: Principal) -> dict[str, Position]:
    """The newest that the viewer may know of, by cluster; clusters without any are left out."""
    found = {}
    for cluster in service.store.state.cluster_names():
        _, lines = views.decisions(service, principal, {"cluster": cluster}, limit=1)
        held = [read(service, principal, {"cluster": cluster}, limit=1) for _, read in _SESSIONS]
        newest = max(((rows[0].id, told[0]["id"]) for rows, told in held if rows), default=(0, 0))
        if lines or newest[1]:
            found[cluster] = Position(lines[0]["id"] if lines else 0, newest[1])
    return found


_SESSIONS: Final = (("group", cycles.cycles), ("session", batch_sessions.sessions))
"""Events that are numbered together, and what reads each kind."""


async def events(
    service: PolicyService,
    principal: Principal,
    seen: Positions,
    *,
    looks: Looks,
    still: Callable[[], bool],
) -> AsyncIterator[bytes]:
    """Server-sent events behind `seen`; polled, so that what other processes record is seen too.

    They end when the service does, and where it is no longer `still` for the viewer to see them.
    While the database is away there is nothing new.
    """
    yield b": decisions, cycles of pod groups and batch sessions follow\n\n"
    looked: dict[str, int] = {}
    look: Look | None = None
    full = False
    quiet = 0.0
    while not service.stopping.is_set() and still():
        any_new = False
        try:
            if look is None or not full:  # what is left of a look is read before the next one
                look = await looks.after(look)
            full = False
            for head in look.heads:
                if looked.get(head.cluster) == head.sequence:
                    continue
                at = seen[head.cluster]
                read = partial(_behind, service, principal, head.cluster, at)
                found, whole = await look.reading((principal.view, head.cluster, at), read)
                if not still():
                    return
                together = []
                for name, position, line in found:
                    seen.of[head.cluster] = position
                    together.append(_event(name, seen, line))
                if together:
                    # One part: written one by one to a client that has just left, each would be a
                    # line of the log.
                    any_new = True
                    yield b"".join(together)
                if whole:
                    looked[head.cluster] = head.sequence
                else:
                    full = True
        except Unavailable:
            full = False  # what is missing is read with the next look, once the database is back
        if full or any_new:
            quiet = 0.0
        elif (quiet := quiet + service.config.poll_seconds) >= _KEEP_ALIVE_SECONDS:
            quiet = 0.0
            yield b": still here\n\n"


def _behind(
    service: PolicyService, principal: Principal, cluster: str, at: Position
) -> tuple[Sequence[tuple[str, Position, bytes]], bool]:
    """What is new in a cluster, as JSON with the position behind it, and whether that is all."""
    found: list[tuple[str, Position, bytes]] = []
    rows, lines = views.decisions(
        service, principal, {"cluster": cluster, "after_id": at.decision}, limit=_AT_ONCE
    )
    for line in lines:
        at = at._replace(decision=line["id"])
        found.append(("decision", at, msgspec.json.encode(line)))
    held, whole = _sessions(service, principal, cluster, after_id=at.session)
    for name, session in held:
        at = at._replace(session=session["id"])
        found.append((name, at, msgspec.json.encode(session)))
    return found, whole and len(rows) < _AT_ONCE


def _sessions(
    service: PolicyService, principal: Principal, cluster: str, *, after_id: int
) -> tuple[list[tuple[str, Mapping[str, Any]]], bool]:
    """Cycles and batch sessions in the order of their numbers, and whether that is all."""
    wanted = {"cluster": cluster, "after_id": after_id}
    found: list[tuple[int, str, Mapping[str, Any]]] = []
    ends: list[int] = []
    for name, read in _SESSIONS:
        rows, lines = read(service, principal, wanted, limit=_AT_ONCE)
        found += ((row.id, name, line) for row, line in zip(rows, lines, strict=True))
        if len(rows) == _AT_ONCE:
            ends.append(rows[-1].id)
    found.sort(key=itemgetter(0))
    # Behind the end of what is not read whole, those of the other kind come next time.
    end = min(ends, default=None)
    return [(name, line) for at, name, line in found if end is None or at <= end], not ends


def _event(name: str, seen: Positions, line: bytes) -> bytes:
    told = (seen.event_id().encode(), name.encode(), line)
    return b"id: %s\nevent: %s\ndata: %s\n\n" % told
