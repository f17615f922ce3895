"""A rule set as the engine sees it: frozen, checked, with compiled expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from policy.filters.messages import Messages
from policy.rules.expressions import Expression
from policy.rules.group_rules import GroupRules
from policy.rules.parts import ImportanceKey, ReprieveGroup, Rule, Verdict

__all__ = ["ImportanceKey", "ReprieveGroup", "Rule", "RuleSet", "Verdict"]


class NodesWithoutVictims(StrEnum):
    """What becomes of a node on which no pod may be a victim."""

    SKIPPED = "skipped"  # no candidate
    TRIED = "tried"  # it is dry-run like the others (1.14)


class CandidateNodes(StrEnum):
    """Which nodes are potential nodes."""

    UNSCHEDULABLE = "unschedulable"  # status exactly Unschedulable
    NOT_UNRESOLVABLE = "not-unresolvable"  # any status but UnschedulableAndUnresolvable


class StartAt(StrEnum):
    """Where the examination of the potential nodes starts."""

    RANDOM = "random"  # at an offset drawn from seed, pod and state
    FIRST = "first"  # at the first in name order


class UnmentionedNodes(StrEnum):
    """What a node is that an extender was given and does not mention."""

    UNRESOLVABLE = "unresolvable"  # no potential node
    WITHOUT_STATUS = "without-status"  # as if no filter had looked at it


class Direction(StrEnum):
    """What a ranking criterion prefers."""

    MINIMIZE = "minimize"
    MAXIMIZE = "maximize"
    PICK = "pick"


class Pick(StrEnum):
    """How the last tie is broken."""

    FIRST_BY_NAME = "first-by-name"
    SEEDED = "seeded"  # drawn from the recorded seed


class OnNoCandidate(StrEnum):
    """What happens to the nomination of an eligible pod that found no candidate."""

    CLEAR = "clear"
    LEAVE = "leave"
    CLEAR_IF_NO_POTENTIAL_NODE = "clear-if-no-potential-node"


class QueueKind(StrEnum):
    """Which pod is tried next."""

    PRIORITY = "priority"  # the one of the highest priority, then the one that waits longest
    FIFO = "fifo"  # the one that waits longest; there is no backoff (1.13 without the feature)


class QueueOrder(StrEnum):
    """Which of the pods comes first that the queue would take alike."""

    ARRIVAL = "arrival"  # the one that was created first
    KEY = "key"  # by namespace and name: a scheduler that has just started reads them like this


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterUse:
    """A filter and its parameters, defaults filled in."""

    name: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerUse:
    """A scorer, its weight and its parameters, defaults filled in."""

    name: str
    weight: int
    parameters: Mapping[str, Any]
    expression: Expression | None = None  #: of `rule`, its `score`
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRules:
    """How pod disruption budgets are counted on one node."""

    decrement: bool  #: each potential victim uses up one disruption of its budgets
    skip_disrupted: bool  #: a pod in a budget's disruptedPods uses up nothing of it


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimRules:
    """Who may be removed, and who is kept first."""

    eligible: tuple[Rule, ...]  #: the first that holds decides; none denies
    forbid: tuple[Rule, ...]  #: judged after the budgets have been counted
    max_victims: int | None
    nodes_without_victims: NodesWithoutVictims
    importance: tuple[ImportanceKey, ...]
    budgets: BudgetRules
    reprieve: tuple[ReprieveGroup, ...]
    sorted_again: bool  #: the victims are listed by importance in the end


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRules:
    """Which nodes are examined, and how many."""

    nodes: CandidateNodes
    min_percentage: int
    min_absolute: int
    start: StartAt


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingCriterion:
    """One step of the ranking: an expression, or a pick that ends it."""

    id: str
    direction: Direction
    expression: Expression | None
    pick: Pick | None
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectRules:
    """What follows a decision."""

    clear_lower_nominations: bool
    clear_without_eviction: bool  #: also where every victim is leaving already
    disruption_condition: bool
    repeat_condition: bool  #: also for a victim that a scheduler has marked already
    delete_terminating_victims: bool
    on_no_candidate: OnNoCandidate
    preemption_message: bool  #: the event of a pod that cannot preempt says why
    claims_message: bool  #: the event names resource claims before what preemption says


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagedResource:
    """A resource that an extender looks after."""

    name: str
    ignored_by_scheduler: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Extender:
    """An HTTP service that the scheduler asks."""

    url_prefix: str
    filter_verb: str
    prioritize_verb: str
    preempt_verb: str
    weight: int
    http_timeout_seconds: int
    node_cache_capable: bool
    ignorable: bool
    managed_resources: tuple[ManagedResource, ...]
    unmentioned_nodes: UnmentionedNodes
    forgets_violations: bool = False  #: violated budgets of an answer are not read


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """How pods that could not be placed wait for their next cycle."""

    kind: QueueKind
    order: QueueOrder
    initial_backoff_seconds: int  #: after the first failure; it doubles. 0: no backoff
    max_backoff_seconds: int
    unschedulable_seconds: int  #: after which a pod is tried again though nothing has happened


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """Everything that decides a preemption.

    Two rule sets are equal where their digests are: the name and every rule count, the
    description and the `why` texts do not.
    """

    name: str
    digest: str
    """`sha256:` and the SHA-256 of `canonical`."""
    canonical: str = field(repr=False)
    """The whole rule set as canonical JSON (RFC 8785); `from_canonical` reads it back."""
    eligibility: tuple[Rule, ...] = field(repr=False)
    filters: tuple[FilterUse, ...] = field(repr=False)
    messages: Messages = field(repr=False)
    victims: VictimRules = field(repr=False)
    candidates: CandidateRules = field(repr=False)
    ranking: tuple[RankingCriterion, ...] = field(repr=False)
    effects: EffectRules = field(repr=False)
    queue: QueueRules = field(repr=False)
    scoring: tuple[ScorerUse, ...] = field(default=(), repr=False)
    extenders: tuple[Extender, ...] = field(default=(), repr=False)
    groups: GroupRules | None = field(default=None, repr=False)
    """None: `schedulingGroup` is ignored, every pod is scheduled by itself."""
    audit_candidates: int | Literal["all", "chosen"] = field(default=10, repr=False)
    description: str = field(default="", compare=False, repr=False)
    versions: str = field(default="", compare=False, repr=False)
    """Versions of kube-scheduler that decide like this, `>=1.31.0 <1.31.3`; "" where none is."""
    origins: Mapping[str, str] = field(
        default_factory=lambda: MappingProxyType({}), compare=False, repr=False, hash=False
    )
    """Rule id to `file:line`; filters and scorers as `filters/NAME` and `scoring/NAME`."""
    history_needs: frozenset[tuple[str, int | None]] = field(init=False, compare=False, repr=False)
    """The (function, window in seconds) pairs whose figures a decision reads."""

    def __post_init__(self) -> None:
        needs = frozenset[tuple[str, int | None]]().union(
            *(e.history_needs for e in self.expressions())
        )
        object.__setattr__(self, "history_needs", needs)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Callable[..., RuleSet], tuple[Any, ...]]:
        # Compiled expressions do not travel between processes; their text does.
        return _unpickle, (self.canonical, self.description, self.versions, dict(self.origins))

    @staticmethod
    def load(
        source: str | Path | Mapping[str, Any],
        overrides: Mapping[str, Any] | None = None,
        *,
        within: Path | None = None,
    ) -> RuleSet:
        """Read a shipped rule set by name, a file by path, a mapping, or the text of a file.

        `overrides` is merged into `spec` as an overlay's would be, and checked the same.
        within: a folder outside of which no file is read, symbolic links followed. Raises
        `RulesError` with every problem found.
        """
        from policy.rules.loading import load_rule_set

        return load_rule_set(source, overrides, within=within)

    @staticmethod
    def from_canonical(text: str) -> RuleSet:
        """The rule set whose `canonical` this is; raises `RulesError`."""
        from policy.rules.loading import rule_set_from_canonical

        return rule_set_from_canonical(text)

    @staticmethod
    def names() -> tuple[str, ...]:
        """Names of the shipped rule sets, sorted."""
        from policy.rules.files import shipped_names

        return shipped_names()

    def expressions(self) -> tuple[Expression, ...]:
        """Every expression, in the order of the file."""
        found = [rule.when for rule in self.eligibility]
        found += [rule.when for rule in (*self.victims.eligible, *self.victims.forbid)]
        found += [key.expression for key in self.victims.importance]
        found += [criterion.expression for criterion in self.ranking]
        found += [use.expression for use in self.scoring]
        found += self.groups.expressions() if self.groups is not None else ()
        return tuple(expression for expression in found if expression is not None)


def _unpickle(
    canonical: str, description: str, versions: str, origins: Mapping[str, str]
) -> RuleSet:
    return replace(
        RuleSet.from_canonical(canonical),
        description=description,
        versions=versions,
        origins=MappingProxyType(dict(origins)),
    )
