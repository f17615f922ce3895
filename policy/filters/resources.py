"""resources: requests against what the node has left, and the number of pods. Eviction helps.

Load: column 0 is the number of pods, then one column per resource that is compared: the sum of
requests on the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import lt, sub

import numpy as np

from policy.cluster.occupancy import Occupancy
from policy.cluster.requests import CPU, EPHEMERAL, MEMORY, RequestRules
from policy.cluster.tables import Bools, Ints, distinct, taken
from policy.filters.base import (
    SUCCESS,
    UNRESOLVABLE,
    UNSCHEDULABLE,
    Codes,
    Filter,
    FilterInfo,
    Incoming,
    LinearFilter,
    Nodes,
    Parameter,
    Parameters,
    PlainFilter,
    Verdicts,
)
from policy.filters.messages import Messages, text_of
from policy.lazy import once

TOO_MANY_PODS = {Messages.V1_14: "Insufficient pods", Messages.V1_20: "Too many pods"}
_FIRST = (CPU, MEMORY, EPHEMERAL)


def request_rules(parameters: Parameters) -> RequestRules:
    return RequestRules(
        sidecars=parameters["sidecars"],
        pod_level=parameters["podLevel"],
        pod_level_resize=parameters["podLevelResize"],
        resize=parameters["resize"],
        overhead=parameters["overhead"],
        running_init=parameters["runningInit"],
    )


class Resources(LinearFilter, PlainFilter):
    local = True
    pod_column = 0

    def __init__(
        self,
        incoming: Incoming,
        rules: RequestRules,
        names: tuple[str, ...],
        *,
        unresolvable: bool,
    ) -> None:
        """names: of the resources that are compared.

        unresolvable: a request above the node's whole allocatable is.
        """
        snapshot = incoming.snapshot
        self._snapshot = snapshot
        self._rules = rules
        self._names = names
        self._messages = incoming.messages
        self._unresolvable = unresolvable
        wanted = incoming.requests(rules)
        self._occupancy = Occupancy.of(snapshot, rules)
        ids = snapshot.pools.resources.ids
        # A resource that no node and no running pod names has no column: no node has it.
        self._columns = tuple(ids.get(n, -1) for n in names)
        request = np.array([wanted.get(n, 0) for n in names], dtype=np.int64)
        self._request: tuple[int, ...] = tuple(request.tolist())
        self._room_on: dict[int, tuple[list[int], int]] = {}
        self.width = 1 + len(names)

    @once
    def _reasons(self) -> tuple[str, ...]:
        """By column."""
        too_many = text_of(TOO_MANY_PODS, self._messages)
        return (too_many, *(f"Insufficient {name}" for name in self._names))

    @once
    def _room(self) -> tuple[Ints, Codes]:
        """Load up to which each node takes the pod, (nodes, width), and the code above it.

        Too many pods alone is resolvable even on a node that allows none.
        """
        asked = ("room", self._columns, self._request, self._unresolvable)
        # Pods that wait together mostly ask for one of a few amounts.
        return self._snapshot.nodes.kept(asked, self._room_of)

    def _room_of(self) -> tuple[Ints, Codes]:
        snapshot = self._snapshot
        # Room and load lie column by column in memory, and are read that way.
        room = np.zeros((self.width, len(snapshot.nodes)), dtype=np.int64)
        np.subtract(snapshot.nodes.allowed_pods, 1, out=room[0])
        allocatable = snapshot.allocatable
        hopeless = np.zeros(len(snapshot.nodes), dtype=np.bool_)
        for position, (column, wanted) in enumerate(
            zip(self._columns, self._request, strict=True), 1
        ):
            if column >= 0:
                room[position] = allocatable[:, column]
            if self._unresolvable:
                hopeless |= room[position] < wanted
            room[position] -= wanted
        return room.T, np.where(hopeless, UNRESOLVABLE, UNSCHEDULABLE).astype(np.int8)

    def base(self) -> Ints:
        # Mostly a decision moves no pod: victims stay until their grace period is over.
        return self._snapshot.remembered(
            "resource-load", (self._occupancy, self._columns), self._base
        )

    def _base(self) -> Ints:
        load = np.zeros((self.width, len(self._snapshot.nodes)), dtype=np.int64)
        load[0] = self._occupancy.pods
        for position, column in enumerate(self._columns, start=1):
            if column >= 0:
                load[position] = self._occupancy.requested[:, column]
        load.flags.writeable = False
        return load.T

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        requests = self._snapshot.requests(self._rules)
        if rows.size <= len(self._snapshot.nodes):
            return self._demand(rows, requests)
        # Pods that wait together mostly ask for the same resources, of the same pods.
        return self._snapshot.remembered(
            "resource-demand",
            (rows, requests, self._columns),
            lambda: self._demand(rows, requests),
        )

    def _demand(self, rows: Ints, requests: Ints) -> Ints:
        demand = np.zeros((self.width, rows.size), dtype=np.int64).T
        demand[:, 0] = 1
        for position, column in enumerate(self._columns, start=1):
            if column >= 0:
                # Taking from one column goes straight through memory that lies together.
                demand[:, position] = requests[:, column].take(rows)
        demand.flags.writeable = False
        return demand

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        room = self._at(nodes)
        passes: Bools = load[:, 0] <= room[:, 0]
        for column in range(1, self.width):
            passes &= load[:, column] <= room[:, column]
        return passes

    def ceiling(self, nodes: Nodes) -> Ints | None:
        return self._at(nodes)

    def _at(self, nodes: Nodes) -> Ints:
        """The room of some nodes; not to be written."""
        room, _ = self._room
        return room if nodes is self._snapshot.nodes.every else taken(room, nodes)

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        room, (_, code) = self._at(nodes), self._room
        if nodes is not self._snapshot.nodes.every:
            code = code.take(nodes)
        bits = np.zeros(nodes.size, dtype=np.int64)
        for column in range(self.width):
            bits |= (load[:, column] > room[:, column]) * np.int64(1 << column)
        patterns, reasons = distinct(bits, below=1 << self.width)
        texts = tuple(
            tuple(r for i, r in enumerate(self._reasons) if pattern >> i & 1)
            for pattern in patterns.tolist()
        )
        return Verdicts(codes=code * (bits > 0), reasons=reasons.astype(np.int32), texts=texts)

    def load(self, node: int) -> list[int]:
        there = self._occupancy
        requested = there.requested[node].tolist()
        return [
            there.pods.item(node),
            *(requested[column] if column >= 0 else 0 for column in self._columns),
        ]

    def demand_of(self, row: int) -> list[int]:
        of = self._snapshot.requests(self._rules).item
        return [1, *(of(row, column) if column >= 0 else 0 for column in self._columns)]

    def status(self, load: Sequence[int], node: int) -> tuple[int, tuple[str, ...]]:
        found = self._room_on.get(node)
        if found is None:
            # Mostly a few nodes are judged: `_room` of all of them takes longer.
            found = self._room_on[node] = self._room_of_one(node)
        room, code = found
        short = [i for i, most in enumerate(room) if load[i] > most]
        if not short:
            return SUCCESS, ()
        return code, tuple(self._reasons[i] for i in short)

    def _room_of_one(self, node: int) -> tuple[list[int], int]:
        """`_room` of one node, in plain numbers."""
        snapshot = self._snapshot
        allocatable = snapshot.allocatable[node].tolist()
        there = [allocatable[column] if column >= 0 else 0 for column in self._columns]
        hopeless = self._unresolvable and any(map(lt, there, self._request))
        return (
            [snapshot.nodes.allowed_pods.item(node) - 1, *map(sub, there, self._request)],
            UNRESOLVABLE if hopeless else UNSCHEDULABLE,
        )


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    rules = request_rules(parameters)
    wanted = incoming.requests(rules)
    if parameters["compare"] == "requested":
        names = [n for n, v in wanted.items() if v > 0]
    elif all(v == 0 for n, v in wanted.items() if n in _FIRST) and set(wanted) <= set(_FIRST):
        names = []
    else:
        # Up to 1.27 an over-used resource rejects a pod that does not request it at all.
        names = [*_FIRST, *(n for n in wanted if n not in _FIRST)]
    ordered = sorted(names, key=lambda n: (_FIRST.index(n) if n in _FIRST else len(_FIRST), n))
    unresolvable = parameters["aboveAllocatable"] == "unresolvable"
    return Resources(incoming, rules, tuple(ordered), unresolvable=unresolvable)


INFO = FilterInfo(
    name="resources",
    plugin="NodeResourcesFit",
    doc="Requests (cpu, memory, ephemeral-storage, extended resources) and the number of pods. "
    "Eviction resolves it, but for a request above the node's whole allocatable (1.34).",
    build=build,
    parameters={
        "aboveAllocatable": Parameter(
            doc="code of a request that exceeds the node's whole allocatable",
            default="unresolvable",
            choices=("unresolvable", "unschedulable"),
        ),
        "compare": Parameter(
            doc="compare requested resources only (1.28 and later), or all of them",
            default="requested",
            choices=("requested", "all"),
        ),
        "sidecars": Parameter(doc="restartable init containers add to the sum", default=True),
        "podLevel": Parameter(
            doc="pod-level requests replace the containers' sum (1.34 and later)", default=True
        ),
        "podLevelResize": Parameter(
            doc="of a pod on a node that is being resized, pod-level requests are the larger of "
            "spec and status (1.36 and later)",
            default=True,
        ),
        "resize": Parameter(doc="pods in resize count the larger of spec and status", default=True),
        "overhead": Parameter(doc="spec.overhead is added", default=True),
        "runningInit": Parameter(doc="init containers of pods on nodes count", default=True),
    },
)
