"""Recorded cycles of pod groups: cluster, group, and what kube-scheduler did with it.

agree   Every field of `expect` (and of `then`, where several cycles were run) is ours, but for
        texts of events and the number of passes.
tie     Our outcome is one of `alternatives`, which the real scheduler gave under other ties:
        deletions as a set, victims and units left out.
differ  Everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from policy.conformance.compare import NOW
from policy.conformance.results import Agreement, RecordingError, ScenarioResult
from policy.text import words
from policy.typed import prepared

if TYPE_CHECKING:
    from policy.conformance.run import RecordingLine
    from policy.conformance.scenario import LineHead
    from policy.decision.groups import GroupDecision, GroupMember
    from policy.decision.model import Decision
    from policy.face import Snapshot
    from policy.rules import RuleSet

_GATES: Final = {
    "GangScheduling": "gangScheduling",
    "WorkloadAwarePreemption": "workloadAwarePreemption",
}
_OUTCOMES: Final = {
    "scheduled": "Scheduled",
    "preempting": "Preempting",
    "unschedulable": "Unschedulable",
    "error": "Error",
    "not-tried": "NotTried",
}
_SETTLED: Final = ("group", "single", "order", "outcome", "pods", "condition")
"""Fields of a cycle in which an alternative has to be ours; deletions are compared as a set."""

_FIELDS: Final = (
    *_SETTLED,
    "preemption",
    "victims",
    "deleted",
    "podPreemptions",
    "clearedNominations",
    "gated",
)


class RecordedGroup(msgspec.Struct, frozen=True, rename="camel"):
    """One cluster, and one or several cycles."""

    id: str
    family: str
    cluster: dict[str, Any]
    group: str
    expect: dict[str, Any]
    then: list[dict[str, Any]] = []
    alternatives: list[dict[str, Any]] = []
    gates: dict[str, bool] = {}
    cycles: int = 0


class Groups:
    """One cycle of a pod group per line, or several of a whole queue."""

    def knows(self, head: LineHead) -> bool:
        return head.pod is None and head.group is not None and bool(head.expect)

    def judge(self, task: RecordingLine, rules: RuleSet | None, *, strict: bool) -> ScenarioResult:
        if rules is None or rules.groups is None:
            raise RecordingError(
                f"{task.source}:{task.line}: a pod group's cycle, which these rules do not decide",
                help="`--rules kube-1.36-groups`",
            )
        record = _DECODER.decode(task.text)
        ours = _cycles(record, _with_gates(rules, record.gates))
        recorded = [record.expect, *record.then]
        differences = tuple(_all(ours, recorded))
        verdict = Agreement.AGREE
        if differences:
            verdict = Agreement.TIE if _alternative(ours, record.alternatives) else Agreement.DIFFER
        return ScenarioResult(
            id=record.id,
            family=record.family,
            source=task.source,
            verdict=verdict,
            differences=differences,
        )


_DECODER: Final = msgspec.json.Decoder(prepared(RecordedGroup))


def _with_gates(rules: RuleSet, gates: Mapping[str, bool]) -> RuleSet:
    """The rule set with the gates of the recording."""
    from dataclasses import replace

    unknown = [name for name in gates if name not in _GATES]
    if unknown:
        raise RecordingError(f"unknown feature gate `{unknown[0]}` in a recording")
    groups = rules.groups
    assert groups is not None
    own = replace(
        groups.gates,
        gang_scheduling=gates.get("GangScheduling", groups.gates.gang_scheduling),
        workload_aware_preemption=gates.get(
            "WorkloadAwarePreemption", groups.gates.workload_aware_preemption
        ),
    )
    return replace(rules, groups=replace(groups, gates=own))


# --- our cycles ----------------------------------------------------------------------------------


def _cycles(record: RecordedGroup, rules: RuleSet) -> list[dict[str, Any]]:
    from policy.face import Snapshot
    from policy.groups.decide import decide_group

    objects = record.cluster.get("items") or []
    snapshot = Snapshot.from_manifests(objects, now=NOW, admission=False)
    if not record.cycles:
        return [_of_group(decide_group(snapshot, rules, record.group))]
    return list(_of_queue(snapshot, rules, record.cycles))


def _of_queue(snapshot: Snapshot, rules: RuleSet, most: int) -> Iterator[dict[str, Any]]:
    """Cycles of the head of the queue until no pod waits that was not tried."""
    from policy.groups.decide import decide_group
    from policy.preemption.decide import decide
    from policy.scheduling.effects import changes_of
    from policy.scheduling.group_effects import changes_of_group
    from policy.scheduling.order import heads

    tried: set[str] = set()
    now: Any = snapshot
    for _ in range(most):
        head = next((h for h in heads(now, rules) if not tried.intersection(h.pods)), None)
        if head is None:
            return
        tried.update(head.pods)
        if head.group:
            group = decide_group(now, rules, head.group)
            yield _of_group(group)
            now = now.apply(changes_of_group(now, group))
        else:
            single = decide(now, rules, head.pods[0])
            yield _of_pod(now, rules, single)
            now = now.apply(changes_of(now, single))


def _of_group(decision: GroupDecision) -> dict[str, Any]:
    """Our cycle in the recorded form."""
    found: dict[str, Any] = {
        "group": decision.group,
        "order": [m.pod for m in decision.members],
        "outcome": _OUTCOMES[decision.outcome.value],
        "pods": {m.pod: _member(m) for m in decision.members},
        "condition": _condition(decision),
        "preemption": _preemption(decision),
        "victims": [v.pod for v in decision.victims] if decision.preemption else [],
        "deleted": list(decision.effects.evict),
        "clearedNominations": list(decision.effects.clear_nominations),
    }
    own = [(m.pod, m.preemption) for m in decision.members if m.preemption is not None]
    if own:
        found["podPreemptions"] = [
            {"pod": pod, "node": p.node, "victims": list(p.victims)} for pod, p in own
        ]
        # The real one deletes a pod once for each member that wants it gone.
        found["deleted"] = [pod for _, p in own for pod in p.deleted]
    if decision.outcome.value == "not-tried" and decision.gated:
        found["gated"] = {
            g.pod: {"plugin": g.plugin, "code": g.code, "message": g.message}
            for g in decision.gated
            if g.plugin
        }
    return found


def _member(member: GroupMember) -> dict[str, Any]:
    nominated = {"set": member.nominated_node, "clear": "", "leave": None}[member.nomination.value]
    if member.bound:
        return {"result": "bound", "node": member.placed, "nominatedNode": nominated}
    return {
        "result": "pending",
        "reason": member.reason,
        "message": member.message,
        "nominatedNode": nominated,
    }


def _condition(decision: GroupDecision) -> dict[str, str] | None:
    change = decision.effects.condition
    if change is None:
        return None
    return {
        "type": "PodGroupScheduled",
        "status": change.status,
        "reason": change.reason,
        "message": change.message,
    }


def _preemption(decision: GroupDecision) -> dict[str, Any] | None:
    made = decision.preemption
    if made is None:
        return None
    found: dict[str, Any] = {"code": made.code, "message": made.message}
    if made.units:
        found["units"] = [
            {
                "pods": list(unit.pods),
                "priority": unit.priority,
                "group": unit.grouped,
                "violating": unit.violating,
                "reprieved": unit.reprieved,
            }
            for unit in made.units
        ]
    return found


def _of_pod(snapshot: Snapshot, rules: RuleSet, decision: Decision) -> dict[str, Any]:
    """The cycle of a pod without a group."""
    from policy.decision.messages import fit_error
    from policy.decision.model import NominationChange

    bound = bool(decision.effects.bind)
    pod = snapshot.pod(decision.preemptor)
    before = "" if pod is None else pod.status.nominated_node_name
    after = {
        NominationChange.SET: decision.node or "",
        NominationChange.CLEAR: "",
        NominationChange.LEAVE: before,
    }[decision.effects.nomination]
    nominated = after if after != before else None
    said: dict[str, Any] = {"result": "bound", "node": decision.node, "nominatedNode": None}
    if not bound:
        text = fit_error(decision, nodes=len(snapshot.nodes), claims=rules.effects.claims_message)
        said = {
            "result": "pending",
            "reason": "Unschedulable",
            "message": text,
            "nominatedNode": nominated,
        }
    found: dict[str, Any] = {
        "single": decision.preemptor,
        "order": [],
        "outcome": "bound" if bound else "pending",
        "pods": {decision.preemptor: said},
        "condition": None,
        "preemption": None,
        "victims": [],
        "deleted": list(decision.effects.evict),
        "clearedNominations": list(decision.effects.clear_nominations),
    }
    if decision.effects.nomination is NominationChange.SET:
        found["podPreemptions"] = [
            {
                "pod": decision.preemptor,
                "node": decision.node,
                "victims": [v.pod for v in decision.victims],
            }
        ]
    return found


# --- comparing -----------------------------------------------------------------------------------


def _all(ours: Sequence[Mapping[str, Any]], recorded: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if len(ours) != len(recorded):
        yield f"{words.number(len(ours), 'cycle')}, recorded {len(recorded)}"
    for number, (mine, theirs) in enumerate(zip(ours, recorded, strict=False), start=1):
        where = f"cycle {number}: " if len(recorded) > 1 else ""
        for line in _cycle(mine, _comparable(theirs), _FIELDS):
            yield f"{where}{line}"


def _comparable(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that are compared, of a recorded cycle."""
    found = {name: recorded[name] for name in _FIELDS if name in recorded}
    found["pods"] = {
        pod: {key: value for key, value in said.items() if key != "event"}
        for pod, said in recorded["pods"].items()
    }
    if recorded.get("preemption") is not None:
        known = ("code", "message", "units")
        found["preemption"] = {k: v for k, v in recorded["preemption"].items() if k in known}
    return found


