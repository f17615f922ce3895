"""The objects of a followed cluster, as its lists and watches have shown them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from policy.cluster.objects import ClusterObject, Node, Pod, key_of, kind_of
from policy.live.resources import EVENT
from policy.live.watching import Changed, Listed
from policy.observing.cutting import SeenChange, in_server_order


class Mirror:
    """What is known; what differs from it is a change."""

    def __init__(self) -> None:
        self._objects: dict[str, dict[str, ClusterObject]] = {}

    def load(self, objects: Iterable[ClusterObject]) -> None:
        """What is known from before."""
        for obj in objects:
            self._objects.setdefault(kind_of(obj), {})[key_of(obj)] = obj

    def everything(self) -> Iterator[ClusterObject]:
        return chain.from_iterable(known.values() for known in self._objects.values())

    def pods(self) -> list[Pod]:
        return [pod for pod in self._objects.get("Pod", {}).values() if type(pod) is Pod]

    def pod(self, key: str) -> Pod | None:
        pod = self._objects.get("Pod", {}).get(key)
        return pod if type(pod) is Pod else None

    def nodes(self) -> list[Node]:
        return [node for node in self._objects.get("Node", {}).values() if type(node) is Node]

    def differences(self, news: Listed) -> list[SeenChange]:
        """What a list says that is not known: new, changed and vanished objects."""
        if news.kind == EVENT:
            return []
        known = self._objects.get(news.kind, {})
        listed = {key_of(obj): obj for obj in news.objects}
        changes = [
            self._change(news.kind, key, obj, 0, news.received_ms)
            for key, obj in listed.items()
            if known.get(key) != obj
        ]
        changes += [
            self._change(news.kind, key, None, 0, news.received_ms)
            for key in known.keys() - listed.keys()
        ]
        return changes

    def changes(self, news: Sequence[Changed]) -> list[SeenChange]:
        """What watches say that is not known, in the order of the server's counter."""
        loose = [
            SeenChange(
                kind=one.kind,
                key=one.key,
                before=None,
                after=one.after,
                resource_version=one.version,
                at_ms=one.received_ms,
            )
            for one in news
            if one.claim is None
        ]
        return [
            self._change(one.kind, one.key, one.after, one.resource_version, one.at_ms)
            for one in in_server_order(loose)
            if self._objects.get(one.kind, {}).get(one.key) != one.after
        ]

    def _change(
        self, kind: str, key: str, after: ClusterObject | None, version: int, at_ms: int
    ) -> SeenChange:
        """The change, which is known from now on."""
        known = self._objects.setdefault(kind, {})
        before = known.pop(key, None)
        if after is not None:
            known[key] = after
        return SeenChange(
            kind=kind,
            key=key,
            before=before,
            after=after,
            resource_version=version,
            at_ms=at_ms,
        )
