"""What a member sees around a node: pods of other nodes in one topology, as counts that follow.

Affinity between pods and topology spread count pods per topology value. Here the counts of all
values stand side by side; a member that is placed, and a unit that leaves or comes back, changes
one of each. Which nodes a rule fails is kept, and brought up to date only where a count passes the
rule's limit. Everything is what the filters and scorers themselves would count on the cluster as it
then is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import Bools, Ints
from policy.filters.base import Filter, Incoming, Nodes, TopologyCount
from policy.filters.pod_affinity import PodAffinityFilter
from policy.filters.topology_spread import SpreadCount, TopologySpread
from policy.rules.ruleset import ScorerUse
from policy.scoring import pod_affinity as drawing
from policy.scoring import topology_spread as spreading

_Parts = tuple[tuple[int, Bools | None], ...]
"""What a pod counts, and on which nodes (None: all)."""


class _Totals:
    """The counts of one topology: `values` per domain, then 0 for nodes that are in none."""

    def __init__(self, snapshot: Snapshot, count: TopologyCount) -> None:
        self.domain = count.domain
        self.parts = count.parts
        self.values = np.zeros(count.domains + 1, dtype=np.int64)
        self._of_node: list[int] = count.domain.tolist()
        counted = np.logical_or.reduce([pods != 0 for pods, _ in count.parts])
        rows = np.flatnonzero(counted & (snapshot.node >= 0))
        self.move(rows, snapshot.node[rows].astype(np.int64), 1)

    @property
    def of_domains(self) -> Ints:
        return self.values[:-1]

    @property
    def of_nodes(self) -> Ints:
        """The count of each node's domain, 0 for a node that is in none."""
        return self.values[self.domain]

    @cached_property
    def _sorted(self) -> tuple[Nodes, list[int]]:
        order = np.argsort(self.domain, kind="stable")
        return order, np.searchsorted(self.domain[order], np.arange(self.values.size)).tolist()

    def nodes_of(self, domain: int) -> Nodes | int:
        """The nodes of a domain; of one node alone, its index."""
        order, starts = self._sorted
        start, end = starts[domain], starts[domain + 1]
        return int(order[start]) if end == start + 1 else order[start:end]

    def equals(self, other: _Totals) -> bool:
        """Does it count the same pods, on the same nodes?"""
        return (
            np.array_equal(self.domain, other.domain)
            and len(self.parts) == len(other.parts)
            and all(
                np.array_equal(pods, pods_of_other)
                and (on is on_of_other or _equal(on, on_of_other))
                for (pods, on), (pods_of_other, on_of_other) in zip(
                    self.parts, other.parts, strict=True
                )
            )
        )

    def move(self, rows: Rows, nodes: Nodes, sign: int) -> None:
        """Pods come to nodes, or leave them."""
        at = self.domain[nodes]
        for pods, on in self.parts:
            counts = pods[rows].astype(np.int64)
            if on is not None:
                counts *= on[nodes]
            np.add.at(self.values, at, sign * counts)
        self.values[-1] = 0

    def parts_of(self, row: int) -> _Parts:
        """What one pod counts."""
        return tuple((int(pods[row]), on) for pods, on in self.parts if pods[row])

    def step(self, parts: _Parts, node: int, sign: int) -> tuple[int, int, int] | None:
        """One pod comes or leaves: its domain with the count before and after; None without any."""
        domain = self._of_node[node]
        if domain < 0:
            return None
        count = sum(number for number, on in parts if on is None or on[node])
        if not count:
            return None
        before = int(self.values[domain])
        self.values[domain] = after = before + sign * count
        return domain, before, after


def _equal(first: Bools | None, second: Bools | None) -> bool:
    return first is not None and second is not None and np.array_equal(first, second)


