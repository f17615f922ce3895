"""The node of a decision before and after it, as bars and as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from policy.audit.node_change import Fate, NodeChange, NodePod
from policy.server.pages.occupancy import bar, words

FATES: Final = {
    Fate.STAYS: "stays",
    Fate.LEAVING: "stays for now: it is being deleted already",
    Fate.LEAVES: "leaves",
    Fate.COMES: "comes",
    Fate.NOMINATED: "is nominated to the node, and waits for room",
    Fate.LOSES_NOMINATION: "loses its nomination to the node",
}
"""What becomes of a pod, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeBars:
    """What the template draws."""

    revision: int
    resources: list[dict[str, Any]]  #: each with a bar `before` and one `after`, of one scale
    rows: list[dict[str, Any]]  #: the same for those who read: pods with what they ask for


def node_bars(change: NodeChange) -> NodeBars:
    """A pair of bars for each resource of which the node has any."""
    return NodeBars(
        revision=change.revision,
        resources=[_pair(change, name, room) for name, room in change.allocatable.items()],
        rows=[
            {
                "pod": one.pod,
                "priority": one.priority,
                "owner": one.owner,
                "fate": one.fate.value,
                "words": FATES[one.fate],
                "requests": [words(name, one.requests.get(name, 0)) for name in change.allocatable],
            }
            for one in change.pods
        ],
    )


def _pair(change: NodeChange, name: str, room: int) -> dict[str, Any]:
    scale = max(change.requested_before(name), change.requested_after(name))
    before = [_part(one, name) for one in change.pods if one.fate.before]
    after = [_part(one, name) for one in change.pods if one.fate.after]
    return {
        "name": name,
        "room": words(name, room),
        "before": bar(name, room, before, scale=scale),
        "after": bar(name, room, after, scale=scale),
    }


def _part(one: NodePod, name: str) -> tuple[str, int, str]:
    return f"{one.pod} ({FATES[one.fate]})", one.requests.get(name, 0), one.fate.value
