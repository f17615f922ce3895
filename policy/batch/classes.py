"""What nodes say to equal tasks, kept from one task to the next.

Tasks of a gang ask for the same, and so do many gangs. Tasks to which plugins give equal keys form
a class: for a class, one column keeps which nodes may take such a task, and another their scores.
A step of the session changes one node, so before a column is used again only the nodes that changed
since are looked at again.

This is right because a plugin gives a key (`predicate_class`, `node_order_class`) only where its
answer for a node depends on nothing but the key and what this node holds, and every change of what
a node holds is in `Nodes.changed`. A plugin without keys, or a task to which the plugin gives none
(host ports, pod affinity, preferred node affinity: these look at other nodes or pods), takes the
full path: all nodes, anew. Nothing is decided here; without any keys a session is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from policy.batch.choosing import ChosenNode, best_of
from policy.batch.functions import Consulted, Scores
from policy.batch.model import Task
from policy.batch.nodes import Nodes
from policy.batch.resources import Resource
from policy.cluster.tables import Bools, Ints

KEPT: Final = 64
"""Columns of a kind kept at a time; the one that was used longest ago goes first."""

Hint = Callable[[str, str], Callable[..., Any] | None]
"""The hint of a kind that a plugin registered, None where it did not."""


class NodeAnswers:
    """Predicates and scores of one session's nodes."""

    def __init__(
        self,
        nodes: Nodes,
        hint: Hint,
        *,
        predicates: Sequence[Consulted],
        orders: Sequence[Consulted],
    ) -> None:
        self._nodes = nodes
        self._predicates = tuple(c.function for c in predicates)
        self._predicates_at = functions_of_all(hint("predicate_at", c.plugin) for c in predicates)
        self._orders = tuple(c.function for c in orders)
        self._passing_key = functions_of_all(hint("predicate_class", c.plugin) for c in predicates)
        self._scores_key = functions_of_all(hint("node_order_class", c.plugin) for c in orders)
        every = np.arange(len(nodes.names), dtype=np.int64)
        self._passing = ClassColumns(nodes, self._ask_all, self._ask_some)
        self._scores = ClassColumns(nodes, lambda task: self._score(task, every), self._score)
        self._with_room = ClassColumns(nodes, lambda task: self._rate(task, every), self._rate)

    def passing(self, task: Task) -> Bools:
        """Nodes of the session on which every predicate lets the task; shape (nodes,)."""
        key = self._class_of_passing(task)
        if key is None:
            return self._ask_all(task)
        return self._passing.of(key, task).copy()

    def scores(self, task: Task, nodes: Ints, *, among: Bools) -> Scores:
        """Sums of the scores of the given nodes; all 0 without a scoring plugin.

        among: (nodes,) all nodes that compete, the given ones with them.
        """
        key = class_key(self._scores_key, task)
        if key is not None:
            return np.asarray(self._scores.of(key, task)[nodes])
        scores = np.zeros(among.size)
        scores[among] = self._score(task, np.flatnonzero(among))
        return np.asarray(scores[nodes])

    def best_with_room(self, task: Task) -> ChosenNode | None:
        """The best node that passes and has idle or released room for the task; None if none.

        Of equal nodes the first in name order. Idle and released room compete on score alone.
        """
        passing, scores = self._class_of_passing(task), class_key(self._scores_key, task)
        if passing is None or scores is None:
            fits = self._ask_all(task) & self._nodes.room_for(task.start_request)
            nodes = np.flatnonzero(fits)
            rated = np.full(fits.size, -np.inf)
            rated[nodes] = self._score(task, nodes)
            return best_of(rated, self._nodes.names)
        need = _hashable(task.start_request)
        rated = self._with_room.of((passing, scores, need), task)
        return best_of(rated, self._nodes.names)

    # --- asking the plugins --------------------------------------------------------------------

    def _class_of_passing(self, task: Task) -> Hashable | None:
        return None if self._predicates_at is None else class_key(self._passing_key, task)

    def _ask_all(self, task: Task) -> Bools:
        found = self._nodes.present.copy()
        for predicate in self._predicates:
            found &= predicate(task)
        return found

    def _ask_some(self, task: Task, nodes: Ints) -> Bools:
        found = self._nodes.present[nodes]
        for predicate_at in self._predicates_at or ():
            found &= predicate_at(task, nodes)
        return found

    def _score(self, task: Task, nodes: Ints) -> Scores:
        found = np.zeros(nodes.size)
        for order in self._orders:
            found += order(task, nodes)
        return found

    def _rate(self, task: Task, nodes: Ints) -> Scores:
        """Scores where the task passes and has room, else -inf."""
        fits = self._ask_some(task, nodes) & self._nodes.room_for(task.start_request, nodes)
        return np.where(fits, self._score(task, nodes), -np.inf)


class Changing(Protocol):
    """Nodes that say which of them changed, in order."""

    @property
    def changed(self) -> list[int]: ...


@dataclass(slots=True)
class _Column:
    values: NDArray[Any]
    position: int  #: of `Nodes.changed`, up to which the values are those of now


class ClassColumns:
    """One column over all nodes per class of tasks."""

    def __init__(
        self,
        nodes: Changing,
        on_all: Callable[[Any], NDArray[Any]],
        on_some: Callable[[Any, Ints], NDArray[Any]],
    ) -> None:
        """on_all, on_some: the answers of all nodes, or of some, to a task of the class."""
        self._nodes = nodes
        self._on_all = on_all
        self._on_some = on_some
        self._columns: dict[Hashable, _Column] = {}

    def of(self, key: Hashable, task: Any) -> NDArray[Any]:
        """The column of the task's class as of now; it changes with the next use."""
        changed = self._nodes.changed
        column = self._columns.pop(key, None)
        if column is None:
            column = _Column(self._on_all(task), len(changed))
            if len(self._columns) >= KEPT:
                del self._columns[next(iter(self._columns))]
        elif column.position < len(changed):
            some = np.array(sorted(set(changed[column.position :])), dtype=np.int64)
            column.values[some] = self._on_some(task, some)
            column.position = len(changed)
        self._columns[key] = column  # the last in order is the one that was used last
        return column.values


def functions_of_all(
    functions: Iterable[Callable[..., Any] | None],
) -> tuple[Callable[..., Any], ...] | None:
    """The functions, None where a plugin has none."""
    found = tuple(functions)
    return None if None in found else tuple(f for f in found if f is not None)


def class_key(
    keys: Sequence[Callable[[Any], Hashable | None]] | None, task: Any
) -> tuple[Hashable, ...] | None:
    """The task's key of every plugin, None where one gives none."""
    if keys is None:
        return None
    found = tuple(key(task) for key in keys)
    return None if None in found else found


def _hashable(amount: Resource) -> Hashable:
    scalars = None if amount.scalars is None else tuple(amount.scalars.items())
    return amount.cpu, amount.memory, scalars
