"""What nodes say to equal tasks, kept from one task to the next.

Tasks to which plugins give equal keys form a class: a column keeps which nodes may take such a
task, another their scores, and before a column is used again only the nodes that changed since
are looked at again (`policy.batch.classes`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from policy.batch.choosing import ChosenNode, best_of, by_name, chosen
from policy.batch.classes import ClassColumns, class_key, functions_of_all
from policy.batch.recording import ChoiceRule
from policy.batch.volcano.framework.dispatch import Dispatch
from policy.batch.volcano.framework.model import Task
from policy.batch.volcano.framework.nodes import Floats, Nodes
from policy.cluster.tables import Bools, Ints
from policy.filters.base import SUCCESS, UNRESOLVABLE, Codes

_NO: Final = -np.inf


class NodeAnswers:
    """Predicates and scores of one session's nodes."""

    def __init__(self, nodes: Nodes, dispatch: Dispatch) -> None:
        self._nodes = nodes
        self._dispatch = dispatch
        predicates, orders = dispatch.consulted("predicate"), dispatch.consulted("node_order")
        self._predicates = tuple(c.function for c in predicates)
        self._orders = tuple(c.function for c in orders)
        self._predicates_at = functions_of_all(
            dispatch.hint("predicate_at", c.plugin) for c in predicates
        )
        self._passing_keys = functions_of_all(
            dispatch.hint("predicate_class", c.plugin) for c in predicates
        )
        self._score_keys = functions_of_all(
            dispatch.hint("node_order_class", c.plugin) for c in orders
        )
        every = np.arange(len(nodes.names), dtype=np.int64)
        self._codes = ClassColumns(nodes, self._ask_all, self._ask_some)
        self._rated = ClassColumns(nodes, lambda task: self._rate(task, every), self._rate)

    # --- predicates ----------------------------------------------------------------------------

    def codes(self, task: Task) -> Codes:
        """What the first predicate that rejects says of every node; shape (nodes,)."""
        key = self.class_of(task)
        return self._ask_all(task) if key is None else self._codes.of(key, task)

    def passing(self, task: Task) -> Bools:
        """Nodes that may take the task as things are."""
        return np.asarray(self.codes(task) == SUCCESS)

    def curable(self, task: Task) -> Bools:
        """Nodes that may take the task, if evictions cure what stands against it."""
        return np.asarray(self.codes(task) != UNRESOLVABLE)

    def passes_at(self, task: Task, node: int) -> bool:
        if self.class_of(task) is None:
            return bool(self._ask_all(task)[node] == SUCCESS)
        return bool(self._ask_some(task, np.array([node]))[0] == SUCCESS)

    def rejected(self, task: Task, among: Bools | None = None) -> dict[str, int]:
        """Reason of the first predicate that rejects -> number of nodes; by number, then name."""
        left = np.ones(len(self._nodes.names), dtype=np.bool_) if among is None else among.copy()
        counts: dict[str, int] = {}
        for reason, rejects in self.rejecting(task):
            number = int((rejects & left).sum())
            if number:
                counts[reason] = counts.get(reason, 0) + number
                left &= ~rejects
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))

    def rejecting(self, task: Task) -> Iterator[tuple[str, Bools]]:
        """Every reason to reject the task, and the nodes that do; shape (nodes,)."""
        for consulted in self._dispatch.consulted("predicate"):
            reasons = self._dispatch.hint("predicate_reasons", consulted.plugin)
            if reasons is not None:
                yield from reasons(task).items()
            else:
                yield consulted.plugin, np.asarray(consulted.function(task) != SUCCESS)

    # --- scores --------------------------------------------------------------------------------

    def scores(self, task: Task, nodes: Ints) -> Floats:
        """Sums of the plugins' scores of the nodes, which compete with one another alone."""
        found = np.zeros(nodes.size)
        for order in self._orders:
            found += order(task, nodes)
        return found

    def scores_by_plugin(self, task: Task, nodes: Ints) -> dict[str, Floats]:
        """The scores, apart."""
        orders = self._dispatch.consulted("node_order")
        return {c.plugin: c.function(task, nodes) for c in orders}

    def best(self, task: Task, nodes: Ints) -> ChosenNode | None:
        """The best of the nodes, of equal ones the first in name order; None where there is none.

        nodes: in name order.
        """
        if nodes.size <= 1:
            return by_name(int(nodes[0]), nodes=1) if nodes.size else None
        scores = self.scores(task, nodes)
        node = int(nodes[np.argmax(scores)])
        return chosen(node, nodes, scores, self._nodes.names, tie=ChoiceRule.FIRST_NAME)

    def best_idle(self, task: Task) -> ChosenNode | None:
        """The best node that passes and has idle room.

        None where there is none, or where that is not known without looking at all nodes.
        """
        passing, scores = self.class_of(task), class_key(self._score_keys, task)
        if passing is None or scores is None:
            return None
        rated = self._rated.of((passing, scores, self._nodes.needs[task.shape]), task)
        return best_of(rated, self._nodes.names)

    # --- asking the plugins --------------------------------------------------------------------

    def class_of(self, task: Task) -> Hashable | None:
        """Equal for tasks that predicates do not tell apart; None where that is not known."""
        return None if self._predicates_at is None else class_key(self._passing_keys, task)

    def _ask_all(self, task: Task) -> Codes:
        found = np.zeros(len(self._nodes.names), dtype=np.int8)
        for predicate in self._predicates:
            np.copyto(found, predicate(task), where=found == SUCCESS)
        return found

    def _ask_some(self, task: Task, nodes: Ints) -> Codes:
        found = np.zeros(nodes.size, dtype=np.int8)
        for predicate_at in self._predicates_at or ():
            np.copyto(found, predicate_at(task, nodes), where=found == SUCCESS)
        return found

    def _rate(self, task: Task, nodes: Ints) -> Floats:
        """Scores where the task passes and has idle room, else minus infinity."""
        fits: NDArray[np.bool_] = self._ask_some(task, nodes) == SUCCESS
        fits &= self._nodes.fits_idle(task, nodes)
        return np.where(fits, self.scores(task, nodes), _NO)
