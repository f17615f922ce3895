"""What objects ask of groups of pods that no rule set decides: said where they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from policy.cluster.objects import ClusterObject, Node, Pod, SchedulingPodGroup

_SAMPLED_FROM: Final = 100
"""Nodes from which on kube-scheduler looks at a share of them."""


def not_modelled(objects: Sequence[ClusterObject]) -> Iterator[str]:
    """One sentence for each kind of thing, in plain words."""
    groups = [obj for obj in objects if isinstance(obj, SchedulingPodGroup)]
    topology = sum(
        bool(group.spec.scheduling_constraints and group.spec.scheduling_constraints.topology)
        for group in groups
    )
    if topology:
        yield (
            f"pod groups with a topology key: {topology}; placements by topology are not modelled,"
            " they may be placed across its values and preempt nothing"
        )
    parents = sum(bool(group.spec.parent_composite_pod_group_name) for group in groups)
    if parents:
        yield f"pod groups with a parent: {parents}; composite groups are not modelled"
    workloads = sum(isinstance(obj, Pod) and obj.spec.workload_ref is not None for obj in objects)
    if workloads:
        yield f"pods with a `workloadRef`: {workloads}; the gangs of 1.35 are not modelled"
    if groups and sum(isinstance(obj, Node) for obj in objects) >= _SAMPLED_FROM:
        yield (
            f"from {_SAMPLED_FROM} nodes on kube-scheduler tries a group on a share of the nodes;"
            " here every node is tried"
        )
