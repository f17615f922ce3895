"""What requests may hold; the same models validate and are described in the OpenAPI document."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from policy.server import environments

_ENVIRONMENT: Final = "Name of the environment whose active rules decide, on its cluster's state."

_POD: Final = "namespace/name; without a namespace it is in `default`."
_INSTANT: Final = "RFC 3339, `yesterday 14:02`, or `7d` before now"
_LONGEST: Final = 10_000
"""Characters of a text."""
_MOST_KEYS: Final = 100
"""Of a request; none has a fifth of it that mean something."""
_MOST_PARAMETERS: Final = 1_000
"""Of a statement."""
_MOST_CLASSES: Final = 1_000
"""Priority classes that are supposed."""
_WHOLE: Final = re.compile("-?[0-9]+")


def _at_most(most: int, value: Any) -> Any:
    """Refuse an object of more keys before each of them is looked at."""
    if isinstance(value, dict) and len(value) > most:
        known = {"field_type": "Dictionary", "max_length": most, "actual_length": None}
        raise PydanticKnownError("too_long", known)
    return value


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", str_max_length=_LONGEST)

    @model_validator(mode="before")
    @classmethod
    def _few(cls, value: Any) -> Any:
        # Each that there is not is an error in the answer.
        return _at_most(_MOST_KEYS, value)


class _Body(_Strict):
    """JSON: every value has the type that the schema says, and none is made of another."""

    model_config = ConfigDict(strict=True)


class _Query(_Strict):
    """Parameters of an address: texts, of which numbers are made."""

    @field_validator("*", mode="before")
    @classmethod
    def _digits(cls, value: Any, info: ValidationInfo) -> Any:
        # Python also takes `1_0`, `5.0` and ` 5` for whole numbers.
        assert info.field_name is not None  # of a validator of fields
        kind = cls.model_fields[info.field_name].annotation
        if (
            int in (kind, *get_args(kind))
            and isinstance(value, str)
            and not _WHOLE.fullmatch(value)
        ):
            raise PydanticKnownError("int_parsing")
        return value


class NoParameters(_Query):
    """Nothing."""


class _OfTime(_Query):
    """Of which cluster, and made for which time."""

    cluster: str | None = Field(
        None, min_length=1, max_length=253, description="Name of a cluster."
    )
    since: str | None = Field(
        None,
        min_length=1,
        max_length=60,
        description=f"For this instant or later: {_INSTANT}.",
    )
    until: str | None = Field(
        None,
        min_length=1,
        max_length=60,
        description="For an instant before this one, in the same forms.",
    )


class DecisionsExportQuery(_OfTime):
    """Which decisions, newest first."""

    namespace: str | None = Field(
        None, min_length=1, max_length=63, description="Of the preemptor or a victim."
    )
    node: str | None = Field(
        None, min_length=1, max_length=253, description="Placed or nominated there."
    )
    rules: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        description="Name, that of a shipped rule set also as it is listed, or beginning of a"
        " digest.",
    )
    rule: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        description="That this rule decided, or this criterion of `ranking`: ID, or SECTION/ID"
        " where several sections have it. Not for tokens that are limited to namespaces.",
    )
    preemptor: str | None = Field(None, min_length=1, max_length=317, description=_POD)
    pod: str | None = Field(
        None, min_length=1, max_length=317, description=f"The preemptor or a victim: {_POD}"
    )
    victim: str | None = Field(
        None, min_length=1, max_length=317, description=f"Any of the victims: {_POD}"
    )
    workload: str | None = Field(
        None,
        min_length=1,
        max_length=381,
        description="Owner of any of the victims: namespace/Kind/name.",
    )
    outcome: (
        Literal[
            "bind",
            "preempt",
            "not-eligible",
            "no-candidate",
            "rejected",
            "error",
            "not-carried-out",
        ]
        | None
    ) = Field(None, description="How the decision ended.")
    origin: Literal["decided", "extender", "simulated"] | None = Field(
        None, description="Whose decision it is."
    )
    simulated: Literal["left-out"] | None = Field(
        None, description="`left-out`: none of kept simulations, unless the cluster is named."
    )
    limit: int | None = Field(
        None, ge=1, le=2**62, description="At most so many; without it, all of them."
    )
    after: int | None = Field(
        None, ge=1, le=2**62, description="Only decisions before this id: the last of a page."
    )


class DecisionsQuery(DecisionsExportQuery):
    """A page of decisions, newest first."""

    limit: int = Field(100, ge=1, le=1000, description="At most so many.")


class OverviewQuery(_Query):
    """Of which time, and which cluster."""

    cluster: str | None = Field(
        None, min_length=1, max_length=253, description="Only this cluster."
    )
    days: int = Field(1, ge=1, le=366, description="Up to the end of the hour that has begun.")


class ObservationsExportQuery(_Query):
    """Which preemptions of clusters' own schedulers, newest first."""

    cluster: str | None = Field(
        None, min_length=1, max_length=253, description="Name of a cluster."
    )
    since: str | None = Field(
        None,
        min_length=1,
        max_length=60,
        description=f"That happened at this instant or later: {_INSTANT}.",
    )
    until: str | None = Field(
        None,
        min_length=1,
        max_length=60,
        description="That happened before this instant, in the same forms.",
    )
    namespace: str | None = Field(
        None, min_length=1, max_length=63, description="Of the preemptor or a victim."
    )
    node: str | None = Field(None, min_length=1, max_length=253, description="On this node.")
    preemptor: str | None = Field(None, min_length=1, max_length=317, description=_POD)
    victim: str | None = Field(
        None, min_length=1, max_length=317, description=f"Any of the victims: {_POD}"
    )
    pod: str | None = Field(
        None, min_length=1, max_length=317, description=f"The preemptor or a victim: {_POD}"
    )
    verdict: (
        Literal["same", "tie", "order", "sampling", "lag", "answered", "other", "unknown"] | None
    ) = Field(None, description="How what the scheduler did compares with what the rules decide.")
    confidence: Literal["certain", "likely", "possible"] | None = Field(
        None, description="How sure it is who preempted whom."
    )
    limit: int | None = Field(
        None, ge=1, le=2**62, description="At most so many; without it, all of them."
    )
    after: int | None = Field(
        None, ge=1, le=2**62, description="Only those behind this id: the last of a page."
    )


