"""One decision of ours against the recorded one.

agree   The same `fits`, eligibility and candidate nodes; on every node the recorded victims in
        their order and the same number of violations, or one of the alternatives that the real
        code gave for another order of the pods; a node that the real code may choose; the same
        effects.
tie     Some node's victims differ, but only by the order among pods that are equal in priority
        and start time: under some order of them (the witness) our own engine yields exactly what
        was recorded, and our ranking, given the recorded candidates, picks a recorded best node.
differ  Everything else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from policy.conformance import witness
from policy.conformance.results import Agreement, ScenarioResult
from policy.conformance.scenario import RecordedCandidate, RecordedStatus, Scenario
from policy.conformance.witness import VictimSet
from policy.decision.messages import fit_error
from policy.decision.model import Decision, NominationChange, Outcome, Status

if TYPE_CHECKING:
    from policy.face import Snapshot
    from policy.preemption.importance import Importance
    from policy.rules import RuleSet

NOW: Final = datetime(2026, 11, 21, tzinfo=UTC)
"""The recordings carry no time; all of them were made at this one."""

OVERRIDES: Final[Mapping[str, Any]] = {"candidates": {"minPercentage": 100}}
"""The recordings were made without sampling."""

PLUGINS: Final[Mapping[str, str]] = {
    "node-unschedulable": "NodeUnschedulable",
    "node-name": "NodeName",
    "taints": "TaintToleration",
    "node-affinity": "NodeAffinity",
    "node-ports": "NodePorts",
    "resources": "NodeResourcesFit",
    "volume-restrictions": "VolumeRestrictions",
    "volume-limits": "NodeVolumeLimits",
    "volume-binding": "VolumeBinding",
    "volume-zone": "VolumeZone",
    "topology-spread": "PodTopologySpread",
    "pod-affinity": "InterPodAffinity",
    "declared-features": "NodeDeclaredFeatures",
    "resource-claims": "DynamicResources",
}
"""kube-scheduler's names of the filters of rule files."""


def compare(
    scenario: Scenario, rules: RuleSet, *, source: str = "", strict: bool = False
) -> ScenarioResult:
    """Decide the scenario with `rules` and judge the decision against the recorded one."""
    from policy.face import Snapshot

    snapshot = Snapshot.from_manifests(scenario.objects, now=NOW, admission=False)
    comparison = _Comparison(scenario, snapshot, _in_the_cycle(rules))
    differences = list(comparison.differences())
    if strict:
        differences.extend(_texts(comparison))
    agreed = Agreement.TIE if comparison.tied else Agreement.AGREE
    return ScenarioResult(
        id=scenario.id,
        family=scenario.family,
        source=source,
        verdict=Agreement.DIFFER if differences else agreed,
        differences=tuple(differences) or tuple(comparison.tied),
    )


def decided(scenario: Scenario, rules: RuleSet) -> Decision:
    """What `rules` decide in the recorded cluster."""
    from policy.face import Snapshot
    from policy.preemption.decide import decide

    snapshot = Snapshot.from_manifests(scenario.objects, now=NOW, admission=False)
    return decide(snapshot, rules, scenario.pod)


def _in_the_cycle(rules: RuleSet) -> RuleSet:
    """The rule set for deletions in the scheduling cycle itself, as the recordings have them.

    Only where they run in the background (the default since 1.33) do nominations stay where no
    pod is newly evicted.
    """
    return replace(rules, effects=replace(rules.effects, clear_without_eviction=True))


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What happened to the preemptor's nomination: SET to one of `nodes`, CLEAR or LEAVE."""

    change: NominationChange
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.change is NominationChange.SET:
            return f"nominated to {_either(self.nodes)}"
        return {"clear": "nomination cleared", "leave": "nomination left"}[self.change]


