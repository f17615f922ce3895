"""The shape of a rule file, as pydantic models: the edge, and nothing behind it.

The models check types, ranges and unknown keys. What needs the positions in the file or the
CEL library (expressions, ids, filter parameters, orders) is checked by `checks.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from policy.filters.messages import NEWEST, Messages
from policy.rules.group_schema import GroupsModel
from policy.rules.ruleset import (
    CandidateNodes,
    NodesWithoutVictims,
    OnNoCandidate,
    Pick,
    QueueKind,
    QueueOrder,
    StartAt,
    UnmentionedNodes,
)
from policy.rules.schema_parts import (
    ON_ERROR,
    EligibilityModel,
    EligibleModel,
    ExpressionText,
    ImportanceModel,
    Model,
    OnErrorWord,
    RuleIdentifier,
    Sentence,
    Word,
)

VERSIONS = r"^>=\d+\.\d+\.\d+ <\d+\.\d+(\.\d+)?$"
"""A range of versions: from a patch on, up to a patch or a minor version that it leaves out."""


class MetadataModel(Model):
    """Name and purpose of a rule set."""

    name: RuleIdentifier
    description: Sentence = ""
    versions: Annotated[str, StringConstraints(pattern=VERSIONS)] | None = Field(
        None, description="kube-scheduler's versions that decide like this: `>=1.31.0 <1.31.3`"
    )
    why: Sentence = Field("", description="why these versions and no others")


class ForbidModel(Model):
    """Pods that are never removed, judged after the disruption budgets have been counted."""

    id: RuleIdentifier
    when: ExpressionText
    onError: OnErrorWord | None = Field(None, description=f"{ON_ERROR}; left out: the rule holds")
    reason: Sentence = Field("", description="message that the audit shows")
    why: Sentence = ""


class BudgetsModel(Model):
    """How pod disruption budgets are counted on one node."""

    count: Literal["decrement", "static"] = Field(
        "decrement",
        description="decrement: each potential victim uses up a disruption; static: none does",
    )
    disruptedPods: Literal["skip", "count"] = Field(
        "skip", description="skip: a pod in the budget's status.disruptedPods uses up nothing"
    )


class VictimsModel(Model):
    """Who may be removed, and who is kept first."""

    eligible: list[EligibleModel] = Field(min_length=1)
    forbid: list[ForbidModel] = []
    maxVictims: Annotated[int, Field(ge=1)] | None = Field(
        None, description="candidates with more victims are dropped"
    )
    nodesWithoutVictims: Annotated[NodesWithoutVictims, Word] = Field(
        NodesWithoutVictims.SKIPPED,
        description="what becomes of a node on which no pod may be a victim",
    )
    importance: list[ImportanceModel] = Field(min_length=1)
    budgets: BudgetsModel = BudgetsModel.model_validate({})
    reprieve: list[Literal["pdb-violating", "others", "all"]] = ["pdb-violating", "others"]
    order: Literal["by-importance", "as-reprieved"] = Field(
        "by-importance",
        description="order of the victims in the end, which the ranking reads: sorted again, or "
        "as they failed to be reprieved",
    )


class CandidatesModel(Model):
    """Which nodes are examined, and how many."""

    nodes: Annotated[CandidateNodes, Word] = CandidateNodes.UNSCHEDULABLE
    minPercentage: Annotated[int, Field(ge=0, le=100)] = 10
    minAbsolute: Annotated[int, Field(ge=0)] = 100
    start: Annotated[StartAt, Word] = StartAt.RANDOM


class RankingModel(Model):
    """One criterion; each keeps only the best nodes and the next one breaks the tie."""

    id: RuleIdentifier
    minimize: ExpressionText | None = None
    maximize: ExpressionText | None = None
    pick: Annotated[Pick, Word] | None = Field(
        None, description="the last criterion: takes one of the rest"
    )
    why: Sentence = ""


class EffectsModel(Model):
    """What follows a decision."""

    clearLowerNominations: bool = True
    clearWithoutEviction: bool = Field(
        False, description="clear them also where no pod is newly evicted (1.33 and earlier)"
    )
    disruptionCondition: bool = True
    repeatCondition: bool = Field(
        False, description="mark a victim once more that a scheduler has marked already (1.28)"
    )
    deleteTerminatingVictims: bool = False
    onNoCandidate: Annotated[OnNoCandidate, Word] = OnNoCandidate.CLEAR
    preemptionMessage: bool = Field(
        True, description="the event of a pod that cannot preempt says why, node by node"
    )
    claimsMessage: bool = Field(
        True,
        description="the event of a pod that cannot preempt also names resource claims (1.34)",
    )


class FilterModel(BaseModel):
    """A filter by name; the other keys are its parameters."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    filter: str


