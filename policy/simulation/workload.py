"""Generated traces: arrival processes, sizes, durations and priorities from a workload file.

`docs/simulation.md` describes the file. A seed gives the same trace every time: each kind of pod
draws from a generator of its own, whose seed is made of the seed and the kind's name, so that
another kind beside it changes nothing about it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from dataclasses import replace as replaced
from itertools import zip_longest
from math import cos, exp, log, pi, sqrt
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final, Literal

from msgspec.structs import replace
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from policy.cluster.objects import KINDS, ClusterObject, OwnerReference, Pod
from policy.cluster.quantities import QuantityError, nano
from policy.manifests import ManifestError, from_dicts, read_dicts, resolve
from policy.simulation.files import read_model
from policy.simulation.folder import EPOCH_MS
from policy.simulation.trace import Trace, TraceError, TracePod

_TIME: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d))+")
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DAY_MS: Final = 86_400_000
_MOST_PODS: Final = 20_000_000


def millis(text: str) -> int:
    """`30s`, `1h30m`, `250ms`, `7d` in milliseconds. Raises ValueError."""
    if not _TIME.fullmatch(text):
        raise ValueError("not a time such as `30s`, `1h30m` or `7d`")
    return round(sum(float(amount) * _UNITS[unit] for amount, unit in _PART.findall(text)))


def _time(text: str) -> str:
    millis(text)
    return text


Time = Annotated[str, AfterValidator(_time)]


def _some_time(text: str) -> str:
    if millis(text) == 0:
        raise ValueError("`length` is longer than nothing")
    return text


def _not_negative(amounts: dict[str, str | int]) -> dict[str, str | int]:
    for name, amount in amounts.items():
        try:
            negative = nano(amount) < 0
        except QuantityError:
            continue  # a node with it is refused, by its field
        if negative:
            raise ValueError(f"a node has no negative amount of `{name}`")
    return amounts


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class LogNormal(_Model):
    """Half of the values are below the median; a larger sigma means a longer tail."""

    median: Time
    sigma: float = Field(gt=0, le=5)


class Duration(_Model):
    """How long pods work: exactly one of these."""

    constant: Time | None = None
    uniform: list[Time] | None = Field(None, min_length=2, max_length=2)
    exponential: Time | None = None
    lognormal: LogNormal | None = None
    forever: Literal[True] | None = None

    @model_validator(mode="after")
    def _one(self) -> Duration:
        given = [value for value in self.__dict__.values() if value is not None]
        if len(given) != 1:
            raise ValueError("give one of constant, uniform, exponential, lognormal, forever")
        if self.uniform is not None and millis(self.uniform[0]) > millis(self.uniform[1]):
            raise ValueError("`uniform` is the shortest and the longest time, in this order")
        return self

    def draw(self, random: Random) -> int | None:
        """Milliseconds; None: to the end of the simulation."""
        if self.constant is not None:
            return millis(self.constant)
        if self.uniform is not None:
            low, high = (millis(text) for text in self.uniform)
            return low + round((high - low) * random.random())
        if self.exponential is not None:
            return round(-log(1 - random.random()) * millis(self.exponential))
        if self.lognormal is not None:
            return round(
                millis(self.lognormal.median) * exp(self.lognormal.sigma * _normal(random))
            )
        return None


class Daily(_Model):
    """The rate of arrivals follows the time of day."""

    peak: Time  #: after the start of the day, at which most come
    ratio: float = Field(ge=1, le=1000)  #: rate at the peak to that twelve hours later


class Arrivals(_Model):
    """When pods come: every so often, exactly or on average (a Poisson process)."""

    every: Time
    exactly: bool = False
    daily: Daily | None = None

    @model_validator(mode="after")
    def _fits(self) -> Arrivals:
        if millis(self.every) == 0:
            raise ValueError("`every` is longer than nothing")
        if self.exactly and self.daily is not None:
            raise ValueError("what comes exactly so often does not follow the time of day")
        return self

    def draw(self, random: Random, length_ms: int) -> Iterator[int]:
        """Milliseconds after the start, ascending."""
        every = millis(self.every)
        if self.exactly:
            yield from range(0, length_ms, every)
            return
        swing = 0.0
        if self.daily is not None:
            swing = (self.daily.ratio - 1) / (self.daily.ratio + 1)
        at = 0.0
        while True:
            # Thinning: more than enough come, and some are left out by the time of day.
            at += -log(1 - random.random()) * every / (1 + swing)
            if at >= length_ms:
                return
            if self.daily is not None:
                phase = 2 * pi * (at - millis(self.daily.peak)) / _DAY_MS
                if random.random() * (1 + swing) > 1 + swing * cos(phase):
                    continue
            yield int(at)


class WeightedAmounts(_Model):
    """One of several amounts, each with its weight."""

    choice: dict[str, float] = Field(min_length=1)

    @model_validator(mode="after")
    def _positive(self) -> WeightedAmounts:
        if any(weight < 0 for weight in self.choice.values()) or not sum(self.choice.values()):
            raise ValueError("weights are not negative, and not all of them are 0")
        return self


Amount = str | int | WeightedAmounts


class NodeKind(_Model):
    """Nodes of one kind."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    count: int = Field(ge=1, le=100_000)
    allocatable: Annotated[dict[str, str | int], AfterValidator(_not_negative)]
    labels: dict[str, str] = {}


