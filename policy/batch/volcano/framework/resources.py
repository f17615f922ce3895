"""Resource arithmetic as Volcano does it: float64, one small tolerance for every dimension.

An amount is a dict of resource name to milli cpu, bytes of memory, pods, and everything else in
milli units. Cpu and memory are always there; a scalar that is missing differs from one that is 0.

Source: Volcano `pkg/scheduler/api/resource_info.go`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from policy.batch.resources import share
from policy.cluster import requests as cluster_requests
from policy.cluster.objects import Pod, Quantity
from policy.cluster.requests import CPU, MEMORY, PODS, RequestRules

Amount: TypeAlias = dict[str, float]

EPSILON: Final = 0.1
"""Differences below this are none: of milli cpu, bytes and milli units alike."""

UNLIMITED: Final = sys.float_info.max

_RULES: Final = RequestRules(resize=False, pod_level_resize=False)


def nothing() -> Amount:
    return {CPU: 0.0, MEMORY: 0.0}


def _scaled(amounts: Mapping[str, int]) -> Amount:
    """From base units: scalars beside `pods` count in thousandths."""
    found = nothing()
    for name, value in amounts.items():
        found[name] = float(value if name in {CPU, MEMORY, PODS} else value * 1000)
    return found


def from_quantities(resources: Mapping[str, Quantity] | None) -> Amount:
    """Of a resource list; names that no scheduler counts are dropped. QuantityError."""
    return _scaled(cluster_requests.amounts(resources))


def of_pod(pod: Pod) -> Amount:
    """What the pod is charged with and must fit: containers, init containers, overhead, itself."""
    found = _scaled(cluster_requests.pod_requests(pod, on_node=False, rules=_RULES))
    found[PODS] = 1.0
    return found


# --- asking ------------------------------------------------------------------------------------


def names(amount: Amount) -> Iterator[str]:
    """Dimensions of which there is something."""
    return (name for name, value in amount.items() if value >= EPSILON)


def is_empty(amount: Amount) -> bool:
    """Is there nothing but, perhaps, pods?"""
    return all(value < EPSILON for name, value in amount.items() if name != PODS)


def scalars(amount: Amount) -> Iterator[str]:
    return (name for name in amount if name not in {CPU, MEMORY})


def less_equal(left: Amount, right: Amount) -> bool:
    """Every dimension of `left` at most that of `right`, within tolerance; 0 where missing."""
    return all(value - right.get(name, 0.0) < EPSILON for name, value in left.items())


def within(left: Amount, right: Amount, asked: Amount) -> bool:
    """`left` at most `right`, exactly, in the dimensions that are asked for; pods left out."""
    return not list(beyond(left, right, asked))


def beyond(left: Amount, right: Amount, asked: Amount) -> Iterator[str]:
    """The dimensions in which `left` is not `within` `right`."""
    bare = len(left) == 2
    for name, value in asked.items():
        if value <= 0 or name == PODS or (bare and name not in {CPU, MEMORY}):
            continue
        if left.get(name, 0.0) > right.get(name, 0.0):
            yield name


def partly_within(left: Amount, right: Amount, asked: Amount) -> bool:
    """Is `left` at most `right` in any dimension that is asked for and that either side has?"""
    for name, value in asked.items():
        if value <= 0 or name == PODS:
            continue
        mine, theirs = left.get(name, 0.0), right.get(name, 0.0)
        if mine < EPSILON and theirs < EPSILON:
            continue
        if mine - theirs < EPSILON:
            return True
    return False


def exceeds_relevant(left: Amount, right: Amount, asked: Amount) -> bool:
    """Is `left` above `right` in a dimension that is asked for and that `right` says much of?"""
    for name, value in asked.items():
        if value <= 0 or name == PODS:
            continue
        if name in {CPU, MEMORY}:
            if right[name] < EPSILON:
                continue
        elif name not in right:
            continue
        if left.get(name, 0.0) > right[name]:
            return True
    return False


# --- computing ---------------------------------------------------------------------------------


def add(to: Amount, more: Amount) -> Amount:
    """Adds in place; returns `to`."""
    for name, value in more.items():
        to[name] = to.get(name, 0.0) + value
    return to


def subtract(of: Amount, less: Amount) -> Amount:
    """Subtracts in place, whether or not it fits; returns `of`."""
    for name, value in less.items():
        of[name] = of.get(name, 0.0) - value
    return of


def plus(left: Amount, right: Amount) -> Amount:
    return add(dict(left), right)


def minus(left: Amount, right: Amount) -> Amount:
    return subtract(dict(left), right)


def times(amount: Amount, ratio: float) -> Amount:
    return {name: value * ratio for name, value in amount.items()}


def exceeded(left: Amount, right: Amount) -> Amount:
    """What `left` has more than `right`, per dimension of `left`, never below 0."""
    return {name: max(0.0, value - right.get(name, 0.0)) for name, value in left.items()}


def lowest(left: Amount, right: Amount, *, unlimited: bool) -> Amount:
    """`left`, capped by `right`; a scalar that `right` does not name is no cap, or caps to 0."""
    found = {}
    for name, value in left.items():
        other = right.get(name)
        if other is None:
            found[name] = value if unlimited else 0.0
        else:
            found[name] = min(value, other)
    return found


def highest(left: Amount, right: Amount) -> Amount:
    found = dict(left)
    for name, value in right.items():
        found[name] = max(found.get(name, 0.0), value)
    return found


def total(parts: Iterable[Amount]) -> Amount:
    found = nothing()
    for part in parts:
        add(found, part)
    return found


def dominant_share(part: Amount, whole: Amount, among: Iterable[str]) -> float:
    """The greatest share of `whole` in the given dimensions; never below 0."""
    return max((share(part.get(n, 0.0), whole.get(n, 0.0)) for n in among), default=0.0)
