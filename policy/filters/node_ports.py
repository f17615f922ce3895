"""node-ports: host ports that another pod of the node holds. Eviction helps.

Load: one column per (ip, protocol, port) that would clash, 1 where the node's port table holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from policy.cluster.objects import Pod
from policy.cluster.tables import (
    HOST_PORTS,
    NOWHERE,
    Bools,
    HostPort,
    Ints,
    PodColumn,
    Pools,
    host_ports,
)
from policy.filters.base import (
    UNSCHEDULABLE,
    Filter,
    FilterInfo,
    Incoming,
    Nodes,
    Parameter,
    Parameters,
    Verdicts,
)

REASON = "node(s) didn't have free ports for the requested pod ports"
_ANY = "0.0.0.0"


def clashes(wanted: HostPort, held: HostPort) -> bool:
    """0.0.0.0 clashes with every address of the same protocol and port."""
    if (wanted.protocol, wanted.port) != (held.protocol, held.port):
        return False
    return wanted.ip == held.ip or _ANY in {wanted.ip, held.ip}


def _app_ports_id(pod: Pod, pools: Pools) -> int:
    ports = host_ports(pod, sidecars=False)
    return pools.named("app host ports").intern(ports, ports) if ports else NOWHERE


APP_PORTS: Final = PodColumn("app_host_ports", np.int32, _app_ports_id)
"""HOST_PORTS without those of restartable init containers."""


class NodePorts:
    local = True

    def __init__(
        self,
        incoming: Incoming,
        column: PodColumn,
        held: Sequence[tuple[HostPort, ...]],
        entries: tuple[HostPort, ...],
    ) -> None:
        """column: which of the tuples in `held` each pod holds."""
        self._snapshot = incoming.snapshot
        self._column = column
        self.width = len(entries)
        # (port tuples + 1, width): the last row answers for pods without host ports (NOWHERE).
        self._holds = np.zeros((len(held) + 1, len(entries)), dtype=np.int64)
        for i, ports in enumerate(held):
            self._holds[i] = [entry in ports for entry in entries]

    def base(self) -> Ints:
        snapshot = self._snapshot
        load = np.zeros((len(snapshot.nodes), self.width), dtype=np.int64)
        rows = np.flatnonzero((snapshot.column(self._column) >= 0) & (snapshot.node >= 0))
        nodes = snapshot.node[rows].astype(np.int64)
        np.add.at(load, nodes, self.demand(rows, nodes))
        return np.minimum(load, 1)

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        return np.asarray(self._holds[self._snapshot.column(self._column)[rows]])

    def without(self, load: Ints, removed: Ints) -> Ints:
        # The scheduler's port table is a set: where two pods of a node hold the same entry (which
        # no kubelet admits), the first to leave frees it.
        return np.where(removed > 0, 0, load)

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        return np.asarray(~(load > 0).any(axis=1))

    def ceiling(self, nodes: Nodes) -> Ints | None:
        return np.zeros((nodes.size, self.width), dtype=np.int64)

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        failed = (load > 0).any(axis=1)
        return Verdicts.single(np.where(failed, UNSCHEDULABLE, 0).astype(np.int8), REASON)


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    sidecars: bool = parameters["sidecars"]
    wanted = host_ports(incoming.pod, sidecars=sidecars)
    if not wanted:
        return None
    column = HOST_PORTS if sidecars else APP_PORTS
    incoming.snapshot.column(column)  # interns what it holds
    pools = incoming.snapshot.pools
    # Nominated pods may hold ports too: every entry known to the snapshot is a possible clash.
    held = (pools.ports if sidecars else pools.named("app host ports")).values
    entries = {e for ports in held for e in ports if any(clashes(w, e) for w in wanted)}
    if not entries:
        return None
    ordered = sorted(entries, key=lambda e: (e.protocol, e.port, e.ip))
    return NodePorts(incoming, column, held, tuple(ordered))


INFO = FilterInfo(
    name="node-ports",
    plugin="NodePorts",
    doc="Host ports (address, protocol, port) that pods of the node hold. Eviction resolves it.",
    build=build,
    parameters={
        "sidecars": Parameter(
            doc="host ports of restartable init containers count (1.33.6 and later)", default=True
        ),
    },
)
