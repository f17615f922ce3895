"""A case and its failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from policy.cluster.digest import HistoryFigures
from policy.cluster.objects import ClusterObject
from policy.text.printable import printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """What a case expects; only what is `given` is compared."""

    given: frozenset[str]
    node: str | None = None
    victims: frozenset[str] = frozenset()
    denied: Mapping[str, str | None] = field(default_factory=dict)  #: None: no rule allows it
    outcome: str = ""
    decided_by: str = ""
    binds: Mapping[str, str] = field(default_factory=dict)  #: members of a group -> node
    nominated: Mapping[str, str] = field(default_factory=dict)  #: members of a group -> node


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One cluster, one pod or pod group to decide, and what is wanted."""

    note: str
    place: str  #: `file:line`
    objects: tuple[ClusterObject, ...]
    now_ms: int
    history: HistoryFigures
    preemptor: str  #: namespace/name of a pod; "" where a group is decided
    seed: int
    want: Want
    group: str = ""  #: namespace/name of a pod group


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseMismatch:
    """A case that fails, and where the decision is another one than wanted."""

    place: str  #: of the case
    note: str
    rules: str  #: name of the rule set
    differences: tuple[str, ...]

    def __str__(self) -> str:
        head = f"{self.place}: `{self.rules}` fails: {self.note}"
        return "\n".join(map(printable, [head, *(f"      {d}" for d in self.differences)]))