class _Comparison:
    def __init__(self, scenario: Scenario, snapshot: Snapshot, rules: RuleSet) -> None:
        from policy.preemption.decide import decide

        self.scenario = scenario
        self.expect = scenario.expect
        self.snapshot = snapshot
        self.rules = rules
        self.tied: list[str] = []  #: nodes (or the choice) that differ by a tie only
        self.apart: list[str] = []  #: nodes whose victims are not the recorded ones
        self.decision = decide(snapshot, rules, scenario.pod, evaluate_all=True)

    def _decide(self, importance: Callable[..., Importance]) -> Decision:
        from policy.preemption.decide import decide_by

        return decide_by(
            importance, self.snapshot, self.rules, self.scenario.pod, evaluate_all=True
        )

    def differences(self) -> Iterator[str]:
        expect, decision = self.expect, self.decision
        if expect.error is not None:
            if decision.outcome is not Outcome.ERROR:
                yield f"outcome: {decision.outcome}, recorded error ({expect.error})"
            return
        if decision.outcome is Outcome.ERROR:
            yield f"outcome: error ({decision.trace.message}), recorded none"
            return
        if decision.trace.fits != expect.fits:
            yield f"fits: {_word(decision.trace.fits)}, recorded {_word(expect.fits)}"
        elif not expect.fits and decision.trace.eligible != expect.eligible:
            yield f"eligible: {_word(decision.trace.eligible)}, recorded {_word(expect.eligible)}"
        if expect.candidates is None:  # 1.14 tells nothing more of a pod that fits
            yield from self._effects({})
            return
        nodes = list(self._candidates(expect.candidates))
        yield from nodes
        if not nodes:
            yield from self._choice(expect.candidates)
        yield from self._effects(expect.candidates)

    # --- candidates ------------------------------------------------------------------------

    def _candidates(self, recorded: Mapping[str, RecordedCandidate]) -> Iterator[str]:
        ours = _victims_by_node(self.decision)
        for node in sorted(recorded.keys() | ours.keys()):
            if node not in ours:
                yield f"{node}: no candidate, recorded {_shown(_recorded(recorded[node]))}"
            elif node not in recorded:
                yield f"{node}: {_shown(ours[node])}, recorded no candidate"
        self.apart = [
            node
            for node in sorted(recorded.keys() & ours.keys())
            if ours[node] != _recorded(recorded[node])
        ]
        other_orders = self.expect.alternatives
        open_nodes = [
            node
            for node in self.apart
            if ours[node] not in [_recorded(other) for other in other_orders.get(node, ())]
        ]
        without_witness = self._without_witness(open_nodes, recorded) if open_nodes else set()
        for node in open_nodes:
            text = f"{node}: {_shown(ours[node])}, recorded {_shown(_recorded(recorded[node]))}"
            if node in without_witness:
                yield text
            else:
                self.tied.append(text)

    def _without_witness(
        self, nodes: Iterable[str], recorded: Mapping[str, RecordedCandidate]
    ) -> set[str]:
        """The nodes whose recorded victims no order among equal pods explains."""
        from policy.preemption.ties import tied

        # The real list of victims comes out of an unstable sort: equals may stand in any order.
        listing = {
            pod: place
            for candidate in recorded.values()
            for place, pod in enumerate(candidate.victims)
        }
        return witness.unexplained(
            self.scenario,
            {node: recorded[node] for node in nodes},
            lambda order: _victims_by_node(self._decide(tied(order, listing))),
        )

    # --- choice ----------------------------------------------------------------------------

    def _choice(self, recorded: Mapping[str, RecordedCandidate]) -> Iterator[str]:
        """The best candidate, whether or not anything is really preempted."""
        expect = self.expect
        ours = self.decision.candidates.nodes[0] if len(self.decision.candidates) else None
        best = self.scenario.best()
        if ours is None or (not self.tied and ours in {*best, *expect.best_any_order}):
            return
        if not self.apart:
            yield f"best: {ours}, recorded {_either(expect.best)}"
            return
        ranked = self._rank(recorded)
        if ranked not in best:
            yield f"best of the recorded candidates: {ranked}, recorded {_either(expect.best)}"
        elif not self.tied:
            # Other victims, which the real code gave too, lead to another choice.
            self.tied.append(f"best: {ours}, recorded {_either(expect.best)}")

    def _rank(self, recorded: Mapping[str, RecordedCandidate]) -> str:
        from policy.preemption.ranking import rank_recorded

        candidates = {
            node: (tuple(candidate.victims), candidate.violations)
            for node, candidate in recorded.items()
        }
        return rank_recorded(self.snapshot, self.rules, self.scenario.pod, candidates)

    # --- effects ---------------------------------------------------------------------------

    def _effects(self, recorded: Mapping[str, RecordedCandidate]) -> Iterator[str]:
        expect, decision = self.expect, self.decision
        effects = decision.effects
        if expect.fits:
            if not effects.bind or effects.evict:
                yield f"effects: {_described(decision)}, recorded a binding"
            return
        outcome = _recorded_outcome(self.scenario)
        if effects.nomination is not outcome.change:
            yield f"effects: {_described(decision)}, recorded {outcome}"
            return
        if outcome.change is not NominationChange.SET:
            if effects.evict or effects.clear_nominations or effects.mark_disrupted:
                yield f"effects: {_described(decision)}, recorded {outcome}"
            return
        node = decision.node or ""
        cleared = _recorded_clearing(self.scenario, node)
        if cleared is not None and set(effects.clear_nominations) != set(cleared):
            yield _sets("cleared nominations", effects.clear_nominations, cleared)
        yield from self._deletions(recorded.get(node), node)

    def _deletions(self, recorded: RecordedCandidate | None, node: str) -> Iterator[str]:
        expect, decision = self.expect, self.decision
        evicted, victims = set(decision.effects.evict), {v.pod for v in decision.victims}
        told = expect.post_filter is not None and expect.post_filter.nominated_node == node
        same = recorded is not None and set(recorded.victims) == victims
        if told and same and expect.deleted is not None:
            if evicted != set(expect.deleted):
                yield _sets("deleted", decision.effects.evict, expect.deleted)
            marked = expect.disruption_target
            if marked is not None and set(decision.effects.mark_disrupted) != set(marked):
                yield _sets("disruption target", decision.effects.mark_disrupted, marked)
            return
        # Of other victims nothing is recorded but the rule: all go, and those that are already
        # leaving may be left out.
        leaving = {v.pod for v in decision.victims if v.already_terminating}
        if not victims - leaving <= evicted <= victims:
            yield _sets("deleted", decision.effects.evict, sorted(victims))


