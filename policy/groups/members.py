"""Who takes part in a group's cycle: gates, order of the members, and what the quorum counts.

Source: kube-scheduler 1.36, scheduling queue and GangScheduling's PreEnqueue.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from policy.cluster import times
from policy.cluster.members import Members, groups_of
from policy.cluster.objects import Pod, SchedulingPodGroup
from policy.cluster.pod_groups import min_count
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GatedMember
from policy.decision.model import Code
from policy.rules.group_rules import GroupRules

NO_GROUP: Final = 'waiting for pods\'s pod group "{name}" to appear in scheduling queue'
TOO_FEW: Final = "waiting for minCount pods from a gang to appear in scheduling queue"
SCHEDULING_GATES: Final = "waiting for scheduling gates: [{names}]"
DELETED: Final = "skip schedule deleting pod: {pod}"
SCHEDULERS: Final = (
    "all pods in a single pod group should have the same .spec.schedulerName set, "
    'got: "{first}" and "{other}"'
)
_DEFAULT_SCHEDULER: Final = "default-scheduler"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A pending pod that the cycle tries to place."""

    row: int
    key: str
    pod: Pod

    @property
    def priority(self) -> int:
        return self.pod.spec.priority or 0

    @property
    def scheduler(self) -> str:
        return self.pod.spec.scheduler_name or _DEFAULT_SCHEDULER


@dataclass(frozen=True, slots=True, kw_only=True)
class Muster:
    """A group with its pods, as its cycle finds them."""

    key: str  #: namespace/name
    group: SchedulingPodGroup | None
    members: tuple[Member, ...]  #: in the order of the cycle
    flying: tuple[int, ...]  #: rows of all pods taken out of the queue, dropped ones included
    gated: tuple[GatedMember, ...]
    assigned: tuple[int, ...]  #: rows of members on nodes
    needed: int  #: members that have to be assigned or placed; 0 where any one is enough

    @property
    def policy(self) -> str:
        if self.group is None:
            return ""
        return "basic" if min_count(self.group) is None else "gang"

    @property
    def priority(self) -> int:
        return 0 if self.group is None else self.group.spec.priority or 0

    @property
    def min_count(self) -> int:
        return 1 if self.group is None else min_count(self.group) or 1


def muster(snapshot: Snapshot, key: str, rules: GroupRules) -> Muster:
    """The group's pods: who is placed, who is held back, and who is tried in which order.

    1. Higher pod priority. 2. Earlier creation (the time at which a pod entered the queue is in no
    dump); a pod without one comes now. 3. Namespace and name.
    """
    group = groups_of(snapshot).get(key)
    known, assigned, pending = 0, [], []
    for row in Members.of(snapshot, key).tolist():
        pod = snapshot.pods[row]
        assert pod is not None  # rows of members are those of pods
        known += 1
        if pod.spec.node_name:
            assigned.append(row)
        else:
            pending.append(Member(row=row, key=snapshot.keys[row], pod=pod))
    least = min_count(group) if group is not None else None
    gang = least if rules.gates.gang_scheduling else None
    held = _gang_gate(key, group, rules, known=known)
    members: list[Member] = []
    flying: list[int] = []
    gated: list[GatedMember] = []
    for member in pending:
        if member.pod.spec.scheduling_gates:
            names = " ".join(gate.name for gate in member.pod.spec.scheduling_gates)
            text = SCHEDULING_GATES.format(names=names)
            gated.append(_gated(member, "SchedulingGates", text))
        elif held is not None:
            gated.append(_gated(member, *held))
        else:
            flying.append(member.row)
            if member.pod.metadata.deletion_timestamp:
                text = DELETED.format(pod=member.key)
                gated.append(GatedMember(pod=member.key, plugin="", code="", message=text))
            else:
                members.append(member)
    members.sort(key=lambda m: (-m.priority, _arrival(m.pod, snapshot), int(snapshot.rank[m.row])))
    return Muster(
        key=key,
        group=group,
        members=tuple(members),
        flying=tuple(flying),
        gated=tuple(gated),
        assigned=tuple(assigned),
        needed=gang or 0,
    )


def mixed_schedulers(members: tuple[Member, ...]) -> str:
    """The error of members that name several schedulers, "" where all name one."""
    first = members[0].scheduler if members else ""
    other = next((m.scheduler for m in members if m.scheduler != first), None)
    return "" if other is None else SCHEDULERS.format(first=first, other=other)


def _gang_gate(
    key: str, group: SchedulingPodGroup | None, rules: GroupRules, *, known: int
) -> tuple[str, str] | None:
    """Plugin and text that hold every pending member back; None where none does."""
    if not rules.gates.gang_scheduling:
        return None
    if group is None:
        return "GangScheduling", NO_GROUP.format(name=key.split("/", 1)[1])
    least = min_count(group)
    return ("GangScheduling", TOO_FEW) if least is not None and known < least else None


def _gated(member: Member, plugin: str, text: str) -> GatedMember:
    code = Code.UNRESOLVABLE.label
    return GatedMember(pod=member.key, plugin=plugin, code=code, message=text)


def _arrival(pod: Pod, snapshot: Snapshot) -> int:
    created = times.parse_optional(pod.metadata.creation_timestamp)
    return snapshot.now_ms if created == times.MISSING else created
