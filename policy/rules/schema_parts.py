"""Models that several sections of a rule file are made of."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, StringConstraints

from policy.rules.expressions import OnError

RuleIdentifier = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9]+(?:[.-][a-z0-9]+)*$", max_length=100),
    Field(description="kebab-case, unique in its list, never reused"),
]
# Words of a file become members of an enum; everything else is taken as it is.
Word = Strict(False)
Sentence = Annotated[str, StringConstraints(max_length=2000)]
OnErrorWord = Annotated[OnError, Word]
ON_ERROR = (
    "what the rule does where its condition has no value: `holds`, as if it were true, or "
    "`skip`, as if it were false"
)
ExpressionText = Annotated[str, Field(description="a CEL expression")]


class Model(BaseModel):
    """Unknown keys are errors, and nothing is converted silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class EligibilityModel(Model):
    """May the pod preempt at all? The first rule whose `when` holds decides."""

    id: RuleIdentifier
    when: ExpressionText | None = Field(None, description="left out: always holds")
    verdict: Literal["allow", "deny"]
    onError: OnErrorWord | None = Field(
        None, description=f"{ON_ERROR}; left out: a `deny` holds, an `allow` is skipped"
    )
    reason: Sentence = Field("", description="message that the audit shows when the rule denies")
    why: Sentence = Field("", description="why the rule exists, for its readers")


class EligibleModel(EligibilityModel):
    """May this pod be a victim? The first rule whose `when` holds decides; none denies."""


class ImportanceModel(Model):
    """One key of the order in which potential victims are kept: give one direction."""

    id: RuleIdentifier | None = Field(None, description="left out: named after the variable")
    ascending: ExpressionText | None = None
    descending: ExpressionText | None = None
    why: Sentence = ""
