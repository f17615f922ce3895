"""What the pods of a node hold of its resources, as bars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Final

from policy.cluster.objects import Node, Pod, key_of
from policy.cluster.requests import amounts, pod_requests
from policy.text.words import rounded

WIDTH: Final = 600
"""Units of a bar that is full."""
NARROW: Final = 8
"""Units, some 4 pixels in a small window: an edge would cover most of a part that is narrower."""

_PODS: Final = "pods"
_GIB: Final = 1 << 30


def resources(node: Node, pods: Sequence[Pod]) -> list[dict[str, Any]]:
    """A bar for each resource of the node: what each pod requests, in the order of the pods."""
    names = [key_of(pod) for pod in pods]
    holds = [{**pod_requests(pod, on_node=True), _PODS: 1} for pod in pods]
    return [
        bar(
            name,
            room,
            [(pod, held.get(name, 0), "") for pod, held in zip(names, holds, strict=True)],
        )
        for name, room in _rooms(node, holds)
    ]


def _rooms(node: Node, holds: Sequence[Mapping[str, int]]) -> list[tuple[str, int]]:
    """What the node has of each resource, where it has any or its pods hold some all the same."""
    has = amounts(node.status.allocatable)
    held = {name for one in holds for name, amount in one.items() if amount}
    rooms = {name: has.get(name, 0) for name in sorted({*has, *held})}
    return [(name, room) for name, room in rooms.items() if room or name in held]


def bar(
    name: str, room: int, held: Iterable[tuple[str, int, str]], *, scale: int = 0
) -> dict[str, Any]:
    """One resource: what each holds of it, one after the other.

    held: pod, amount, and the class that its part of the bar is drawn with. scale: what the whole
    bar stands for at least, for bars that are compared.
    """
    parts = [(pod, amount, kind) for pod, amount, kind in held if amount]
    used = sum(amount for _, amount, _ in parts)
    # Where more is requested than there is, the whole bar is what is requested.
    whole = max(room, used, scale)
    drawn, start = [], 0
    for pods, amount, kind in _joined(parts, least=NARROW * whole / WIDTH):
        width = amount * WIDTH / whole
        drawn.append(
            {
                "x": round(start * WIDTH / whole, 1),
                "width": round(width, 1),
                "pods": pods,
                "amount": words(name, amount),
                "kind": kind,
                "narrow": width < NARROW,
            }
        )
        start += amount
    return {
        "name": name,
        "used": words(name, used),
        "room": words(name, room),
        "over": used > room,
        "left": f"over by {words(name, used - room)}"
        if used > room
        else f"{words(name, room - used)} free",
        "parts": drawn,
        "end": round(room * WIDTH / whole, 1),
        "beyond": round(max(0, used - room) * WIDTH / whole, 1),
    }


def _joined(
    parts: Iterable[tuple[str, int, str]], *, least: float
) -> Iterator[tuple[str, int, str]]:
    """The same with neighbours of one kind as one where each is smaller than `least`."""
    for (kind, small), run in groupby(parts, key=lambda part: (part[2], part[1] < least)):
        some = list(run)
        if small and len(some) > 1:
            ends = f"{len(some)} pods, from {some[0][0]} to {some[-1][0]}"
            yield ends, sum(amount for _, amount, _ in some), kind
        else:
            yield from some


def words(name: str, amount: int) -> str:
    """An amount in the unit in which people give it."""
    if name == "cpu":
        return f"{amount / 1000:g}"
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        return f"{rounded(amount / _GIB, 3)} GiB"
    return str(amount)