def _recorded_outcome(scenario: Scenario) -> _Outcome:
    expect = scenario.expect
    if expect.preempt is not None:  # 1.14
        node = expect.preempt.node
        if node is None:
            return _Outcome(NominationChange.SET, tuple(expect.preempt.any_of))
        if node:
            return _Outcome(NominationChange.SET, (node,))
        # The generic scheduler lists the preemptor itself among the nominations to clear.
        own = scenario.pod in expect.preempt.cleared_nominations
        return _Outcome(NominationChange.CLEAR if own else NominationChange.LEAVE)
    result = expect.post_filter
    if result is not None and result.code == "Success":
        nodes = tuple(expect.best) if result.nominated_node is None else (result.nominated_node,)
        return _Outcome(NominationChange.SET, nodes)
    if result is not None and result.nominated_node == "":
        return _Outcome(NominationChange.CLEAR)
    return _Outcome(NominationChange.LEAVE)


def _recorded_clearing(scenario: Scenario, node: str) -> list[str] | None:
    """Nominations cleared when `node` is chosen; None where that was not recorded."""
    expect = scenario.expect
    if node in expect.cleared_nominations_by_best:
        return expect.cleared_nominations_by_best[node]
    if expect.post_filter is not None and expect.post_filter.nominated_node == node:
        return expect.cleared_nominations
    return None


# --- strict: codes, reasons, messages -----------------------------------------------------------


