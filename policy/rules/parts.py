"""What the sections of a rule set are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from policy.rules.expressions import Expression, OnError


class Verdict(StrEnum):
    """What a rule says of a pod."""

    ALLOW = "allow"
    DENY = "deny"
    FORBID = "forbid"  # only the rules of `victims.forbid`: never removed, whatever else holds


class ReprieveGroup(StrEnum):
    """Potential victims that are tried together."""

    PDB_VIOLATING = "pdb-violating"
    OTHERS = "others"
    ALL = "all"  # the only group: budgets do not matter


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition and its verdict. `when` None: always holds."""

    id: str
    when: Expression | None
    verdict: Verdict
    on_error: OnError  #: what the rule does where `when` has no value
    reason: str = ""
    why: str = field(default="", compare=False)
    says_on_error: bool = field(default=False, compare=False)  #: the file does, not the default


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceKey:
    """One key of the order in which potential victims are kept."""

    id: str
    expression: Expression
    descending: bool  #: the pod with the larger value is kept first
    why: str = field(default="", compare=False)
