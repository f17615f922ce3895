"""A study in the record: its trials are the simulations that were recorded under its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from policy.cluster import canonical
from policy.rules import RuleSet
from policy.simulation.keeping import keep
from policy.simulation.run import Result
from policy.simulation.tuning import figures
from policy.simulation.tuning.candidate import ParameterChoice, Space
from policy.simulation.tuning.figures import Document
from policy.simulation.tuning.spec import Study, Tuning
from policy.store import Store

TRAINING: Final = "training"
JUDGING: Final = "judging"

TrialPlace = tuple[str, int, int]
"""Training or judging, number of the trace, seed."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """One choice, and what was simulated of it."""

    number: int  #: 0: the base itself
    choice: ParameterChoice
    results: dict[TrialPlace, Document] = field(default_factory=dict)

    def of(self, part: str) -> list[Document]:
        """Results of training or of judging, in the order of traces and seeds."""
        return [self.results[place] for place in sorted(self.results) if place[0] == part]

    def values(self, spec: Tuning, part: str = TRAINING) -> tuple[float, ...]:
        """The figures that are to be small, means over traces and seeds."""
        return tuple(figures.mean(self.of(part), g.figure, g.priority) for g in spec.goals)

    def excess(self, spec: Tuning, part: str = TRAINING) -> tuple[float, ...]:
        """By how much each limit is passed, at worst; not above 0 where it holds."""
        return tuple(
            figures.worst(self.of(part), m.figure, m.priority) - m.amount for m in spec.limits
        )

    def allowed(self, spec: Tuning, part: str = TRAINING) -> bool:
        """Does it keep all limits?"""
        return all(over <= 0 for over in self.excess(spec, part))


def places(study: Study, part: str) -> list[TrialPlace]:
    """Everything that has to be simulated of a trial."""
    sources = study.training if part == TRAINING else study.judging
    return [(part, i, seed) for i in range(len(sources)) for seed in range(study.spec.seeds)]


def recorded(store: Store, space: Space) -> dict[int, Trial]:
    """The trials of a study that the record has, also those that are not whole."""
    study = space.study
    found: dict[int, Trial] = {}
    for options, result in store.read.simulation_documents(study.name):
        told = canonical.parse(options).get("tuning")
        if told is None or told["study"] != space.digest:
            continue
        number = int(told["trial"])
        trial = found.setdefault(number, Trial(number=number, choice=told["choice"]))
        place = (told["part"], int(told["trace"]), int(told["seed"]))
        if place[0] == JUDGING and told["digest"] != _digest(study, place):
            continue  # judged on another trace than the file names now
        trial.results[place] = canonical.parse(result)
    return found


def record(
    store: Store,
    space: Space,
    trial: Trial,
    place: TrialPlace,
    result: Result,
    rules: RuleSet,
    *,
    at_ms: int,
    actor: str,
) -> None:
    """Keep one simulation of a trial."""
    told = {
        "study": space.digest,
        "trial": trial.number,
        "choice": dict(trial.choice),
        "part": place[0],
        "trace": place[1],
        "seed": place[2],
        "digest": result.trace_digest,
    }
    kept = keep(store, space.study.name, result, rules, at_ms=at_ms, actor=actor, tuning=told)
    trial.results[place] = kept.result


def front(trials: Sequence[Trial], space: Space) -> list[Trial]:
    """Those that keep the limits and that none beats: not in all figures, and better in one.

    Of several with the same figures it is the one that changes least.
    """
    spec = space.study.spec
    fit = [trial for trial in trials if trial.allowed(spec)]
    values = {trial.number: trial.values(spec) for trial in fit}
    found: dict[tuple[float, ...], Trial] = {}
    for trial in sorted(fit, key=lambda t: (space.changes(t.choice), t.number)):
        own = values[trial.number]
        if own in found or any(_beats(other, own) for other in values.values()):
            continue
        found[own] = trial
    return [found[key] for key in sorted(found)]


def chosen(trials: Mapping[int, Trial], space: Space) -> Trial | None:
    """The one of the front with the least sum of figures, each as a share of the base's.

    Those that are worse than the base in no figure come first; None where nothing keeps the limits.
    """
    spec = space.study.spec
    best = front(list(trials.values()), space)
    base = trials[0].values(spec)

    def rank(trial: Trial) -> tuple[bool, float, int]:
        own = trial.values(spec)
        shares = [v / b if b else v for v, b in zip(own, base, strict=True)]
        worse = any(v > b for v, b in zip(own, base, strict=True))
        return worse, sum(shares), trial.number

    return min(best, key=rank, default=None)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return tuple(one) != tuple(other) and all(a <= b for a, b in zip(one, other, strict=True))


def _digest(study: Study, place: TrialPlace) -> str:
    sources = study.judging
    return str(sources[place[1]](place[2]).digest) if place[1] < len(sources) else ""


def missing(study: Study, trial: Trial, part: str) -> Iterator[TrialPlace]:
    """What has not been simulated yet of a trial."""
    return (place for place in places(study, part) if place not in trial.results)


def whole(study: Study, trial: Trial, part: str) -> bool:
    """Has everything been simulated?"""
    return next(missing(study, trial, part), None) is None


def plain(trial: Trial, spec: Tuning) -> dict[str, Any]:
    """A trial as plain data."""
    parts = [p for p in (TRAINING, JUDGING) if trial.of(p)]
    return {
        "trial": trial.number,
        "choice": dict(sorted(trial.choice.items())),  # as those from the record have it
        **{
            part: {
                "figures": {
                    goal.words: value
                    for goal, value in zip(spec.goals, trial.values(spec, part), strict=True)
                },
                "within_limits": trial.allowed(spec, part),
            }
            for part in parts
        },
    }
