"""Priorities of pod groups, by the name of their class."""

from __future__ import annotations

from dataclasses import dataclass, field

from policy.batch.settings import Naming
from policy.cluster.objects import PriorityClass
from policy.cluster.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPriorities:
    """What the classes of a cluster are worth; nothing where the rules leave them out."""

    values: dict[str, int] = field(default_factory=dict)
    default: int = 0  #: of groups without a class, or of one that does not exist

    @staticmethod
    def of(snapshot: Snapshot, naming: Naming) -> GroupPriorities:
        values: dict[str, int] = {}
        default = 0
        if naming.priority_classes:
            for name, obj in sorted(snapshot.of_kind("PriorityClass").items()):
                assert isinstance(obj, PriorityClass)
                values[name] = obj.value
                if obj.global_default:
                    default = obj.value
        return GroupPriorities(values=values, default=default)

    def priority(self, class_name: str) -> int:
        return self.values.get(class_name, self.default)
