"""What operations answer with: the types of which the OpenAPI document has its schemas.

Documents of the record have their fields from the types of the record, so that what is added there
is described here. What a token that is limited to namespaces does not see is null, or another type
without it describes the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias, get_type_hints

import msgspec
from msgspec import UNSET, Meta, UnsetType

from policy.audit.cascade import BudgetMove
from policy.audit.compare import DecisionResult
from policy.audit.inputs import MissingInput
from policy.batch.limits import LimitKind
from policy.batch.recording import Reason, StatementRecord, TaskStep
from policy.cluster.objects import Node, Pod
from policy.decision.groups import GroupDecision
from policy.decision.model import BudgetViolation, Candidate, Obstacle, Victim, field_names
from policy.decision.record import DecisionRecord, TraceRecord
from policy.preemption.placing import Score
from policy.rules.diff import RuleChange
from policy.rules.explain import EffectiveRule
from policy.store.model.decisions import DecisionRow, LedgerPosition, ServedCall
from policy.store.model.environments import Proofs
from policy.store.observed import ObservationRow, ObservedVictimRow

Instant: TypeAlias = Annotated[str, Meta(description="RFC 3339, in UTC.")]
Number: TypeAlias = Annotated[
    int, Meta(description="Its number; another one for a token that is limited to namespaces.")
]
NumberOrNull: TypeAlias = Annotated[
    int | None,
    Meta(
        description="Its number, another one for a token that is limited to namespaces; null where"
        " it was not recorded."
    ),
]
PodName: TypeAlias = Annotated[str, Meta(description="namespace/name")]
Digest: TypeAlias = Annotated[str, Meta(description="`sha256:` and 64 hexadecimal digits.")]


def _made(about: str, name: str, *parts: Mapping[str, Any]) -> type[msgspec.Struct]:
    """A type with all the fields of the parts; of those of one name, the last."""
    typed: dict[str, Any] = {}
    for part in parts:
        typed |= part
    listed: list[tuple[str, Any, Any]] = []
    for field, kind in typed.items():
        optional = UnsetType in getattr(kind, "__args__", ())
        listed.append((field, kind, UNSET if optional else msgspec.NODEFAULT))
    made = msgspec.defstruct(name, listed, kw_only=True, module=__name__)
    made.__doc__ = about
    return made


def _fields(kind: Any, *, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a type of the record, with their types."""
    hints = get_type_hints(kind, include_extras=True)
    return {name: hints[name] for name in field_names(kind) if name not in without}


def _some(fields: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: fields[name] for name in names}


class _Answer(msgspec.Struct, kw_only=True):
    """A JSON object; fields with a default may be missing."""


# --- decisions ------------------------------------------------------------------------------------


class NotCarriedOut(_Answer):
    """What a later state of the cluster contradicts."""

    pod: PodName
    reason: str
    revision: int
    at: Instant


class DecisionLine(_Answer):
    """A decision in a list. What is of another namespace is null for a token that is limited."""

    id: NumberOrNull
    now: Annotated[str, Meta(description="For when it was decided (RFC 3339).")]
    preemptor: Annotated[str | None, Meta(description="namespace/name")]
    priority: int | None
    outcome: str
    node: Annotated[str | None, Meta(description="That the pod is placed on or nominated to.")]
    victims: Annotated[int, Meta(description="How many.")]
    victim_pods: list[PodName]
    decided_by: Annotated[str | None, Meta(description="The criterion that left one candidate.")]
    pdb_violations: int | None
    rule_set: str
    cluster: str
    origin: str
    answer: Annotated[
        str,
        Meta(
            description="What the scheduler got that asked: `offered` (all that it had offered, as"
            " in shadow mode), `chosen` (the decision) or `none` (no candidate). Empty where none"
            " asked."
        ),
    ]


class DecisionList(_Answer):
    """A page of decisions."""

    decisions: list[DecisionLine]


class FilterCount(_Answer):
    """How many nodes have one status of a filter."""

    phase: Annotated[str, Meta(description="`filter` or `dry-run`")]
    filter: str
    code: str
    reasons: list[str]
    node_count: int


