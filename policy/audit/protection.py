"""May the pods of a workload be victims? What the active rules of each environment say.

Only these pods, their nodes, namespaces, budgets and the priority classes are looked at, and not
the whole cluster. Where a rule reads more than that, the answer is that it is not known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from msgspec import structs

from policy.audit.avoidable import including
from policy.cluster.objects import (
    ClusterObject,
    ObjectMeta,
    Pod,
    PodSpec,
    PodStatus,
    PriorityClass,
    key_of,
)
from policy.cluster.snapshot import Snapshot
from policy.preemption.denials import denials, judged
from policy.rules import RuleSet
from policy.rules.files import shipped_rules
from policy.rules.problems import RulesError
from policy.rules.ruleset import Rule
from policy.store import EnvironmentRow, Store

_WHOLE_STATE: Final = ("cluster.", "node.", "candidate.", "nominated.")
"""Variables that these pods alone do not tell."""

_SUPPOSED: Final = "(supposed)/preemptor"
_HIGHEST_OF_USERS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who would preempt."""

    pod: str  #: "" where it is supposed
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PodsJudged:
    """Pods of which one rule says the same."""

    pods: tuple[str, ...]
    allowed: bool  #: may they be victims?
    section: str  #: `victims.eligible`, `victims.forbid` or `groups.units`
    rule: str  #: id; "" where no rule allows them
    why: str  #: of the rule, or its reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Protection:
    """What an environment's active rules say of a workload."""

    environment: str
    rule_set: str
    digest: str
    asked: Asked
    judged: tuple[PodsJudged, ...]
    unknown: str  #: variable of the whole state that a rule reads; then nothing is judged
    would_protect: tuple[str, ...]
    """Shipped rules that, included beside these, would keep all pods that may be victims now."""
    unreadable: str = ""  #: what is wrong with rules that this version cannot read


def protection(
    store: Store, cluster: str, pods: Collection[str], *, preemptor: str, now_ms: int
) -> list[Protection]:
    """For each environment of the cluster that has an active rule set for single pods.

    pods: namespace/name of those on nodes now. preemptor: who took one of them last, "" for a pod
    of the highest priority that users have. Raises NotFound.
    """
    environments = [
        row
        for row in store.read.environments()
        if row.cluster == cluster and row.active is not None and not row.active.batch
    ]
    if not environments or not pods:
        return []
    objects = store.state.pods_around(cluster, pods)
    asking = _asking(store, cluster, preemptor, objects)
    rules: dict[str, RuleSet] = {}
    unreadable: dict[str, str] = {}
    for row in environments:
        try:
            rules[row.name] = _active(store, row)
        except RulesError as exc:
            unreadable[row.name] = exc.problems[0].message
    beside = {
        name: tuple(_overlays(active)) if not _unknown(active) else ()
        for name, active in rules.items()
    }
    every = [*rules.values(), *(both for some in beside.values() for _, both in some)]
    needs = frozenset(need for one in every for need in one.history_needs)
    # Nothing is decided or recorded on this snapshot: it needs no digest.
    snapshot = Snapshot.from_objects(
        [*objects, asking],
        now_ms=now_ms,
        state_digest="",
        history=store.read.history(cluster, needs, now_ms=now_ms) if needs else None,
    )
    return [
        _protection(row, rules[row.name], beside[row.name], snapshot, asking)
        if row.name in rules
        else _unjudged(row, asking, unreadable[row.name])
        for row in environments
    ]


def _active(store: Store, environment: EnvironmentRow) -> RuleSet:
    assert environment.active is not None  # the caller takes no others
    return _rules(store.read.rule_set(environment.active.rule_set_digest))


