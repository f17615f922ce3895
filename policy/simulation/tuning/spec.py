"""A tuning file: the base, what may vary, the traces, and what is better; see docs/tuning.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from policy.cluster import canonical
from policy.cluster.objects import ClusterObject, key_of, kind_of
from policy.decision.model import ENGINE_VERSION
from policy.scheduling.order import DEFAULT_SCHEDULER
from policy.simulation.files import read_model
from policy.simulation.folder import read_trace
from policy.simulation.many import Always
from policy.simulation.options import Durations, Options, Restart
from policy.simulation.run import FORMAT, notes_on
from policy.simulation.trace import Trace, TraceError
from policy.simulation.tuning.figures import FIGURES, LOST_CPU, TIMES
from policy.simulation.workload import Generated, Time, millis, read_workload
from policy.text.words import duration

_MOST_ORDERS: Final = 5
_NEVER: Final = "never"


def _time_or_never(text: str) -> str:
    if text != _NEVER:
        try:
            millis(text)
        except ValueError as exc:
            raise ValueError(f"{exc}, and not `{_NEVER}`") from exc
    return text


_TimeOrNever = Annotated[str, AfterValidator(_time_or_never)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


class Metadata(_Model):
    name: str = Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,60}[a-z0-9])?$")


class Number(_Model):
    """A number or a length of time that stands in a rule, or a setting of the rule set."""

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]*$")
    rule: str | None = None
    text: str | None = None  #: how it stands in the rule's `when`
    setting: Literal["victims.maxVictims"] | None = None
    least: int | Time = Field(alias="from")
    most: int | Time = Field(alias="to")
    step: int | Time | None = None

    @model_validator(mode="after")
    def _whole(self) -> Number:
        if (self.rule is None) == (self.setting is None) or (self.rule is None) != (
            self.text is None
        ):
            raise ValueError("give `rule` and `text`, or `setting`")
        kinds = {type(v) for v in (self.least, self.most, self.step) if v is not None}
        if len(kinds) > 1:
            raise ValueError("`from`, `to` and `step` are all numbers or all times")
        if self.setting is not None and self.timed:
            raise ValueError("a setting is a number, not a time")
        given = [v for v in (self.least, self.most, self.step) if v is not None]
        if self.timed and any(millis(str(v)) % 1000 for v in given):
            raise ValueError("times are whole seconds")
        if not 0 <= self.low < self.high or not 0 < self.stride <= self.high - self.low:
            raise ValueError("`from` is below `to`, and `step` fits between them")
        return self

    @property
    def timed(self) -> bool:
        return isinstance(self.least, str)

    @property
    def low(self) -> int:
        """In seconds where it is a time."""
        return _amount(self.least)

    @property
    def high(self) -> int:
        return _amount(self.most)

    @property
    def stride(self) -> int:
        return 1 if self.step is None else _amount(self.step)

    def written(self, amount: int) -> str:
        """As it stands in a rule: `600`, `15m`, `90s`."""
        if not self.timed:
            return str(amount)
        size, unit = next(u for u in ((3600, "h"), (60, "m"), (1, "s")) if amount % u[0] == 0)
        return f"{amount // size}{unit}"

    def stands(self, amount: int) -> bool:
        """Is it what stands in the rule, maybe in other words?"""
        assert self.text is not None  # who asks has a rule
        try:
            own = millis(self.text) if self.timed else 1000 * int(self.text)
        except ValueError:
            return self.text == self.written(amount)
        return own == 1000 * amount


class Vary(_Model):
    """What may differ from the base."""

    include: list[str] = Field(default_factory=list)  #: rule sets, each of which is in or out
    numbers: list[Number] = Field(default_factory=list)
    ranking: list[str] = Field(default_factory=list, max_length=_MOST_ORDERS)
    """Ids of criteria that may stand in any order at the places where they stand."""

    @model_validator(mode="after")
    def _each_once(self) -> Vary:
        if not (self.include or self.numbers or self.ranking):
            raise ValueError("nothing varies: give `include`, `numbers` or `ranking`")
        if len(self.ranking) == 1:
            raise ValueError("`ranking` names two criteria or more, whose order may be another one")
        for key, names in (
            ("include", self.include),
            ("numbers", [number.name for number in self.numbers]),
            ("ranking", self.ranking),
        ):
            twice = _twice(names)
            if twice is not None:
                raise ValueError(f"`{twice}` stands twice in `{key}`")
        if any(number.name == "ranking" for number in self.numbers):
            raise ValueError("no number is named `ranking`: the order of the criteria is")
        return self


class WorkloadSource(_Model):
    """A trace folder, or a part of one, or a generated workload."""

    trace: str | None = None
    workload: str | None = None
    nodes: str | None = None
    start: Time = Field("0s", alias="from")
    end: Time | None = Field(None, alias="until")

    @model_validator(mode="after")
    def _one(self) -> WorkloadSource:
        if (self.trace is None) == (self.workload is None):
            raise ValueError("give one of `trace` and `workload`")
        if self.workload is not None and (self.nodes or self.end or self.start != "0s"):
            raise ValueError("`nodes`, `from` and `until` go with a trace")
        if self.end is not None and millis(self.end) <= millis(self.start):
            raise ValueError("`until` is later than `from`")
        return self


class FigureLimit(_Model):
    """What a figure may be at most."""

    figure: str
    priority: int | None = None  #: of pods of this priority or a higher one
    most: int | Time

    @property
    def amount(self) -> int:
        """As the figures are: times in milliseconds, cpu time in thousandths of it."""
        if isinstance(self.most, int):
            return self.most
        return millis(self.most) * (1000 if self.figure == LOST_CPU else 1)


class Goal(_Model):
    """A figure that is to be small."""

    figure: str
    priority: int | None = None

    @property
    def words(self) -> str:
        return named(self.figure, self.priority)


class Assumed(_Model):
    """Options of the simulations: those of `policy simulate`, with the same defaults."""

    restart: Literal["whole", "remaining"] = "whole"
    come_back: Time = Field("0s", alias="comeBack")
    bare_come_back: _TimeOrNever = Field("0s", alias="bareComeBack")
    cycle_time: Time = Field("5ms", alias="cycleTime")
    durations: Literal["observed", "siblings"] = "observed"
    scheduler: str = Field(DEFAULT_SCHEDULER, min_length=1)

    @field_validator("cycle_time")
    @classmethod
    def _takes_time(cls, value: str) -> str:
        if not 1 <= millis(value) <= 60_000:
            raise ValueError("a cycle takes between 1ms and 1m")
        return value

    def options(self) -> Options:
        never = self.bare_come_back == _NEVER
        return Options(
            restart=Restart(self.restart),
            return_ms=millis(self.come_back),
            bare_return_ms=None if never else millis(self.bare_come_back),
            cycle_ms=millis(self.cycle_time),
            durations=Durations(self.durations),
            scheduler=self.scheduler,
        )


class Tuning(_Model):
    """A whole tuning file."""

    api_version: Literal["policy/v1"] = Field(alias="apiVersion")
    kind: Literal["Tuning"]
    metadata: Metadata
    base: str
    vary: Vary
    training: list[WorkloadSource] = Field(min_length=1)
    judging: list[WorkloadSource] = Field(default_factory=list)
    seeds: int = Field(1, ge=1, le=100)
    minimise: list[str | Goal] = Field(min_length=1, max_length=4)
    limits: list[FigureLimit] = Field(default_factory=list)
    trials: int = Field(40, ge=1, le=100_000)
    together: int = Field(4, ge=1, le=1000)
    seed: int = 0
    simulation: Assumed = Assumed.model_validate({})

    @property
    def goals(self) -> list[Goal]:
        return [Goal(figure=g) if isinstance(g, str) else g for g in self.minimise]


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A tuning file with everything that it names read."""

    spec: Tuning
    folder: Path  #: of the file; names of rule files and traces count from here
    training: Sequence[Any]  #: functions from a seed to a trace
    judging: Sequence[Any]
    file: str = "<tuning>"  #: what mistakes are said to be in

    @property
    def name(self) -> str:
        return self.spec.metadata.name

    def digest(self, rules: Sequence[str]) -> str:
        """Of everything that a trial depends on; rules: digests of the base, and with each include.

        How many trials there are is no part of it: a study can be gone on with.
        """
        told = self.spec.model_dump(mode="json", exclude={"trials", "judging"})
        traces = [source(0).digest for source in self.training]
        return canonical.digest([told, list(rules), traces, ENGINE_VERSION, FORMAT])

    @property
    def notes(self) -> list[str]:
        """What was filled in or left out of the traces, in words."""
        options = self.spec.simulation.options()
        parts = (("training", self.training), ("judging", self.judging))
        return [
            f"{part}[{number}], {source.trace.name}: {note}"
            for part, sources in parts
            for number, source in enumerate(sources)
            if isinstance(source, Always)
            for note in notes_on(source.trace, options)
        ]

    def mistake(self, message: str, *, help: str = "") -> TraceError:
        """What is wrong with the file."""
        return TraceError(f"{self.file}: {message}", help=help)