class ObservationsQuery(ObservationsExportQuery):
    """A page of them."""

    limit: int = Field(100, ge=1, le=1000, description="At most so many.")


class SessionsExportQuery(_OfTime):
    """Which batch sessions, newest first."""

    limit: int | None = Field(
        None, ge=1, le=2**62, description="At most so many; without it, all of them."
    )
    after: int | None = Field(None, ge=1, le=2**62, description="Only older ones than this.")


class SessionsQuery(SessionsExportQuery):
    """A page of them."""

    limit: int = Field(50, ge=1, le=500, description="At most so many.")


class CyclesExportQuery(SessionsExportQuery):
    """Which cycles of pod groups, newest first."""

    group: str | None = Field(
        None,
        min_length=1,
        max_length=317,
        description="The pod group: namespace/name; without a namespace it is in `default`.",
    )
    outcome: Literal["scheduled", "preempting", "unschedulable", "error", "not-tried"] | None = (
        Field(None, description="How the cycle ended.")
    )


class CyclesQuery(CyclesExportQuery):
    """A page of them."""

    limit: int = Field(50, ge=1, le=500, description="At most so many.")


class NodeQuery(_Query):
    node: str = Field(
        min_length=1, max_length=253, description="Name of the node that was not chosen."
    )


class StateQuery(_Query):
    """Which state: the newest, or the one at a revision or an instant."""

    kind: Literal["pods", "nodes"] = Field("pods", description="Which objects of the state.")
    revision: int | None = Field(None, ge=1, le=2**62, description="Not together with `at`.")
    at: str | None = Field(
        None, min_length=1, max_length=40, description="RFC 3339; not with `revision`."
    )
    limit: int = Field(500, ge=1, le=5000, description="At most so many.")
    after: str | None = Field(
        None, min_length=1, max_length=317, description="Only objects behind this name."
    )

    @model_validator(mode="after")
    def _one(self) -> StateQuery:
        if self.revision is not None and self.at is not None:
            raise ValueError("give `revision` or `at`, not both")
        return self


class RevisionsQuery(_Query):
    """Which revisions of the state, newest first."""

    limit: int = Field(200, ge=1, le=1000, description="At most so many.")
    after: int | None = Field(
        None, ge=1, le=2**62, description="Only revisions before this one: the last of a page."
    )


class NominationsQuery(_Query):
    """Which nominations of pods to nodes, newest first."""

    pod: str | None = Field(None, min_length=1, max_length=317, description=f"Of this pod: {_POD}")
    node: str | None = Field(None, min_length=1, max_length=253, description="To this node.")
    standing: Literal["true", "false"] | None = Field(
        None, description="`true`: only those that have not ended; `false`: only ended ones."
    )
    limit: int = Field(100, ge=1, le=1000, description="At most so many.")
    after: str | None = Field(
        None, min_length=1, max_length=340, description="As the link to the next page has it."
    )