def _asking(store: Store, cluster: str, preemptor: str, objects: list[ClusterObject]) -> Pod:
    known = store.state.newest_pod(cluster, preemptor) if preemptor else None
    if known is not None:
        return structs.replace(
            known,
            spec=structs.replace(known.spec, node_name=""),
            status=PodStatus(phase="Pending"),
        )
    values = [
        obj.value
        for obj in objects
        if isinstance(obj, PriorityClass) and obj.value <= _HIGHEST_OF_USERS
    ]
    namespace, _, name = _SUPPOSED.partition("/")
    return Pod(
        metadata=ObjectMeta(name=name, namespace=namespace, uid="supposed"),
        spec=PodSpec(priority=max(values, default=_HIGHEST_OF_USERS)),
        status=PodStatus(phase="Pending"),
    )


def _protection(
    environment: EnvironmentRow,
    rules: RuleSet,
    overlays: Sequence[tuple[str, RuleSet]],
    snapshot: Snapshot,
    asking: Pod,
) -> Protection:
    key = key_of(asking)
    unknown = _unknown(rules)
    said = _judged(snapshot, rules, key) if not unknown else []
    at_risk = {pod for one in said if one.allowed for pod in one.pods}
    return replace(
        _unjudged(environment, asking, ""),
        judged=tuple(said),
        unknown=unknown,
        would_protect=tuple(
            name
            for name, both in overlays
            if at_risk and at_risk <= denials(snapshot, both, key).keys()
        ),
    )


def _unjudged(environment: EnvironmentRow, asking: Pod, why: str) -> Protection:
    """What is said of rules that say nothing of the pods; why: as `Protection.unreadable`."""
    active = environment.active
    assert active is not None  # the caller takes no others
    key = key_of(asking)
    return Protection(
        environment=environment.name,
        rule_set=active.rule_set,
        digest=active.rule_set_digest,
        asked=Asked(pod="" if key == _SUPPOSED else key, priority=asking.spec.priority or 0),
        judged=(),
        unknown="",
        would_protect=(),
        unreadable=why,
    )


def _judged(snapshot: Snapshot, rules: RuleSet, key: str) -> list[PodsJudged]:
    """The pods on nodes, those of one answer together, the denied ones first."""
    denied = denials(snapshot, rules, key)
    allowed, _ = judged(snapshot, rules, key)
    groups: dict[tuple[bool, str, str, str], list[str]] = {}
    for row, pod in enumerate(snapshot.keys):
        if snapshot.node[row] < 0:
            continue
        if (denial := denied.get(pod)) is not None:
            denying = _named(rules, denial.rule)
            why = denial.reason or (denying.why if denying is not None else "")
            answer = (False, denial.section, denial.rule, why)
        else:
            rule = rules.victims.eligible[int(allowed.rule[row])]
            answer = (True, "victims.eligible", rule.id, rule.why)
        groups.setdefault(answer, []).append(pod)
    return [
        PodsJudged(pods=tuple(pods), allowed=may, section=section, rule=rule, why=why)
        for (may, section, rule, why), pods in sorted(groups.items())
    ]


def _named(rules: RuleSet, id: str) -> Rule | None:
    every = (*rules.victims.eligible, *rules.victims.forbid)
    return next((rule for rule in every if rule.id == id), None)


def _unknown(rules: RuleSet) -> str:
    """The first variable of the rules about victims that a few pods do not tell; "" for none."""
    if rules.groups is not None:
        return "groups"
    for rule in (*rules.victims.eligible, *rules.victims.forbid):
        for name in sorted(rule.when.variables) if rule.when is not None else ():
            if name.startswith(_WHOLE_STATE):
                return name
    return ""


@lru_cache(maxsize=16)
def _rules(canonical: str) -> RuleSet:
    return RuleSet.from_canonical(canonical)


@lru_cache(maxsize=1)
def _shipped() -> tuple[tuple[str, RuleSet], ...]:
    return tuple((name, RuleSet.load(name)) for name in shipped_rules())


def _overlays(rules: RuleSet) -> Iterator[tuple[str, RuleSet]]:
    """The rules with each shipped rule included that they do not have."""
    for name, overlay in _shipped():
        both = including(rules, overlay, name)
        if both is not None and not _unknown(both):
            yield name, both
