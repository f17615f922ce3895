"""Why a node was not chosen, for `policy explain --why-not`.

A kept candidate answers at once. For any other node the decision is made again on the state it
was made on; the digest proves that it is the same one.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from policy.audit import sentences
from policy.audit.documents import instant
from policy.audit.sentences import because
from policy.decision import messages
from policy.decision.model import (
    BudgetViolation,
    Candidate,
    Code,
    Decision,
    DecisionTrace,
    Status,
)

if TYPE_CHECKING:
    from policy.cluster.snapshot import Snapshot
    from policy.rules import RuleSet
    from policy.rules.ruleset import Rule
    from policy.store import Store, StoredDecision


class WhyNotError(Exception):
    """The question has no answer; `help` says what to do."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


def why_not_chosen(store: Store, stored: StoredDecision, node: str) -> dict[str, Any]:
    """`node`, `answer` (a stable word) and `text` (for people), with the values behind them."""
    from policy.rules import RuleSet
    from policy.rules.problems import RulesError

    row = stored.row
    if node == row.node:
        return _answer(node, "chosen", f"{node} was chosen")
    text = store.read.rule_set(row.rule_set_digest)
    try:
        rules = RuleSet.from_canonical(text)
    except RulesError as exc:
        what = f"this version cannot read the rule set of decision {row.id}"
        raise WhyNotError(what, help=str(exc).partition("\n")[0]) from exc
    kept = {candidate.node: candidate for candidate in stored.record.candidates.best}
    if node in kept:
        recorded = stored.record.candidates
        candidate = kept[node]
        leaving = store.read.leaving_already(row.cluster, row.base_revision, candidate.victims)
        return _fell_behind(candidate, recorded.best[0], rules, recorded.violations, leaving)
    decision, snapshot = _again(store, stored)
    answer, status = _from_decision(decision, node, rules, snapshot)
    known = node in snapshot.nodes.index  # a scheduler may have offered one that is not
    if answer["answer"] in ("not-helped", "filtered") and status is not None and known:
        from policy.preemption.obstacles import failing, obstacles_on

        found = obstacles_on(
            snapshot,
            rules,
            row.preemptor,
            node,
            failing(status, decision.trace.filter_statuses, node),
            dry_run=answer["answer"] == "not-helped",
            offered=decision.trace.offer is not None,
        )
        reasons = {rule.id: rule.reason for rule in _victim_rules(rules)}
        for obstacle in found:
            text = sentences.obstacle(obstacle, priority=row.preemptor_priority, reasons=reasons)
            answer["text"] += f"; {text}"
        answer["obstacles"] = to_builtins(found)
    elif answer["answer"] == "fits-too":
        _add_scores(answer, decision, snapshot, rules)
    return answer


def _add_scores(
    answer: dict[str, Any], decision: Decision, snapshot: Snapshot, rules: RuleSet
) -> None:
    """What the scorers gave the node and the one that was taken."""
    from policy.preemption.placing import compared

    pod = snapshot.pod(decision.preemptor)
    taken = decision.node or ""
    if pod is not None and pod.status.nominated_node_name == taken:
        answer["text"] += ", to which it was nominated: no scores were compared"
        return
    statuses = decision.trace.filter_statuses
    passing = [name for name in statuses if statuses[name].code is Code.SUCCESS]
    scores = compared(
        snapshot, rules, decision.preemptor, passing, node=answer["node"], taken=taken
    )
    totals = [sum(s.weight * getattr(s, of) for s in scores) for of in ("value", "best_value")]
    if totals[0] == totals[1]:
        answer["text"] += f": equal scores ({totals[0]}), the first by name is taken"
    else:
        answer["text"] += f": {totals[0]} points against {totals[1]}"
    told = [
        f"{s.scorer} {s.value} against {s.best_value}"
        + (f" (weight {s.weight})" if s.weight != 1 else "")
        for s in scores
        if s.value != s.best_value
    ]
    answer["text"] += f" ({', '.join(told)})" if told else ""
    if rules.extenders:
        answer["text"] += "; what extenders added is not part of this"
    answer["scores"] = to_builtins(scores)


def _victim_rules(rules: RuleSet) -> Sequence[Rule]:
    return (*rules.victims.eligible, *rules.victims.forbid)


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


