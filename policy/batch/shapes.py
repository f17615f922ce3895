"""The distinct requests of a session's pods.

Pods of a gang ask for the same: what their containers ask for is read and added up once, and sums
over many tasks take the amounts of all shapes and count them out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from policy.batch.resources import Amounts, Floats, Resource, pod_requests
from policy.cluster.objects import Container, Pod
from policy.cluster.tables import Bools, Ints


class Shapes:
    """What pods ask for; pods with equal containers, as far as requests go, have one shape."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self.requests: list[Resource] = []  #: accounted for; never changed
        self.start_requests: list[Resource] = []  #: must fit; never changed
        self.pods: list[Pod] = []  #: one of each shape

    def of(self, pod: Pod) -> int:
        """The index of the pod's shape."""
        key = _key(pod)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.pods)
            request, start_request = pod_requests(pod)
            self.requests.append(request)
            self.start_requests.append(start_request)
            self.pods.append(pod)
        return found

    def amounts(self, name: str) -> Floats:
        """Requests of one resource, 0 where it is not named; shape (shapes,)."""
        return np.array([request.get(name) for request in self.requests], dtype=np.float64)

    @property
    def named(self) -> Bools:
        """Whether a shape names any scalar; shape (shapes,)."""
        return np.array([bool(request.scalars) for request in self.requests], dtype=np.bool_)

    def sums(self, where: Ints, shape: Ints, *, size: int, names: Iterable[str]) -> Amounts:
        """Requests of some tasks in sum. Exact: all amounts are whole numbers.

        where: (n,) what each task counts for, for example its node; shape: (n,) its shape.
        Returns amounts of `size` nodes, or whatever is meant.
        """
        found = Amounts.zeros(size, names)
        for name, column in found.columns():
            column += np.bincount(where, self.amounts(name)[shape], size)
        found.named[where[self.named[shape]]] = True
        return found


def _key(pod: Pod) -> Hashable:
    containers, first = pod.spec.containers or (), pod.spec.init_containers
    if len(containers) == 1 and not first:
        return _asked(containers[0])
    return _all(containers), _all(first or ())


def _all(containers: Sequence[Container]) -> tuple[Hashable, ...]:
    return tuple(_asked(container) for container in containers)


def _asked(container: Container) -> Hashable:
    resources = container.resources
    return tuple(resources.requests.items()) if resources and resources.requests else ()