def named(figure: str, priority: int | None) -> str:
    """`wait p95, priority >= 1000`"""
    return figure if priority is None else f"{figure}, priority >= {priority}"


def read_study(path: str | Path) -> Study:
    """Read a tuning file and its traces. Raises RulesError, TraceError with the place."""
    path = Path(path)
    missing = {"training": "the traces to search on: `training: [{trace: FOLDER}]`"}
    spec = read_model(path, Tuning, missing=missing)
    _require_figures(spec, path)
    sources = (*spec.training, *spec.judging)
    if spec.simulation.durations != "observed" and all(s.trace is None for s in sources):
        raise TraceError(
            f"{path}: `durations` means nothing where all traces are generated",
            help="leave out `durations`: a workload file says how long its pods work",
        )
    return Study(
        spec=spec,
        folder=path.parent,
        training=[_source(s, path, spec.simulation) for s in spec.training],
        judging=[_source(s, path, spec.simulation) for s in spec.judging],
        file=str(path),
    )


def _require_figures(spec: Tuning, path: Path) -> None:
    """Raises TraceError for figures that there are not, or in another unit."""
    for figure in [one.figure for one in spec.goals] + [one.figure for one in spec.limits]:
        if figure not in FIGURES:
            raise TraceError(
                f"{path}: unknown figure `{figure}`", help=f"one of {', '.join(FIGURES)}"
            )
    for key, words in (
        ("minimise", [goal.words for goal in spec.goals]),
        ("limits", [named(limit.figure, limit.priority) for limit in spec.limits]),
    ):
        twice = _twice(words)
        if twice is not None:
            raise TraceError(f"{path}: `{twice}` stands twice in `{key}`")
    for limit in spec.limits:
        timed = limit.figure in TIMES or limit.figure == LOST_CPU
        if timed != isinstance(limit.most, str):
            raise TraceError(
                f"{path}: `{limit.figure}` is {'a time' if timed else 'a number'}, and `most`"
                f" is `{limit.most}`",
                help="write it as `20m`, with a unit" if timed else "write a whole number",
            )


