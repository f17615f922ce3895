"""Which of several nodes a task gets, and the record of why.

kube-batch and Volcano choose at random among equal nodes. A session here has to come out alike
every time, so that names decide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policy.batch.functions import Scores
from policy.batch.recording import ChoiceRule, NodeChoice
from policy.cluster.tables import Ints

TIES_SHOWN: Final = 3
"""Names of equal nodes that a record keeps; their number is always kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenNode:
    """A node, and why it was chosen."""

    node: int
    choice: NodeChoice


def best_of(rated: Scores, names: Sequence[str]) -> ChosenNode | None:
    """The best node, of equal ones the first in name order; None where no node can be used.

    rated: (nodes,) score of every node, minus infinity where it cannot be used.
    """
    if not rated.size:
        return None
    node = int(np.argmax(rated))
    score = rated[node]
    if score == -np.inf:
        return None
    nodes = np.flatnonzero(rated > -np.inf)
    return chosen(node, nodes, rated[nodes], names, tie=ChoiceRule.FIRST_NAME)


def chosen(
    node: int,
    nodes: Ints,
    scores: Scores,
    names: Sequence[str],
    *,
    tie: ChoiceRule,
    passed_over: int = 0,
) -> ChosenNode:
    """One of the nodes that could be used, which was taken for its score.

    nodes, scores: (n,) the usable nodes in name order. tie: which of equal ones is taken.
    """
    if nodes.size == 1:
        return by_name(node, nodes=1)
    score = scores[np.searchsorted(nodes, node)]
    equal = nodes[scores == score]
    rule = tie if equal.size > 1 else ChoiceRule.SCORE
    shown = [i for i in equal[: TIES_SHOWN + 1].tolist() if i != node][:TIES_SHOWN]
    choice = NodeChoice(
        rule=rule,
        nodes=int(nodes.size),
        score=repr(float(score)),
        ties=int(equal.size) - 1,
        equal=tuple(names[i] for i in shown),
        passed_over=passed_over,
    )
    return ChosenNode(node=node, choice=choice)


def by_name(node: int, *, nodes: int, passed_over: int = 0) -> ChosenNode:
    """The first node in name order that would do, of `nodes` that could be used."""
    rule = ChoiceRule.NAME_ORDER if nodes > 1 else ChoiceRule.ONLY
    return ChosenNode(node=node, choice=NodeChoice(rule=rule, nodes=nodes, passed_over=passed_over))
