"""declared-features: what a pod needs the node's kubelet to declare. Eviction cannot help.

Source: NodeDeclaredFeatures (1.36). Of the features that are known there, two make a demand on a
pod that is being placed.
"""

from __future__ import annotations

from typing import Final

from policy.cluster.objects import Pod
from policy.filters.base import Filter, FilterInfo, Incoming, Parameters, unresolvable

REASON: Final = "node(s) didn't match Pod's required features"
RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_NETWORK: Final = "UserNamespacesHostNetworkSupport"


def required_features(pod: Pod) -> frozenset[str]:
    """Features that a node must declare for this pod."""
    containers = (*(pod.spec.containers or ()), *(pod.spec.init_containers or ()))
    rules = (rule for c in containers for rule in c.restart_policy_rules or ())
    restarts = any(rule.action == "RestartAllContainers" for rule in rules)
    own_users = pod.spec.host_network and pod.spec.host_users is False
    demanded = ((restarts, RESTART_ALL), (own_users, HOST_NETWORK))
    return frozenset(feature for wanted, feature in demanded if wanted)


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    required = required_features(incoming.pod)
    if not required:
        return None
    nodes = incoming.snapshot.nodes
    declared = nodes.coded("declared features", lambda n: tuple(n.status.declared_features or ()))
    reasons = [() if required <= set(found) else (REASON,) for found in declared.values]
    return unresolvable(declared, reasons)


INFO = FilterInfo(
    name="declared-features",
    plugin="NodeDeclaredFeatures",
    doc="Features that the node declares in `status.declaredFeatures` (1.36 and later): a "
    "container with the restart rule RestartAllContainers needs "
    "RestartAllContainersOnContainerExits, users of its own on the host's network "
    "(`hostUsers: false`) need UserNamespacesHostNetworkSupport. Eviction cannot resolve it.",
    build=build,
)