_VICTIM: Final = {
    **_fields(Victim),
    "start_ms": int | None,
    "position": int,
    "started": Instant | None,
    "evicted": bool,
}
DecisionVictim: Any = _made("A pod that leaves.", "DecisionVictim", _VICTIM)
OwnVictim: Any = _made(
    "A pod that leaves, as a token that is limited to namespaces sees it.",
    "OwnVictim",
    _some(_VICTIM, "pod", "node", "priority", "priority_class", "owner", "started", "evicted"),
)
AnsweredCall: Any = _made(
    "The scheduler's call that a decision answers.",
    "AnsweredCall",
    _fields(ServedCall, without=("arrived_ms",)),
    {"arrived": Instant},
)
_DECISION: Final = {
    **_fields(DecisionRecord, without=("now_ms", "trace")),
    **_fields(TraceRecord, without=("filter_statuses", "dry_run_statuses")),
    **_fields(DecisionRow, without=("at_ms", "now_ms", "queued_ms", "carried_out")),
    "id": NumberOrNull,
    "at": Instant | None,
    "now": Annotated[str, Meta(description="For when it was decided (RFC 3339).")],
    "queued": Instant | None,
    "criteria": list[str],
    "candidates": list[Candidate],
    "candidate_violations": list[BudgetViolation],
    "ledger": Annotated[LedgerPosition | None, Meta(description="Its entry.")],
    "filters": list[FilterCount],
    "victims": list[DecisionVictim],
    "not_carried_out": list[NotCarriedOut] | UnsetType,
    "explanation": Annotated[str, Meta(description="The decision in one sentence.")],
}
Decided: Any = _made("A decision that is not recorded.", "Decided", _DECISION)
Decision: Any = _made(
    "Everything that is known of a decision, with the names of the tables' columns.",
    "Decision",
    _DECISION,
    {"served": AnsweredCall | None},
)
OwnDecision: Any = _made(
    "A decision, as a token that is limited to namespaces sees it.",
    "OwnDecision",
    _fields(DecisionLine, without=("victim_pods",)),
    {"victims": list[OwnVictim]},
)
_WHY_NOT: Final[dict[str, Any]] = {
    "status": str,
    "filter": str,
    "reasons": list[str],
    "obstacles": list[Obstacle],
    "scores": list[Score],
    "criterion": str,
    "value": int | None,
    "best_value": int | None,
    "violations": list[BudgetViolation],
    "leaving_already": list[str],
}
WhyNot: Any = _made(
    "Why a node was not chosen; the fields depend on the answer.",
    "WhyNot",
    {
        "node": str,
        "answer": Annotated[str, Meta(description="A stable word.")],
        "text": Annotated[str, Meta(description="For people.")],
    },
    {name: kind | UnsetType for name, kind in _WHY_NOT.items()},
)


# --- observed preemptions -------------------------------------------------------------------------

_OBSERVATION: Final = {
    **_fields(ObservationRow, without=("at_ms", "now_ms")),
    "id": Number,
    "at": Instant,
    "now": Annotated[str, Meta(description="When it happened (RFC 3339).")],
}
Observation: Any = _made("A preemption by a cluster's own scheduler.", "Observation", _OBSERVATION)
OwnObservedVictim: Any = _made(
    "A victim, as a token that is limited to namespaces sees it.",
    "OwnObservedVictim",
    _some(
        _fields(ObservedVictimRow),
        *("victim", "namespace", "uid", "node", "priority", "priority_class", "owner"),
        *("run_seconds", "evidence"),
    ),
)
_OWN_OBSERVATION: Final = {
    **_some(_OBSERVATION, "id", "cluster", "now", "node", "confidence", "verdict", "rule_set"),
    "preemptor": Annotated[str | None, Meta(description="namespace/name")],
    "preemptor_uid": str | None,
    "preemptor_kind": str | None,
    "preemptor_priority": int | None,
    "victims": list[OwnObservedVictim],
}
OwnObservation: Any = _made(
    "An observed preemption, as a token that is limited to namespaces sees it.",
    "OwnObservation",
    _OWN_OBSERVATION,
)


ObservationList: Any = _made(
    "A page of observed preemptions.", "ObservationList", {"observations": list[Observation]}
)
OwnObservationList: Any = _made(
    "A page of them, as a token that is limited to namespaces sees it.",
    "OwnObservationList",
    {"observations": list[OwnObservation]},
)


