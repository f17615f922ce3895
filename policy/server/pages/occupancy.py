"""What the pods of a node hold of its resources, as bars."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from policy.cluster.objects import Node, Pod
from policy.cluster.requests import amounts, pod_requests

WIDTH: Final = 600
"""Units of a bar that is full."""

_PODS: Final = "pods"
_GIB: Final = 1 << 30


def resources(node: Node, pods: Sequence[Pod]) -> list[dict[str, Any]]:
    """A bar for each resource of the node: what each pod requests, in the order of the pods."""
    names = [f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods]
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
    for pod, amount, kind in parts:
        drawn.append(
            {
                "x": round(start * WIDTH / whole, 1),
                "width": round(amount * WIDTH / whole, 1),
                "pod": pod,
                "amount": words(name, amount),
                "kind": kind,
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


def words(name: str, amount: int) -> str:
    """An amount in the unit in which people give it."""
    if name == "cpu":
        return f"{amount / 1000:g}"
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        return f"{amount / _GIB:.3g} GiB"
    return str(amount)