class ScorerModel(BaseModel):
    """A scorer by name with its weight; the other keys are its parameters."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)
    scorer: str
    weight: Annotated[int, Field(ge=0, le=1_000_000)] = 1
    why: Sentence = ""


class ManagedResourceModel(Model):
    """A resource that an extender looks after."""

    name: Annotated[str, StringConstraints(min_length=1)]
    ignoredByScheduler: bool = False


class ExtenderModel(Model):
    """An HTTP service that the scheduler asks."""

    urlPrefix: Annotated[str, StringConstraints(pattern=r"^https?://[^\s]+$")]
    filterVerb: str = ""
    prioritizeVerb: str = ""
    preemptVerb: str = ""
    weight: Annotated[int, Field(ge=0, le=1_000_000)] = 0
    httpTimeoutSeconds: Annotated[int, Field(ge=1, le=3600)] = 5
    nodeCacheCapable: bool = False
    ignorable: bool = False
    managedResources: list[ManagedResourceModel] = []
    unmentionedNodes: Annotated[UnmentionedNodes, Word] = Field(
        UnmentionedNodes.UNRESOLVABLE,
        description="what a node is that an answer to the filter verb does not mention: "
        "unresolvable (1.32 and later), or without a status, and tried like any other (earlier)",
    )
    answeredViolations: Literal["forgotten"] | None = Field(
        None,
        description="`forgotten`: the budgets that an offer to the preempt verb would violate are "
        "neither sent in its short form nor read from the answer (before 1.24); left out: they are",
    )


class QueueModel(Model):
    """How pods that could not be placed wait for their next cycle."""

    kind: Annotated[QueueKind, Word] = QueueKind.PRIORITY
    order: Annotated[QueueOrder, Word] = Field(
        QueueOrder.ARRIVAL,
        description="who comes first of pods that are equal otherwise: by creation, or by "
        "namespace and name, as for a scheduler that has just started",
    )
    initialBackoffSeconds: Annotated[int, Field(ge=0, le=86_400)] = 1
    maxBackoffSeconds: Annotated[int, Field(ge=0, le=86_400)] = 10
    unschedulableSeconds: Annotated[int, Field(ge=1, le=604_800)] = 300


class AuditModel(Model):
    """What is stored of a decision; the rest stays recomputable."""

    candidates: Annotated[int, Field(ge=1)] | Literal["all", "chosen"] = 10


class SpecModel(Model):
    """The rules."""

    eligibility: list[EligibilityModel] = Field(min_length=1)
    filters: list[FilterModel] = Field(min_length=1)
    messages: Annotated[Messages, Word] = Field(
        NEWEST, description="version of kube-scheduler whose texts the filters give"
    )
    victims: VictimsModel
    candidates: CandidatesModel = CandidatesModel.model_validate({})
    ranking: list[RankingModel] = Field(min_length=1)
    effects: EffectsModel = EffectsModel.model_validate({})
    scoring: list[ScorerModel] = []
    extenders: list[ExtenderModel] = []
    queue: QueueModel = QueueModel.model_validate({})
    audit: AuditModel = AuditModel.model_validate({})
    groups: GroupsModel | None = Field(
        None, description="left out: `schedulingGroup` is ignored, pods are scheduled one by one"
    )


class RuleFileModel(Model):
    """A rule file with everything that it extends merged in."""

    apiVersion: Literal["policy/v1"]
    kind: Literal["PreemptionRules"]
    metadata: MetadataModel
    spec: SpecModel


def _patch_schema(item: dict[str, Any]) -> dict[str, Any]:
    place = {
        "before": {"type": "string"},
        "after": {"type": "string"},
        "at": {"enum": ["start", "end"]},
    }
    return {
        "type": "object",
        "description": "changes the list of the rule set that this one extends",
        "additionalProperties": False,
        "properties": {
            "remove": {"type": "array", "items": {"type": "string"}},
            "replace": {"type": "array", "items": item},
            "insert": {
                "type": "array",
                "items": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["rule"],
                    "properties": {**place, "rule": item},
                },
            },
        },
    }


PATCHABLE: tuple[tuple[str, ...], ...] = (
    ("eligibility",),
    ("filters",),
    ("victims", "eligible"),
    ("victims", "forbid"),
    ("victims", "importance"),
    ("ranking",),
    ("scoring",),
    ("groups", "eligibility"),
    ("groups", "victims", "eligible"),
    ("groups", "victims", "importance"),
)
"""Lists that an overlay may change by id instead of replacing them."""

RULE_NAMES: dict[str, str] = {"filters": "filter", "scoring": "scorer"}
"""Lists whose entries are named by another key than `id`."""


def json_schema() -> dict[str, Any]:
    """JSON Schema of rule files, for editors: overlays included."""
    schema = RuleFileModel.model_json_schema()
    definitions = schema["$defs"]
    owners = {
        (): "SpecModel",
        ("victims",): "VictimsModel",
        ("groups",): "GroupsModel",
        ("groups", "victims"): "UnitVictimsModel",
    }
    for path in PATCHABLE:
        owner = definitions[owners[path[:-1]]]
        whole = owner["properties"][path[-1]]
        if path[-1] in RULE_NAMES:
            whole["items"] = {"anyOf": [{"type": "string"}, whole["items"]]}
        owner["properties"][path[-1]] = {"anyOf": [whole, _patch_schema(whole["items"])]}
    # With `extends`, everything that the base gives may be left out; loading checks the rest.
    for name in owners.values():
        definitions[name].pop("required", None)
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "name of a shipped rule set, or the path of a file beside this one",
    }
    schema["properties"]["include"] = {
        "type": "array",
        "items": {"type": "string"},
        "description": "rules, by name or path, laid over what is extended, in this order",
    }
    schema["required"] = ["apiVersion", "kind", "metadata"]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "PreemptionRules"
    return schema
