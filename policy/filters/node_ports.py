"""node-ports: host ports that another pod of the node holds. Eviction helps.

Load: one column per (ip, protocol, port) that would clash, 1 where the node's port table holds it.
"""

from __future__ import annotations

import numpy as np

from policy.cluster.tables import HOST_PORTS, Bools, HostPort, Ints, host_ports
from policy.filters.base import (
    UNSCHEDULABLE,
    Filter,
    FilterInfo,
    Incoming,
    Nodes,
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


class NodePorts:
    def __init__(self, incoming: Incoming, entries: tuple[HostPort, ...]) -> None:
        self._snapshot = incoming.snapshot
        self.width = len(entries)
        held = incoming.snapshot.pools.ports.values
        # (port tuples + 1, width): the last row answers for pods without host ports (NOWHERE).
        self._holds = np.zeros((len(held) + 1, len(entries)), dtype=np.int64)
        for i, ports in enumerate(held):
            self._holds[i] = [entry in ports for entry in entries]

    def base(self) -> Ints:
        snapshot = self._snapshot
        load = np.zeros((len(snapshot.nodes), self.width), dtype=np.int64)
        rows = np.flatnonzero((snapshot.column(HOST_PORTS) >= 0) & (snapshot.node >= 0))
        nodes = snapshot.node[rows].astype(np.int64)
        np.add.at(load, nodes, self.demand(rows, nodes))
        return np.minimum(load, 1)

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        return np.asarray(self._holds[self._snapshot.column(HOST_PORTS)[rows]])

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
    wanted = host_ports(incoming.pod)
    if not wanted:
        return None
    # Nominated pods may hold ports too: every entry known to the snapshot is a possible clash.
    held = incoming.snapshot.pools.ports.values
    entries = {e for ports in held for e in ports if any(clashes(w, e) for w in wanted)}
    if not entries:
        return None
    ordered = sorted(entries, key=lambda e: (e.protocol, e.port, e.ip))
    return NodePorts(incoming, tuple(ordered))


INFO = FilterInfo(
    name="node-ports",
    plugin="NodePorts",
    doc="Host ports (address, protocol, port) that pods of the node hold. Eviction resolves it.",
    build=build,
)
