"""Every variable and function that an expression may use: type, unit, meaning, where allowed.

This table is the contract between rule files and the engine. The documentation, the type
checker, the editor schema and the "did you mean" help all read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Context(StrEnum):
    """Where in a rule file an expression stands; it decides which variables exist."""

    ELIGIBILITY = "eligibility"  # may the preemptor preempt at all?
    VICTIMS = "victims"  # may this pod be a victim?
    FORBID = "forbid"  # as `victims`, after the PDBs have been counted
    IMPORTANCE = "importance"  # which potential victim is kept first?
    RANKING = "ranking"  # which candidate node is best?
    SCORING = "scoring"  # which of the nodes that fit is best?
    GROUP_ELIGIBILITY = "group eligibility"  # may the pod group preempt at all?
    UNITS = "units"  # may this unit be preempted for a pod group?
    UNIT_IMPORTANCE = "unit importance"  # which potential unit is kept first?


class ValueType(StrEnum):
    """The CEL types that variables and results may have."""

    BOOL = "bool"
    INT = "int"
    STRING = "string"
    TIMESTAMP = "timestamp"
    DURATION = "duration"
    STRING_MAP = "map<string, string>"
    INT_MAP = "map<string, int>"


class Shape(StrEnum):
    """How the values of a variable are spread over the rows of one evaluation."""

    SCALAR = "scalar"  # the same for all rows
    COLUMN = "column"  # numbers: an array with one value per row
    INTERNED = "interned"  # strings and maps: few distinct values, shared by many rows
    IDENTITY = "identity"  # strings that hardly ever repeat: names, keys, uids


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """One declared variable."""

    name: str
    type: ValueType
    doc: str  #: one sentence
    contexts: frozenset[Context]
    unit: str = ""
    shape: Shape = Shape.COLUMN
    history: str = ""  #: the history function whose figures it is computed from


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryFunction:
    """One `history.*` function; its figures are frozen before a decision."""

    name: str  #: without the `history.` in front
    argument: str  #: what the string argument names: `workload` or `namespace`
    windowed: bool  #: takes a second argument, a literal duration
    missing: int  #: the figure of a key that history knows nothing about
    doc: str


NEVER = 2**53
"""`history.secondsSinceLastPreempted` of a workload that was not preempted, and
`victim.budgetLastEvictedSeconds` where no budget was hit."""

EMPTY_NODE = 2**31
"""`node.lowestPriority` of a node without pods: above every priority that a pod can have."""

LOOK_BACK_SECONDS = 30 * 86_400
"""How far back `history.secondsSinceLastPreempted` looks."""

_EVERYWHERE = frozenset(Context)
_UNIT = frozenset({Context.UNITS, Context.UNIT_IMPORTANCE})
_GROUP = _UNIT | {Context.GROUP_ELIGIBILITY}
_ONE_POD = _EVERYWHERE - _GROUP
_VICTIM = frozenset({Context.VICTIMS, Context.FORBID, Context.IMPORTANCE})
_NODE = _VICTIM | {Context.RANKING, Context.SCORING}
_RANKING = frozenset({Context.RANKING})
_ELIGIBILITY = frozenset({Context.ELIGIBILITY})
_CLUSTER = _ELIGIBILITY | _RANKING | _GROUP

_B, _I, _S, _T = ValueType.BOOL, ValueType.INT, ValueType.STRING, ValueType.TIMESTAMP
_SM, _IM = ValueType.STRING_MAP, ValueType.INT_MAP

_Row = tuple[str, ValueType, str, str]

_POD: tuple[_Row, ...] = (
    ("name", _S, "", "name of the pod"),
    ("namespace", _S, "", "namespace of the pod"),
    ("key", _S, "", "`namespace/name`, unique among the pods of a snapshot"),
    ("uid", _S, "", "unique id that the API server gave the pod"),
    ("priority", _I, "", "`spec.priority`, 0 where it is absent"),
    ("preemptionPolicy", _S, "", "`PreemptLowerPriority` or `Never`"),
    ("priorityClassName", _S, "", "name of the priority class, '' if none"),
    ("labels", _SM, "", "labels of the pod"),
    ("annotations", _SM, "", "annotations of the pod"),
    ("priorityClassAnnotations", _SM, "", "annotations of the pod's priority class"),
    ("owner", _S, "", "`Kind/name` of the controlling owner, '' if none"),
    (
        "workload",
        _S,
        "",
        "`namespace/Kind/name` of the controlling owner, `namespace/Pod/name` of a pod without one",
    ),
    ("schedulerName", _S, "", "the scheduler responsible for the pod"),
    ("cpuMilli", _I, "thousandths of a core", "cpu request of the pod"),
    ("memoryBytes", _I, "bytes", "memory request of the pod"),
    ("requests", _IM, "base units, cpu in thousandths", "every request by resource name"),
    ("createdAt", _T, "UTC", "when the pod was created"),
)
_PREEMPTOR: tuple[_Row, ...] = (
    *_POD,
    ("nominatedNode", _S, "", "the node that the pod is nominated to, '' if none"),
    ("waitingSeconds", _I, "seconds", "time since the pod was created"),
)
_VICTIM_ONLY: tuple[_Row, ...] = (
    *_POD,
    ("node", _S, "", "the node that the pod is on"),
    ("phase", _S, "", "`status.phase`: Pending or Running"),
    (
        "qosClass",
        _S,
        "",
        "Guaranteed, Burstable or BestEffort; from requests and limits where the status has none",
    ),
    ("startTime", _T, "UTC", "when the pod started; a pod that has not started counts as now"),
    ("started", _B, "", "the pod has a start time"),
    ("runtimeSeconds", _I, "seconds", "time since the pod started, 0 before"),
    ("terminating", _B, "", "the pod has a deletion timestamp"),
    (
        "terminatingSeconds",
        _I,
        "seconds",
        "time since the pod was asked to go, 0 for one that is not terminating",
    ),
    ("limits", _IM, "base units, cpu in thousandths", "every limit by resource name"),
    (
        "terminatingByPreemption",
        _B,
        "",
        "terminating, and its first DisruptionTarget condition says PreemptionByScheduler",
    ),
    ("namespaceLabels", _SM, "", "labels of the pod's namespace"),
    ("pdbMatches", _I, "budgets", "number of pod disruption budgets that select the pod"),
    (
        "pdbViolating",
        _B,
        "",
        "removing the pod breaks a budget, as counted on its node among the potential victims",
    ),
    (
        "budgetLastEvictedSeconds",
        _I,
        "seconds",
        "since a pod of one of the pod's disruption budgets was last preempted, 2^53 if not within "
        "the last 30 days or without a budget; [how it is counted](#history)",
    ),
    (
        "fitsElsewhere",
        _B,
        "",
        "the pod would pass the filters on another node as the cluster stands; "
        "[what that means](#does-the-victim-fit-elsewhere)",
    ),
)
_NODE_ROWS: tuple[_Row, ...] = (
    ("name", _S, "", "name of the node"),
    ("labels", _SM, "", "labels of the node"),
    ("unschedulable", _B, "", "`spec.unschedulable`"),
    ("cpuMilli", _I, "thousandths of a core", "allocatable cpu"),
    ("memoryBytes", _I, "bytes", "allocatable memory"),
    ("podCount", _I, "pods", "pods on the node"),
    ("lowestPriority", _I, "", "lowest priority of the pods on the node; 2^31 on an empty one"),
)
_CANDIDATE: tuple[_Row, ...] = (
    ("node", _S, "", "name of the candidate node"),
    ("pdbViolations", _I, "pods", "victims whose removal breaks a disruption budget"),
    ("topPriority", _I, "", "priority of the first listed victim"),
    ("highestPriority", _I, "", "highest priority among the victims"),
    ("prioritySum", _I, "", "sum over the victims of priority + 2^31"),
    ("victimCount", _I, "pods", "number of victims"),
    (
        "earliestStartOfTopPriority",
        _T,
        "UTC",
        "earliest start among the victims of the highest priority",
    ),
    ("cpuMilli", _I, "thousandths of a core", "cpu requests of the victims"),
    ("memoryBytes", _I, "bytes", "memory requests of the victims"),
    ("victimSeconds", _I, "seconds", "sum of the victims' run times: the work that is lost"),
    ("needsNoVictim", _B, "", "the preemptor fits without removing anybody"),
    (
        "reprievedViolations",
        _I,
        "pods",
        "pods that may be victims, whose removal would break a disruption budget, and that stay",
    ),
)
_NOMINATED: tuple[_Row, ...] = (
    ("node", _S, "", "the preemptor's nominated node, '' if none"),
    ("exists", _B, "", "the nominated node is part of the cluster"),
    (
        "status",
        _S,
        "",
        "what the filters say of the nominated node: '' (none), Success, Unschedulable or "
        "UnschedulableAndUnresolvable",
    ),
    (
        "lowerPriorityTerminating",
        _I,
        "pods",
        "lower-priority pods with a deletion timestamp on the nominated node",
    ),
    (
        "preemptedPodsTerminating",
        _I,
        "pods",
        "of those, the ones that the scheduler preempted and that may be victims",
    ),
    (
        "preemptedLowerPriorityTerminating",
        _I,
        "pods",
        "of those, the ones that the scheduler preempted, whether or not they may be victims",
    ),
)
_CLUSTER_ROWS: tuple[_Row, ...] = (
    ("nodeCount", _I, "nodes", "nodes in the cluster"),
    ("failedNodeCount", _I, "nodes", "nodes that the preemptor's filters rejected"),
)

_GROUP_ROWS: tuple[_Row, ...] = (
    ("name", _S, "", "name of the pod group that is decided"),
    ("namespace", _S, "", "its namespace"),
    ("key", _S, "", "`namespace/name`"),
    ("uid", _S, "", "unique id that the API server gave it"),
    ("priority", _I, "", "`spec.priority`, 0 where it is absent"),
    ("preemptionPolicy", _S, "", "`spec.preemptionPolicy` (v1alpha3), '' where it is absent"),
    ("priorityClassName", _S, "", "name of its priority class, '' if none"),
    ("labels", _SM, "", "its labels"),
    ("annotations", _SM, "", "its annotations"),
    ("policy", _S, "", "`gang` or `basic`"),
    ("minCount", _I, "pods", "pods that have to start together; 1 for policy `basic`"),
    ("disruptionMode", _S, "", "`Pod` or `PodGroup`"),
    ("topologyKeys", _I, "keys", "topology keys in its scheduling constraints"),
    ("members", _I, "pods", "pending members that this cycle tries"),
    ("assigned", _I, "pods", "members that are on nodes"),
    ("running", _I, "pods", "members on nodes whose phase is Running"),
    ("neverPreempting", _I, "pods", "tried members of preemptionPolicy `Never`"),
    ("highestMemberPriority", _I, "", "highest pod priority among the tried members"),
    (
        "preemptedPodsTerminating",
        _I,
        "pods",
        "pods of lower priority that a scheduler preempted and that still leave the nodes to which "
        "members are nominated",
    ),
    ("createdAt", _T, "UTC", "when the group was created"),
    ("waitingSeconds", _I, "seconds", "time since the group was created"),
)
_UNIT_ROWS: tuple[_Row, ...] = (
    ("key", _S, "", "`namespace/name` of its first pod"),
    ("namespace", _S, "", "namespace of its pods"),
    ("priority", _I, "", "of a whole group its `spec.priority`, of a lone pod the pod's"),
    ("podPriority", _I, "", "highest pod priority among its pods"),
    ("pods", _I, "pods", "number of its pods"),
    ("grouped", _B, "", "its first pod names a pod group, in whatever disruption mode"),
    ("groupSize", _I, "pods", "number of its pods where it is grouped, else 0"),
    ("whole", _B, "", "its pods leave together: a group in disruption mode `PodGroup`"),
    ("group", _S, "", "`namespace/name` of the pod group that its first pod names, '' if none"),
    ("disruptionMode", _S, "", "of that group: `Pod` or `PodGroup`; '' without one"),
    ("ofPreemptor", _B, "", "its pods are members of the group that preempts"),
    ("labels", _SM, "", "labels of its first pod"),
    ("workload", _S, "", "`namespace/Kind/name` of the controlling owner of its first pod"),
    ("startTime", _T, "UTC", "its start, as `units.start` says; without one it counts as now"),
    ("oldestStart", _T, "UTC", "start of its oldest pod"),
    ("terminating", _I, "pods", "its pods that have a deletion timestamp"),
    ("cpuMilli", _I, "thousandths of a core", "cpu requests of its pods"),
    ("memoryBytes", _I, "bytes", "memory requests of its pods"),
    ("nodes", _I, "nodes", "number of nodes that its pods are on"),
)

_FROM_HISTORY = {"victim.budgetLastEvictedSeconds": "secondsSinceLastPreempted"}
_IDENTITIES = frozenset({"name", "key", "uid", "node"})


def _shape(group: str, field: str, kind: ValueType, varies: bool) -> Shape:
    """Strings and maps are interned; names of the rows' own objects hardly repeat."""
    if not varies:
        return Shape.SCALAR
    if kind not in (_S, _SM, _IM):
        return Shape.COLUMN
    own_name = field in _IDENTITIES and (group, field) != ("victim", "node")
    return Shape.IDENTITY if own_name else Shape.INTERNED


