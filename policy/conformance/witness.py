"""The search for a witness: an order among equal pods that explains what was recorded.

Pods of equal priority and start time (in 1.14: of equal priority) have no order of their own; the
real scheduler's depends on its sort and toolchain. A node's recorded victims are explained where
some order among equals makes our own engine give exactly them. Nodes are independent of each
other, so one decision tries one order on each node that is still open.

The likely orders come first: the one in which Go's sort leaves them, and those in which a pod that
is evicted was among the least important of its equals and the list of victims keeps their order.
Then a seeded local search: draw another order of some
equal pods, keep what comes nearer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from policy.conformance.gosort import go_sorted
from policy.conformance.scenario import RecordedCandidate, Scenario

VictimSet: TypeAlias = tuple[tuple[str, ...], int]
"""Victims of one node in their order, and how many violate a budget."""

Decide: TypeAlias = Callable[[Mapping[str, int]], Mapping[str, VictimSet]]
"""Our victims by node, with pods that are equal in importance ranked as given."""

ATTEMPTS: Final = 200
"""Seeded orders among equal pods that are tried before a node counts as different."""


def unexplained(
    scenario: Scenario, recorded: Mapping[str, RecordedCandidate], decide: Decide
) -> set[str]:
    """The nodes of `recorded` for which no witness was found."""
    equals = _equal_pods(scenario, recorded.keys())
    sorted_by_go = _sorted_by_go(scenario, recorded.keys())
    searches = {
        node: _Search(equals[node], candidate, sorted_by_go[node])
        for node, candidate in sorted(recorded.items())
        if any(len(group) > 1 for group in equals[node])
    }
    missing = set(recorded)
    dice = random.Random(0)
    for _ in range(_Search.FIRST + ATTEMPTS):
        still = [node for node in searches if node in missing]
        if not still:
            break
        ranks: dict[str, int] = {}
        for node in still:
            ranks.update(searches[node].propose(dice))
        found = decide(ranks)
        missing -= {node for node in still if searches[node].learn(found.get(node, ((), 0)))}
    return missing


def _equal_pods(scenario: Scenario, nodes: Iterable[str]) -> dict[str, list[list[str]]]:
    """Groups of pods that have no order of their own, in snapshot order, for each node."""
    groups: dict[str, dict[Any, list[str]]] = {node: {} for node in nodes}
    for key, pod in scenario.pods():
        spec = pod.get("spec", {})
        on = groups.get(spec.get("nodeName") or "")
        if on is not None:
            priority = spec.get("priority") or 0
            start = pod.get("status", {}).get("startTime") if scenario.starts_count else None
            on.setdefault((priority, start), []).append(key)
    return {node: list(on.values()) for node, on in groups.items()}


def _sorted_by_go(scenario: Scenario, nodes: Iterable[str]) -> dict[str, list[str]]:
    """Potential victims of each node as the real scheduler's sort leaves them."""
    pods: dict[str, list[tuple[str, int, str | None]]] = {node: [] for node in nodes}
    limit = 0
    for key, pod in scenario.pods():
        priority = pod.get("spec", {}).get("priority") or 0
        if key == scenario.pod:
            limit = priority
        on = pods.get(pod.get("spec", {}).get("nodeName") or "")
        if on is not None and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            start = pod.get("status", {}).get("startTime") if scenario.starts_count else ""
            on.append((key, priority, start))

    def more_important(a: tuple[str, int, str | None], b: tuple[str, int, str | None]) -> bool:
        if a[1] != b[1]:
            return a[1] > b[1]
        # A pod without start time starts "now", which is a little later at every look.
        return a[2] is not None and a[2] < b[2] if b[2] is not None else True

    return {
        node: [pod[0] for pod in go_sorted((p for p in on if p[1] < limit), more_important)]
        for node, on in pods.items()
    }