ObservationAgain: Any = _made(
    "An observed preemption, with the decision made again for it.",
    "ObservationAgain",
    _OBSERVATION,
    {
        "decided_again": Annotated[
            dict[str, Any] | None, Meta(description="The canonical decision; null without one.")
        ],
        "undecided": Annotated[str, Meta(description="Why none was made.")],
    },
)


class DecisionRule(_Answer):
    """A rule of a decision's rule set, and what it did in the decision."""

    section: str
    rule: Annotated[str, Meta(description="Its id; empty where no rule of the section decided.")]
    text: str
    why: Annotated[str, Meta(description="What the rule file says that it is for.")]
    did: Annotated[str, Meta(description="Empty for a rule that changed nothing.")]
    inputs: dict[str, str | int | bool]


class DecisionRules(_Answer):
    """The rules of a decision's rule set."""

    rules: list[DecisionRule]


class NodeResource(_Answer):
    """A resource of a node; milli cpu, bytes, or units."""

    resource: str
    allocatable: int
    requested_before: int
    requested_after: int


class NodePod(_Answer):
    """A pod on the node of a decision."""

    pod: PodName
    priority: int
    owner: str
    fate: str
    requests: dict[str, int]


class DecisionNode(_Answer):
    """The node of a decision before and after it."""

    node: str
    revision: int
    resources: list[NodeResource]
    pods: list[NodePod]


class ReprievedPod(_Answer):
    """A potential victim that may stay."""

    pod: PodName
    priority: int
    why: str
    ahead_of: Annotated[str, Meta(description="The next one behind it that had to leave.")]
    budgets: list[str]


class ProtectedPods(_Answer):
    """Pods that are no potential victims, for one reason."""

    pods: list[PodName]
    rule: Annotated[str, Meta(description="The rule that keeps them; empty where none does.")]
    why: str


class SparedPods(_Answer):
    """Pods of a decision's node that stay."""

    reprieved: list[ReprievedPod]
    protected: list[ProtectedPods]


class Replay(_Answer):
    """How the replay of a decision ended."""

    id: int
    verdict: str
    first_difference: str | None
    recorded: Any
    replayed: Any
    missing: list[MissingInput]
    detail: str
    recorded_digest: Digest
    replayed_digest: Digest | None


# --- the overview ---------------------------------------------------------------------------------


class HourCount(_Answer):
    """Preemptions of an hour."""

    hour: Instant
    preemptions: int


class LedgerPlace(_Answer):
    """The newest entry of a ledger."""

    sequence: int
    at: Instant


class ClusterFigures(_Answer):
    """A cluster in the time that was asked for."""

    cluster: str
    preemptions: int
    victims: int
    pdb_violations: int
    revision: int | None
    state_age_seconds: Annotated[
        int | None, Meta(description="Null without a state, and where it is a simulated one.")
    ]
    ledger: LedgerPlace | None
    observed: Annotated[int, Meta(description="Newest preemptions of its own scheduler.")]
    same: Annotated[int, Meta(description="Of these, that the rules decide in the same way.")]
    verdicts: dict[str, int]
    simulated: Annotated[bool, Meta(description="Does it hold simulations and nothing real?")]


class ActiveRules(_Answer):
    """What decides in an environment."""

    environment: str
    cluster: str
    rule_set: str | None
    digest: Digest | None
    since: Instant | None


class NamespaceEvictions(_Answer):
    """Evictions in a namespace."""

    namespace: str
    evictions: int


class WorkloadEvictions(_Answer):
    """Evictions of a workload."""

    cluster: str
    workload: str
    evictions: int


class WaitingPod(_Answer):
    """A pod that is nominated and waits."""

    cluster: str
    pod: PodName
    priority: int
    node: str
    since: Instant
    decision: Annotated[
        int | None, Meta(description="That nominated it; null where none of the record did.")
    ]


class ViolatedBudget(_Answer):
    """A disruption budget that victims violate."""

    cluster: str
    budget: Annotated[str | None, Meta(description="Null where the record does not keep which.")]
    namespace: str
    victims: Annotated[int, Meta(description="Pods that were leaving already among them.")]
    newest: Instant
    decision: int