class _Rule(ABC):
    """One rule of a filter: the nodes that it fails now."""

    def __init__(self, totals: Sequence[_Totals], failing: Ints) -> None:
        """failing: (nodes,) how many rules fail each node; kept up to date."""
        self.totals = totals
        self._failing = failing
        self._own = np.zeros_like(failing)

    @abstractmethod
    def fails(self) -> Ints | Bools:
        """Above 0 for the nodes that it fails; (nodes,)."""

    @abstractmethod
    def stepped(self, which: int, domain: int, before: int, after: int) -> None:
        """A count has changed."""

    @abstractmethod
    def equals(self, other: _Rule) -> bool:
        """Does it fail the same nodes, whatever happens?"""

    def refresh(self) -> None:
        self._failing -= self._own
        self._own = self.fails().astype(self._failing.dtype)
        self._failing += self._own

    def flip(self, nodes: Nodes | int, *, fails: bool) -> None:
        change = 1 if fails else -1
        self._own[nodes] += change
        self._failing[nodes] += change

    def _counts_as(self, other: _Rule) -> bool:
        return (
            type(self) is type(other)
            and len(self.totals) == len(other.totals)
            and all(a.equals(b) for a, b in zip(self.totals, other.totals, strict=True))
        )


class _Unwanted(_Rule):
    """No pod may be there."""

    def __init__(
        self, snapshot: Snapshot, count: TopologyCount, failing: Ints, *, others: bool
    ) -> None:
        """others: the terms are those of pods that are there."""
        super().__init__([_Totals(snapshot, count)], failing)
        self._others = others
        self.refresh()

    def fails(self) -> Bools:
        return self.totals[0].of_nodes > 0

    def stepped(self, which: int, domain: int, before: int, after: int) -> None:
        if (before > 0) != (after > 0):
            self.flip(self.totals[0].nodes_of(domain), fails=after > 0)

    def equals(self, other: _Rule) -> bool:
        return (
            isinstance(other, _Unwanted)
            and self._others == other._others
            and self._counts_as(other)
        )


class _Wanted(_Rule):
    """Some pod must be there, in each of several topologies; the first of its kind may start."""

    def __init__(self, snapshot: Snapshot, of: PodAffinityFilter, failing: Ints) -> None:
        counts, anywhere = of.wanted()
        super().__init__([_Totals(snapshot, c) for c in (*counts, anywhere)], failing)
        self._self_match = of.self_match
        self._anywhere_if_first = of.anywhere_if_first
        self._unlabelled = np.logical_or.reduce([t.domain < 0 for t in self.totals])
        self.refresh()

    @property
    def _first(self) -> bool:
        return self._self_match and not self.totals[-1].values[0]

    def fails(self) -> Ints:
        if self._first:
            away = np.zeros_like(self._unlabelled) if self._anywhere_if_first else self._unlabelled
            return np.asarray(away, dtype=np.int64)
        return np.asarray(sum((t.of_nodes <= 0).astype(np.int64) for t in self.totals[:-1]))

    def stepped(self, which: int, domain: int, before: int, after: int) -> None:
        if (before > 0) == (after > 0):
            return
        if which == len(self.totals) - 1:
            if self._self_match:
                self.refresh()
        elif not self._first:
            self.flip(self.totals[which].nodes_of(domain), fails=after <= 0)

    def equals(self, other: _Rule) -> bool:
        return (
            isinstance(other, _Wanted)
            and self._self_match == other._self_match
            and self._anywhere_if_first == other._anywhere_if_first
            and self._counts_as(other)
        )


class _Even(_Rule):
    """No domain may be too far above the one with the fewest pods."""

    def __init__(self, snapshot: Snapshot, of: SpreadCount, failing: Ints) -> None:
        super().__init__([_Totals(snapshot, of.count)], failing)
        self._of = of
        self._smallest, self._domains = 0, 0
        self._labelled = of.count.domain >= 0
        self.refresh()

    @property
    def _most(self) -> int:
        return self._smallest + self._of.most

    def fails(self) -> Bools:
        totals = self.totals[0]
        self._smallest, self._domains = self._of.smallest(totals.of_domains)
        return ~self._labelled | (totals.of_nodes > self._most)

    def stepped(self, which: int, domain: int, before: int, after: int) -> None:
        if self._domains:
            self._domains += (after == self._smallest) - (before == self._smallest)
            if not self._domains or after < self._smallest:
                self.refresh()
                return
        if (before > self._most) != (after > self._most):
            self.flip(self.totals[0].nodes_of(domain), fails=after > self._most)

    def equals(self, other: _Rule) -> bool:
        return (
            isinstance(other, _Even)
            and self._counts_as(other)
            and np.array_equal(self._of.present, other._of.present)
            and (self._of.fixed_min, self._of.most) == (other._of.fixed_min, other._of.most)
        )


