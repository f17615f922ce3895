"""What the pods of a node hold of its resources, as bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from policy.cluster.objects import Node, Pod
from policy.cluster.requests import amounts, pod_requests

WIDTH: Final = 600
"""Units of a bar that is full."""

_PODS: Final = "pods"
_GIB: Final = 1 << 30


def resources(node: Node, pods: Sequence[Pod]) -> list[dict[str, Any]]:
    """A bar for each resource of the node: what each pod requests, in the order of the pods."""
    holds = [{**pod_requests(pod, on_node=True), _PODS: 1} for pod in pods]
    return [
        _bar(name, room, pods, holds)
        for name, room in sorted(amounts(node.status.allocatable).items())
        if room
    ]


def _bar(
    name: str, room: int, pods: Sequence[Pod], holds: Sequence[Mapping[str, int]]
) -> dict[str, Any]:
    used = sum(held.get(name, 0) for held in holds)
    # Where more is requested than there is, the whole bar is what is requested.
    whole = max(room, used)
    parts, start = [], 0
    for pod, held in zip(pods, holds, strict=True):
        amount = held.get(name, 0)
        if amount:
            parts.append(
                {
                    "x": round(start * WIDTH / whole, 1),
                    "width": round(amount * WIDTH / whole, 1),
                    "pod": f"{pod.metadata.namespace}/{pod.metadata.name}",
                    "amount": words(name, amount),
                }
            )
        start += amount
    return {
        "name": name,
        "used": words(name, used),
        "room": words(name, room),
        "free": words(name, room - used),
        "parts": parts,
        "end": round(room * WIDTH / whole, 1),
    }


def words(name: str, amount: int) -> str:
    """An amount in the unit in which people give it."""
    if name == "cpu":
        return f"{amount / 1000:g}"
    if name in ("memory", "ephemeral-storage") or name.startswith("hugepages-"):
        return f"{amount / _GIB:.3g} GiB"
    return str(amount)