def _from_decision(
    decision: Decision, node: str, rules: RuleSet, snapshot: Snapshot
) -> tuple[dict[str, Any], Status | None]:
    """The answer, and the status behind it where the node failed."""
    trace = decision.trace
    found = decision.candidates
    if node in found.nodes:
        candidate = found[found.nodes.index(node)]
        leaving = [key for key in candidate.victims if _leaving(snapshot, key)]
        return _fell_behind(candidate, found[0], rules, found.violations, leaving), None
    if node in trace.dry_run_statuses:
        status = trace.dry_run_statuses[node]
        return _answer(node, "not-helped", f"{node}: {_not_helped(status)}", status), status
    if node not in trace.filter_statuses:
        raise _unknown(decision, node)
    status = trace.filter_statuses[node]
    if status.code is Code.SUCCESS:
        text = f"it passes all filters too; the pod was placed on {decision.node}"
        return _answer(node, "fits-too", f"{node}: {text}", status), None
    if node in trace.potential_nodes:
        extender = _left_out_by(trace, node)
        if extender is not None:
            text = f"the extender {extender} left it out of its answer to `preempt`"
            return _answer(node, "left-out", f"{node}: {text}", status), None
        text = "it was not examined: enough candidates were found before it"
        return _answer(node, "not-examined", f"{node}: {text}", status), None
    text = f"{node}: it fails a filter: {_said(status)}"
    if not trace.fits:
        eligible = ", which no preemption can help"
        text += eligible if trace.eligible else ", and the pod may not preempt"
    return _answer(node, "filtered", text, status), status


def _left_out_by(trace: DecisionTrace, node: str) -> str | None:
    """The extender that left an examined node out; None where the node was not examined."""
    sampling = trace.sampling
    if sampling is None:
        return None
    turn = sorted(trace.potential_nodes).index(node) - sampling.offset
    if turn % sampling.potential >= sampling.examined:
        return None
    answers = ((c.extender, c.answer) for c in trace.extender_calls if c.verb == "preempt")
    return next(
        (
            extender
            for extender, answer in answers
            if answer and node not in json.loads(answer)["NodeNameToMetaVictims"]
        ),
        None,
    )


def _leaving(snapshot: Snapshot, key: str) -> bool:
    pod = snapshot.pod(key)
    return pod is not None and bool(pod.metadata.deletion_timestamp)


def _not_helped(status: Status) -> str:
    """Why preemption would not help on a node."""
    if status.filter:
        return f"with every pod evicted that may be, it still fails: {_said(status)}"
    if status.reasons == (messages.NO_VICTIMS,):
        return "no pod on it may be evicted"
    return _said(status)


def _unknown(decision: Decision, node: str) -> WhyNotError:
    import difflib

    nodes = decision.trace.filter_statuses.nodes
    if not nodes:
        return WhyNotError(f"no node was looked at: {decision.trace.message}")
    close = difflib.get_close_matches(node, nodes, n=1)
    return WhyNotError(
        f"no node `{node}` in the state of this decision",
        help=f"did you mean `{close[0]}`?" if close else "",
    )


def _said(status: Status) -> str:
    return because(status.filter, status.reasons) or status.code.label


def _fell_behind(
    candidate: Candidate,
    best: Candidate,
    rules: RuleSet,
    broken: Sequence[BudgetViolation],
    leaving: Collection[str],
) -> dict[str, Any]:
    name = candidate.eliminated_by
    if not name:
        return _answer(candidate.node, "best", f"{candidate.node} is the best candidate")
    criterion = next((c for c in rules.ranking if c.id == name), None)
    if name not in candidate.values or criterion is None:
        why = f"equal to {best.node} in every criterion; `{name}` picked {best.node}"
        values = {}
    else:
        instants = criterion.expression is not None and criterion.expression.type == "timestamp"
        own, wins = candidate.values[name], best.values[name]
        shown = [
            "no value" if v is None else instant(v) if instants else str(v) for v in (own, wins)
        ]
        why = f"fell behind {best.node} at `{name}`: {shown[0]} against {shown[1]}"
        values = {"value": own, "best_value": wins}
    text = f"{candidate.node} ({sentences.would_leave(candidate.victims, leaving)}) {why}"
    own_broken = [found for found in broken if found.node == candidate.node]
    text += "".join(f"; {sentences.violation(found)}" for found in own_broken)
    answer = {**_answer(candidate.node, "fell-behind", text), "criterion": name, **values}
    return {**answer, "violations": to_builtins(own_broken), "leaving_already": sorted(leaving)}


def _answer(node: str, answer: str, text: str, status: Status | None = None) -> dict[str, Any]:
    found: dict[str, Any] = {"node": node, "answer": answer, "text": text}
    if status is not None:
        found |= {
            "status": status.code.label,
            "filter": status.filter,
            "reasons": list(status.reasons),
        }
    return found
