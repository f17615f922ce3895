"""Pod groups that are supposed to be different: another `minCount`, priority or disruption mode."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from msgspec.structs import replace

from policy.cluster.objects import GangPolicy, SchedulingPodGroup, SchedulingPodGroupSpec
from policy.cluster.pod_groups import GROUP_MODE, POD_MODE, min_count


class GroupField(StrEnum):
    """What of a pod group can be supposed."""

    MIN_COUNT = "minCount"
    PRIORITY = "priority"
    DISRUPTION_MODE = "disruptionMode"
    PREEMPTION_POLICY = "preemptionPolicy"


_WORDS: Final[dict[GroupField, Sequence[str]]] = {
    GroupField.DISRUPTION_MODE: (POD_MODE, GROUP_MODE),
    GroupField.PREEMPTION_POLICY: ("Never", "PreemptLowerPriority"),
}
_RANGES: Final = {
    GroupField.MIN_COUNT: (1, 2**31 - 1),
    GroupField.PRIORITY: (-(2**31), 1_000_000_000),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """One field of a pod group with another value."""

    group: str  #: namespace/name
    field: GroupField
    value: int | str

    @staticmethod
    def parse(text: str) -> GroupChange:
        """`train:minCount=2`, `ml/train:disruptionMode=PodGroup`. Raises ValueError."""
        name, colon, rest = text.rpartition(":")
        field, equals, value = rest.partition("=")
        if not (name and colon and equals):
            raise ValueError(f"`{text}` is not like `NAMESPACE/NAME:minCount=2`")
        known = {item.value: item for item in GroupField}
        if field not in known:
            raise ValueError(f"`{field}` of a pod group: one of {', '.join(known)}")
        group = name if "/" in name else f"default/{name}"
        return GroupChange(group=group, field=known[field], value=_value(known[field], value))

    def of(self, group: SchedulingPodGroup) -> SchedulingPodGroup:
        """The group with the value. Raises ValueError for `minCount` of a group without gang."""
        spec: SchedulingPodGroupSpec = group.spec
        if self.field is GroupField.MIN_COUNT:
            if min_count(group) is None:
                raise ValueError(f"pod group `{self.group}` is `basic`: it has no minCount")
            gang = GangPolicy(min_count=int(self.value))
            policy = replace(spec.scheduling_policy, gang=gang)
            return replace(group, spec=replace(spec, scheduling_policy=policy))
        if self.field is GroupField.PRIORITY:
            return replace(group, spec=replace(spec, priority=int(self.value)))
        if self.field is GroupField.DISRUPTION_MODE:
            return replace(group, spec=replace(spec, disruption_mode=str(self.value)))
        return replace(group, spec=replace(spec, preemption_policy=str(self.value)))


def _value(field: GroupField, text: str) -> int | str:
    words = _WORDS.get(field)
    if words is not None:
        if text not in words:
            raise ValueError(f"`{text}` as {field}: one of {', '.join(words)}")
        return text
    low, high = _RANGES[field]
    try:
        number = int(text)
    except ValueError:
        number = low - 1
    if not low <= number <= high:
        raise ValueError(f"`{text}` as {field}: a number from {low} to {high}")
    return number
