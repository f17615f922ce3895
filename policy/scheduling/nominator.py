"""Which pods are nominated to which node, as the scheduler remembers it between cycles."""

from __future__ import annotations

from collections.abc import Iterator


class Nominator:
    """Pod -> the node that it is nominated to.

    The memory of the scheduler is ahead of the API server: a nomination stands here as soon as it
    is decided, and an update that does not mention it does not take it away.
    """

    def __init__(self) -> None:
        self._node: dict[str, str] = {}

    def add(self, pod: str, *, node: str = "", status_node: str = "") -> None:
        """Nominate the pod to `node`, else to the node its status names, else not at all."""
        self.delete(pod)
        chosen = node or status_node
        if chosen:
            self._node[pod] = chosen

    def delete(self, pod: str) -> None:
        self._node.pop(pod, None)

    def update(self, pod: str, *, status_node: str, was_status_node: str) -> None:
        """The pod changed.

        A nomination that only this memory holds is kept where neither the old nor the new status
        names a node: the update then says nothing about it.
        """
        kept = self._node.get(pod, "") if not status_node and not was_status_node else ""
        self.add(pod, node=kept, status_node=status_node)

    def node_of(self, pod: str) -> str:
        """The node the pod is nominated to, "" without one."""
        return self._node.get(pod, "")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """(pod, node) pairs."""
        return iter(self._node.items())