class Overview(_Answer):
    """How preemption goes."""

    since: Instant
    until: Instant
    preemptions: int
    by_hour: list[HourCount]
    outcomes: dict[str, int]
    clusters: list[ClusterFigures]
    environments: list[ActiveRules]
    namespaces: list[NamespaceEvictions]
    workloads: list[WorkloadEvictions]
    nominated: list[WaitingPod]
    more_nominated: bool
    budgets: list[ViolatedBudget]


# --- cycles of pod groups -------------------------------------------------------------------------


class CycleLine(_Answer):
    """A cycle in a list. What is of another namespace is null for a token that is limited."""

    id: Number
    now: Instant
    group: Annotated[str | None, Meta(description="namespace/name")]
    outcome: str
    bound: int | None
    evicted: int
    rule_set: str
    cluster: str


class CycleList(_Answer):
    """A page of cycles."""

    groups: list[CycleLine]


Cycle: Any = _made(
    "A cycle of a pod group.",
    "Cycle",
    _fields(GroupDecision, without=("now_ms",)),
    _fields(CycleLine),
    {
        "now_ms": int,
        "at": Instant,
        "actor": str,
        "environment": str,
        "base_revision": int,
        "revision": int | None,
        "hypothetical": bool,
        "digest": Digest,
        "not_carried_out": list[NotCarriedOut],
    },
)


DecidedCycle: Any = _made(
    "A cycle of a pod group that is not recorded.",
    "DecidedCycle",
    _fields(GroupDecision, without=("now_ms",)),
    {
        "now_ms": int,
        "now": Instant,
        "cluster": str,
        "environment": str,
        "base_revision": int,
        "digest": Digest,
    },
)


class OwnMember(_Answer):
    """A member of a group."""

    pod: PodName
    priority: int
    placed: str
    bound: bool
    nominated_node: str


OwnCycle: Any = _made(
    "A cycle of a pod group, as a token that is limited to namespaces sees it.",
    "OwnCycle",
    _fields(CycleLine),
    {"members": list[OwnMember], "victims": list[OwnVictim]},
)


# --- batch sessions -------------------------------------------------------------------------------


class BatchSessionLine(_Answer):
    """A batch session in a list."""

    id: Number
    cluster: str
    now: Annotated[str, Meta(description="For when it was held (RFC 3339).")]
    environment: str
    rule_set: str
    base_revision: int
    revision: Annotated[int | None, Meta(description="That it led to; null where none.")]
    bound: Annotated[int, Meta(description="Pods.")]
    evicted: Annotated[int, Meta(description="Pods.")]
    actor: Annotated[str, Meta(description="Who claimed to hold it.")]
    process_uid: int | None
    process_user: str
    database_user: str
    digest: Digest


class BatchSessionList(_Answer):
    """A page of batch sessions."""

    sessions: list[BatchSessionLine]


class PlacedPod(_Answer):
    """A pod that was bound or promised room."""

    pod: PodName
    node: str
    job: str
    queue: str


class BatchEviction(PlacedPod, kw_only=True, rename={"for_": "for"}):
    """A pod that was evicted, and the pod that it makes room for."""

    action: str
    for_: str
    for_job: str
    for_queue: str


class QueueShare(_Answer):
    """A queue before and after a session; amounts in milli units, bytes or pods."""

    queue: str
    weight: int | None
    deserved: dict[str, float] | None
    share_before: float | None
    share_after: float | None
    bound: int
    evicted: int
    capability: dict[str, float] | UnsetType = UNSET
    guarantee: dict[str, float] | UnsetType = UNSET
    inqueue: dict[str, float] | UnsetType = UNSET
    elastic: dict[str, float] | UnsetType = UNSET


class JobShare(_Answer):
    """A job before and after a session."""

    job: str
    queue: str
    share_before: float | None
    share_after: float | None
    bound: int
    pipelined: Annotated[int, Meta(description="Pods that were promised room.")]
    evicted: int


class SessionNote(_Answer):
    """What of the cluster could not be used as it is."""

    note: str
    subject: str
    detail: str


class BatchLimit(_Answer):
    """A plugin's no with its numbers, which are texts."""

    plugin: str
    rule: LimitKind
    subject: str
    tier: int
    exceeded: list[str]
    asked: dict[str, str]
    used: dict[str, str]
    allowed: dict[str, str]


