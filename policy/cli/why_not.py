"""Why a node was not chosen, for `policy explain --why-not`.

A kept candidate answers at once. For any other node the decision is made again on the state it
was made on; the digest proves that it is the same one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from policy.cli import session
from policy.cli.view import because
from policy.decision.model import Candidate, Code, Decision, Status

if TYPE_CHECKING:
    from policy.cluster.snapshot import Snapshot
    from policy.rules import RuleSet
    from policy.store import Store, StoredDecision


class WhyNotError(Exception):
    """The question has no answer; `help` says what to do."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


def why_not_chosen(store: Store, stored: StoredDecision, node: str) -> dict[str, Any]:
    """`node`, `answer` (a stable word) and `text` (for people), with the values behind them."""
    from policy.rules import RuleSet

    row = stored.row
    if node == row.node:
        return _answer(node, "chosen", f"{node} was chosen")
    rules = RuleSet.from_canonical(store.read.rule_set(row.rule_set_digest))
    kept = {candidate.node: candidate for candidate in stored.record.candidates.best}
    if node in kept:
        return _fell_behind(kept[node], stored.record.candidates.best[0], rules)
    decision, snapshot = _again(store, stored)
    answer = _from_decision(decision, node, rules)
    if answer["answer"] == "not-helped":
        held = _kept(snapshot, rules, row.preemptor, node)
        answer["text"] += "".join(f"; {_by_rule(entry)}" for entry in held)
        answer["kept"] = held
    return answer


def _again(store: Store, stored: StoredDecision) -> tuple[Decision, Snapshot]:
    """The decision made once more, whole, as a replay makes it; and what it was made on.

    Raises WhyNotError where that cannot be done, or comes out differently.
    """
    from policy.audit.inputs import Incomplete
    from policy.audit.replay import Replayer
    from policy.preemption.decide import DecisionError

    replayer, number = Replayer(store), stored.row.id
    try:
        (row,) = replayer.rows([number])
        decision = replayer.again(row)
        snapshot = replayer.snapshot(row)
    except Incomplete as exc:
        what = f"decision {number} cannot be made again: {exc}"
        raise WhyNotError(what, help=exc.detail) from exc
    except DecisionError as exc:
        raise WhyNotError(f"decision {number} cannot be made again: {exc}") from exc
    if decision.digest != row.digest:
        raise WhyNotError(
            f"decision {number} comes out differently when it is made again",
            help=f"`policy replay {number}` names the first difference",
        )
    return decision, snapshot


def _kept(snapshot: Snapshot, rules: RuleSet, preemptor: str, node: str) -> list[dict[str, Any]]:
    """The pods on a node that may not be victims, by the rule that says so."""
    from policy.preemption.denials import denials

    by_rule: dict[str, dict[str, Any]] = {}
    for key, denial in sorted(denials(snapshot, rules, preemptor).items()):
        pod = snapshot.pod(key)
        if pod is not None and pod.spec.node_name == node:
            entry: dict[str, Any] = {
                "rule": denial.rule or None,
                "reason": denial.reason,
                "pods": [],
            }
            by_rule.setdefault(denial.rule, entry)["pods"].append(key)
    return list(by_rule.values())


def _by_rule(found: Mapping[str, Any]) -> str:
    """`2 pods stay by `cooldown` (the workload lost a pod within the last 15 minutes)`"""
    count = len(found["pods"])
    stay = "1 pod stays" if count == 1 else f"{count} pods stay"
    if found["rule"] is None:
        return f"{stay}: no rule allows it" if count == 1 else f"{stay}: no rule allows them"
    reason = f" ({found['reason']})" if found["reason"] else ""
    return f"{stay} by `{found['rule']}`{reason}"


def _from_decision(decision: Decision, node: str, rules: RuleSet) -> dict[str, Any]:
    trace = decision.trace
    found = decision.candidates
    if node in found.nodes:
        return _fell_behind(found[found.nodes.index(node)], found[0], rules)
    if node in trace.dry_run_statuses:
        status = trace.dry_run_statuses[node]
        text = f"with every pod evicted that may be, it still fails: {_said(status)}"
        return _answer(node, "not-helped", f"{node}: {text}", status)
    if node not in trace.filter_statuses:
        return _unknown(decision, node)
    status = trace.filter_statuses[node]
    if status.code is Code.SUCCESS:
        text = f"it passes all filters too; the pod was placed on {decision.node}"
        return _answer(node, "fits-too", f"{node}: {text}", status)
    if node in trace.potential_nodes:
        text = "it was not examined: enough candidates were found before it"
        return _answer(node, "not-examined", f"{node}: {text}", status)
    failed = f"it fails a filter: {_said(status)}"
    if trace.fits:
        return _answer(node, "filtered", f"{node}: {failed}", status)
    if not trace.eligible:
        return _answer(node, "filtered", f"{node}: {failed}, and the pod may not preempt", status)
    return _answer(node, "filtered", f"{node}: {failed}, which no preemption can help", status)


def _unknown(decision: Decision, node: str) -> dict[str, Any]:
    import difflib

    nodes = decision.trace.filter_statuses.nodes
    if not nodes:
        raise WhyNotError(f"no node was looked at: {decision.trace.message}")
    close = difflib.get_close_matches(node, nodes, n=1)
    raise WhyNotError(
        f"no node `{node}` in the state of this decision",
        help=f"did you mean `{close[0]}`?" if close else "",
    )


def _said(status: Status) -> str:
    return because(status.filter, status.reasons) or status.code.label


def _fell_behind(candidate: Candidate, best: Candidate, rules: RuleSet) -> dict[str, Any]:
    name = candidate.eliminated_by
    if not name:
        return _answer(candidate.node, "best", f"{candidate.node} is the best candidate")
    criterion = next((c for c in rules.ranking if c.id == name), None)
    victims = ", ".join(candidate.victims) or "no pod"
    if name not in candidate.values or criterion is None:
        why = f"equal to {best.node} in every criterion; `{name}` picked {best.node}"
        values = {}
    else:
        instants = criterion.expression is not None and criterion.expression.type == "timestamp"
        own, wins = candidate.values[name], best.values[name]
        shown = [
            "no value" if v is None else session.instant(v) if instants else str(v)
            for v in (own, wins)
        ]
        why = f"fell behind {best.node} at `{name}`: {shown[0]} against {shown[1]}"
        values = {"value": own, "best_value": wins}
    text = f"{candidate.node} ({victims} would leave) {why}"
    return {**_answer(candidate.node, "fell-behind", text), "criterion": name, **values}


def _answer(node: str, answer: str, text: str, status: Status | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"node": node, "answer": answer, "text": text}
    if status is not None:
        found |= {
            "status": status.code.label,
            "filter": status.filter,
            "reasons": list(status.reasons),
        }
    return found
