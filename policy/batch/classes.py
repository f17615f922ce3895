"""What nodes say to equal tasks, kept from one task to the next.

Tasks of a gang ask for the same, and so do many gangs. Tasks whose plugins give them equal keys
form a class; the class keeps, for every node, whether it may take such a task and its score. A step
of the session changes one node, so before the next use only the nodes that changed since are asked
again.

This is right because a plugin gives a key (`predicate_class`, `node_order_class`) only where its
answer for a node depends on nothing but the key and what this node holds, and every change of what
a node holds is in `Nodes.changed`. A plugin without keys, or a task to which the plugin gives none
(host ports, pod affinity, preferred node affinity: these look at other nodes or pods), takes the
full path: all nodes, anew. Nothing is decided here; without any keys a session is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from policy.batch.functions import Consulted, Scores
from policy.batch.model import Task
from policy.batch.nodes import Nodes
from policy.batch.resources import Resource
from policy.cluster.tables import NOWHERE, Bools, Ints

KEPT: Final = 256
"""Classes kept at a time; the one that was used longest ago goes first."""

Hint = Callable[[str, str], Callable[..., Any] | None]
"""The hint of a kind that a plugin registered, None where it did not."""


@dataclass(slots=True, kw_only=True)
class _Class:
    """Answers to tasks of one class, as of a position in `Nodes.changed`."""

    task: Task  #: any task of the class
    position: int
    passing: Bools
    scores: Scores
    #: the score where the node passes and has idle or released room, else -inf
    with_room: Scores


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
        self._orders = tuple(c.function for c in orders)
        self._predicates_at = _known(hint("predicate_at", c.plugin) for c in predicates)
        self._keys = _known(
            [
                *(hint("predicate_class", c.plugin) for c in predicates),
                *(hint("node_order_class", c.plugin) for c in orders),
            ]
        )
        self._classes: dict[Hashable, _Class] = {}

    # --- answers -------------------------------------------------------------------------------

    def passing(self, task: Task) -> Bools:
        """Nodes of the session on which every predicate lets the task; shape (nodes,)."""
        found = self._class_of(task)
        return self._passing(task) if found is None else found.passing.copy()

    def scores(self, task: Task, nodes: Ints) -> Scores:
        """Sums of the scores of the given nodes; all 0 without a scoring plugin."""
        found = self._class_of(task)
        return self._scores(task, nodes) if found is None else found.scores[nodes]

    def best_with_room(self, task: Task) -> int:
        """The best node that passes and has idle or released room for the task; NOWHERE if none.

        Of equal nodes the first in name order. Idle and released room compete on score alone.
        """
        found = self._class_of(task)
        if found is not None:
            best = int(np.argmax(found.with_room))
            return best if found.with_room[best] > -np.inf else NOWHERE
        candidates = np.flatnonzero(self._passing(task) & self._nodes.room_for(task.start_request))
        if not candidates.size:
            return NOWHERE
        return int(candidates[int(np.argmax(self._scores(task, candidates)))])

    # --- the full path -------------------------------------------------------------------------

    def _passing(self, task: Task) -> Bools:
        found = self._nodes.present.copy()
        for predicate in self._predicates:
            found &= predicate(task)
        return found

    def _scores(self, task: Task, nodes: Ints) -> Scores:
        found = np.zeros(nodes.size)
        for order in self._orders:
            found += order(task, nodes)
        return found

    # --- classes -------------------------------------------------------------------------------

    def _class_of(self, task: Task) -> _Class | None:
        """The task's class as of now, None where it has none."""
        if self._keys is None or self._predicates_at is None or not self._nodes.names:
            return None
        keys = tuple(key(task) for key in self._keys)
        if None in keys:
            return None
        key = (*keys, _hashable(task.start_request))
        found = self._classes.pop(key, None)
        if found is None:
            found = self._new_class(task)
            if len(self._classes) >= KEPT:
                del self._classes[next(iter(self._classes))]
        elif found.position < len(self._nodes.changed):
            self._refresh(found)
        self._classes[key] = found  # the last in order is the one that was used last
        return found

    def _new_class(self, task: Task) -> _Class:
        nodes = self._nodes
        passing = self._passing(task)
        scores = self._scores(task, np.arange(passing.size))
        room = passing & nodes.room_for(task.start_request)
        return _Class(
            task=task,
            position=len(nodes.changed),
            passing=passing,
            scores=scores,
            with_room=np.where(room, scores, -np.inf),
        )

    def _refresh(self, known: _Class) -> None:
        """Asks again about the nodes that changed since the class was used."""
        nodes, task = self._nodes, known.task
        some = np.array(sorted(set(nodes.changed[known.position :])), dtype=np.int64)
        known.position = len(nodes.changed)
        passing = nodes.present[some]
        for predicate_at in self._predicates_at or ():
            passing &= predicate_at(task, some)
        scores = self._scores(task, some)
        room = passing & nodes.room_for(task.start_request, some)
        known.passing[some] = passing
        known.scores[some] = scores
        known.with_room[some] = np.where(room, scores, -np.inf)


def _known(
    functions: Iterable[Callable[..., Any] | None],
) -> tuple[Callable[..., Any], ...] | None:
    """The functions, None where one of them is missing."""
    found = tuple(functions)
    return None if None in found else tuple(f for f in found if f is not None)


def _hashable(amount: Resource) -> Hashable:
    scalars = None if amount.scalars is None else tuple(amount.scalars.items())
    return amount.cpu, amount.memory, scalars