class _Search:
    """The orders tried on one node."""

    FIRST: Final = 4
    """Orders that follow from what was recorded, before chance decides."""

    def __init__(
        self,
        groups: Sequence[Sequence[str]],
        wanted: RecordedCandidate,
        sorted_by_go: Sequence[str],
    ) -> None:
        self._by_go = {key: place for place, key in enumerate(sorted_by_go)}
        self._wanted: VictimSet = (tuple(wanted.victims), wanted.violations)
        self._listed = {key: place for place, key in enumerate(wanted.victims)}
        self._violating = set(wanted.victims[: wanted.violations])
        self._groups = [list(group) for group in groups]
        # Pods of one group change places with each other only: a rule set that takes unequal
        # pods for equal must not be saved by an order that sorts them.
        everyone = sorted((key for group in groups for key in group), key=_by_name)
        self._places = {key: place for place, key in enumerate(everyone)}
        self._open = [i for i, group in enumerate(groups) if len(group) > 1]
        self._tried = 0
        self._best = self._groups
        self._distance = float("inf")
        self._proposed = self._groups

    def propose(self, dice: random.Random) -> dict[str, int]:
        """The next order, as ranks (the least important pod has the highest)."""
        if self._tried < self.FIRST:
            self._proposed = [self._likely(group) for group in self._groups]
        else:
            self._proposed = [list(group) for group in self._best]
            often = len(self._open) if self._tried % 8 == 0 else dice.choice((1, 1, 2, 3))
            for i in dice.sample(self._open, min(often, len(self._open))):
                self._proposed[i] = self._drawn(self._groups[i], dice)
        self._tried += 1
        ranks: dict[str, int] = {}
        for group, proposed in zip(self._groups, self._proposed, strict=True):
            places = [self._places[key] for key in group]
            ranks.update(zip(proposed, places, strict=True))
        return ranks

    def _split(self, group: Sequence[str]) -> tuple[list[str], list[str]]:
        """Pods of a group that stay, and victims in their recorded order."""
        gone = sorted((key for key in group if key in self._listed), key=self._listed.__getitem__)
        return [key for key in group if key not in self._listed], gone

    def _likely(self, group: Sequence[str]) -> list[str]:
        if self._tried == 0:
            return sorted(group, key=lambda key: self._by_go.get(key, -1))
        kept, gone = self._split(group)
        if self._tried == 1:
            return kept + gone
        if self._tried == 2:
            return kept[::-1] + gone
        # Violating victims are listed first; of equals, those come last that find the budget used.
        within = [key for key in gone if key not in self._violating]
        return within + kept + [key for key in gone if key in self._violating]

    def _drawn(self, group: Sequence[str], dice: random.Random) -> list[str]:
        """A random order of the group in which the list of victims keeps its own."""
        kept, gone = self._split(group)
        dice.shuffle(kept)
        if dice.random() < 0.5:  # where victims are not listed by importance, two lists are joined
            within = [key for key in gone if key not in self._violating]
            gone = _joined(within, [key for key in gone if key in self._violating], dice)
        return _joined(kept, gone, dice)

    def learn(self, found: VictimSet) -> bool:
        """Take the outcome of the proposed order; True where it is the recorded one."""
        if found == self._wanted:
            return True
        distance = self._apart(found)
        if distance <= self._distance:
            self._best, self._distance = self._proposed, distance
        return False

    def _apart(self, found: VictimSet) -> float:
        """How far an outcome is from the recorded one: other pods weigh most, then order."""
        pods, violations = found
        other = len(self._listed.keys() ^ set(pods))
        places = [self._listed[key] for key in pods if key in self._listed]
        crossed = sum(a > b for i, a in enumerate(places) for b in places[i + 1 :])
        return 10 * (other + abs(violations - self._wanted[1])) + crossed


def _by_name(key: str) -> list[str]:
    return key.split("/", 1)


def _joined(first: Sequence[str], second: Sequence[str], dice: random.Random) -> list[str]:
    """Both lists in one, each in its own order."""
    places = set(dice.sample(range(len(first) + len(second)), len(second)))
    left, right = iter(first), iter(second)
    return [next(right if i in places else left) for i in range(len(first) + len(second))]
