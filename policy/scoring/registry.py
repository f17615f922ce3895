"""All scorers by the name that rule files use. A new scorer is one file and one line here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from policy.scoring import (
    balanced_allocation,
    image_locality,
    least_allocated,
    most_allocated,
    node_affinity,
    pod_affinity,
    requested_to_capacity_ratio,
    rule,
    taints,
    topology_spread,
)
from policy.scoring.base import ScorerInfo

RULE: Final = rule.INFO.name


def is_rule(name: str) -> bool:
    """Is a scorer, as a rule file names it, one that an expression stands for?"""
    return name == RULE or bool(_NAMED.fullmatch(name))


_NAMED: Final = re.compile(rf"{RULE}/[a-z0-9]+(?:[.-][a-z0-9]+)*")


class _Scorers(Mapping[str, ScorerInfo]):
    """The scorers by name; `rule/NAME` is `rule`, as often as a file has it."""

    def __init__(self, known: Mapping[str, ScorerInfo]) -> None:
        self._known = known

    def __getitem__(self, name: str) -> ScorerInfo:
        return self._known[RULE if is_rule(name) else name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


SCORERS: Final[Mapping[str, ScorerInfo]] = _Scorers(
    {
        module.INFO.name: module.INFO
        for module in (
            taints,
            node_affinity,
            topology_spread,
            pod_affinity,
            least_allocated,
            most_allocated,
            requested_to_capacity_ratio,
            balanced_allocation,
            image_locality,
            rule,
        )
    }
)
