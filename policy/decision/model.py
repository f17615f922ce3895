"""What one scheduling cycle decided, complete enough to be explained, recorded and replayed.

A decision is immutable data without behaviour of its own: the engine fills it, the store keeps
it, the surfaces print it. Per-node and per-candidate parts are columns (one list per field)
because a decision may span thousands of nodes; `Candidates` and `NodeStatuses` give rows. Parts of
which every decision has several are structs: these are made and written out several times sooner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from enum import IntEnum, StrEnum
from functools import cache
from itertools import pairwise, repeat
from operator import attrgetter
from typing import Any, Final

import msgspec

from policy.cluster import canonical

# Records are read by the types of their fields.
from policy.cluster.digest import HistoryFigures
from policy.decision.columns import Deferred, Texts
from policy.lazy import once

ENGINE_VERSION: Final = "6"
"""Version of the decision procedure and of the canonical decision.

It goes up with every change after which an equal snapshot, rule set, preemptor and seed may give
another digest: another choice, another random draw, another text, a key of the canonical decision
renamed, added or left out. Replay then calls older decisions incomplete (`engine-version`) instead
of different. It stays where only the speed, the tables or the output change. The committed texts
under `tests/data/decisions` fail where it is forgotten, and are written anew when it goes up.
"""


class Outcome(StrEnum):
    """How a cycle ended. Values are stored and never renamed."""

    BIND = "bind"  # the pod fits on a node without preemption and is placed there
    PREEMPT = "preempt"  # victims leave, the pod is nominated to their node
    NOT_ELIGIBLE = "not-eligible"  # the pod may not preempt (or not now)
    NO_CANDIDATE = "no-candidate"  # no node on which evicting pods would help
    REJECTED = "rejected"  # a filter rejected the pod for all nodes at once
    ERROR = "error"  # the cycle failed; no preemption was tried


class Code(IntEnum):
    """Status of a pod on a node, as kube-scheduler's framework counts them."""

    SUCCESS = 0
    UNSCHEDULABLE = 1  # evicting pods may help
    UNRESOLVABLE = 2  # it cannot
    ERROR = 3  # the dry run contradicts the filters

    @property
    def label(self) -> str:
        """The name kube-scheduler prints."""
        return _CODE_LABELS[self]


_CODE_LABELS: Final = {
    Code.SUCCESS: "Success",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.ERROR: "Error",
}


class NominationChange(StrEnum):
    """What happens to the preemptor's own `nominatedNodeName`."""

    SET = "set"  # to the decision's node
    CLEAR = "clear"
    LEAVE = "leave"