class _Score(ABC):
    """A scorer that looks around."""

    def __init__(self, use: ScorerUse, totals: Sequence[_Totals]) -> None:
        self.weight = use.weight
        self.totals = totals

    @abstractmethod
    def value(self, nodes: Nodes) -> Ints:
        """What it says of the nodes, of which there is one at least."""

    def equals(self, other: _Score) -> bool:
        """Does it say the same, whatever happens?"""
        return (
            type(self) is type(other)
            and self.weight == other.weight
            and len(self.totals) == len(other.totals)
            and all(a.equals(b) for a, b in zip(self.totals, other.totals, strict=True))
        )


class _Drawn(_Score):
    """Affinity and anti-affinity that is preferred, and required affinity of others."""

    def value(self, nodes: Nodes) -> Ints:
        return drawing.scaled(np.add.reduce([t.values[t.domain[nodes]] for t in self.totals]))

    @staticmethod
    def of(incoming: Incoming, use: ScorerUse, there: Bools) -> _Drawn | None:
        snapshot = incoming.snapshot
        parts: dict[str, list[tuple[Ints, Bools | None]]] = {}
        for draw in drawing.draws(incoming, use.parameters, there):
            if draw.rows.size and (draw.nodes is None or draw.nodes.any()):
                pods = np.zeros(len(snapshot.pods), dtype=np.int64)
                pods[draw.rows] = draw.weights
                parts.setdefault(draw.topology_key, []).append((pods, draw.nodes))
        totals = []
        for key, of_key in parts.items():
            domain, domains = snapshot.nodes.domains(key)
            count = TopologyCount(domain=domain, domains=domains, parts=tuple(of_key))
            totals.append(_Totals(snapshot, count))
        return _Drawn(use, totals) if totals else None


class _Spread(_Score):
    """Spread that is preferred."""

    def __init__(self, use: ScorerUse, totals: Sequence[_Totals], of: spreading.Spread) -> None:
        super().__init__(use, totals)
        self._of = of

    def value(self, nodes: Nodes) -> Ints:
        return self._of.score([t.of_domains for t in self.totals], nodes)

    def equals(self, other: _Score) -> bool:
        return isinstance(other, _Spread) and super().equals(other) and self._of.equals(other._of)

    @staticmethod
    def of(incoming: Incoming, use: ScorerUse) -> _Spread | None:
        found = spreading.spread(incoming, use.parameters)
        if found is None:
            return None
        totals = []
        for count in found.counts:
            pods = np.zeros(len(incoming.snapshot.pods), dtype=np.bool_)
            pods[count.pods] = True
            topology = TopologyCount(
                domain=count.domain, domains=count.domains, parts=((pods, count.nodes),)
            )
            totals.append(_Totals(incoming.snapshot, topology))
        return _Spread(use, totals, found)


