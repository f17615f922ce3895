"""What a pod group of `scheduling.k8s.io` says, and what a pod says of its group.

Source: KEP-4671 and KEP-5710, kube-scheduler 1.36.
"""

from __future__ import annotations

from typing import Final

from policy.cluster.objects import Pod, SchedulingPodGroup

KIND: Final = "SchedulingPodGroup"

POD_MODE: Final = "Pod"
GROUP_MODE: Final = "PodGroup"


def disruption_mode(group: SchedulingPodGroup) -> str:
    """`PodGroup` where the group's pods leave together, else `Pod`; v1alpha3's objects too.

    Anything but the exact word counts as `Pod`.
    """
    mode = group.spec.disruption_mode
    if mode is None or isinstance(mode, str):
        return GROUP_MODE if mode == GROUP_MODE else POD_MODE
    return GROUP_MODE if mode.all is not None else POD_MODE


def min_count(group: SchedulingPodGroup) -> int | None:
    """Pods that a gang needs to start; None for a group of policy `basic`."""
    gang = group.spec.scheduling_policy.gang
    return None if gang is None else gang.min_count


def group_name(pod: Pod) -> str:
    """Name of the pod's group in its namespace; "" without one."""
    group = pod.spec.scheduling_group
    return "" if group is None else group.pod_group_name


def group_key(pod: Pod) -> str:
    """`namespace/name` of the pod's group; "" without one."""
    name = group_name(pod)
    return f"{pod.metadata.namespace or 'default'}/{name}" if name else ""