class BatchProtection(_Answer):
    """The limit for which a plugin spared a pod."""

    task: PodName
    limit: BatchLimit


class BatchAnswer(_Answer):
    """What the plugins said about evicting pods of a node."""

    node: str
    potential: list[PodName]
    vetoes: Annotated[dict[str, list[PodName]], Meta(description="By plugin, whom it spared.")]
    victims: list[PodName]
    verdict: Reason
    tier: int | UnsetType = UNSET
    protections: list[BatchProtection] | UnsetType = UNSET


class BatchRejection(_Answer):
    """Why no node was found."""

    nodes: Annotated[dict[str, int], Meta(description="Number of nodes by reason.")]
    vetoes: Annotated[dict[str, int], Meta(description="By plugin, how many pods it spared.")]
    answers: list[BatchAnswer]
    limit: BatchLimit | UnsetType = UNSET


class WaitingJob(_Answer):
    """Why pods of a job still wait after a session."""

    job: str
    queue: str
    reason: Reason
    minimum: int
    ready: int
    waiting: Annotated[int, Meta(description="Pods that are promised room.")]
    pending: int
    task: Annotated[str, Meta(description="The last pod for which no node was found.")]
    action: str
    rejection: BatchRejection | None
    why: Annotated[list[str], Meta(description="For people.")]


BatchStep: Any = _made(
    "One operation on a pod or job.",
    "BatchStep",
    _fields(TaskStep),
    {
        "queue": str,
        "claimant": Annotated[str, Meta(description="The pod that an eviction makes room for.")],
        "answer": BatchAnswer | None,
        "rejection": BatchRejection | None,
    },
)
BatchStatement: Any = _made(
    "Steps that took effect together, or not at all.",
    "BatchStatement",
    _fields(StatementRecord, without=("turn",)),
    {"steps": Annotated[list[int], Meta(description="Positions.")]},
)
BatchSession: Any = _made(
    "A batch session, as `policy batch explain` prints it.",
    "BatchSession",
    _fields(BatchSessionLine, without=("bound", "evicted")),
    {
        "at": Instant,
        "rule_set_digest": Digest,
        "snapshot_digest": Digest,
        "binds": list[PlacedPod],
        "pipelined": list[PlacedPod],
        "evictions": list[BatchEviction],
        "queues": list[QueueShare],
        "jobs": list[JobShare],
        "waiting": list[WaitingJob],
        "notes": list[SessionNote],
        "not_carried_out": list[NotCarriedOut],
        "steps": list[BatchStep],
        "statements": list[BatchStatement],
    },
)


class OwnBatchSessionLine(_Answer):
    """A batch session in a list, as a token that is limited to namespaces sees it."""

    id: Number
    cluster: str
    now: Annotated[str, Meta(description="For when it was held (RFC 3339).")]
    rule_set: str
    bound: Annotated[int, Meta(description="Pods of its namespaces.")]
    evicted: Annotated[int, Meta(description="Pods of its namespaces.")]


class OwnBatchSessionList(_Answer):
    """A page of them, as a token that is limited to namespaces sees it."""

    sessions: list[OwnBatchSessionLine]


class OwnBatchStep(_Answer):
    """A pod that was bound or evicted."""

    action: str
    operation: str
    job: str | None
    task: PodName
    node: str
    claimant: Annotated[str | None, Meta(description="Null where it is of another namespace.")]
    carried_out: Annotated[bool, Meta(description="False where a later state contradicts it.")]


OwnBatchSession: Any = _made(
    "A batch session, as a token that is limited to namespaces sees it.",
    "OwnBatchSession",
    _fields(OwnBatchSessionLine),
    {"steps": list[OwnBatchStep]},
)


# --- environments, rules --------------------------------------------------------------------------


class Activation(_Answer):
    """A rule set that was made the active one."""

    id: int
    environment: str
    at: Instant
    actor: Annotated[str, Meta(description="The token that did it.")]
    rule_set: str
    digest: Digest
    before: Annotated[str | None, Meta(description="Digest of what was active before.")]
    reason: str
    source: Annotated[str, Meta(description="File, name, or `rollback to activation N`.")]
    proofs: Proofs | None