class Pods(_Model):
    """Pods of one kind. Those that come together belong to one Job."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    namespace: str = "default"
    priority: int = 0
    preemptionPolicy: Literal["PreemptLowerPriority", "Never"] | None = None
    arrivals: Arrivals
    together: int | list[int] = 1
    requests: dict[str, Amount] = {}
    duration: Duration
    gracePeriodSeconds: int = Field(30, ge=0, le=86_400)
    labels: dict[str, str] = {}
    nodeSelector: dict[str, str] = {}

    @model_validator(mode="after")
    def _some(self) -> Pods:
        given = self.together
        least, most = (given, given) if isinstance(given, int) else (given[0], given[-1])
        if (isinstance(given, list) and len(given) != 2) or not 1 <= least <= most <= 100_000:
            raise ValueError("`together` is a number from 1, or the least and the most of them")
        return self


class Metadata(_Model):
    name: str


class WorkloadFile(_Model):
    """A workload file."""

    apiVersion: Literal["policy/v1"]
    kind: Literal["Workload"]
    metadata: Metadata
    length: Annotated[Time, AfterValidator(_some_time)]
    nodes: list[NodeKind] = []
    objects: list[dict[str, Any]] = []
    pods: list[Pods] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Generated:
    """The traces of a workload, by seed. Raises TraceError and ManifestError."""

    workload: WorkloadFile
    others: tuple[ClusterObject, ...] = ()  #: replace the workload's objects of their kinds

    def __call__(self, seed: int) -> Trace:
        workload = self.workload
        length_ms = millis(workload.length)
        here = _objects(workload)
        kinds = {type(o) for o in self.others}
        here = [*(o for o in here if type(o) not in kinds), *self.others]
        tasks = [task for pods in workload.pods for task in _tasks(pods, seed, EPOCH_MS, length_ms)]
        tasks.sort(key=lambda task: task.arrives_ms)
        return Trace(
            name=workload.metadata.name,
            start_ms=EPOCH_MS,
            end_ms=EPOCH_MS + length_ms,
            objects=here,
            tasks=tasks,
        )


def read_workload(path: str | Path) -> WorkloadFile:
    """Read a workload file. Raises RulesError with every problem and its place."""
    missing = {"length": "how much time passes, such as `length: 7d`"}
    found = read_model(path, WorkloadFile, missing=missing)
    names = [pods.name for pods in found.pods] + [nodes.name for nodes in found.nodes]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise TraceError(f"{path}: two of the entries are named `{twice}`")
    try:
        _require_readable(found)
    except TraceError as exc:
        raise TraceError(f"{path}: {exc}", help=exc.help) from exc
    except ManifestError as exc:
        here = (replaced(problem, source=str(path), document=0) for problem in exc.problems)
        raise ManifestError(here) from exc
    return found


def _require_readable(workload: WorkloadFile) -> None:
    """Raises TraceError, ManifestError for objects and amounts that a trace would stumble over."""
    one_of_each = [kind.model_copy(update={"count": 1}) for kind in workload.nodes]
    _objects(workload.model_copy(update={"nodes": one_of_each}))  # says a mistake once
    _objects(workload)
    for kind in workload.pods:
        amounts = {
            name: list(amount.choice) if isinstance(amount, WeightedAmounts) else [amount]
            for name, amount in kind.requests.items()
        }
        for some in zip_longest(*amounts.values()):
            firsts = (each[0] for each in amounts.values())
            # Of a resource with fewer amounts than another one, the first is there again.
            _template(kind, tuple(a if b is None else b for a, b in zip(firsts, some, strict=True)))
        if not amounts:
            _template(kind, ())


def _normal(random: Random) -> float:
    """Box and Muller's: the same on every machine, as the library's own need not be."""
    return sqrt(-2 * log(1 - random.random())) * cos(2 * pi * random.random())


def _objects(workload: WorkloadFile) -> list[ClusterObject]:
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{kind.name}-{i}",
                "labels": {"kubernetes.io/hostname": f"{kind.name}-{i}", **kind.labels},
            },
            "status": {"allocatable": {"pods": "110", **kind.allocatable}},
        }
        for kind in workload.nodes
        for i in range(kind.count)
    ]
    read = read_dicts([*nodes, *workload.objects])
    for kind in read.skipped:
        raise TraceError(
            f"`objects` holds a {kind}, which is no kind that is used here",
            help=f"one of {', '.join(k for k in KINDS if k != 'Pod')}, with its `apiVersion`",
        )
    for name in read.repeated:
        raise TraceError(f"there are two objects {name}", help="give each a name of its own")
    found = resolve(read.objects, places=read.places)
    if any(isinstance(o, Pod) for o in found):
        raise TraceError(
            "`objects` holds a pod",
            help="pods are described under `pods`; a trace folder may begin with running ones",
        )
    return found


def _tasks(kind: Pods, seed: int, start_ms: int, length_ms: int) -> Iterator[TracePod]:
    random = Random(f"{seed}/{kind.name}")  # chance of a simulation, not a secret
    templates: dict[tuple[str | int, ...], Pod] = {}
    size = _sizes(kind.requests)
    count = 0
    for number, at in enumerate(kind.arrivals.draw(random, length_ms)):
        for i in range(_together(kind.together, random)):
            count += 1
            if count > _MOST_PODS:
                raise TraceError(
                    f"workload: `{kind.name}` would have more than {_MOST_PODS} pods",
                    help="let them come less often, or give a shorter `length`",
                )
            amounts = size(random)
            template = templates.get(amounts)
            if template is None:
                template = templates[amounts] = _template(kind, amounts)
            yield TracePod(
                pod=_named(template, kind, number, i),
                arrives_ms=start_ms + at,
                work_ms=kind.duration.draw(random),
            )


def _together(given: int | list[int], random: Random) -> int:
    if isinstance(given, int):
        return given
    low, high = given
    return low + int(random.random() * (high - low + 1))


def _sizes(
    requests: Mapping[str, Amount],
) -> Callable[[Random], tuple[str | int, ...]]:
    """Draws one amount for each resource."""

    def draw(random: Random) -> tuple[str | int, ...]:
        return tuple(_amount(amount, random) for amount in requests.values())

    return draw


def _amount(amount: Amount, random: Random) -> str | int:
    if not isinstance(amount, WeightedAmounts):
        return amount
    left = random.random() * sum(amount.choice.values())
    for value, weight in amount.choice.items():
        left -= weight
        if left < 0:
            return value
    return next(reversed(amount.choice))


def _template(kind: Pods, amounts: tuple[str | int, ...]) -> Pod:
    """The pod without its name: its parts are shared by all pods of that size."""
    requests = dict(zip(kind.requests, amounts, strict=True))
    spec: dict[str, Any] = {
        "priority": kind.priority,
        "terminationGracePeriodSeconds": kind.gracePeriodSeconds,
        "containers": [{"name": "main", "resources": {"requests": requests}}],
    }
    if kind.preemptionPolicy is not None:
        spec["preemptionPolicy"] = kind.preemptionPolicy
    if kind.nodeSelector:
        spec["nodeSelector"] = kind.nodeSelector
    try:
        (pod,) = from_dicts(
            [
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {
                        "name": kind.name,
                        "namespace": kind.namespace,
                        "labels": kind.labels,
                    },
                    "spec": spec,
                    "status": {"phase": "Pending"},
                }
            ]
        )
    except ManifestError as exc:
        first = exc.problems[0]
        raise TraceError(
            f"pods `{kind.name}`: {first.field}: {first.message}", help=first.help
        ) from exc
    assert isinstance(pod, Pod)
    return pod


def _named(template: Pod, kind: Pods, number: int, index: int) -> Pod:
    name = f"{kind.name}-{number}"
    owner = OwnerReference(kind="Job", name=name, controller=True)
    meta = replace(
        template.metadata,
        name=f"{name}-{index}",
        uid=f"{kind.namespace}/{name}-{index}",
        owner_references=[owner],
    )
    return replace(template, metadata=meta)
