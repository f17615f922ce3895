"""Resource arithmetic as kube-batch does it: float64, with tolerances, and scalars that may be nil.

A resource whose scalars were never named (None) is not the same as one with zeros: comparisons
tell them apart, and shares follow from comparisons. Where the original ends the process because a
subtraction does not fit, `sub` carries on and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster import quantities
from policy.cluster.objects import Container, Pod, Quantity
from policy.cluster.requests import CPU, MEMORY, is_scalar
from policy.cluster.tables import Bools, Ints

Floats = NDArray[np.float64]

CPU_EPSILON: Final = 10.0  #: milli cpu
MEMORY_EPSILON: Final = 10.0 * 1024 * 1024
SCALAR_EPSILON: Final = 10.0  #: milli units

_EVERY: Final = slice(None)


class Resource:
    """Milli cpu, bytes of memory, and scalars in milli units.

    Mutable, as running sums are; `copy` before changing what is shared.
    """

    __slots__ = ("cpu", "memory", "scalars")

    def __init__(
        self, cpu: float = 0.0, memory: float = 0.0, scalars: dict[str, float] | None = None
    ) -> None:
        self.cpu = cpu
        self.memory = memory
        self.scalars = scalars

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Resource):
            return NotImplemented
        return (self.cpu, self.memory, self.scalars) == (other.cpu, other.memory, other.scalars)

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"Resource({self.cpu!r}, {self.memory!r}, {self.scalars!r})"

    def copy(self) -> Resource:
        return Resource(self.cpu, self.memory, None if self.scalars is None else dict(self.scalars))

    def get(self, name: str) -> float:
        """The amount of one resource; 0 where it is not named."""
        if name == CPU:
            return self.cpu
        if name == MEMORY:
            return self.memory
        return (self.scalars or {}).get(name, 0.0)

    def names(self) -> Iterator[str]:
        yield CPU
        yield MEMORY
        yield from self.scalars or ()

    def amounts(self) -> dict[str, float]:
        return {CPU: self.cpu, MEMORY: self.memory, **(self.scalars or {})}

    # --- comparing -----------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        return (
            self.cpu < CPU_EPSILON
            and self.memory < MEMORY_EPSILON
            and all(v < SCALAR_EPSILON for v in (self.scalars or {}).values())
        )

    def less_equal(self, other: Resource) -> bool:
        """Within tolerance: a difference of exactly one epsilon is too much."""
        # l < r or |l - r| < eps is the same as l - r < eps.
        if not (self.cpu - other.cpu < CPU_EPSILON):
            return False
        if not (self.memory - other.memory < MEMORY_EPSILON):
            return False
        for name, value in (self.scalars or {}).items():
            if value <= SCALAR_EPSILON:
                continue
            if other.scalars is None:
                return False
            if not (value - other.scalars.get(name, 0.0) < SCALAR_EPSILON):
                return False
        return True

    def less(self, other: Resource) -> bool:
        """Strictly less in every dimension, without tolerance."""
        if not (self.cpu < other.cpu and self.memory < other.memory):
            return False
        if self.scalars is None:
            return all(v > SCALAR_EPSILON for v in (other.scalars or {}).values())
        if other.scalars is None:
            return False
        theirs = other.scalars
        return all(value < theirs.get(name, 0.0) for name, value in self.scalars.items())

    # --- computing -----------------------------------------------------------------------------

    def add(self, other: Resource) -> Resource:
        """Adds in place; returns itself."""
        self.cpu += other.cpu
        self.memory += other.memory
        if other.scalars:
            if self.scalars is None:
                self.scalars = {}
            for name, value in other.scalars.items():
                self.scalars[name] = self.scalars.get(name, 0.0) + value
        return self

    def sub(self, other: Resource) -> bool:
        """Subtracts in place; False where the original would have ended the process."""
        covered = other.less_equal(self)
        self.cpu -= other.cpu
        self.memory -= other.memory
        if self.scalars is not None:
            for name, value in (other.scalars or {}).items():
                self.scalars[name] = self.scalars.get(name, 0.0) - value
        return covered

    def set_max(self, other: Resource) -> None:
        """Raises every dimension to the other's, in place."""
        self.cpu = max(self.cpu, other.cpu)
        self.memory = max(self.memory, other.memory)
        if other.scalars is None:
            return
        if self.scalars is None:
            self.scalars = dict(other.scalars)
            return
        for name, value in other.scalars.items():
            if value > self.scalars.get(name, 0.0):
                self.scalars[name] = value

    def times(self, ratio: float) -> Resource:
        scalars = None if self.scalars is None else {n: v * ratio for n, v in self.scalars.items()}
        return Resource(self.cpu * ratio, self.memory * ratio, scalars)


def minimum(left: Resource, right: Resource) -> Resource:
    """Per dimension; the scalars are those of `left`, none where either side has none."""
    scalars = None
    if left.scalars is not None and right.scalars is not None:
        theirs = right.scalars
        scalars = {n: min(v, theirs.get(n, 0.0)) for n, v in left.scalars.items()}
    return Resource(min(left.cpu, right.cpu), min(left.memory, right.memory), scalars)


def difference(left: Resource, right: Resource) -> tuple[Resource, Resource]:
    """What `left` has more, and what it has less, per dimension of `left`."""
    more, less = Resource(), Resource()
    if left.cpu > right.cpu:
        more.cpu = left.cpu - right.cpu
    else:
        less.cpu = right.cpu - left.cpu
    if left.memory > right.memory:
        more.memory = left.memory - right.memory
    else:
        less.memory = right.memory - left.memory
    for name, value in (left.scalars or {}).items():
        other = (right.scalars or {}).get(name, 0.0)
        side = more if value > other else less
        if side.scalars is None:
            side.scalars = {}
        side.scalars[name] = abs(value - other)
    return more, less


