"""Pod groups of `scheduling.k8s.io` for tests."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from policy.cluster.objects import (
    GangPolicy,
    GroupMeta,
    GroupSchedulingPolicy,
    PodSchedulingGroup,
    SchedulingPodGroup,
    SchedulingPodGroupSpec,
)
from tests.support.builders import PodBuilder


def a_group(
    name: str,
    *,
    priority: int = 0,
    least: int | None = 1,
    mode: str = "Pod",
    namespace: str = "default",
    **spec: Any,
) -> SchedulingPodGroup:
    """A group; `least` None makes it `basic`."""
    policy = (
        GroupSchedulingPolicy(basic={})
        if least is None
        else GroupSchedulingPolicy(gang=GangPolicy(min_count=least))
    )
    return SchedulingPodGroup(
        metadata=GroupMeta(name=name, namespace=namespace, uid=f"uid-{name}", generation=1),
        spec=SchedulingPodGroupSpec(
            scheduling_policy=policy, priority=priority, disruption_mode=mode, **spec
        ),
    )


def of_group(pod: PodBuilder, group: str) -> PodBuilder:
    """The pod as a member."""
    named = PodSchedulingGroup(pod_group_name=group)
    return PodBuilder(replace(pod.pod, spec=replace(pod.pod.spec, scheduling_group=named)))
