"""Deciding cases and comparing with what they want."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from policy.cases.finding import Suite, beside
from policy.cases.model import Case, CaseMismatch
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, Outcome
from policy.groups.decide import decide_group
from policy.preemption.columns import history_key
from policy.preemption.decide import DecisionError, decide
from policy.preemption.denials import Denial, denials
from policy.rules.ruleset import RuleSet


def run(case: Case, rules: RuleSet) -> CaseMismatch | None:
    """None where the rule set decides as the case wants."""
    snapshot = snapshot_of(case, rules)
    if case.group:
        return _mismatch(case, rules, tuple(_of_group(case, snapshot, rules)))
    decision = decide(snapshot, rules, case.preemptor, seed=case.seed)
    held = denials(snapshot, rules, case.preemptor) if case.want.denied else {}
    return _mismatch(case, rules, tuple(_differences(case, decision, held)))


def _mismatch(case: Case, rules: RuleSet, found: tuple[str, ...]) -> CaseMismatch | None:
    if not found:
        return None
    return CaseMismatch(place=case.place, note=case.note, rules=rules.name, differences=found)


def snapshot_of(case: Case, rules: RuleSet) -> Snapshot:
    """The case's cluster; figures that the rules read and the case leaves out are none at all."""
    history: dict[str, Mapping[str, int]] = {history_key(*need): {} for need in rules.history_needs}
    history |= case.history
    return Snapshot.from_objects(case.objects, now_ms=case.now_ms, history=history)


def run_suite(suite: Suite, rules: RuleSet | None = None) -> list[CaseMismatch]:
    """The cases of a suite that fail, under its rules or others. Raises RulesError."""
    chosen = RuleSet.load(suite.rules, within=suite.within) if rules is None else rules
    return [failed for case in suite.cases() if (failed := run(case, chosen)) is not None]


def run_beside(rules: str, *, within: Path | None = None) -> list[CaseMismatch]:
    """The cases beside a rule set that fail; none where there are no cases. Raises RulesError."""
    suite = beside(rules, within=within)
    if suite is None:
        return []
    if suite.batch:
        from policy.cases.sessions import run_suite as run_sessions

        return [failed for _, _, failed in run_sessions(suite) if failed is not None]
    return run_suite(suite)


def _of_group(case: Case, snapshot: Snapshot, rules: RuleSet) -> Iterator[str]:
    """What becomes of the group and its members otherwise than wanted."""
    want = case.want
    try:
        decision = decide_group(snapshot, rules, case.group, seed=case.seed)
    except DecisionError as exc:
        yield str(exc)
        return
    effects = decision.effects
    nominated = {pod: node for pod, node in effects.nominate.items() if node}
    compared = (
        ("outcome", _one(want.outcome), _one(decision.outcome.value)),
        ("victims", _many(want.victims), _many(frozenset(v.pod for v in decision.victims))),
        ("binds", _places(want.binds), _places(effects.bind)),
        ("nominated", _places(want.nominated), _places(nominated)),
    )
    for name, wanted, found in compared:
        if name in want.given and wanted != found:
            yield f"{name}: wanted {wanted}, got {found}"


def _places(nodes: Mapping[str, str]) -> str:
    return ", ".join(f"`{pod}` on `{node}`" for pod, node in sorted(nodes.items())) or "none"


def _differences(case: Case, decision: Decision, held: Mapping[str, Denial]) -> Iterator[str]:
    want = case.want
    takes = decision.outcome is Outcome.PREEMPT
    victims = frozenset(victim.pod for victim in decision.victims) if takes else frozenset[str]()
    compared = (
        ("node", _one(want.node), _one(decision.node)),
        ("victims", _many(want.victims), _many(victims)),
        ("outcome", _one(want.outcome), _one(decision.outcome.value)),
        ("decided-by", _one(want.decided_by), _one(decision.trace.decided_by)),
    )
    for name, wanted, found in compared:
        if name in want.given and wanted != found:
            yield f"{name}: wanted {wanted}, got {found}"
    for pod, rule in want.denied.items():
        denial = held.get(pod)
        wanted = "no rule allows it" if rule is None else f"denied by `{rule}`"
        if denial is None:
            got = (
                "allowed"
                if pod in {_key(case, i) for i in range(len(case.objects))}
                else "no such pod"
            )
            yield f"denied: `{pod}`: wanted {wanted}, got {got}"
        elif denial.rule != (rule or ""):
            got = f"denied by `{denial.rule}`" if denial.rule else "no rule allows it"
            yield f"denied: `{pod}`: wanted {wanted}, got {got}"


def _key(case: Case, index: int) -> str:
    meta = case.objects[index].metadata
    return f"{meta.namespace}/{meta.name}"


def _one(text: str | None) -> str:
    return f"`{text}`" if text else "none"


def _many(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