def _twice(names: Sequence[str]) -> str | None:
    return next((name for name in names if names.count(name) > 1), None)


def _amount(value: int | str) -> int:
    return value if isinstance(value, int) else millis(value) // 1000


def _source(source: WorkloadSource, path: Path, assumed: Assumed) -> Any:
    folder = path.parent
    if source.workload is not None:
        return Generated(read_workload(folder / source.workload), ())
    assert source.trace is not None  # checked by the model
    nodes = None if source.nodes is None else folder / source.nodes
    durations = Durations(assumed.durations)
    found = read_trace(folder / source.trace, cluster=nodes, durations=durations)
    if source.start == "0s" and source.end is None:
        return Always(found)
    end = None if source.end is None else millis(source.end)
    try:
        return Always(part(found, millis(source.start), end))
    except TraceError as exc:
        raise TraceError(f"{path}: {exc}", help=exc.help) from exc


def part(trace: Trace, start_ms: int, end_ms: int | None) -> Trace:
    """The trace between two instants after its start, as a trace of its own.

    Pods that came before are left out, unless the part begins where the trace does.
    """
    first = trace.start_ms + start_ms
    last = trace.end_ms if end_ms is None else min(trace.end_ms, trace.start_ms + end_ms)
    if first >= last:
        raise TraceError(
            f"trace `{trace.name}` ends {_length(trace)} after its start, before that part of it"
            " begins"
        )
    if end_ms is not None and trace.start_ms + end_ms > trace.end_ms:
        note = f"the trace ends {_length(trace)} after its start, before `until`"
        trace = replace(trace, notes=[*trace.notes, note])
    if start_ms == 0:
        return _replaced(trace, trace.objects, trace.tasks, first, last)
    objects = {_key(o): o for o in trace.objects}
    for event in trace.events:
        if event.at_ms < first:
            kind, key, obj = event.change
            objects.pop((kind, key), None)
            if obj is not None:
                objects[kind, key] = obj
    tasks = [t for t in trace.tasks if t.arrives_ms >= first]
    return _replaced(trace, list(objects.values()), tasks, first, last)


def _length(trace: Trace) -> str:
    return duration((trace.end_ms - trace.start_ms) // 1000)


def _replaced(trace: Trace, objects: Any, tasks: Any, first: int, last: int) -> Trace:
    left = len(trace.tasks) - len(tasks)
    said = f"pods left out that came before this part of the trace: {left}"
    return replace(
        trace,
        start_ms=first,
        end_ms=last,
        objects=objects,
        tasks=[t for t in tasks if t.arrives_ms < last],
        events=[e for e in trace.events if first <= e.at_ms < last],
        notes=[*trace.notes, *([said] if left else [])],
    )


def _key(obj: ClusterObject) -> tuple[str, str]:
    return kind_of(obj), key_of(obj)