def _texts(comparison: _Comparison) -> Iterator[str]:
    expect, decision = comparison.expect, comparison.decision
    trace = decision.trace
    if expect.error is not None:
        return
    for node, recorded in sorted(expect.filter.items()):
        if node not in trace.filter_statuses:
            yield f"filter {node}: no status, recorded {_status(recorded)}"
        elif not _same_status(trace.filter_statuses[node], recorded):
            ours = _status(trace.filter_statuses[node])
            yield f"filter {node}: {ours}, recorded {_status(recorded)}"
    if expect.potential_nodes is not None and not expect.fits:
        yield from different("potential nodes", trace.potential_nodes, expect.potential_nodes)
    if expect.statuses is not None:
        yield from _dry_run(trace.dry_run_statuses, expect.statuses)
    fired = next((rule for rule in trace.rules if rule.section == "eligibility"), None)
    told = expect.reason if not expect.fits else None
    if told is not None and fired is not None and fired.reason != told:
        yield f"reason: `{fired.reason}`, recorded `{told}`"
    if expect.post_filter is not None and trace.message != expect.post_filter.message:
        yield f"message: `{trace.message}`, recorded `{expect.post_filter.message}`"
    if expect.fit_error is not None:
        nodes, claims = len(comparison.snapshot.nodes), comparison.rules.effects.claims_message
        text = _without_nominated(fit_error(decision, nodes=nodes, claims=claims))
        if text != expect.fit_error:
            yield f"event: `{text}`, recorded `{expect.fit_error}`"


def _dry_run(ours: Mapping[str, Status], recorded: Mapping[str, RecordedStatus]) -> Iterator[str]:
    for node in sorted(ours.keys() | recorded.keys()):
        if node not in ours:
            yield f"status {node}: none, recorded {_status(recorded[node])}"
        elif node not in recorded:
            yield f"status {node}: {_status(ours[node])}, recorded none"
        elif not _same_status(ours[node], recorded[node]):
            yield f"status {node}: {_status(ours[node])}, recorded {_status(recorded[node])}"


def different(what: str, ours: Iterable[str], recorded: Iterable[str]) -> Iterator[str]:
    """One line where the two are not the same set."""
    if set(ours) != set(recorded):
        yield _sets(what, ours, recorded)


def _same_status(ours: Status, recorded: RecordedStatus | list[str]) -> bool:
    if isinstance(recorded, list):  # 1.14: failed predicates, no code
        return list(ours.reasons) == recorded
    return (
        ours.code.label == recorded.code
        and [_without_nominated(text) for text in ours.reasons] == recorded.reasons
        and recorded.plugin in (None, PLUGINS.get(ours.filter, ours.filter))
    )


_PLUGINS_OF_OTHERS: Final = re.compile(r"(didn't satisfy plugin\(s\)) \[[^\]]*\]")


def _without_nominated(text: str) -> str:
    """The text as the recordings have it, which were made without the scheduler around the
    plugins: of a node that is not filtered they name the plugin that left it out. The running
    scheduler adds the one that rejects the nominated node."""
    return _PLUGINS_OF_OTHERS.sub(r"\1 [NodeAffinity]", text)


def _status(status: Status | RecordedStatus | list[str]) -> str:
    if isinstance(status, list):
        return ", ".join(status) or "nothing"
    if isinstance(status, Status):
        code, plugin = status.code.label, PLUGINS.get(status.filter, status.filter)
    else:
        code, plugin = status.code, status.plugin or ""
    return " ".join(filter(None, (code, plugin, f"({', '.join(status.reasons)})")))


# --- words --------------------------------------------------------------------------------------


def _victims_by_node(decision: Decision) -> dict[str, VictimSet]:
    return {c.node: (c.victims, c.pdb_violations) for c in decision.candidates}


def _recorded(candidate: RecordedCandidate) -> VictimSet:
    return tuple(candidate.victims), candidate.violations


def _shown(victims: VictimSet) -> str:
    pods, violations = victims
    return f"[{', '.join(pods)}]" + (f" violating {violations}" if violations else "")


def _word(value: bool | None) -> str:
    return "unknown" if value is None else "yes" if value else "no"


def _either(nodes: Sequence[str]) -> str:
    return " or ".join(nodes) if nodes else "none"


def _sets(what: str, ours: Iterable[str], recorded: Iterable[str]) -> str:
    return f"{what}: [{', '.join(sorted(ours))}], recorded [{', '.join(sorted(recorded))}]"


def _described(decision: Decision) -> str:
    effects = decision.effects
    if effects.bind:
        return f"bound to {effects.bind}"
    nodes = (decision.node,) if decision.node else ()
    return str(_Outcome(effects.nomination, nodes))
