"""What is kept of a cluster's state, and what an import did to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject


class Cause(StrEnum):
    """Why a revision came about. Values are stored and never renamed."""

    IMPORT = "import"  # a dump was read
    EXTENDER = "extender"  # objects that a scheduler's request to the service brought
    DECISION = "decision"  # a decision bound a pod, evicted pods or changed nominations
    LIVE = "live"  # an event of a real API server
    SIMULATION = "simulation"  # a step of a simulation beside its decisions
    SESSION = "session"  # a batch session


class NominationEnd(StrEnum):
    """How a nomination ended. Values are stored and never renamed."""

    BOUND = "bound"  # the pod was placed on its nominated node
    BOUND_ELSEWHERE = "bound-elsewhere"  # it was placed on another node
    SUPERSEDED = "superseded"  # it was nominated to another node
    TAKEN_AWAY = "taken-away"  # another pod's preemption cleared it
    CLEARED = "cleared"  # its own cycle, or a change from outside, cleared it
    POD_GONE = "pod-gone"  # the pod was removed


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneScope:
    """What an import is complete for: stored objects within it that are not in the import go.

    The defaults are kubectl's convention: the kinds that occur in the import, and for namespaced
    kinds the namespaces in which any object of the import lies.
    """

    kinds: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCounts:
    """What an import did to the objects of one kind."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayPods:
    """Pods of an import on nodes that neither the import nor the cluster has."""

    count: int = 0
    examples: tuple[tuple[str, str], ...] = ()  #: (pod, node) of the first ones by key


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What an import did."""

    cluster: str
    revision: int  #: head of the cluster afterwards; 0 where it has none
    state_digest: str
    new_revision: bool  #: False where nothing had changed
    kinds: Mapping[str, ImportCounts]
    stray: StrayPods = StrayPods()

    def total(self, what: Literal["added", "changed", "unchanged", "removed"]) -> int:
        return sum(getattr(counts, what) for counts in self.kinds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedState:
    """A cluster as it was at one revision."""

    cluster: str
    revision: int
    state_digest: str
    at_ms: int
    objects: Sequence[ClusterObject] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesSince:
    """The net changes that lead from one revision to another."""

    changes: Sequence[Change]
    revision: int
    state_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedState:
    """Where a cluster stands after changes were written."""

    revision: int
    state_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRow:
    """One step of a cluster's history."""

    cluster: str
    number: int
    at_ms: int
    source: str
    cause: str
    put_count: int
    deleted_count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A cluster and where its history stands."""

    name: str
    revision: int
    state_digest: str
    at_ms: int | None
    decisions: int