class Environment(_Answer):
    """An environment, and what is active in it."""

    environment: str
    cluster: str
    created: Instant
    created_by: str
    active: Activation | None


class EnvironmentList(_Answer):
    """All environments."""

    environments: list[Environment]


class EnvironmentHistory(Environment, kw_only=True):
    """An environment with its activations, newest first."""

    activations: list[Activation]


class RuleSetLine(_Answer):
    """A rule set in a list."""

    name: str
    kind: str
    description: str
    digest: Digest
    shipped: bool
    active_in: Annotated[list[str], Meta(description="Environments.")]


class RuleSetList(_Answer):
    """All rule sets."""

    rule_sets: list[RuleSetLine]


class RuleSetText(_Answer):
    """A rule set."""

    name: str
    digest: Digest
    kind: str
    canonical: Annotated[str, Meta(description="The text that the digest is of.")]
    rules: list[EffectiveRule]


class RuleUse(_Answer):
    """How often a rule decided."""

    section: str
    rule: Annotated[str, Meta(description="Its id; empty where no rule of the section decided.")]
    decisions: Annotated[list[int], Meta(description="In each of `days`.")]


class RuleUses(_Answer):
    """How often each rule of a rule set decided."""

    digest: Digest
    days: Annotated[list[int | None], Meta(description="Up to now, today included; null: all.")]
    decisions: Annotated[list[int], Meta(description="Of the rule set, in each of `days`.")]
    rules: list[RuleUse]


class RuleSetDifference(_Answer):
    """What changes from one rule set to another."""

    changes: list[RuleChange]


# --- state ----------------------------------------------------------------------------------------


class StatePods(_Answer):
    """Pods of a state, by name."""

    revision: int
    pods: list[Pod]


class StateNodes(_Answer):
    """Nodes of a state, by name."""

    revision: int
    nodes: list[Node]


class Revision(_Answer):
    """A revision of the state."""

    revision: int
    at: Instant
    source: str
    cause: str
    put: Annotated[int, Meta(description="Objects that were written.")]
    deleted: Annotated[int, Meta(description="Objects that were removed.")]
    digest: Digest


class RevisionList(_Answer):
    """A page of revisions."""

    revisions: list[Revision]


_NOMINATION: Final = {
    "cluster": str,
    "pod": PodName,
    "priority": int,
    "node": str,
    "made_revision": int,
    "made_decision": Annotated[
        int | None, Meta(description="The decision that made it; null where none did.")
    ],
    "made_at": Instant,
    "kept": Annotated[int, Meta(description="Later cycles of the pod that left it as it was.")],
    "outcome": Annotated[
        str,
        Meta(
            description="`not-carried-out` where a later state of the cluster contradicts the"
            " decision that made it, else empty."
        ),
    ],
    "ended_by": Annotated[
        str | None,
        Meta(description="`nomination_ends.cause` of docs/sql.md; null while it stands."),
    ],
    "ended_revision": int | None,
    "ended_decision": Annotated[
        int | None, Meta(description="The decision that ended it; null where none did.")
    ],
    "ended_at": Instant | None,
}
Nomination: Any = _made("A pod that was promised a node.", "Nomination", _NOMINATION)
OwnNomination: Any = _made(
    "A pod that was promised a node, as a token that is limited to namespaces sees it.",
    "OwnNomination",
    {k: v for k, v in _NOMINATION.items() if k not in ("made_revision", "ended_revision")},
)


class NominationList(_Answer):
    """A page of nominations."""

    nominations: list[Nomination]


class OwnNominationList(_Answer):
    """A page of nominations of pods of its namespaces."""

    nominations: list[OwnNomination]


# --- what would be decided ------------------------------------------------------------------------


class SupposedStep(_Answer):
    """A pod or pod group that looks for nodes."""

    step: int
    cause: Annotated[int | None, Meta(description="The step whose victim the pod is.")]
    depth: int
    pod: PodName
    was: Annotated[str, Meta(description="The victim that the pod comes back for.")]
    priority: int
    outcome: Annotated[str | None, Meta(description="Null beyond `depth`.")]
    node: str | None
    victims: list[PodName]
    decision: int | str | None
    digest: str | None
    budgets: list[BudgetMove]


