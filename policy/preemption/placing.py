"""Where a pod goes that fits: the node with the highest weighted sum of its values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import Ints
from policy.decision.model import NO_VALUE, RuleFired
from policy.filters.base import Incoming, Nodes
from policy.preemption.columns import (
    FrozenHistory,
    Lazy,
    node_variables,
    preemptor_variables,
)
from policy.rules.expressions import Columns, Expression, ValueType
from policy.rules.ruleset import RuleSet, ScorerUse
from policy.scoring.base import MAX
from policy.scoring.registry import SCORERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The chosen node, and what each scorer that had something to say gave it."""

    node: int  #: index
    scores: tuple[tuple[str, int, int], ...]  #: (scorer, weight, value), in the rule file's order
    without_value: tuple[RuleFired, ...] = ()


def values(incoming: Incoming, scoring: Sequence[ScorerUse], nodes: Nodes) -> list[Ints | None]:
    """What each scorer says of the nodes; None for one that has nothing to go by."""
    return [value(incoming, use, nodes) for use in scoring]


def value(incoming: Incoming, use: ScorerUse, nodes: Nodes) -> Ints | None:
    """What one scorer says of the nodes, from 0 to 100."""
    if use.expression is not None:
        return _by_expression(incoming, use.expression, nodes)
    score = SCORERS[use.name].score
    assert score is not None  # the others have an expression
    return score(incoming, use.parameters, nodes)


def _by_expression(incoming: Incoming, expression: Expression, nodes: Nodes) -> Ints:
    columns = _columns(incoming, nodes)
    found = expression.evaluate(columns).broadcast(nodes.size)
    keys = found.order_keys(errors_as=0)
    return keys * MAX if expression.type is ValueType.BOOL else np.clip(keys, 0, MAX)


def without_value(
    incoming: Incoming, scoring: Sequence[ScorerUse], nodes: Nodes
) -> Iterator[RuleFired]:
    """What the trace says of expressions without a value for some of the nodes, which get 0."""
    for use in scoring:
        if use.expression is None or use.expression.total:
            continue
        columns = _columns(incoming, nodes)
        errors = use.expression.evaluate(columns).broadcast(nodes.size).errors
        if errors is not None and errors.any():
            first = int(np.flatnonzero(errors)[0])
            why = use.expression.error_at(columns, first)
            assert why is not None
            yield RuleFired(
                section="scoring",
                rule=use.name,
                verdict=NO_VALUE,
                reason=why,
                inputs={
                    "nodes": int(errors.sum()),
                    "first": incoming.snapshot.nodes.names[int(nodes[first])],
                },
            )


def _columns(incoming: Incoming, nodes: Nodes) -> Columns:
    variables = Lazy(
        node_variables(incoming.snapshot, lambda: nodes.astype(np.intp)),
        preemptor_variables(incoming),
    )
    return Columns(nodes.size, variables, FrozenHistory({}))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NodeScores:
    """What the scorers of `Scope.NODE` say of every node for a pod."""

    values: Mapping[int, Ints | None]  #: by the scorer's place in the rule file; (all nodes,)
    total: Ints  #: (all nodes,) their sum by weight


def place(
    incoming: Incoming,
    scoring: Sequence[ScorerUse],
    nodes: Nodes,
    *,
    added: Ints | None = None,
    known: NodeScores | None = None,
) -> Placement:
    """The best of the nodes; the first by name of several.

    nodes: (n,) indexes of the nodes on which the pod fits, ascending, at least one. added: (n,)
    what extenders add to each total. known: values that need not be computed again. A single node
    is not scored, as in kube-scheduler.
    """
    if nodes.size == 1:
        return Placement(node=int(nodes[0]), scores=())
    totals = np.zeros(nodes.size, dtype=np.int64) if known is None else known.total[nodes]
    if added is not None:
        totals += added
    own = {} if known is None else known.values
    found: dict[int, Ints | None] = {}
    for i, use in enumerate(scoring):
        if i not in own:
            found[i] = of_scorer = value(incoming, use, nodes)
            if of_scorer is not None:
                totals += use.weight * of_scorer
    # Nodes stand in name order, and the first of equal ones is taken.
    best = int(np.argmax(totals))
    node = int(nodes[best])
    scores = []
    for i, use in enumerate(scoring):
        here, at = (own[i], node) if i in own else (found[i], best)
        if here is not None:
            scores.append((use.name, use.weight, int(here[at])))
    return Placement(
        node=node,
        scores=tuple(scores),
        without_value=tuple(without_value(incoming, scoring, nodes)),
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
