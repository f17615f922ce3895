"""Where a pod goes that fits: the node with the highest weighted sum of its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import Ints
from policy.filters.base import Incoming, Nodes
from policy.rules.ruleset import RuleSet, ScorerUse
from policy.scoring.registry import SCORERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The chosen node, and what each scorer that had something to say gave it."""

    node: int  #: index
    scores: tuple[tuple[str, int, int], ...]  #: (scorer, weight, value), in the rule file's order


def values(incoming: Incoming, scoring: Sequence[ScorerUse], nodes: Nodes) -> list[Ints | None]:
    """What each scorer says of the nodes; None for one that has nothing to go by."""
    found: list[Ints | None] = []
    for use in scoring:
        info = SCORERS[use.name]
        found.append(info.score(incoming, use.parameters, nodes))
    return found


def place(
    incoming: Incoming,
    scoring: Sequence[ScorerUse],
    nodes: Nodes,
    *,
    added: Ints | None = None,
) -> Placement:
    """The best of the nodes; the first by name of several.

    nodes: (n,) indexes of the nodes on which the pod fits, ascending, at least one. added: (n,)
    what extenders add to each total. A single node is not scored, as in kube-scheduler.
    """
    if nodes.size == 1:
        return Placement(node=int(nodes[0]), scores=())
    found = values(incoming, scoring, nodes)
    totals = np.zeros(nodes.size, dtype=np.int64) if added is None else added.copy()
    for use, of_scorer in zip(scoring, found, strict=True):
        if of_scorer is not None:
            totals += use.weight * of_scorer
    # Nodes stand in name order, and the first of equal ones is taken.
    best = int(np.argmax(totals))
    return Placement(
        node=int(nodes[best]),
        scores=tuple(
            (use.name, use.weight, int(of_scorer[best]))
            for use, of_scorer in zip(scoring, found, strict=True)
            if of_scorer is not None
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """What one scorer gives two nodes on which a pod fits."""

    scorer: str
    weight: int
    value: int  #: of the node that is asked about
    best_value: int  #: of the one that was taken


def compared(
    snapshot: Snapshot,
    rules: RuleSet,
    preemptor: str,
    passing: Sequence[str],
    *,
    node: str,
    taken: str,
) -> list[Score]:
    """The scores of two of the nodes that pass, in the rule file's order; without extenders'.

    passing: names of all nodes that pass, on which the values depend. Raises KeyError for a pod or
    node that is unknown.
    """
    row, pod = snapshot.row(preemptor), snapshot.pod(preemptor)
    if row is None or pod is None:
        raise KeyError(preemptor)
    incoming = Incoming(snapshot=snapshot, pod=pod, key=preemptor, row=row)
    index = snapshot.nodes.index
    nodes = np.array(sorted(index[name] for name in passing), dtype=np.int64)
    own, best = (int(np.searchsorted(nodes, index[name])) for name in (node, taken))
    return [
        Score(scorer=use.name, weight=use.weight, value=int(of[own]), best_value=int(of[best]))
        for use, of in zip(rules.scoring, values(incoming, rules.scoring, nodes), strict=True)
        if of is not None
    ]