class Supposed(_Answer):
    """The decisions that would follow."""

    cluster: str
    revision: int
    rules: str
    rule_set_digest: Digest
    steps: list[SupposedStep]
    lost: Annotated[list[PodName], Meta(description="Pods of removed nodes that do not come back.")]


MemberNode: TypeAlias = Annotated[tuple[str, str], Meta(description="A member and its node.")]
ComparedResult: Any = _made(
    "What a decision, or the cycle of a pod group, came to.",
    "ComparedResult",
    _fields(DecisionResult),
    {
        "outcome": str,
        "bound": (
            Annotated[list[MemberNode], Meta(description="Of a cycle: members that start.")]
            | UnsetType
        ),
        "nominated": (
            Annotated[list[MemberNode], Meta(description="Of a cycle: members that wait for room.")]
            | UnsetType
        ),
    },
)


class ComparedDecision(_Answer):
    """A decision or cycle under other rules: either `skipped` with `detail`, or the others."""

    id: Annotated[int | str, Meta(description="Its number; of a cycle, behind `group:`.")]
    skipped: list[MissingInput] | UnsetType = UNSET
    detail: str | UnsetType = UNSET
    now: Instant | UnsetType = UNSET
    preemptor: PodName | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    change: str | UnsetType = UNSET
    before: ComparedResult | UnsetType = UNSET
    after: ComparedResult | UnsetType = UNSET


class ComparedGroup(_Answer):
    """Decisions of a kind, and what they took before and after."""

    decisions: int
    changed: int
    before: dict[str, int]
    after: dict[str, int]


class ComparedLosses(_Answer):
    """What decisions took of a kind of pods before and after."""

    before: dict[str, int]
    after: dict[str, int]


class Comparison(_Answer):
    """Decisions and cycles under other rules; sums where the newest ones were asked for."""

    rules: str
    digest: Digest
    decisions: list[ComparedDecision]
    total: ComparedGroup | UnsetType = UNSET
    changes: dict[str, int] | UnsetType = UNSET
    by_namespace: dict[str, ComparedGroup] | UnsetType = UNSET
    by_priority: dict[str, ComparedGroup] | UnsetType = UNSET
    by_victim_namespace: dict[str, ComparedLosses] | UnsetType = UNSET
    by_victim_priority: dict[str, ComparedLosses] | UnsetType = UNSET


# --- the ledger, SQL, problems --------------------------------------------------------------------


class Head(_Answer):
    """The newest entry of a cluster's ledger."""

    cluster: str
    sequence: int
    hash: str
    at: Instant


class HeadList(_Answer):
    """The newest entry of each ledger."""

    heads: list[Head]


class Verification(_Answer):
    """What the ledger proves."""

    cluster: str
    ok: bool
    findings: Annotated[list[str], Meta(description="What was changed; empty where nothing was.")]


class SavedQuery(_Answer):
    """A query with a name."""

    name: str
    about: str
    sql: str
    parameters: list[str]


class QueryList(_Answer):
    """All saved queries."""

    queries: list[SavedQuery]


class SqlResult(_Answer):
    """Rows of a statement; the last two fields are those of a token that is limited."""

    columns: list[str]
    rows: list[list[Any]]
    more: Annotated[bool, Meta(description="There are more rows than `limit`.")]
    copied: (
        Annotated[dict[str, int], Meta(description="Rows of each table that the statement names.")]
        | UnsetType
    ) = UNSET
    older_left_out: (
        Annotated[list[str], Meta(description="Tables that have only the newest.")] | UnsetType
    ) = UNSET


class ProblemKind(_Answer):
    """What a kind of problem means."""

    type: Annotated[str, Meta(description="As problems of the kind have it.")]
    title: str
    help: Annotated[str, Meta(description="What to do.")]


class FieldError(msgspec.Struct, kw_only=True, rename={"where": "in"}):
    """What is wrong with a field of the request."""

    where: Annotated[str, Meta(description="`query` or `body`")]
    field: str
    message: str


class Problem(_Answer):
    """An error, as RFC 9457 has it."""

    type: Annotated[str, Meta(description="An address that says what it means.")]
    title: str
    status: int
    detail: str
    help: str | UnsetType = UNSET
    errors: list[FieldError] | UnsetType = UNSET
