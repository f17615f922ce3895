"""Topology spread constraints of pods that have none of their own.

Their selector is made of what selects the pod: its services and the controller that owns it.
Source: PodTopologySpread's buildDefaultConstraints, helper.DefaultSelector (1.35; up to 1.21 the
controllers were those whose selectors match the pod).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from policy.cluster.objects import (
    LabelSelector,
    LabelSelectorRequirement,
    OwnerReference,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
    TopologySpreadConstraint,
)
from policy.cluster.selectors import compile_selector
from policy.cluster.snapshot import Delta, Snapshot
from policy.filters.base import Incoming, Parameter
from policy.typed import prepared

T = TypeVar("T", Service, ReplicationController, ReplicaSet, StatefulSet)
KINDS: Final = frozenset({"Service", "ReplicationController", "ReplicaSet", "StatefulSet"})


class DefaultConstraint(msgspec.Struct, frozen=True, rename="camel"):
    """A constraint of pods that have none, as PodTopologySpreadArgs lists them."""

    max_skew: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    topology_key: Annotated[str, msgspec.Meta(min_length=1)]
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]


SYSTEM: Final = (
    DefaultConstraint(
        max_skew=3, topology_key="kubernetes.io/hostname", when_unsatisfiable="ScheduleAnyway"
    ),
    DefaultConstraint(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable="ScheduleAnyway"
    ),
)
"""What `defaultingType: System` stands for."""

DEFAULT_CONSTRAINTS: Final = Parameter(
    doc="constraints of pods that have none; their selector is that of the pod's services and of "
    "the controller that owns it",
    default=(),
    entry=DefaultConstraint,
    before=(),
)
CONTROLLERS: Final = Parameter(
    doc="whose selectors the default constraints take: that of the controller that owns the pod "
    "(1.22 and later), or of all that match it",
    default="owner",
    choices=("owner", "matching"),
    before="owner",
)


def listed(entries: Sequence[Any]) -> Sequence[DefaultConstraint]:
    """The constraints of a `defaultConstraints` parameter."""
    return msgspec.convert(entries, prepared(list[DefaultConstraint])) if entries else ()


def constraints(
    incoming: Incoming, defaults: Sequence[DefaultConstraint], when: str, *, controllers: str
) -> list[TopologySpreadConstraint]:
    """The pod's own constraints of one sort, or the defaults of that sort where it has none at all.

    when: `DoNotSchedule` or `ScheduleAnyway`.
    """
    own = incoming.pod.spec.topology_spread_constraints
    if own:
        return [c for c in own if c.when_unsatisfiable == when]
    wanted = [c for c in defaults if c.when_unsatisfiable == when]
    selector = _selector(incoming, controllers) if wanted else None
    if selector is None:
        return []
    return [
        TopologySpreadConstraint(
            max_skew=c.max_skew,
            topology_key=c.topology_key,
            when_unsatisfiable=when,
            label_selector=selector,
        )
        for c in wanted
    ]


def _selector(incoming: Incoming, controllers: str) -> LabelSelector | None:
    """What services and controllers of the pod select together; None where that is everything."""
    index = incoming.snapshot.derived("selecting objects", _Selecting.build)
    labels: dict[str, str] = {}
    for service in index.of(incoming.namespace, Service):
        # A service without a selector selects nothing, not everything.
        if service.spec.selector is not None and _carries(incoming, service.spec.selector):
            labels.update(service.spec.selector)
    expressions: list[LabelSelectorRequirement] = []
    for controller in _owner(incoming) if controllers == "owner" else _matching(incoming, index):
        if isinstance(controller, ReplicationController):
            labels.update(controller.spec.selector or {})
            continue
        selector = controller.spec.selector
        if selector is None or compile_selector(selector).invalid:
            continue
        expressions += [
            LabelSelectorRequirement(key=key, operator="In", values=[value])
            for key, value in (selector.match_labels or {}).items()
        ]
        expressions += selector.match_expressions or ()
    if not labels and not expressions:
        return None
    return LabelSelector(match_labels=labels, match_expressions=expressions)


def _carries(incoming: Incoming, labels: dict[str, str]) -> bool:
    return labels.items() <= incoming.labels.items()


_OWNERS: Final = {
    ("v1", "ReplicationController"),
    ("apps/v1", "ReplicaSet"),
    ("apps/v1", "StatefulSet"),
}


def _owner(incoming: Incoming) -> Iterator[ReplicationController | ReplicaSet | StatefulSet]:
    """The controller that owns the pod, where it is of a kind that counts and is shown."""
    owner = controller_of(incoming.pod.metadata.owner_references)
    if owner is None:
        return
    # Other groups have kinds of these names, too; an absent version is taken as fitting.
    if any(owner.kind == kind and owner.api_version in {version, ""} for version, kind in _OWNERS):
        key = f"{incoming.namespace}/{owner.name}"
        found = incoming.snapshot.of_kind(owner.kind).get(key)
        if isinstance(found, ReplicationController | ReplicaSet | StatefulSet):
            yield found


def controller_of(references: Sequence[OwnerReference] | None) -> OwnerReference | None:
    """The owner that controls an object."""
    return next((r for r in references or () if r.controller), None)


def _matching(
    incoming: Incoming, index: _Selecting
) -> Iterator[ReplicationController | ReplicaSet | StatefulSet]:
    namespace = incoming.namespace
    for controller in index.of(namespace, ReplicationController):
        if controller.spec.selector and _carries(incoming, controller.spec.selector):
            yield controller
    workloads: list[ReplicaSet | StatefulSet] = [*index.of(namespace, ReplicaSet)]
    for workload in [*workloads, *index.of(namespace, StatefulSet)]:
        selector = compile_selector(workload.spec.selector)
        # An empty selector would match everything; those listers leave it out.
        if not selector.empty and selector.matches(incoming.labels):
            yield workload


@dataclass(frozen=True, slots=True, eq=False)
class _Selecting:
    """Services and controllers by kind and namespace, in order of their names."""

    found: dict[tuple[str, str], list[Any]]

    @staticmethod
    def build(snapshot: Snapshot) -> _Selecting:
        found: dict[tuple[str, str], list[Any]] = {}
        for kind in sorted(KINDS):
            for key, obj in sorted(snapshot.of_kind(kind).items()):
                found.setdefault((kind, key.partition("/")[0]), []).append(obj)
        return _Selecting(found)

    def of(self, namespace: str, kind: type[T]) -> Sequence[T]:
        return self.found.get((kind.__name__, namespace), ())

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _Selecting | None:
        return None if delta.other_kinds & KINDS else self