class Status(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The status of one node: which filter decided it, and why."""

    code: Code
    filter: str  #: rule-file name of the filter (`resources`); "" where no filter decided
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatuses(Mapping[str, Status]):
    """Statuses by node name; `index[i]` points into the distinct `statuses`."""

    nodes: Sequence[str]
    index: Sequence[int]
    statuses: tuple[Status, ...]
    #: (statuses,) how many nodes have each, where that was counted
    _totals: Sequence[int] = field(default=(), compare=False, repr=False)
    #: of each node, where it is known; filled in at the first look otherwise
    _positions: dict[str, int] = field(default_factory=dict, compare=False, repr=False)

    def __getitem__(self, node: str) -> Status:
        if not self._positions and self.nodes:
            self._positions.update((name, i) for i, name in enumerate(self.nodes))
        return self.statuses[self.index[self._positions[node]]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.nodes)

    def __len__(self) -> int:
        return len(self.nodes)

    def counts(self) -> list[tuple[Status, int]]:
        """Distinct statuses with the number of nodes that have each, in order of first use."""
        totals = self._totals or Counter(self.index)
        return [(s, totals[i]) for i, s in enumerate(self.statuses) if totals[i]]


NO_STATUSES: Final = NodeStatuses(nodes=(), index=(), statuses=())


NO_VALUE: Final = "no-value"
"""Verdict of a rule that is listed because it had no value. Stored, never renamed."""


class RuleFired(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The rule that decided a question, with the values it looked at.

    Also, behind those, a rule or criterion whose condition had no value: verdict `no-value`, the
    reason says why, and the inputs for how many pods (`pods`) or nodes (`nodes`), the first of
    them by name (`first`) and what the rule did (`onError`).
    """

    section: str  #: `eligibility`, `victims.eligible`, ...; `ranking` only where without a value
    rule: str  #: id; "" where the section's default decided
    verdict: str  #: `allow`, `deny`, `forbid`, `no-value`
    reason: str
    inputs: Mapping[str, str | int | bool]


class BudgetCount(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One disruption of a budget, counted for a potential victim.

    Pods of a node are counted from the most important down, whether they leave or not in the end.
    `allowed_after` below 0: the pod's eviction would break the budget.
    """

    budget: str  #: namespace/name
    disruptions_allowed: int  #: as the budget's status says
    allowed_before: int  #: what more important potential victims of the node leave of it
    allowed_after: int


class PodCheck(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of one potential victim of the chosen node, in the order of the reprieve."""

    pod: str  #: namespace/name
    priority: int
    start_ms: int  #: milliseconds since 1970 UTC; `times.MISSING` when it has not started
    pdb_violating: bool
    budgets: tuple[BudgetCount, ...]  #: that select the pod
    reprieved: bool
    ahead_of: str  #: of a reprieved pod: the next pod behind it that had to leave; "" for none
    #: what put it there: `victims.reprieve` (violating pods and others apart) or the key of
    #: `victims.importance` in which the two differ; "" where `ahead_of` is
    ahead_by: str
    filter: str  #: the filter that failed with the pod put back; "" where it was reprieved
    reasons: tuple[str, ...]


class Victim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod that leaves so that the preemptor fits."""

    pod: str  #: namespace/name
    uid: str
    node: str
    priority: int
    priority_class: str
    owner: str  #: Kind/name of the controlling owner, "" without one
    start_ms: int  #: milliseconds since 1970 UTC; `times.MISSING` when it has not started
    run_seconds: int  #: from start to the decision's now; 0 when it has not started
    cpu_milli: int
    memory_bytes: int
    pdb_violating: bool
    already_terminating: bool
    filter: str  #: why it could not be reprieved: the filter that failed with it back in place
    reasons: tuple[str, ...]


class BudgetViolation(BudgetCount, frozen=True, kw_only=True, gc=False):
    """A budget that a victim of a candidate would break."""

    node: str
    pod: str  #: namespace/name


class Candidate(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A node on which the preemptor would fit once the victims have left."""

    node: str
    victims: tuple[str, ...]  #: namespace/name, in the order in which ranking reads them
    pdb_violations: int
    values: Mapping[str, int | None]  #: ranking criterion id -> value; None where it has none
    eliminated_by: str  #: id of the criterion that ruled it out; "" for the chosen one
    position: int  #: 0 for the chosen, then by how late it was eliminated


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates(Sequence[Candidate]):
    """All candidates, best first; ties within a criterion in node-name order.

    The columns are lists that do not change: a decision over thousands of nodes would spend more
    on tuples than on deciding.
    """

    nodes: Sequence[str]
    victims: Sequence[str]  #: of all candidates, one after the other
    offsets: Sequence[int]  #: victims of candidate i: `victims[offsets[i]:offsets[i + 1]]`
    pdb_violations: Sequence[int]
    criteria: tuple[str, ...]
    values: Sequence[Sequence[int | None]]  #: one sequence per criterion, parallel to `nodes`
    eliminated_by: Sequence[str]
    violations: Sequence[BudgetViolation]  #: of all candidates, in their order and their victims'

    def __len__(self) -> int:
        return len(self.nodes)

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._some(range(*index.indices(len(self))))
        i = range(len(self))[index]
        return self._some(range(i, i + 1))[0]

    def _some(self, places: range) -> list[Candidate]:
        if places.step != 1:
            every = self._some(range(len(self)))
            return [every[i] for i in places]
        if not places:
            return []
        # Of these alone: of a column of many candidates the others may never be read.
        here, bounds = slice(places.start, places.stop), slice(places.start, places.stop + 1)
        ends = self.offsets[bounds]
        first = ends[0]
        victims = self.victims[first : ends[-1]]
        values = [column[here] for column in self.values]
        columns = zip(
            self.nodes[here],
            self.pdb_violations[here],
            self.eliminated_by[here],
            zip(*values, strict=True) if values else repeat((), len(places)),
            strict=True,
        )
        return [
            Candidate(
                node=node,
                victims=tuple(victims[start - first : end - first]),
                pdb_violations=violations,
                values=dict(zip(self.criteria, row, strict=True)),
                eliminated_by=eliminated_by,
                position=i,
            )
            for i, (start, end), (node, violations, eliminated_by, row) in zip(
                places, pairwise(ends), columns, strict=True
            )
        ]


NO_CANDIDATES: Final = Candidates(
    nodes=(),
    victims=(),
    offsets=(0,),
    pdb_violations=(),
    criteria=(),
    values=(),
    eliminated_by=(),
    violations=(),
)


class RankingStep(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One criterion of the ranking: how many candidates it met and how many it kept."""

    criterion: str
    direction: str  #: minimize, maximize or pick
    before: int
    after: int
    best: int | None  #: the value that won; None for a pick, and where no candidate has one


class Sampling(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Which potential nodes the dry run looked at."""

    potential: int  #: number of potential nodes
    offset: int  #: where in name order the cyclic walk started
    wanted: int  #: number of candidates after which it may stop
    examined: int  #: number of nodes dry-run


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingPod:
    """A pod whose leaving the preemptor waits for: for that it may not preempt."""

    pod: str  #: namespace/name
    node: str
    priority: int
    since_ms: int  #: since when it is leaving, milliseconds since 1970 UTC
    until_ms: int  #: when it will be forced to be gone: its deletion timestamp


class ObstacleKind(StrEnum):
    """What keeps a pod from a node although all potential victims would leave it. Stored."""

    AFFINITY = "affinity"  # no pod that stays in the topology matches the pod's own affinity
    ANTI_AFFINITY = "anti-affinity"  # pods in the topology match the pod's own anti-affinity
    EXISTING_ANTI_AFFINITY = "existing-anti-affinity"  # that of pods there matches the pod
    SPREAD = "spread"  # the topology would hold too many pods of a spread constraint
    RULE = "rule"  # pods stay by a rule of `victims`
    SAME_PRIORITY = "same-priority"  # pods stay: no rule allows pods of the preemptor's priority
    HIGHER_PRIORITY = "higher-priority"  # pods stay: no rule allows pods of a higher one
    NOT_ALLOWED = "not-allowed"  # pods stay: no rule allows them, whatever their priority
    NOMINATED = "nominated"  # pods of no lower priority that are nominated to the node
    POD_GROUP = "pod-group"  # pods stay: their group leaves as a whole or not at all


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """What stands in the way on one node, the first by name of those with one status."""

    node: str
    kind: ObstacleKind
    #: namespace/name, the first of them by name (`MAX_NAMED`); of `affinity` those that match it
    #: and are potential victims
    pods: tuple[str, ...]
    pod_count: int  #: how many they are in all
    rule: str = ""  #: id of the rule by which pods stay
    topology_key: str = ""
    domain: str = ""  #: the node's value of that label
    others_min: int = 0  #: spread: matching pods in the domain that has the fewest
    max_skew: int = 0  #: spread: of the constraint


MAX_NAMED: Final = 5
"""Pods of one obstacle that are named; the others are counted."""

MAX_EXAMPLES: Final = 8
"""Statuses of nodes of which one node each is looked into for obstacles, the first by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderCall:
    """One exchange with an extender: enough to make the decision again without a network."""

    extender: str  #: its `urlPrefix`
    verb: str  #: filter, prioritize or preempt
    request: str  #: `sha256:` and the hash of the request's body
    status: int  #: HTTP status; 0 where no answer came
    error: str  #: why the call failed, "" where it did not
    answer: str  #: what the engine read of the answer, as JSON; "" where the call failed


class OfferedNode(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A candidate that a scheduler offered: a node, and the pods that would leave it."""

    node: str
    victims: tuple[str, ...]  #: uids, in the scheduler's order
    pdb_violations: int  #: by the scheduler's count
    #: why the rules refuse its victims as the scheduler has them; "" where the state alone counts
    refused: str = ""


class StatusCount(Status, frozen=True, kw_only=True, gc=False):
    """How many nodes have one status."""

    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptCandidates:
    """What a record holds of the candidates: how many there were, and the best of them."""

    count: int
    criteria: tuple[str, ...]
    pdb_violations: int  #: of the best; 0 without any
    best: tuple[Candidate, ...]
    violations: tuple[BudgetViolation, ...]  #: of those in `best`


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFields:
    """How a decision came about, step by step: the fields, in the order of the steps.

    What grows with the cluster is of one type in a decision and of another in its record.
    """

    fits: bool  #: some node passes every filter
    eligible: bool
    rejected: tuple[str, ...]  #: why a filter rejected the pod for all nodes at once
    filter_statuses: NodeStatuses | tuple[StatusCount, ...]  #: every node that has a status
    rules: tuple[RuleFired, ...]
    potential_nodes: Sequence[str] | int  #: their names, or their number
    sampling: Sampling | None
    #: potential nodes that are no candidate
    dry_run_statuses: NodeStatuses | tuple[StatusCount, ...]
    ranking: tuple[RankingStep, ...]
    decided_by: str  #: id of the criterion that left one candidate; "" with fewer than two
    checks: Sequence[PodCheck]  #: potential victims of the best candidate's node
    message: str  #: text of the cycle's result as kube-scheduler words it
    #: (scorer, weight, value of the chosen node) for a pod that fits on more than one node
    scores: tuple[tuple[str, int, int], ...]
    extender_calls: tuple[ExtenderCall, ...] = ()
    #: what a scheduler offered to choose from; None where the engine searched itself
    offer: tuple[OfferedNode, ...] | None = None
    #: pods that leave the nominated node, where the pod may not preempt because of them
    waits_for: tuple[LeavingPod, ...] = ()
    #: what stands in the way, where there is no candidate
    obstacles: tuple[Obstacle, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionTrace(TraceFields):
    """How the decision came about."""

    filter_statuses: NodeStatuses
    potential_nodes: Sequence[str]
    dry_run_statuses: NodeStatuses


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What the cycle does to the cluster, in the order of kube-scheduler."""

    bind: str  #: node that the pod is placed on; "" for none
    mark_disrupted: tuple[str, ...]  #: pods that get condition DisruptionTarget
    evict: tuple[str, ...]  #: pods deleted (a victim that is already leaving may be left out)
    clear_nominations: tuple[str, ...]  #: lower-priority pods that lose their nomination
    nomination: NominationChange


NO_EFFECTS: Final = Effects(
    bind="", mark_disrupted=(), evict=(), clear_nominations=(), nomination=NominationChange.LEAVE
)


@dataclass(frozen=True, kw_only=True)
class DecisionFields:
    """What a decision consists of, causes first.

    What grows with the cluster is of one type in a decision and of another in its record; a field
    that is added here is hashed, recorded, shown and compared by its name.
    """

    preemptor: str  #: namespace/name
    preemptor_uid: str
    preemptor_priority: int
    rule_set: str  #: name
    rule_set_digest: str
    snapshot_digest: str
    history: HistoryFigures | None  #: the figures frozen in the snapshot; its digest covers them
    now_ms: int  #: the snapshot's now, milliseconds since 1970 UTC
    seed: int
    evaluate_all: bool
    engine_version: str = ENGINE_VERSION
    outcome: Outcome
    node: str | None  #: bound or nominated node
    victims: tuple[Victim, ...]  #: of the best candidate, in ranking order
    candidates: Candidates | KeptCandidates
    trace: TraceFields
    effects: Effects


@dataclass(frozen=True, kw_only=True)
class Decision(DecisionFields):
    """The result of `decide`: a pure function of snapshot, rule set, preemptor and seed."""

    candidates: Candidates
    trace: DecisionTrace

    @property
    def canonical(self) -> bytes:
        """Complete canonical JSON (`policy.cluster.canonical`).

        Not kept: it is hundreds of kilobytes in a large cluster, and only its digest is read again.
        """
        return canonical.encode(_written(self))

    @once
    def digest(self) -> str:
        """`sha256:` and the SHA-256 of `canonical`."""
        return canonical.sha256(self.canonical)


_KEYS: Final = {"rule_set_digest": "ruleSet", "snapshot_digest": "snapshot", "now_ms": "now"}
"""Keys of the canonical decision that are not the names of their fields."""

_LEFT_OUT: Final = frozenset({"rule_set", "digest", "history"})
"""Fields that the canonical decision holds by a digest, or that are made from it."""


@cache
def _names(kind: type) -> tuple[tuple[str, str], ...]:
    """(field, key) of a class of this module: the parts of a decision have keys in camel case."""
    names = tuple(name for name in field_names(kind) if not name.startswith("_"))
    if issubclass(kind, DecisionFields | TraceFields | Candidates | KeptCandidates):
        return tuple((n, _KEYS.get(n, camel_case(n))) for n in names if n not in _LEFT_OUT)
    return tuple(zip(names, names, strict=True))


def field_names(kind: Any) -> tuple[str, ...]:
    """The fields of a class of this module: a dataclass, or a struct where decisions have many."""
    if issubclass(kind, msgspec.Struct):
        return tuple(kind.__struct_fields__)
    return tuple(field.name for field in fields(kind))


def _is_part(value: Any) -> bool:
    return is_dataclass(value) or isinstance(value, msgspec.Struct)


@cache
def camel_case(name: str) -> str:
    """`decided_by` as `decidedBy`"""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _written(value: Any) -> Any:
    """What has the canonical text of `document_of`, with every part as it is that has it too.

    The encoder goes through thousands of names and victims on its own, far faster than they could
    be gone through here.
    """
    kind: type = type(value)
    if not _has_parts(kind):
        return value
    if kind is NodeStatuses:
        found = _statuses(value)
        return {**found, "nodes": _written(value.nodes), "index": _written(value.index)}
    if isinstance(value, Texts | Deferred):
        return value.canonical()
    keys, read = _reader(kind)
    # Most values have no parts: for these the dictionary is made in one go.
    written = dict(zip(keys, read(value), strict=True))
    for key, part in written.items():
        of_part: type = type(part)
        if _has_parts(of_part):
            written[key] = _written(part)
    if kind is Candidates:
        written["values"] = [_written(column) for column in value.values]
    return written


@cache
def _reader(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """The keys of a class of this module, and what reads all of its fields at once."""
    names, keys = zip(*_names(kind), strict=True)
    return keys, attrgetter(*names)


@cache
def _has_parts(kind: type) -> bool:
    """Is there something in values of the type that the encoder would write in another way?"""
    parts = (NodeStatuses, DecisionFields, TraceFields, Candidates, Texts, Deferred)
    return issubclass(kind, parts)


def _statuses(found: NodeStatuses) -> dict[str, Any]:
    statuses = [[int(s.code), s.filter, s.reasons] for s in found.statuses]
    return {"nodes": found.nodes, "index": found.index, "statuses": statuses}


def document_of(value: Any) -> Any:
    """A decision, its record or a part of either in the names of the canonical decision."""
    match value:
        case Texts():
            return value.texts()
        case Deferred():
            return document_of(value.values())
        case NodeStatuses():
            statuses = _statuses(value)
            names, index = document_of(value.nodes), document_of(value.index)
            return {**statuses, "nodes": names, "index": index}
        case OfferedNode():
            return msgspec.to_builtins(value)  # without what is not said of it
        case tuple() if value and (_is_part(value[0]) or isinstance(value[0], Deferred)):
            return [document_of(item) for item in value]
        case _ if _is_part(value):
            kind: type = type(value)
            return {key: document_of(getattr(value, name)) for name, key in _names(kind)}
    return value
