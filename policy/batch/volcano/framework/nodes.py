"""What every node of a session has, has promised and holds, as columns.

Volcano's sums differ from kube-batch's: adding a task never checks room, and what is promised is
a sum of its own. What may be given to further tasks is `future`: idle and releasing, less what is
promised; it may be negative.

Source: Volcano `pkg/scheduler/api/node_info.go`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from policy.batch.model import TaskStatus
from policy.batch.nodes import Refusal
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.resources import EPSILON, Amount
from policy.cluster.tables import NOWHERE, Bools, Ints

Floats: TypeAlias = NDArray[np.float64]
Need: TypeAlias = tuple[tuple[int, float], ...]
"""A request as rows of the columns and amounts; the dimensions that are compared."""

_EVERY: Final = slice(None)


class Held(Struct, kw_only=True, eq=False, gc=False):
    """A task on a node, under the status with which it was added."""

    task: Task
    status: TaskStatus


@dataclass(slots=True, kw_only=True, eq=False)
class Nodes:
    """Nodes in name order, aligned with the snapshot's. Sums are (resources, nodes)."""

    names: Sequence[str]
    resources: tuple[str, ...]  #: cpu, memory and the scalars of the session
    allocatable: Floats
    idle: Floats
    releasing: Floats
    used: Floats
    future: Floats
    needs: list[Need]  #: by shape
    held: list[dict[str, Held]]
    place: Ints  #: (tasks,) node that holds each task, NOWHERE without one
    running: Bools  #: (tasks,) does a node hold it as Running or Bound?
    total: Amount  #: allocatable of all nodes
    index: dict[str, int] = field(default_factory=dict)
    row: dict[str, int] = field(default_factory=dict)  #: resource -> row of the sums
    changed: list[int] = field(default_factory=list)  #: nodes, in the order of their changes

    def __post_init__(self) -> None:
        self.index = {name: i for i, name in enumerate(self.names)}
        self.row = {name: i for i, name in enumerate(self.resources)}

    # --- changing ------------------------------------------------------------------------------

    def add(self, i: int, task: Task) -> Refusal | None:
        """Puts a task on node i under its status; None where that worked."""
        name = self.names[i]
        if task.node and task.node != name:
            return Refusal.OTHER_NODE
        if task.key in self.held[i]:
            return Refusal.HERE
        self._charge(i, task, task.status, 1.0)
        task.node = name
        self.held[i][task.key] = Held(task=task, status=task.status)
        self.place[task.index] = i
        self.running[task.index] = task.status in {TaskStatus.RUNNING, TaskStatus.BOUND}
        return None

    def remove(self, i: int, task: Task) -> None:
        """Takes a task off node i, where it is there."""
        held = self.held[i].pop(task.key, None)
        if held is None:
            return
        self._charge(i, task, held.status, -1.0)
        self.place[task.index] = NOWHERE
        self.running[task.index] = False

    def update(self, i: int, task: Task) -> None:
        """Takes a task off and puts it on again under its present status."""
        self.remove(i, task)
        self.add(i, task)

    def _charge(self, i: int, task: Task, status: TaskStatus, sign: float) -> None:
        for row, value in self.needs[task.shape]:
            amount = sign * value
            if status is TaskStatus.PIPELINED:
                self.future[row, i] -= amount
                continue
            self.idle[row, i] -= amount
            self.used[row, i] += amount
            if status is TaskStatus.RELEASING:
                self.releasing[row, i] += amount
            else:
                self.future[row, i] -= amount
        self.changed.append(i)

    # --- asking --------------------------------------------------------------------------------

    def fits_idle(self, task: Task, some: Ints | slice = _EVERY) -> Bools:
        return self._covering(self.idle, task, some)

    def fits_future(self, task: Task) -> Bools:
        return self._covering(self.future, task, _EVERY)

    def _covering(self, sums: Floats, task: Task, some: Ints | slice) -> Bools:
        found: Bools | None = None
        for row, value in self.needs[task.shape]:
            enough = (value - sums[row, some]) < EPSILON
            found = enough if found is None else found & enough
        assert found is not None  # cpu and memory are always compared
        return found

    def has_idle(self, task: Task, i: int) -> bool:
        return all(value - self.idle[row, i] < EPSILON for row, value in self.needs[task.shape])

    def has_future(self, task: Task, i: int, freed: Floats | None = None) -> bool:
        """freed: (resources,) room to count beside."""
        return all(
            value - self.future[row, i] - (0.0 if freed is None else freed[row]) < EPSILON
            for row, value in self.needs[task.shape]
        )

    def requests_of(self, tasks: Iterable[Task]) -> Floats:
        """Requests of the tasks in sum; shape (resources,)."""
        found = np.zeros(len(self.resources))
        for task in tasks:
            for row, value in self.needs[task.shape]:
                found[row] += value
        return found

    def tasks(self, i: int) -> list[Task]:
        """Tasks that node i holds, in order of namespace/name."""
        held = self.held[i]
        return [held[key].task for key in sorted(held)]

    def index_of(self, name: str) -> int:
        return self.index.get(name, NOWHERE)

    def amount(self, sums: Floats, i: int) -> Amount:
        return {name: float(sums[row, i]) for row, name in enumerate(self.resources)}