class Surroundings:
    """What members see around the nodes; those that see the same share it."""

    def __init__(
        self,
        incoming: Incoming,
        filters: Iterable[PodAffinityFilter | TopologySpread],
        scorers: Iterable[ScorerUse],
        members: Rows,
    ) -> None:
        """members: rows of the members of the cycle, in their order."""
        snapshot = incoming.snapshot
        there = snapshot.node >= 0
        there[members] = True
        #: (nodes,) how many rules fail each node
        self.failing = np.zeros(len(snapshot.nodes), dtype=np.int64)
        self._filters = [_of_filter(snapshot, one, self.failing) for one in filters]
        self._rules = [rule for one in self._filters for rule in one.rules]
        drawn = [_Drawn.of(incoming, u, there) for u in scorers if u.name == drawing.INFO.name]
        spread = [_Spread.of(incoming, u) for u in scorers if u.name == spreading.INFO.name]
        self.scores: list[_Score] = [score for score in (*drawn, *spread) if score is not None]
        self._steps = [
            [
                (rule, which, totals, parts)
                for rule, which, totals in self._each()
                if (parts := totals.parts_of(row))
            ]
            for row in members.tolist()
        ]

    def _each(self) -> Iterable[tuple[_Rule | None, int, _Totals]]:
        for rule in self._rules:
            for which, totals in enumerate(rule.totals):
                yield rule, which, totals
        for score in self.scores:
            for totals in score.totals:
                yield None, 0, totals

    def equals(self, other: Surroundings) -> bool:
        """Is the same seen, whatever happens?"""
        return (
            len(self._rules) == len(other._rules)
            and len(self.scores) == len(other.scores)
            and all(a.equals(b) for a, b in zip(self._rules, other._rules, strict=True))
            and all(a.equals(b) for a, b in zip(self.scores, other.scores, strict=True))
        )

    def move(self, rows: Rows, nodes: Nodes, sign: int) -> None:
        """Pods of the cluster come to nodes, or leave them."""
        for _, _, totals in self._each():
            totals.move(rows, nodes, sign)
        for rule in self._rules:
            rule.refresh()

    def step(self, member: int, node: int, sign: int) -> None:
        """A member comes to a node, or leaves it."""
        for rule, which, totals, parts in self._steps[member]:
            changed = totals.step(parts, node, sign)
            if changed is not None and rule is not None:
                rule.stepped(which, *changed)

    def filters(self) -> list[tuple[Filter, Ints]]:
        """Each filter as it would be built now, and the load of all nodes."""
        return [one.now() for one in self._filters]


class _OfFilter(ABC):
    """The rules of one filter."""

    rules: list[_Rule]

    @abstractmethod
    def now(self) -> tuple[Filter, Ints]:
        """The filter as it would be built now, and its load; (nodes, width)."""


class _AffinityRules(_OfFilter):
    def __init__(self, snapshot: Snapshot, of: PodAffinityFilter, failing: Ints) -> None:
        self._filter = of
        self._wanted = [_Wanted(snapshot, of, failing)] if of.wanted()[0] else []
        own, existing = of.unwanted()
        self._own = [_Unwanted(snapshot, c, failing, others=False) for c in own]
        self._existing = [_Unwanted(snapshot, c, failing, others=True) for c in existing]
        self.rules = [*self._wanted, *self._own, *self._existing]

    def now(self) -> tuple[Filter, Ints]:
        wanted = [t for rule in self._wanted for t in rule.totals]
        columns = [t.of_nodes for t in (*wanted, *(rule.totals[0] for rule in self._own))]
        existing = np.zeros_like(self.rules[0].totals[0].domain, dtype=np.int64)
        for rule in self._existing:
            existing += rule.totals[0].of_nodes
        return self._filter, np.stack([*columns, existing], axis=1)


class _SpreadRules(_OfFilter):
    def __init__(self, snapshot: Snapshot, of: TopologySpread, failing: Ints) -> None:
        self._filter = of
        self.rules = [_Even(snapshot, count, failing) for count in of.counts()]

    def now(self) -> tuple[Filter, Ints]:
        counted = self._filter.recounted([rule.totals[0].of_domains for rule in self.rules])
        return counted, counted.base()


def _of_filter(
    snapshot: Snapshot, one: PodAffinityFilter | TopologySpread, failing: Ints
) -> _OfFilter:
    if isinstance(one, PodAffinityFilter):
        return _AffinityRules(snapshot, one, failing)
    return _SpreadRules(snapshot, one, failing)
