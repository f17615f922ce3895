"""Cycles of pod groups: lines of lists, documents, and the explanation for people."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from policy.audit import sentences
from policy.cli import options, output, session, view
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.audit.group_causes import Otherwise, Stuck, Takers
    from policy.scheduling.cycle import GroupStep
    from policy.store import SessionRow, Store, StoredSession

_NAMED: Final = 5
"""Members that a sentence names."""


def step_summary(step: GroupStep) -> dict[str, Any]:
    """The line of a group's cycle in a list of decisions."""
    decision = step.decision
    return {
        "id": None if step.recording is None else f"{options.GROUP}{step.recording.session_id}",
        "now": session.instant(decision.now_ms),
        "preemptor": f"{options.GROUP}{decision.group}",
        "priority": decision.group_priority,
        "outcome": decision.outcome.value,
        "node": "",
        "victims": len(decision.effects.evict),
        "pdb_violations": sum(victim.pdb_violating for victim in decision.victims),
        "rule_set": decision.rule_set,
    }


def document(decision: Mapping[str, Any], number: int | None) -> dict[str, Any]:
    """A cycle's canonical document with the number under which it is recorded."""
    return {"id": number, **decision}


def print_decision(
    document: Mapping[str, Any], *, kept: Collection[str] = (), row: SessionRow | None = None
) -> None:
    """The cycle for people: how it ended, the members, the units, the victims.

    kept: pods that were to be deleted and that a later state still has. row: where it is recorded.
    """
    for line in _head(document, row):
        output.line(line)
    _print_members(document)
    _print_units(document)
    _print_victims(document, kept)


def _head(document: Mapping[str, Any], row: SessionRow | None) -> Iterator[str]:
    members = document["members"]
    number = f" {options.GROUP}{document['id']}" if document["id"] is not None else ""
    yield f"pod group{number}: {document['group']} {sentences.cycle_ended(document)}"
    if document["message"]:
        yield f"  {document['message']}"
    yield ""
    least = f", minCount {document['min_count']}" if document["policy"] == "gang" else ""
    yield f"group       priority {document['group_priority']}, policy {document['policy']}{least}"
    yield (
        f"members     {len(members)} tried, {document['assigned']} on nodes, "
        f"{len(document['gated'])} held back"
    )
    yield f"rule set    {document['rule_set']} {document['rule_set_digest']}"
    yield f"made for    {session.instant(document['now_ms'])}"
    if row is not None:
        yield from _recorded(row)
    if document.get("hypothetical"):
        yield "only asked  what would be, by `policy what-if`"
    preemption = document["preemption"]
    if preemption is not None:
        said = sentences.group_preemption(preemption)
        yield f"preemption  {said}, passes run: {len(preemption['passes'])}"
    kept = _kept_from_quorum(document)
    if kept:
        yield f"quorum      {kept}"


def _recorded(row: SessionRow) -> Iterator[str]:
    """Where, when and by whom, as `policy explain` says it of a decision."""
    if row.environment:
        yield f"environment {row.environment}"
    yield f"recorded    {session.instant(row.at_ms)} by {session.writer(row)}"
    yield f"state       cluster {row.cluster}, revision {row.base_revision}, {row.snapshot_digest}"
    yield f"led to      {'no change' if row.revision is None else f'revision {row.revision}'}"
    yield f"digest      {row.digest}"


def _kept_from_quorum(document: Mapping[str, Any]) -> str:
    """Which member kept the quorum from being met in the first pass; "" where it was met."""
    members = document["members"]
    if not members or document["outcome"] == "scheduled":
        return ""
    placed = sum(bool(m["placed"]) for m in members) + document["assigned"]
    missing = [m["pod"] for m in members if not m["placed"]]
    if not missing or placed >= document["min_count"]:
        return ""
    named = ", ".join(missing[:_NAMED])
    more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
    return f"{placed} of {document['min_count']} without preemption; no node for {named}{more}"


def _print_members(document: Mapping[str, Any]) -> None:
    rows = [
        {
            "member": m["pod"],
            "priority": m["priority"],
            "fits on": m["placed"],
            "quorum": "met" if m["quorum"] else "",
            "becomes": _becomes(m),
            "message": m["message"],
        }
        for m in document["members"]
    ]
    rows += [
        {
            "member": g["pod"],
            "priority": None,
            "fits on": "",
            "quorum": "",
            "becomes": "held back",
            "message": g["message"],
        }
        for g in document["gated"]
    ]
    if rows:
        _section("members, in the order of the cycle", rows, "priority")


def _becomes(member: Mapping[str, Any]) -> str:
    if member["bound"]:
        return "bound"
    if member["nomination"] == "set":
        return f"nominated to {member['nominated_node']}"
    return "no longer nominated" if member["nomination"] == "clear" else "pending"


