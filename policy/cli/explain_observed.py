"""`policy explain observed:ID`: an observed preemption with what its scheduler never says."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from policy.audit.observed.again import CannotDecide, as_observed, decided_again
from policy.audit.observed.comparing import POD_GROUP
from policy.audit.observed.documents import document, nodes
from policy.cli import options, output, session
from policy.cli.exits import Exit
from policy.store import NotFound, StoredDecision
from policy.store.observed import VerdictClass

if TYPE_CHECKING:
    from policy.decision.groups import GroupDecision
    from policy.store import Store
    from policy.store.observed import ObservationRow


def _found(store: Store, text: str, cluster: str | None) -> ObservationRow:
    """The one that `observed:ID` names; of `observed:NAMESPACE/POD` the pod's newest one, where a
    cluster is named of that cluster.

    Raises Misused, NotFound.
    """
    named = text.removeprefix(options.OBSERVED)
    if re.fullmatch(r"[0-9]{1,18}", named):
        return store.read.observation(int(named))
    if "/" not in named:
        raise options.Misused(f"`{text}` is not `{options.OBSERVED}` and a number or a pod")
    newest = store.read.observations(cluster, pod=named, limit=1)
    if not newest:
        raise NotFound(
            f"no preemption of or for pod `{named[:300]}` was observed",
            help="`policy observed` lists those that were",
        )
    return newest[0]


def explained(db: str, text: str, cluster: str | None, form: str) -> int:
    """Print an observed preemption and the decision that was made again for it."""
    from policy.cli import explain
    from policy.decision.groups import GroupDecision

    with session.open_store(db) as store:
        row = _found(store, text, cluster)
        again, why = _again(store, row)
        if form in ("json", "yaml"):
            decided = None if again is None else _document(again)
            output.document({**document(row), "decided_again": decided}, form)
            return Exit.OK
        if form != "table":
            lines = [] if again is None else _document(again).get("candidates", [])
            output.rows(lines, form, columns=("position", "node", "victims", "eliminated_by"))
            return Exit.OK
        _print(row)
        output.line()
        if again is None:
            output.line(
                why
                if row.verdict == VerdictClass.ANSWERED
                else f"It cannot be decided again: {why}"
            )
            return Exit.OK
        output.line(f"Decided again by {row.rule_set}, all potential nodes examined")
        if isinstance(again, GroupDecision):
            from policy.cli.groups_view import print_decision

            print_decision(_document(again))
            return Exit.OK
        explain.print_reasons(again, as_observed(store, row).canonical)
    return Exit.OK


def _document(again: StoredDecision | GroupDecision) -> dict[str, Any]:
    from policy.cli import groups_view, view
    from policy.decision.groups import GroupDecision
    from policy.decision.model import document_of

    if isinstance(again, GroupDecision):
        return groups_view.document(document_of(again), None)
    return view.document(again)


def _again(store: Store, row: ObservationRow) -> tuple[StoredDecision | GroupDecision | None, str]:
    if row.verdict == VerdictClass.ANSWERED:
        number = row.detail["decision"]
        return None, f"`policy explain {number}` says why: it is what decision {number} answered"
    try:
        return decided_again(store, row), ""
    except CannotDecide as exc:
        return None, str(exc)


def _print(row: ObservationRow) -> None:
    group = row.preemptor_kind == POD_GROUP
    preemptor = row.preemptor or "an unknown pod"
    pods = output.number(row.victim_count, "pod")
    where = nodes(document(row))
    who = f"pod group {preemptor}" if group else preemptor
    took = f"room on {output.number(len(where), 'node')}" if group else row.node
    output.line(f"observed preemption {row.id}: {who} took {took} from {pods}")
    output.line()
    priority = "" if row.preemptor_priority is None else f", priority {row.preemptor_priority}"
    facts = (
        ("preemptor", f"{preemptor}{priority}"),
        ("uid", row.preemptor_uid),
        ("node", ", ".join(where)),
        ("scheduler", row.scheduler),
        ("happened", session.instant(row.now_ms)),
        ("recorded", f"{session.instant(row.at_ms)} by {session.writer(row)}"),
        ("source", row.source),
        ("confidence", row.confidence),
        ("state", _state(row)),
        ("verdict", row.verdict + (f": {row.reason}" if row.reason else "")),
        ("rule set", f"{row.rule_set} {row.rule_set_digest}".strip()),
        ("digest", row.digest),
    )
    for name, value in facts:
        if value:
            output.line(f"{name:<12}{value}")
    output.line()
    output.line("Evicted")
    output.print_table(
        [
            {
                "pod": victim.victim,
                "node": victim.node,
                "priority": victim.priority,
                "owner": victim.owner,
                "ran": f"{victim.run_seconds} s",
                "evidence": victim.evidence.replace(",", ", "),
                "pdb violated": victim.pdb_violating,
            }
            for victim in row.victims
        ],
        columns=(
            *(("pod", "node") if group else ("pod",)),
            *("priority", "owner", "ran", "evidence", "pdb violated"),
        ),
        right=("priority", "ran"),
    )


def _state(row: ObservationRow) -> str:
    if row.base_revision is None:
        return f"cluster {row.cluster}; the state before it is not kept"
    return f"cluster {row.cluster}, revision {row.base_revision}"