def _contexts(name: str, contexts: frozenset[Context]) -> frozenset[Context]:
    """Where the variable exists, of the places in which its group does."""
    if name == "victim.pdbViolating":
        return frozenset({Context.FORBID})
    # Every member fails on nodes of its own.
    return contexts - _GROUP if name == "cluster.failedNodeCount" else contexts


def _declare() -> Mapping[str, Variable]:
    groups: tuple[tuple[str, tuple[_Row, ...], frozenset[Context], bool], ...] = (
        ("preemptor", _PREEMPTOR, _ONE_POD, False),
        ("victim", _VICTIM_ONLY, _VICTIM, True),
        ("node", _NODE_ROWS, _NODE, True),
        ("candidate", _CANDIDATE, _RANKING, True),
        ("nominated", _NOMINATED, _ELIGIBILITY, False),
        ("cluster", _CLUSTER_ROWS, _CLUSTER, False),
        ("group", _GROUP_ROWS, _GROUP, False),
        ("unit", _UNIT_ROWS, _UNIT, True),
    )
    table: dict[str, Variable] = {}
    for group, rows, contexts, varies in groups:
        for field, kind, unit, doc in rows:
            name = f"{group}.{field}"
            table[name] = Variable(
                name=name,
                type=kind,
                unit=unit,
                doc=doc,
                # Violations are known only once the potential victims are, so nothing that
                # decides who is a potential victim may depend on them.
                contexts=_contexts(name, contexts),
                shape=_shape(group, field, kind, varies),
                history=_FROM_HISTORY.get(name, ""),
            )
    table["now"] = Variable(
        name="now",
        type=_T,
        unit="UTC",
        doc="the instant that the snapshot carries",
        contexts=_EVERYWHERE,
        shape=Shape.SCALAR,
    )
    return MappingProxyType(table)


VARIABLES: Mapping[str, Variable] = _declare()
"""Name to variable, in the order of the documentation."""

GROUPS: tuple[str, ...] = tuple(dict.fromkeys(name.partition(".")[0] for name in VARIABLES))

HISTORY_FUNCTIONS: Mapping[str, HistoryFunction] = MappingProxyType(
    {
        function.name: function
        for function in (
            HistoryFunction(
                name="preemptedCount",
                argument="workload",
                windowed=True,
                missing=0,
                doc="pods of the workload that were preempted within the duration before now",
            ),
            HistoryFunction(
                name="namespacePreemptedCount",
                argument="namespace",
                windowed=True,
                missing=0,
                doc="pods of the namespace that were preempted within the duration before now",
            ),
            HistoryFunction(
                name="namespacePreemptions",
                argument="namespace",
                windowed=True,
                missing=0,
                doc="preemptions that pods of the namespace caused within the duration before now",
            ),
            HistoryFunction(
                name="secondsSinceLastPreempted",
                argument="workload",
                windowed=False,
                missing=NEVER,
                doc="seconds since a pod of the workload was last preempted, 2^53 if not within "
                "the last 30 days",
            ),
        )
    }
)