def total(parts: Iterable[Resource]) -> Resource:
    found = Resource()
    for part in parts:
        found.add(part)
    return found


def share(part: float, whole: float) -> float:
    """0 of 0 is nothing; something of 0 is all."""
    if whole == 0:
        return 0.0 if part == 0 else 1.0
    return part / whole


def dominant_share(part: Resource, whole: Resource) -> float:
    """The greatest share among cpu, memory and the scalars of `whole`; never below 0."""
    found = max(0.0, share(part.cpu, whole.cpu), share(part.memory, whole.memory))
    for name, amount in (whole.scalars or {}).items():
        found = max(found, share(part.get(name), amount))
    return found


# --- reading -----------------------------------------------------------------------------------


def from_quantities(amounts: Mapping[str, Quantity] | None) -> Resource:
    """Cpu, memory and scalars of a resource list; other names are dropped. QuantityError."""
    found = Resource()
    for name, quantity in (amounts or {}).items():
        if name == CPU:
            found.cpu += float(quantities.milli(quantity))
        elif name == MEMORY:
            found.memory += float(quantities.units(quantity))
        elif is_scalar(name):
            if found.scalars is None:
                found.scalars = {}
            value = float(quantities.milli(quantity))
            found.scalars[name] = found.scalars.get(name, 0.0) + value
    return found


def _of_container(container: Container) -> Resource:
    requests = container.resources.requests if container.resources is not None else None
    return from_quantities(requests)


def pod_requests(pod: Pod) -> tuple[Resource, Resource]:
    """(resreq, initResreq): what is accounted for, and what must fit at the start."""
    running = total(_of_container(c) for c in pod.spec.containers or ())
    if not pod.spec.init_containers:
        return running, running
    start = running.copy()
    for container in pod.spec.init_containers:
        start.set_max(_of_container(container))
    return running, start


# --- columns -----------------------------------------------------------------------------------


class Amounts:
    """One resource per node, as columns. A node without `named` has nil scalars."""

    __slots__ = ("cpu", "memory", "named", "scalars")

    def __init__(
        self, *, cpu: Floats, memory: Floats, scalars: dict[str, Floats], named: Bools
    ) -> None:
        self.cpu = cpu
        self.memory = memory
        self.scalars = scalars
        self.named = named

    @classmethod
    def zeros(cls, size: int, names: Iterable[str]) -> Amounts:
        return cls(
            cpu=np.zeros(size),
            memory=np.zeros(size),
            scalars={name: np.zeros(size) for name in names},
            named=np.zeros(size, dtype=np.bool_),
        )

    def copy(self) -> Amounts:
        return Amounts(
            cpu=self.cpu.copy(),
            memory=self.memory.copy(),
            scalars={name: column.copy() for name, column in self.scalars.items()},
            named=self.named.copy(),
        )

    def columns(self) -> Iterator[tuple[str, Floats]]:
        """The name and the column of every resource; a column may be changed in place."""
        yield CPU, self.cpu
        yield MEMORY, self.memory
        yield from self.scalars.items()

    def at(self, i: int) -> Resource:
        """Node i's amounts. Scalars that no node and no task names are left out."""
        scalars = {n: float(c[i]) for n, c in self.scalars.items()} if self.named[i] else None
        return Resource(float(self.cpu[i]), float(self.memory[i]), scalars)

    def put(self, i: int, amount: Resource) -> None:
        self.cpu[i] = amount.cpu
        self.memory[i] = amount.memory
        self.named[i] = amount.scalars is not None
        for name, value in (amount.scalars or {}).items():
            self.scalars[name][i] = value

    def add(self, i: int, amount: Resource) -> None:
        self.cpu[i] += amount.cpu
        self.memory[i] += amount.memory
        if amount.scalars:
            self.named[i] = True
            for name, value in amount.scalars.items():
                self.scalars[name][i] += value

    def sub(self, i: int, amount: Resource) -> bool:
        """As `Resource.sub`."""
        covered = self.covers(i, amount)
        self.cpu[i] -= amount.cpu
        self.memory[i] -= amount.memory
        if amount.scalars and self.named[i]:
            for name, value in amount.scalars.items():
                self.scalars[name][i] -= value
        return covered

    def covers(self, i: int, amount: Resource) -> bool:
        """Is the amount less or equal to node i's, within tolerance?"""
        if not (amount.cpu - self.cpu[i] < CPU_EPSILON):
            return False
        if not (amount.memory - self.memory[i] < MEMORY_EPSILON):
            return False
        for name, value in (amount.scalars or {}).items():
            if value <= SCALAR_EPSILON:
                continue
            if not self.named[i] or not (value - self.scalars[name][i] < SCALAR_EPSILON):
                return False
        return True

    def covering(self, amount: Resource, some: Ints | slice = _EVERY) -> Bools:
        """`covers` for every node, or for some; shape (nodes,)."""
        found = (amount.cpu - self.cpu[some]) < CPU_EPSILON
        found &= (amount.memory - self.memory[some]) < MEMORY_EPSILON
        for name, value in (amount.scalars or {}).items():
            if value > SCALAR_EPSILON:
                found &= self.named[some]
                found &= (value - self.scalars[name][some]) < SCALAR_EPSILON
        return found

    def plus(self, other: Amounts) -> Amounts:
        return Amounts(
            cpu=self.cpu + other.cpu,
            memory=self.memory + other.memory,
            scalars={n: c + other.scalars[n] for n, c in self.scalars.items()},
            named=self.named | other.named,
        )
