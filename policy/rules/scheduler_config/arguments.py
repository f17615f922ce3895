"""Arguments of plugins (`pluginConfig`), as parameters of filters and scorers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Args = Mapping[str, Any]
Notice = Callable[[str, str], None]
"""Called with the field within the arguments, and what is to be said about it."""

_META: Final = frozenset({"apiVersion", "kind"})
CPU_AND_MEMORY: Final = ("cpu", "memory")


@dataclass(slots=True)
class Given:
    """What the arguments of all plugins come to."""

    candidates: dict[str, int] = field(default_factory=dict)
    filters: dict[str, dict[str, Any]] = field(default_factory=dict)
    scorers: dict[str, dict[str, Any]] = field(default_factory=dict)
    fit: str = "least-allocated"  #: the scorer of NodeResourcesFit


def read(plugin: str, args: Args, given: Given, notice: Notice) -> None:
    """Take over the arguments of one plugin; what is not modelled is noticed."""
    known = _READERS.get(plugin)
    if known is None:
        notice("", f"arguments of `{plugin}` are not modelled")
        return
    reader, keys = known
    for key, value in args.items():
        if key not in keys and key not in _META and value not in (None, [], {}):
            notice(key, f"`{key}` of `{plugin}` is not modelled")
    reader(args, given, notice)


def _preemption(args: Args, given: Given, notice: Notice) -> None:
    for key, name, most in (
        ("minCandidateNodesPercentage", "minPercentage", 100),
        ("minCandidateNodesAbsolute", "minAbsolute", 2**31 - 1),
    ):
        number = _number(args, key, notice, most=most)
        if number is not None:
            given.candidates[name] = number


def _number(args: Args, key: str, notice: Notice, *, most: int) -> int | None:
    """A whole number from 0; None where there is none, or one that kube-scheduler refuses."""
    value = args.get(key)
    if value is None:
        return None
    if type(value) is int and 0 <= value <= most:
        return value
    notice(key, f"kube-scheduler refuses `{value}`: a whole number from 0 to {most}; left out")
    return None


def _pod_affinity(args: Args, given: Given, notice: Notice) -> None:
    parameters = given.scorers.setdefault("pod-affinity", {})
    weight = _number(args, "hardPodAffinityWeight", notice, most=100)
    if weight is not None:
        parameters["requiredWeight"] = weight
    if args.get("ignorePreferredTermsOfExistingPods") is not None:
        parameters["ignoreTermsOfOthers"] = bool(args["ignorePreferredTermsOfExistingPods"])


def _spread(args: Args, given: Given, notice: Notice) -> None:
    listed = [
        {
            "maxSkew": entry.get("maxSkew", 1),
            "topologyKey": entry.get("topologyKey", ""),
            "whenUnsatisfiable": entry.get("whenUnsatisfiable", "ScheduleAnyway"),
        }
        for entry in args.get("defaultConstraints") or ()
        if isinstance(entry, Mapping)
    ]
    kind = args.get("defaultingType") or ("List" if listed else "System")
    if kind == "System":
        if listed:
            notice("defaultConstraints", "not used with the defaultingType `System`")
        return
    given.filters["topology-spread"] = {"defaultConstraints": listed}
    given.scorers["topology-spread"] = {"defaultingType": "list", "defaultConstraints": listed}


def _fit(args: Args, given: Given, notice: Notice) -> None:
    strategy = args.get("scoringStrategy")
    if not isinstance(strategy, Mapping):
        return
    kind = strategy.get("type") or "LeastAllocated"
    scorer = STRATEGIES.get(str(kind))
    if scorer is None:
        notice("scoringStrategy.type", f"`{kind}` is not modelled; the default stays")
        return
    given.fit = scorer
    given.scorers[scorer] = _weights(strategy.get("resources"))
    if scorer == RATIO:
        ratio = strategy.get("requestedToCapacityRatio")
        shape = ratio.get("shape") if isinstance(ratio, Mapping) else None
        given.scorers[scorer]["shape"] = list(_points(shape))


def _balanced(args: Args, given: Given, _: Notice) -> None:
    given.scorers["balanced-allocation"] = _weights(args.get("resources"), of_balance=True)


def _old_ratio(args: Args, given: Given, _: Notice) -> None:
    given.scorers[RATIO] = {
        **_weights(args.get("resources")),
        "shape": list(_points(args.get("shape"))),
    }


def _old_least(args: Args, given: Given, _: Notice) -> None:
    given.scorers["least-allocated"] = _weights(args.get("resources"))


def _old_most(args: Args, given: Given, _: Notice) -> None:
    given.scorers["most-allocated"] = _weights(args.get("resources"))


def _nothing(_args: Args, _given: Given, _notice: Notice) -> None:
    """Arguments without any part in a decision."""


RATIO: Final = "requested-to-capacity-ratio"
STRATEGIES: Final = {
    "LeastAllocated": "least-allocated",
    "MostAllocated": "most-allocated",
    "RequestedToCapacityRatio": RATIO,
}

_READERS: Final[Mapping[str, tuple[Callable[[Args, Given, Notice], None], frozenset[str]]]] = {
    "DefaultPreemption": (
        _preemption,
        frozenset({"minCandidateNodesPercentage", "minCandidateNodesAbsolute"}),
    ),
    "InterPodAffinity": (
        _pod_affinity,
        frozenset({"hardPodAffinityWeight", "ignorePreferredTermsOfExistingPods"}),
    ),
    "PodTopologySpread": (_spread, frozenset({"defaultConstraints", "defaultingType"})),
    "NodeResourcesFit": (_fit, frozenset({"scoringStrategy"})),
    "NodeResourcesBalancedAllocation": (_balanced, frozenset({"resources"})),
    "NodeResourcesLeastAllocated": (_old_least, frozenset({"resources"})),
    "NodeResourcesMostAllocated": (_old_most, frozenset({"resources"})),
    "RequestedToCapacityRatio": (_old_ratio, frozenset({"resources", "shape"})),
    "VolumeBinding": (_nothing, frozenset({"bindTimeoutSeconds"})),
    "NodeAffinity": (_nothing, frozenset()),
    "DynamicResources": (_nothing, frozenset({"filterTimeout"})),
}


def _weights(resources: Any, *, of_balance: bool = False) -> dict[str, Any]:
    """`[{name: cpu, weight: 3}, ...]` as parameters; cpu and memory alone where none is named."""
    found = {
        str(entry.get("name")): entry.get("weight") or 1
        for entry in resources or ()
        if isinstance(entry, Mapping)
    }
    if not found:
        return {}
    others = [{"name": n, "weight": w} for n, w in found.items() if n not in CPU_AND_MEMORY]
    parameters: dict[str, Any] = {}
    for name in CPU_AND_MEMORY:
        weight = found.get(name, 0)
        parameters[name] = weight > 0 if of_balance else weight
    if others:
        parameters["resources"] = others
    return parameters


def _points(shape: Any) -> Iterator[dict[str, int]]:
    for point in shape or ():
        if isinstance(point, Mapping):
            yield {"utilization": point.get("utilization") or 0, "score": point.get("score") or 0}
