"""`policy explain --on-node`"""

from __future__ import annotations

from typing import Any, Final

from policy.audit import node_change, sentences, spared
from policy.audit.fired import rules_of
from policy.audit.node_change import NodeChange
from policy.audit.spared import NotKnown
from policy.cli import output
from policy.cli.exits import Exit
from policy.store import Store, StoredDecision

_COLUMNS: Final = ("pod", "fate", "priority", "owner", "requests", "why")


def printed(store: Store, stored: StoredDecision, form: str) -> int:
    """Who is on the decision's node, and what becomes of each. Raises NoNodeChange."""
    change = node_change.node_change(store, stored, rules_of(store, stored))
    assert change is not None  # however far back its state is
    kept, problem = _kept(store, stored)
    told = node_change.document(change)
    for pod in told["pods"]:
        pod["why"] = kept.get(pod["pod"], "")
    if form in ("json", "yaml"):
        output.document(told, form)
    elif form == "table":
        _table(change, told)
    else:
        output.rows(told["pods"], form, columns=_COLUMNS)
    if problem:
        output.say(f"why pods stay is not known: {problem}")
    return Exit.OK


def _kept(store: Store, stored: StoredDecision) -> tuple[dict[str, str], str]:
    """Why pods stay or leave, by pod; and what is not known of that."""
    found = {one.pod: one.why for one in spared.reprieved(stored.record)}
    found |= {
        victim.pod: sentences.why_leaves(victim.filter, victim.reasons)
        for victim in stored.record.victims
    }
    try:
        for group in spared.protected(store, stored):
            found |= dict.fromkeys(group.pods, group.why)
    except NotKnown as exc:
        return found, str(exc)
    return found, ""


def _table(change: NodeChange, told: dict[str, Any]) -> None:
    units = "cpu in milli, memory and storage in bytes"
    output.line(f"{change.node} at revision {change.revision} ({units})")
    output.line()
    resources = [
        {
            "resource": name,
            "allocatable": has,
            "before": change.requested_before(name),
            "free before": has - change.requested_before(name),
            "after": change.requested_after(name),
            "free after": has - change.requested_after(name),
        }
        for name, has in change.allocatable.items()
    ]
    if resources:
        columns = tuple(resources[0])
        output.print_table(resources, columns=columns, right=columns[1:])
        output.line()
    rows = [
        {
            "pod": pod["pod"],
            "fate": pod["fate"],
            "priority": pod["priority"],
            **{name: pod["requests"].get(name, 0) for name in change.allocatable},
            "why": pod["why"],
        }
        for pod in told["pods"]
    ]
    output.print_table(rows, columns=tuple(rows[0]), right=("priority", *change.allocatable))
