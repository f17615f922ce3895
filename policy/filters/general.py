"""general: resources, node name, host ports and node selector checked together (1.14).

All that fails is reported. One failure that eviction cannot resolve (name, selector) makes the
node unresolvable; resources and host ports alone are resolvable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from policy.cluster.tables import Bools, Ints
from policy.filters import node_affinity, node_name, node_ports, resources
from policy.filters.base import Filter, FilterInfo, Incoming, Nodes, Parameters, Verdicts

_PARTS: Final[tuple[tuple[FilterInfo, Mapping[str, str | bool]], ...]] = (
    (
        resources.INFO,
        {
            "aboveAllocatable": "unschedulable",
            "compare": "all",
            "sidecars": False,
            "podLevel": False,
            "podLevelResize": False,
            "resize": False,
            "overhead": False,
            "runningInit": False,
        },
    ),
    (node_name.INFO, {}),
    (node_ports.INFO, {"sidecars": False}),
    (node_affinity.INFO, {"nodeNames": "not-narrowed"}),
)


class General:
    """Several filters as one: the worst code counts, the reasons of all stand together."""

    def __init__(self, parts: Sequence[Filter]) -> None:
        self._parts: list[tuple[Filter, slice]] = []
        self.width = 0
        for part in parts:
            self._parts.append((part, slice(self.width, self.width + part.width)))
            self.width += part.width
        self.local = all(part.local for part in parts)

    def base(self) -> Ints:
        return np.concatenate([part.base() for part, _ in self._parts], axis=1)

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        return np.concatenate([part.demand(rows, nodes) for part, _ in self._parts], axis=1)

    def without(self, load: Ints, removed: Ints) -> Ints:
        return np.concatenate(
            [part.without(load[:, at], removed[:, at]) for part, at in self._parts], axis=1
        )

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        passes = np.ones(nodes.size, dtype=np.bool_)
        for part, at in self._parts:
            passes &= part.passes(load[:, at], nodes)
        return passes

    def ceiling(self, nodes: Nodes) -> Ints | None:
        ceilings = [part.ceiling(nodes) for part, _ in self._parts]
        known = [c for c in ceilings if c is not None]
        return np.concatenate(known, axis=1) if len(known) == len(ceilings) else None

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        verdicts = [part.judge(load[:, at], nodes) for part, at in self._parts]
        codes = np.maximum.reduce([v.codes for v in verdicts])
        together = np.stack([v.reasons for v in verdicts], axis=1)
        distinct, reasons = np.unique(together, axis=0, return_inverse=True)
        texts = tuple(
            tuple(text for v, reason in zip(verdicts, row, strict=True) for text in v.texts[reason])
            for row in distinct.tolist()
        )
        return Verdicts(codes=codes, reasons=reasons.astype(np.int32).ravel(), texts=texts)


def build(incoming: Incoming, parameters: Parameters) -> Filter | None:
    built = (info.build(incoming, {**info.defaults(), **own}) for info, own in _PARTS)
    return General([part for part in built if part is not None])


INFO = FilterInfo(
    name="general",
    plugin="GeneralPredicates",
    doc="Resources and host ports (eviction resolves them), node name and node selector (it "
    "cannot), checked together and all reported, as 1.14 does.",
    build=build,
)