def _print_units(document: Mapping[str, Any]) -> None:
    preemption = document["preemption"]
    if preemption is None or not preemption["units"]:
        return
    rows = [
        {
            "unit": unit["group"] if unit["whole"] else unit["pods"][0],
            "pods": len(unit["pods"]),
            "priority": unit["priority"],
            "budget": "violated" if unit["violating"] else "",
            "put back": "stays" if unit["reprieved"] else "leaves",
            "because": _because(unit),
        }
        for unit in preemption["units"]
    ]
    _section("units, in the order in which they were put back", rows, "pods", "priority")


def _because(unit: Mapping[str, Any]) -> str:
    if unit["reprieved"]:
        return "the group can start beside it"
    if unit["blocked"]:
        return f"{unit['blocked']} finds no node: {unit['blocked_message']}"
    return "another unit stays instead"


def _print_victims(document: Mapping[str, Any], kept: Collection[str]) -> None:
    rows = [
        {
            "victim": v["pod"],
            "node": v["node"],
            "priority": v["priority"],
            "budget": "violated" if v["pdb_violating"] else "",
            "deleted": _deleted(v["pod"], document, kept),
        }
        for v in document["victims"]
    ]
    if rows:
        _section("victims", rows, "priority")


def _deleted(pod: str, document: Mapping[str, Any], kept: Collection[str]) -> str:
    if pod not in document["effects"]["evict"]:
        return "leaving already"
    return "no" if document.get("hypothetical") or pod in kept else "yes"


def _section(title: str, rows: Sequence[dict[str, Any]], *right: str) -> None:
    output.line()
    output.line(title)
    output.print_table(rows, columns=tuple(rows[0]), right=right)


def print_causes(
    stuck: Sequence[Stuck], others: Sequence[Otherwise], room: Takers | None, untried: int
) -> None:
    """Who stands in the way, what else would have come of it, and who may take the freed room."""
    if stuck:
        rows = [{"member": one.pod, "message": one.message} for one in stuck]
        _section("members without a node even where all that may leave is gone", rows)
    if others:
        rows = [asdict(one) for one in others]
        _section("with one thing changed", rows, "victims")
    if untried:
        output.line(f"  disruption modes of {output.number(untried, 'more group')} were not tried")
    if room is not None:
        output.line()
        if room.reserved:
            output.line("freed room is promised to the members: all that fit are nominated")
        else:
            output.line("freed room is not reserved: members that needed victims are not nominated")
        listed = ", ".join(room.pods) or "none"
        output.line(f"  waiting pods that would take it: {listed}")
        if room.tried < room.waiting:
            output.line(
                f"  the first {room.tried} of {room.waiting} waiting pods and groups were tried"
            )


def cycle(store: Store, number: int) -> StoredSession:
    """A recorded cycle of a pod group. Raises NotFound, also for a batch session."""
    from policy.store.record.groups import KIND

    return store.read.session(number, kind=KIND)


def explained(db: str, number: int, form: str) -> int:
    """`policy explain group:ID`"""
    from policy.audit.documents import recorded_cycle
    from policy.audit.group_causes import MODES, beyond_eviction, groups_tried, otherwise, takers
    from policy.audit.group_replay import GroupReplayer
    from policy.audit.inputs import Incomplete
    from policy.store.record.groups import document_of

    with session.open_store(db) as store:
        stored = cycle(store, number)
        found = {**document(document_of(stored), number), **recorded_cycle(stored)}
        vain = stored.outcomes
        others: list[Otherwise] = []
        stuck: Sequence[Stuck] = ()
        untried = 0
        room: Takers | None = None
        missing = ""
        replayer = GroupReplayer(store)
        try:
            snapshot, rules = replayer.situation(stored.row)
            decision = replayer.again(stored.row)
            stuck = beyond_eviction(snapshot, rules, decision)
            others = list(otherwise(snapshot, rules, decision))
            untried = max(0, len(groups_tried(decision)) - MODES)
            room = takers(snapshot, rules, decision)
        except Incomplete as exc:
            missing = str(exc)
    if form == "table":
        print_decision(found, kept={one.pod for one in vain}, row=stored.row)
        for sentence in view.not_carried_out(vain):
            output.line(sentence)
        print_causes(stuck, others, room, untried)
        if missing:
            output.say(f"what else would have come of it cannot be computed: {missing}")
        return Exit.OK
    causes = {
        "beyond_eviction": [asdict(one) for one in stuck],
        "otherwise": [asdict(one) for one in others],
        "freed_room": None if room is None else asdict(room),
    }
    if form in ("json", "yaml"):
        output.document({**found, **causes}, form)
    else:
        units = (found["preemption"] or {}).get("units", [])
        columns = ("pods", "group", "priority", "violating", "reprieved", "blocked")
        output.rows([{k: unit[k] for k in columns} for unit in units], form, columns=columns)
    return Exit.OK