class Activation(_Body):
    """Make a rule set the active one."""

    rules: str = Field(
        max_length=253, min_length=1, description="Name of a shipped rule set, or a digest."
    )
    reason: str = Field(
        min_length=1, max_length=environments.REASON, description="Why; kept in the ledger."
    )


class Rollback(_Body):
    """Go back to the rule set that was active before."""

    reason: str = Field(
        min_length=1, max_length=environments.REASON, description="Why; kept in the ledger."
    )


class DryRunRequest(_Body):
    """Decide for a pod; nothing is recorded or changed."""

    environment: str = Field(min_length=1, max_length=253, description=_ENVIRONMENT)
    pod: str | None = Field(
        None, min_length=1, max_length=317, description=f"A pending pod: {_POD}"
    )
    manifest: dict[str, Any] | None = Field(
        None, description="In its place, a pod that is not in the state."
    )

    @model_validator(mode="after")
    def _one(self) -> DryRunRequest:
        if (self.pod is None) == (self.manifest is None):
            raise ValueError("give either `pod` or `manifest`")
        return self


class WhatIf(_Body):
    """Suppose a change; nothing is recorded or changed."""

    environment: str = Field(min_length=1, max_length=253, description=_ENVIRONMENT)
    pods: list[str] = Field(
        default_factory=list,
        max_length=200,
        description="Pending pods, namespace/name, without a namespace in `default`; without any,"
        " and no manifest or removed node, all of them.",
    )
    manifests: list[dict[str, Any]] = Field(
        default_factory=list,
        max_length=200,
        description="Pods that wait as well, or Lists of them.",
    )
    priority_classes: Annotated[
        dict[str, Annotated[int, Field(gt=-(2**31), lt=2**31)]],
        BeforeValidator(partial(_at_most, _MOST_CLASSES)),
    ] = Field(
        default_factory=dict,
        max_length=_MOST_CLASSES,
        description="Values of classes, known or new.",
    )
    removed_nodes: list[str] = Field(
        default_factory=list,
        max_length=200,
        description="Nodes that are supposed to be gone; their pods look for another one.",
    )
    depth: int = Field(
        3, ge=1, le=100, description="1: the pods themselves, 2: their victims as well, and so on."
    )


Number = Annotated[int, Field(ge=1, le=2**62)]
"""Of a row."""


def _sql_value(value: Any) -> Any:
    """Refuse what no parameter may be, in one sentence and not in one for each type."""
    if isinstance(value, str) and len(value) > _LONGEST:
        raise PydanticKnownError("string_too_long", {"max_length": _LONGEST})
    whole = isinstance(value, int) and not isinstance(value, bool)
    if value is None or isinstance(value, str) or (whole and -(2**63) <= value < 2**63):
        return value
    raise ValueError("neither a text, nor a whole number of 64 bits, nor null")


SqlValue = Annotated[
    str | Annotated[int, Field(ge=-(2**63), lt=2**63)] | None, BeforeValidator(_sql_value)
]


MOST_JUDGED: Final = 500
"""Newest decisions that are judged at once."""


class CompareRequest(_Body):
    """Judge recorded decisions by other rules."""

    rules: str = Field(
        min_length=1,
        max_length=253,
        description="Name of a shipped rule set, or the beginning of the digest of one.",
    )
    ids: list[Number] = Field(
        default_factory=list, max_length=200, description="Numbers of decisions."
    )
    groups: list[Number] = Field(
        default_factory=list, max_length=200, description="Numbers of cycles of pod groups."
    )
    newest: int | None = Field(
        None,
        ge=1,
        le=MOST_JUDGED,
        description="In place of numbers: so many of the newest decisions, and as many cycles.",
    )
    cluster: str | None = Field(
        None,
        max_length=253,
        description="Of which cluster `newest` are; of all but kept simulations by default.",
    )

    @model_validator(mode="after")
    def _something(self) -> CompareRequest:
        if self.newest is None:
            if self.cluster is not None:
                raise ValueError("`cluster` goes with `newest`")
            if not self.ids and not self.groups:
                raise ValueError("give `ids`, `groups` or both, or `newest`")
        elif self.ids or self.groups:
            raise ValueError("give either `newest`, or `ids` and `groups`")
        return self


class Query(_Body):
    """One statement that reads."""

    sql: str = Field(
        min_length=1, max_length=10_000, description="With `:name` for each parameter."
    )
    parameters: Annotated[
        dict[str, SqlValue], BeforeValidator(partial(_at_most, _MOST_PARAMETERS))
    ] = Field(
        default_factory=dict,
        max_length=_MOST_PARAMETERS,
        description="Values of the parameters, by their names.",
    )
    limit: int = Field(1000, ge=1, le=10_000, description="At most so many rows.")