def _cycle(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], fields: Sequence[str]
) -> Iterator[str]:
    for name in fields:
        ours, other = mine.get(name), theirs.get(name)
        if not ours and not other:
            continue
        if name == "pods":
            yield from _maps("pod", ours or {}, other or {})
        elif name == "preemption" and ours and other and ours.get("units") != other.get("units"):
            yield from _units(ours, other)
        elif ours != other:
            yield f"{name}: {_shown(ours)}, recorded {_shown(other)}"


def _units(ours: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    mine, theirs = ours.get("units") or [], other.get("units") or []
    if ours.get("message") != other.get("message") or len(mine) != len(theirs):
        yield (
            f"preemption: `{ours.get('message')}` with {words.number(len(mine), 'unit')}, recorded "
            f"`{other.get('message')}` with {len(theirs)}"
        )
    for place, (one, two) in enumerate(zip(mine, theirs, strict=False), start=1):
        if one != two:
            yield f"unit {place}: {_shown(one)}, recorded {_shown(two)}"


def _maps(what: str, ours: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[str]:
    for key in sorted(ours.keys() | recorded.keys()):
        if ours.get(key) != recorded.get(key):
            yield f"{what} {key}: {_shown(ours.get(key))}, recorded {_shown(recorded.get(key))}"


def _shown(value: Any) -> str:
    return "none" if value is None else msgspec.json.encode(value).decode()


def _alternative(
    ours: Sequence[Mapping[str, Any]], alternatives: Sequence[Mapping[str, Any]]
) -> bool:
    """Is our outcome one that the real scheduler gave, too?"""
    return any(_settled(ours, [a["expect"], *a.get("then", [])]) for a in alternatives)


def _settled(ours: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> bool:
    if len(ours) != len(others):
        return False
    for mine, theirs in zip(ours, others, strict=True):
        other = _comparable(theirs)
        if list(_cycle(mine, other, (*_SETTLED, "gated", "clearedNominations"))):
            return False
        if set(mine["deleted"]) != set(theirs.get("deleted") or ()):
            return False
    return True
