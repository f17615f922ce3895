"""One scheduling cycle, slowly: one pod, one node at a time, straight from the specification.

The twin that the engine is compared with (`plain_told` brings both into one form). It shares no
code with the engine's filters and kernels, knows no arrays, and reads every rule of the shipped
rule sets by its text (`plain_rules`): an expression that it does not know is a KeyError.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from policy.cluster.digest import GENESIS, chain_changes
from policy.cluster.objects import (
    ClusterObject,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    kind_of,
)
from policy.cluster.objects import key_of as object_key
from policy.cluster.selectors import compile_selector
from policy.filters.registry import FILTERS
from policy.rules import RuleSet, ruleset
from policy.rules.ruleset import (
    CandidateNodes,
    Direction,
    NodesWithoutVictims,
    OnNoCandidate,
    Pick,
    ReprieveGroup,
    StartAt,
)
from tests.differential.plain_filters import (
    ERROR,
    PASSED,
    SUCCESS,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Cluster,
    Filter,
    NodeState,
    Said,
    Verdict,
    built,
    key_of,
    namespace_of,
    priority_of,
)
from tests.differential.plain_rules import (
    APPS,
    ELIGIBILITY,
    FORBID,
    RANKING,
    VICTIMS,
    Candidate,
    Nominated,
    NoValue,
    app_of,
    draw,
    holds,
    name_key,
    start_of,
)
from tests.differential.plain_told import Check, Ranked, Step, Told


def plain(
    objects: Iterable[ClusterObject],
    rules: RuleSet,
    preemptor: str,
    *,
    now_ms: int,
    seed: int = 0,
    evaluate_all: bool = False,
) -> Told:
    """What one cycle does with the pending pod."""
    return Cycle(list(objects), rules, preemptor, now_ms, seed, evaluate_all).run()


@dataclass
class Trial:
    """A node's state and the filters' view of it, to be changed at will."""

    state: NodeState
    filters: list[tuple[str, Filter]]

    def copy(self) -> Trial:
        return Trial(self.state.copy(), [(name, f.copy()) for name, f in self.filters])

    def add(self, pod: Pod) -> None:
        self.state.add(pod)
        for _, one in self.filters:
            one.moved(pod, self.state.node, 1)

    def remove(self, pod: Pod) -> None:
        self.state.remove(pod)
        for _, one in self.filters:
            one.moved(pod, self.state.node, -1)

    def check(self) -> Verdict:
        """The first filter that fails decides."""
        for name, one in self.filters:
            code, reasons = one.check(self.state)
            if code != SUCCESS:
                return Verdict(code, name, reasons)
        return PASSED


class Cycle:
    def __init__(
        self,
        objects: Sequence[ClusterObject],
        rules: RuleSet,
        preemptor: str,
        now_ms: int,
        seed: int,
        evaluate_all: bool,
    ) -> None:
        self.objects = objects
        self.rules = rules
        self.now_ms = now_ms
        self.seed = seed
        self.evaluate_all = evaluate_all
        by_name = sorted((o for o in objects if isinstance(o, Node)), key=lambda n: n.metadata.name)
        self.states = {n.metadata.name: NodeState(n) for n in by_name}
        pods = {key_of(o): o for o in objects if isinstance(o, Pod)}
        self.pods = pods
        self.pod = pods[preemptor]
        self.budgets = [o for o in objects if isinstance(o, PodDisruptionBudget)]
        self.waiting: list[Pod] = []
        for pod in sorted(pods.values(), key=name_key):
            if pod.status.phase in ("Succeeded", "Failed"):
                continue
            if not pod.spec.node_name:
                self.waiting.append(pod)
            elif pod.spec.node_name in self.states:
                self.states[pod.spec.node_name].add(pod)
        namespaces = {
            o.metadata.name: o.metadata.labels or {} for o in objects if isinstance(o, Namespace)
        }
        self.cluster = Cluster(list(self.states.values()), namespaces)

    def draw(self, purpose: str, size: int) -> int:
        there = {(kind_of(o), object_key(o)): o for o in self.objects}
        state = chain_changes(GENESIS, ((kind, key, o) for (kind, key), o in there.items()))
        return draw(self.seed, purpose, key_of(self.pod), state, size)

    def run(self) -> Told:
        if not self.states:
            return self.failed("no nodes available to schedule pods")
        self.filters = built(self.rules, self.pod, self.cluster)
        said = self.before()
        if said is not None and said[1].error:
            return self.failed(said[1].error)
        statuses, no_status = self.statuses(said)
        fits = PASSED in statuses.values()
        rule, eligible = self.eligibility(statuses)
        result: dict[str, Any] = {
            "fits": fits,
            "eligible": eligible,
            "eligibility_rule": rule.id,
            "rejected": said[1].rejected if said is not None else (),
            "filter_statuses": statuses,
        }
        candidates: list[Candidate] = []
        if self.evaluate_all or (eligible and not fits):
            found, candidates = self.search(statuses, no_status)
            result |= found
        return Told(**result, **self.conclusion(result, rule.reason, candidates))

    def failed(self, message: str) -> Told:
        return Told(outcome="error", node=None, message=message)

    # --- filters -------------------------------------------------------------------------------

    def before(self) -> tuple[str, Said] | None:
        """What filters say before nodes are looked at; the first that refuses decides."""
        names: tuple[str, Said] | None = None
        for name, one in self.filters:
            said = one.before()
            if said is None:
                continue
            if said.error or said.rejected:
                return name, said
            names = name, said
        return names

    def statuses(self, said: tuple[str, Said] | None) -> tuple[dict[str, Verdict], list[str]]:
        """Status of every node that has one, and the nodes that have none."""
        if said is not None and said[1].rejected:
            verdict = Verdict(UNRESOLVABLE, said[0], said[1].rejected)
            return dict.fromkeys(self.states, verdict), []
        statuses: dict[str, Verdict] = {}
        no_status: list[str] = []
        names = said[1].names if said is not None else None
        parameters = {u.name: u.parameters for u in self.rules.filters}
        for name, state in self.states.items():
            if names is None or name in names or name == self.pod.status.nominated_node_name:
                statuses[name] = self.fit(Trial(state, self.filters))
            elif parameters["node-affinity"]["nodeNames"] == "dry-run":
                no_status.append(name)
            elif parameters["node-affinity"]["nodeNames"] == "unresolvable":
                plugins = {"NodeAffinity"}
                if self.pod.status.nominated_node_name in self.states:
                    nominated = self.states[self.pod.status.nominated_node_name]
                    rejecting = self.fit(Trial(nominated, self.filters)).filter
                    plugins |= {FILTERS[rejecting].plugin} if rejecting else set()
                text = f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}]"
                statuses[name] = Verdict(UNRESOLVABLE, "", (text,))
        return statuses, no_status

    def fit(self, trial: Trial) -> Verdict:
        """Filtered twice: with the pods that are nominated to the node, and without."""
        nominated = [
            pod
            for pod in self.nominated_to(trial.state.name)
            if pod is not self.pod and priority_of(pod) >= priority_of(self.pod)
        ]
        if nominated:
            fuller = trial.copy()
            for pod in nominated:
                fuller.add(pod)
            verdict = fuller.check()
            if verdict.code != SUCCESS:
                return verdict
        return trial.check()

    def nominated_to(self, node: str) -> list[Pod]:
        def scheduler(pod: Pod) -> str:
            return pod.spec.scheduler_name or "default-scheduler"

        return [
            pod
            for pod in self.waiting
            if pod.status.nominated_node_name == node and scheduler(pod) == scheduler(self.pod)
        ]

    # --- eligibility and victims ---------------------------------------------------------------

    def eligibility(self, statuses: Mapping[str, Verdict]) -> tuple[Any, bool]:
        nominated = self.nominated(statuses)
        for rule in self.rules.eligibility:
            if holds(rule, ELIGIBILITY, self.pod, nominated):
                return rule, rule.verdict is ruleset.Verdict.ALLOW
        raise AssertionError("no rule decides")

    def nominated(self, statuses: Mapping[str, Verdict]) -> Nominated:
        name = self.pod.status.nominated_node_name
        if name not in self.states:
            return Nominated(None, 0, 0, 0)
        leaving = [p for p in self.states[name].pods if p.metadata.deletion_timestamp]
        lower = [p for p in leaving if priority_of(p) < priority_of(self.pod)]
        return Nominated(
            code=statuses[name].code if name in statuses else None,
            lower_terminating=len(lower),
            preempted_terminating=sum(preempted(p) and self.allowed(p)[1] for p in leaving),
            preempted_lower_terminating=sum(preempted(p) for p in lower),
        )

    def allowed(self, victim: Pod) -> tuple[str, bool]:
        """The rule that decides whether the pod may go, and its verdict; none denies."""
        for rule in self.rules.victims.eligible:
            if holds(rule, VICTIMS, victim, self.pod):
                return rule.id, rule.verdict is ruleset.Verdict.ALLOW
        return "", False

    def by_importance(self, pods: Iterable[Pod]) -> list[Pod]:
        """From the most important down; snapshot order ends every order."""
        return self.listed(sorted(pods, key=name_key), named=True)

    def listed(self, pods: Iterable[Pod], *, named: bool = False) -> list[Pod]:
        """The pods by importance; where not `named`, equals stay in the order they came in."""
        ordered = list(pods)
        for key in reversed(self.rules.victims.importance):
            match key.expression.source.strip():
                case "victim.priority":
                    ordered.sort(key=priority_of, reverse=key.descending)
                case "victim.startTime":
                    ordered.sort(key=lambda p: start_of(p, self.now_ms), reverse=key.descending)
                case source if source == APPS:
                    # Who has no value is kept first.
                    ordered.sort(key=partial(_app_key, descending=key.descending))
                case "victim.key":
                    if named:
                        ordered.sort(key=name_key, reverse=key.descending)
                case unknown:
                    raise KeyError(unknown)
        return ordered

    def violating(self, pods: Sequence[Pod]) -> set[str]:
        """Keys of the potential victims that break a budget, counted in this order."""
        rules = self.rules.victims.budgets
        left = [b.status.disruptions_allowed for b in self.budgets]
        found = set()
        for pod in pods:
            for i, budget in enumerate(self.budgets):
                if not selects(budget, pod):
                    continue
                if rules.skip_disrupted and pod.metadata.name in (
                    budget.status.disrupted_pods or ()
                ):
                    continue
                if rules.decrement:
                    left[i] -= 1
                if left[i] < 0 or (not rules.decrement and left[i] == 0):
                    found.add(key_of(pod))
        return found

    # --- candidates ----------------------------------------------------------------------------

    def search(
        self, statuses: Mapping[str, Verdict], no_status: Sequence[str]
    ) -> tuple[dict[str, Any], list[Candidate]]:
        potential = [
            name
            for name in self.states
            if name in no_status
            or statuses[name].code == UNSCHEDULABLE
            or (
                self.rules.candidates.nodes is CandidateNodes.NOT_UNRESOLVABLE
                and statuses[name].code == ERROR
            )
        ]
        if not potential:
            return {}, []
        rules = self.rules.candidates
        size = len(potential)
        wanted = min(size, max(size * rules.min_percentage // 100, rules.min_absolute))
        offset = 0
        if wanted < size and rules.start is StartAt.RANDOM:
            offset = self.draw("candidates", size)
        candidates: list[Candidate] = []
        failures: dict[str, Verdict] = {}
        examined: list[str] = []
        for name in potential[offset:] + potential[:offset]:
            examined.append(name)
            result = self.dry_run(name)
            if isinstance(result, Candidate):
                candidates.append(result)
            else:
                failures[name] = result
            clean = any(not c.pdb_violations for c in candidates)
            if wanted < size and clean and len(candidates) >= wanted:
                break
        decided: dict[str, int] = {}
        for name in examined:
            for pod in self.states[name].pods:
                rule = self.allowed(pod)[0]
                decided[rule] = decided.get(rule, 0) + 1
        candidates.sort(key=lambda c: c.node)
        found: dict[str, Any] = {
            "potential_nodes": tuple(potential),
            "sampling": (size, offset, wanted, len(examined)),
            "victim_rules": decided,
            "dry_run_statuses": failures,
        }
        if candidates:
            found |= self.rank(candidates)
        return found, candidates

    def dry_run(self, name: str) -> Candidate | Verdict:
        """Who would have to leave this node?"""
        rules = self.rules.victims
        trial = Trial(self.states[name], self.filters).copy()
        potential = self.by_importance(p for p in trial.state.pods if self.allowed(p)[1])
        violating = self.violating(potential)
        potential = [
            pod
            for pod in potential
            if not any(holds(rule, FORBID, pod, key_of(pod) in violating) for rule in rules.forbid)
        ]
        if not potential and rules.nodes_without_victims is NodesWithoutVictims.SKIPPED:
            return Verdict(UNRESOLVABLE, "", ("No preemption victims found for incoming pod",))
        for pod in potential:
            trial.remove(pod)
        verdict = self.fit(trial)
        if verdict.code != SUCCESS:
            return verdict
        victims: list[Pod] = []
        checks: list[Check] = []
        for pod in self.reprieve_order(potential, violating):
            trial.add(pod)
            verdict = self.fit(trial)
            if verdict.code != SUCCESS:
                trial.remove(pod)
                victims.append(pod)
            reprieved = verdict.code == SUCCESS
            checks.append(
                Check(
                    key_of(pod),
                    key_of(pod) in violating,
                    reprieved,
                    verdict.filter,
                    verdict.reasons,
                )
            )
        if not victims and rules.nodes_without_victims is NodesWithoutVictims.SKIPPED:
            return Verdict(ERROR, "", (f'expected at least one victim pod on node "{name}"',))
        if rules.max_victims is not None and len(victims) > rules.max_victims:
            text = f"{len(victims)} victims needed, maxVictims allows {rules.max_victims}"
            return Verdict(UNRESOLVABLE, "", (text,))
        broken = sum(key_of(v) in violating for v in victims)
        if rules.sorted_again:
            victims = self.listed(victims)
        return Candidate(name, victims, broken, checks)

    def reprieve_order(self, potential: Sequence[Pod], violating: set[str]) -> list[Pod]:
        groups = {
            ReprieveGroup.PDB_VIOLATING: [p for p in potential if key_of(p) in violating],
            ReprieveGroup.OTHERS: [p for p in potential if key_of(p) not in violating],
            ReprieveGroup.ALL: list(potential),
        }
        return [pod for group in self.rules.victims.reprieve for pod in groups[group]]

    # --- ranking -------------------------------------------------------------------------------

    def rank(self, candidates: Sequence[Candidate]) -> dict[str, Any]:
        left = list(candidates)
        behind: dict[str, str] = {}
        values: dict[str, dict[str, int | None]] = {c.node: {} for c in candidates}
        order: dict[str, list[tuple[bool, int]]] = {c.node: [] for c in candidates}
        steps: list[Step] = []
        decided_by = ""
        for criterion in self.rules.ranking:
            best: int | None = None
            if criterion.direction is Direction.PICK:
                seeded = criterion.pick is Pick.SEEDED and len(left) > 1
                kept = [left[self.draw(criterion.id, len(left)) if seeded else 0]]
            else:
                assert criterion.expression is not None
                of = RANKING[criterion.expression.source.strip()]
                sign = 1 if criterion.direction is Direction.MINIMIZE else -1
                for candidate in candidates:
                    try:
                        value = of(candidate, self.now_ms)
                    except NoValue:
                        value = None
                    values[candidate.node][criterion.id] = value
                    # Who has no value comes behind all others.
                    order[candidate.node].append((value is None, sign * (value or 0)))
                first = min(left, key=lambda c: order[c.node][-1])
                best = values[first.node][criterion.id]
                kept = [c for c in left if values[c.node][criterion.id] == best]
            behind |= {c.node: criterion.id for c in left if c not in kept}
            if len(left) > 1:
                steps.append(Step(criterion.id, len(left), len(kept), best))
                decided_by = criterion.id if len(kept) == 1 else decided_by
            left = kept
        chosen = left[0]
        ordered = sorted(candidates, key=lambda c: (c is not chosen, order[c.node], c.node))
        return {
            "candidates": tuple(
                Ranked(
                    c.node,
                    tuple(key_of(v) for v in c.victims),
                    c.pdb_violations,
                    values[c.node],
                    behind.get(c.node, ""),
                )
                for c in ordered
            ),
            "ranking": tuple(steps),
            "decided_by": decided_by,
            "victims": tuple(
                (key_of(v), bool(v.metadata.deletion_timestamp)) for v in chosen.victims
            ),
            "checks": tuple(chosen.checks),
        }

    # --- what follows --------------------------------------------------------------------------

    def conclusion(
        self, found: Mapping[str, Any], reason: str, candidates: Sequence[Candidate]
    ) -> dict[str, Any]:
        rules = self.rules.effects
        if found["fits"]:
            return {"outcome": "bind", "node": None}
        if not found["eligible"]:
            message = self.said(f"preemption: {reason}")
            return {"outcome": "not-eligible", "node": None, "message": message}
        if candidates:
            node = found["candidates"][0].node
            evict = tuple(
                key
                for key, terminating in found["victims"]
                if rules.delete_terminating_victims or not terminating
            )
            marked = evict if rules.disruption_condition else ()
            if not rules.repeat_condition:
                marked = tuple(k for k in marked if not preempted(self.pods[k]))
            lower = [
                key_of(p) for p in self.nominated_to(node) if priority_of(p) < priority_of(self.pod)
            ]
            return {
                "outcome": "preempt",
                "node": node,
                "evict": evict,
                "mark_disrupted": marked,
                "clear_nominations": tuple(lower)
                if rules.clear_lower_nominations and (evict or rules.clear_without_eviction)
                else (),
                "nomination": "set",
            }
        statuses: Mapping[str, Verdict] = found.get("dry_run_statuses", {})
        errors = [statuses[n].reasons[0] for n in sorted(statuses) if statuses[n].code == ERROR]
        if errors:
            message = "preemption: " + ", ".join(errors)
            return {"outcome": "error", "node": None, "message": message}
        clears = rules.on_no_candidate is OnNoCandidate.CLEAR or (
            rules.on_no_candidate is OnNoCandidate.CLEAR_IF_NO_POTENTIAL_NODE
            and not found.get("potential_nodes")
        )
        return {
            "outcome": "rejected" if found["rejected"] else "no-candidate",
            "node": None,
            "message": self.said(self.unavailable(statuses)),
            "nomination": "clear" if clears else "leave",
        }

    def said(self, message: str) -> str:
        return message if self.rules.effects.preemption_message else ""

    def unavailable(self, statuses: Mapping[str, Verdict]) -> str:
        counts: dict[str, int] = {}
        for verdict in statuses.values():
            for reason in verdict.reasons:
                counts[reason] = counts.get(reason, 0) + 1
        others = len(self.states) - len(statuses)
        if others:
            text = "Preemption is not helpful for scheduling"
            counts[text] = counts.get(text, 0) + others
        listed = ", ".join(sorted(f"{n} {reason}" for reason, n in counts.items()))
        end = f": {listed}." if listed else "."
        return f"preemption: 0/{len(self.states)} nodes are available{end}"


def preempted(pod: Pod) -> bool:
    """Does the first DisruptionTarget condition name the scheduler's preemption?"""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return False


def selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """A nil, empty or invalid selector selects nothing, and neither does any without labels."""
    selector = compile_selector(budget.spec.selector)
    return (
        (budget.metadata.namespace or "default") == namespace_of(pod)
        and bool(pod.metadata.labels)
        and not selector.empty
        and selector.matches(pod.metadata.labels)
    )


def _app_key(pod: Pod, *, descending: bool) -> tuple[bool, int]:
    try:
        app = app_of(pod)
    except NoValue:
        return False, 0
    return True, -app if descending else app
