"""From a validated rule file to the frozen rule set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from policy.cluster.canonical import sha256
from policy.rules.building_parts import build_groups, importance_key, rules_of, sentence
from policy.rules.canonical import canonical_text
from policy.rules.checks import (
    ELIGIBILITY,
    ELIGIBLE,
    FORBID,
    IMPORTANCE,
    RANKING,
    RULE_LISTS,
    SCORING,
    Checker,
    Registry,
)
from policy.rules.documents import Branch, Item, Series
from policy.rules.expressions import Expression, default_on_error
from policy.rules.overlays import rule_id
from policy.rules.ruleset import (
    BudgetRules,
    CandidateRules,
    Direction,
    EffectRules,
    Extender,
    FilterUse,
    ManagedResource,
    QueueRules,
    RankingCriterion,
    ReprieveGroup,
    Rule,
    RuleSet,
    ScorerUse,
    Verdict,
    VictimRules,
)
from policy.rules.schema import (
    PATCHABLE,
    RULE_NAMES,
    ExtenderModel,
    FilterModel,
    RankingModel,
    RuleFileModel,
    ScorerModel,
)
from policy.rules.shape import find


def build(checker: Checker, model: RuleFileModel, canonical: str | None) -> RuleSet:
    """The rule set of a file that passed every check.

    `canonical` is given where the rule set is read back from one: a stored rule set keeps its
    digest, and what it was stored without has been filled in by `stored.complete`.
    """
    spec = model.spec
    filters = tuple(_filter_use(use, checker.filters) for use in spec.filters)
    scoring = tuple(_scorer_use(checker, index, use) for index, use in enumerate(spec.scoring))
    parameters = {("filters", use.name): use.parameters for use in filters}
    parameters |= {("scoring", use.name): use.parameters for use in scoring}
    text = canonical_text(model, parameters) if canonical is None else canonical
    effects = spec.effects
    candidates = spec.candidates
    return RuleSet(
        name=model.metadata.name,
        digest=sha256(text.encode()),
        canonical=text,
        eligibility=rules_of(checker, spec.eligibility, ELIGIBILITY),
        filters=filters,
        messages=spec.messages,
        victims=_victims(checker, model),
        candidates=CandidateRules(
            nodes=candidates.nodes,
            min_percentage=candidates.minPercentage,
            min_absolute=candidates.minAbsolute,
            start=candidates.start,
        ),
        ranking=tuple(
            _criterion(checker, index, criterion) for index, criterion in enumerate(spec.ranking)
        ),
        effects=EffectRules(
            clear_lower_nominations=effects.clearLowerNominations,
            clear_without_eviction=effects.clearWithoutEviction,
            disruption_condition=effects.disruptionCondition,
            repeat_condition=effects.repeatCondition,
            delete_terminating_victims=effects.deleteTerminatingVictims,
            on_no_candidate=effects.onNoCandidate,
            preemption_message=effects.preemptionMessage,
            claims_message=effects.claimsMessage,
        ),
        queue=QueueRules(
            kind=spec.queue.kind,
            order=spec.queue.order,
            initial_backoff_seconds=spec.queue.initialBackoffSeconds,
            max_backoff_seconds=spec.queue.maxBackoffSeconds,
            unschedulable_seconds=spec.queue.unschedulableSeconds,
        ),
        scoring=scoring,
        extenders=tuple(_extender(extender) for extender in spec.extenders),
        audit_candidates=spec.audit.candidates,
        groups=None if spec.groups is None else build_groups(checker, spec.groups),
        description=" ".join(model.metadata.description.split()),
        versions=model.metadata.versions or "",
        origins=MappingProxyType(_origins(checker)),
    )


def _victims(checker: Checker, model: RuleFileModel) -> VictimRules:
    victims = model.spec.victims
    return VictimRules(
        eligible=rules_of(checker, victims.eligible, ELIGIBLE),
        forbid=tuple(
            Rule(
                id=rule.id,
                when=checker.expressions[*FORBID, index, "when"],
                verdict=Verdict.FORBID,
                on_error=rule.onError or default_on_error(Verdict.FORBID),
                reason=rule.reason,
                why=sentence(rule.why),
                says_on_error=rule.onError is not None,
            )
            for index, rule in enumerate(victims.forbid)
        ),
        max_victims=victims.maxVictims,
        nodes_without_victims=victims.nodesWithoutVictims,
        importance=tuple(
            importance_key(checker, IMPORTANCE, index, key)
            for index, key in enumerate(victims.importance)
        ),
        budgets=BudgetRules(
            decrement=victims.budgets.count == "decrement",
            skip_disrupted=victims.budgets.disruptedPods == "skip",
        ),
        reprieve=tuple(ReprieveGroup(group) for group in victims.reprieve),
        sorted_again=victims.order == "by-importance",
    )


def _criterion(checker: Checker, index: int, criterion: RankingModel) -> RankingCriterion:
    direction = Direction.PICK
    expression: Expression | None = None
    for candidate in (Direction.MINIMIZE, Direction.MAXIMIZE):
        found = checker.expressions.get((*RANKING, index, candidate.value))
        if found is not None:
            direction, expression = candidate, found
    return RankingCriterion(
        id=criterion.id,
        direction=direction,
        expression=expression,
        pick=criterion.pick,
        why=sentence(criterion.why),
    )


def _parameters(
    given: Mapping[str, Any] | None, name: str, registry: Registry
) -> Mapping[str, Any]:
    known = {key: parameter.default for key, parameter in registry[name].parameters.items()}
    every = {**known, **(given or {})}
    # A list is a list whether it was given, is a default, or is read back.
    return MappingProxyType({k: list(v) if isinstance(v, tuple) else v for k, v in every.items()})


def _filter_use(use: FilterModel, registry: Registry) -> FilterUse:
    parameters = _parameters(use.model_extra, use.filter, registry)
    return FilterUse(name=use.filter, parameters=parameters)


def _scorer_use(checker: Checker, index: int, use: ScorerModel) -> ScorerUse:
    given = dict(use.model_extra or {})
    expression = checker.expressions.get((*SCORING, index, "score"))
    if expression is not None:
        given["score"] = given["score"].strip()
    return ScorerUse(
        name=use.scorer,
        weight=use.weight,
        parameters=_parameters(given, use.scorer, checker.scorers),
        expression=expression,
        why=sentence(use.why),
    )


def _extender(model: ExtenderModel) -> Extender:
    return Extender(
        url_prefix=model.urlPrefix,
        filter_verb=model.filterVerb,
        prioritize_verb=model.prioritizeVerb,
        preempt_verb=model.preemptVerb,
        weight=model.weight,
        http_timeout_seconds=model.httpTimeoutSeconds,
        node_cache_capable=model.nodeCacheCapable,
        ignorable=model.ignorable,
        managed_resources=tuple(
            ManagedResource(name=resource.name, ignored_by_scheduler=resource.ignoredByScheduler)
            for resource in model.managedResources
        ),
        unmentioned_nodes=model.unmentionedNodes,
        forgets_violations=model.answeredViolations is not None,
    )


def _origins(checker: Checker) -> dict[str, str]:
    origins = dict(_setting_origins(find(checker.root, ("spec",)), ()))
    for path in RULE_LISTS:
        series = find(checker.root, path)
        for index, item in enumerate(series.items if isinstance(series, Series) else ()):
            name = rule_id(item, "id") or f"importance-{index + 1}"
            origins[name] = str(item.place)
    for section, key in RULE_NAMES.items():
        series = find(checker.root, ("spec", section))
        for item in series.items if isinstance(series, Series) else ():
            origins[f"{section}/{rule_id(item, key)}"] = str(item.place)
    return origins


def _setting_origins(item: Item | None, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """`settings/candidates.minPercentage` to its line, for what stands outside lists of rules."""
    if path in PATCHABLE or not isinstance(item, Branch):
        return
    for key, value in item.entries.items():
        here = (*path, key)
        if isinstance(value, Branch):
            yield from _setting_origins(value, here)
        elif here not in PATCHABLE:
            yield f"settings/{'.'.join(here)}", str(item.keys[key])
