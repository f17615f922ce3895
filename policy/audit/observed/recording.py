"""What was observed of a cluster, into its record: the situation, the verdict, the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policy.audit.observed.comparing import POD_GROUP
from policy.audit.observed.deciding import decide_again, moment_of, states_of
from policy.audit.observed.views import StateAt
from policy.cluster.objects import Node
from policy.observing.model import Preemption
from policy.rules import RuleSet
from policy.rules.scheduler_config.reading import DEFAULT_NAME
from policy.rules.versions import generations, newest, of_server
from policy.store import Store
from policy.store.observed import (
    AnsweredDecision,
    NewObservation,
    ObservedVerdict,
    VerdictClass,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerRules:
    """The rule set of a cluster's own scheduler, and how that was found."""

    rules: RuleSet
    version: str  #: of the server, as it or its nodes say; "" where nothing says it
    why: str


def server_rules(nodes: Sequence[Node], *, version: str = "") -> ServerRules:
    """The rule set that decides like a cluster's scheduler.

    version: what the API server says; without it the newest kubelet counts, which is no newer than
    its control plane. Where neither is known, the newest rule set.
    """
    kubelets = {
        node.status.node_info.kubelet_version for node in nodes if node.status.node_info is not None
    }
    told = version or newest(sorted(kubelets)) or ""
    found = of_server(told) if told else None
    if found is not None:
        source = "the API server" if version else "the newest kubelet"
        return ServerRules(rules=RuleSet.load(found.name), version=told, why=f"{source} is {told}")
    why = f"no shipped rule set decides like {told}" if told else "no version is known"
    last = RuleSet.load(generations()[-1].name)
    return ServerRules(rules=last, version=told, why=f"{why}; the newest is taken")


class SchedulerRules:
    """The rule set of each of a cluster's schedulers.

    What an environment of the cluster says of a profile counts (`policy env scheduler`); else the
    rule set of the server's version.
    """

    def __init__(self, store: Store, cluster: str, detect: Callable[[], ServerRules]) -> None:
        self._store = store
        self._cluster = cluster
        self._detect = detect
        self._loaded: dict[str, RuleSet] = {}

    def current(self) -> Callable[[Preemption, str], RuleSet]:
        """For a preemption and a `schedulerName`, as it is set at the moment."""
        said = self._store.read.scheduler_rules(self._cluster)

        def of(preemption: Preemption, scheduler: str) -> RuleSet:
            row = said.get(scheduler or DEFAULT_NAME)
            rules = self._detect().rules if row is None else self._stored(row.rule_set_digest)
            if preemption.preemptor_kind == POD_GROUP and rules.groups is None:
                return _with_groups(self._detect().rules)
            return rules

        return of

    def _stored(self, digest: str) -> RuleSet:
        if digest not in self._loaded:
            text = self._store.read.rule_set(digest)
            self._loaded[digest] = RuleSet.from_canonical(text)
        return self._loaded[digest]


def _with_groups(rules: RuleSet) -> RuleSet:
    """The rule set of the same version with its gates for pod groups on, where one is shipped.

    A group that preempts shows that they are.
    """
    name = f"{rules.name}-groups"
    return RuleSet.load(name) if name in RuleSet.names() else rules


def record_observed(
    store: Store,
    cluster: str,
    preemptions: Sequence[Preemption],
    rules: SchedulerRules,
    *,
    at_ms: int,
    source: str,
    actor: str,
    states: Callable[[int], StateAt] | None = None,
) -> list[int]:
    """Decide observed preemptions again and keep them; gives the numbers of the new ones.

    states: the states for an instant in milliseconds, where the caller has them at hand.
    """
    made = []
    rules_of = rules.current()
    for preemption in preemptions:
        situation = store.read.situation(cluster, preemption)
        answered = store.read.answered(cluster, preemption)
        ours = _carried_out(preemption, answered)
        if ours is not None:
            made.append(
                NewObservation(
                    preemption=preemption,
                    situation=situation,
                    verdict=_as_answered(preemption, ours),
                    counted_before=ours.victims,
                )
            )
            continue
        now_ms = moment_of(preemption)
        at = states(now_ms) if states is not None else states_of(store, cluster, now_ms=now_ms)
        preemptor = situation.preemptor
        scheduler = preemption.scheduler if preemptor is None else preemptor.spec.scheduler_name
        again = decide_again(preemption, situation, rules_of(preemption, scheduler), at)
        made.append(
            NewObservation(
                preemption=preemption,
                situation=situation,
                verdict=again.verdict,
                counted_before={uid for one in answered for uid in one.victims},
            )
        )
    if not made:
        return []
    return store.record.observations(cluster, made, at_ms=at_ms, source=source, actor=actor)


def _carried_out(
    preemption: Preemption, answered: Sequence[AnsweredDecision]
) -> AnsweredDecision | None:
    """The decision that says all of what was observed; None where another one must be made."""
    seen = {victim.uid for victim in preemption.victims}
    return next((one for one in answered if seen and seen <= one.victims.keys()), None)


def _as_answered(preemption: Preemption, ours: AnsweredDecision) -> ObservedVerdict:
    return ObservedVerdict(
        verdict=VerdictClass.ANSWERED,
        reason=f"decision {ours.id}",
        rule_set=ours.rule_set,
        rule_set_digest=ours.rule_set_digest,
        engine_version=ours.engine_version,
        detail={"decision": ours.id},
        pdb_violating={victim.pod: ours.victims[victim.uid] for victim in preemption.victims},
    )
