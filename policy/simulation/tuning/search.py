"""The search: which choice is tried next is Optuna's, what it comes to is a simulation's.

Trials are made in rounds. What a round tries depends on the trials of the rounds before it and on
the study's seed, on nothing else: the same file gives the same trials with any number of workers,
and after any number of interruptions.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from policy.parts import HERE, Workers, map_parts
from policy.rules import RuleSet
from policy.simulation.options import Options
from policy.simulation.run import Result, simulate
from policy.simulation.trace import Trace
from policy.simulation.tuning.candidate import ParameterChoice, Space
from policy.simulation.tuning.spec import Tuning, named
from policy.simulation.tuning.study import JUDGING, TRAINING, Trial, TrialPlace, missing, whole

_AT_RANDOM: Final = 8
"""Trials before the search goes by what it has seen."""

KeepTrial = Callable[[Trial, TrialPlace, Result, RuleSet], None]
"""Called with each simulation as soon as it is there."""


@dataclass(frozen=True, slots=True)
class Simulating:
    """Work on parts (rules, place)."""

    training: Sequence[Callable[[int], Trace]]
    judging: Sequence[Callable[[int], Trace]]
    options: Options

    @contextmanager
    def open(self) -> Iterator[Callable[[tuple[RuleSet, TrialPlace]], Result]]:
        def do(part: tuple[RuleSet, TrialPlace]) -> Result:
            rules, (which, number, seed) = part
            sources = self.training if which == TRAINING else self.judging
            return simulate(sources[number](seed), rules, seed=seed, options=self.options)

        yield do


def search(
    space: Space, trials: dict[int, Trial], keep: KeepTrial, workers: Workers = HERE
) -> Iterator[Trial]:
    """Every trial of the study that is whole, in order, those that the record had first.

    trials: what is known; it is added to.
    """
    spec = space.study.spec
    number = 0
    while number < spec.trials:
        # The base is a round of its own: what is better is said against it.
        size = min(spec.together, spec.trials - number) if number else 1
        round_ = _round(space, trials, number, size)
        _simulate(
            space,
            [t for t in round_ if not whole(space.study, t, TRAINING)],
            TRAINING,
            keep,
            workers,
        )
        yield from round_
        number += size


def judge(space: Space, trials: Sequence[Trial], keep: KeepTrial, workers: Workers = HERE) -> None:
    """Simulate what the search has not seen."""
    _simulate(space, trials, JUDGING, keep, workers)


def rules_of(space: Space, trial: Trial) -> RuleSet:
    """Trial 0 is the base itself, under its own name."""
    if trial.number == 0:
        return space.base
    return space.rule_set(trial.choice, f"{space.study.name}-{trial.number}")


def _simulate(
    space: Space, trials: Sequence[Trial], part: str, keep: KeepTrial, workers: Workers
) -> None:
    study = space.study
    todo = [
        (trial, place, rules)
        for trial in trials
        for rules in [rules_of(space, trial)]
        for place in missing(study, trial, part)
    ]
    work = Simulating(study.training, study.judging, study.spec.simulation.options())
    results = map_parts(work, [(rules, place) for _, place, rules in todo], workers)
    for (trial, place, rules), result in zip(todo, results, strict=True):
        keep(trial, place, result, rules)


def _round(space: Space, trials: dict[int, Trial], first: int, size: int) -> list[Trial]:
    """The trials of a round; those that the record has are taken from it, whole or not."""
    if first == 0:
        return [trials.setdefault(0, Trial(number=0, choice=space.unchanged()))]
    wanted = range(first, first + size)
    if any(number not in trials for number in wanted):
        for number, choice in zip(wanted, _asked(space, trials, wanted), strict=True):
            trials.setdefault(number, Trial(number=number, choice=choice))
    return [trials[number] for number in wanted]


def _asked(space: Space, trials: dict[int, Trial], wanted: range) -> list[ParameterChoice]:
    spec = space.study.spec
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(directions=["minimize"] * len(spec.goals))
        for number in range(wanted.start):
            study.add_trial(_finished(space, trials[number], spec))
        found: list[ParameterChoice] = []
        for number in wanted:
            # Each trial has chance of its own, however the search came here.
            study.sampler = optuna.samplers.TPESampler(
                seed=spec.seed * 1_000_003 + number, n_startup_trials=_AT_RANDOM
            )
            asked = study.ask()
            found.append(_walk(space, partial(_suggested, asked)))
    return found


def _suggested(trial: optuna.Trial, name: str, values: BaseDistribution) -> Any:
    if isinstance(values, IntDistribution):
        return trial.suggest_int(name, values.low, values.high, step=values.step)
    assert isinstance(values, CategoricalDistribution)  # there are two kinds
    return trial.suggest_categorical(name, values.choices)


def _walk(space: Space, pick: Callable[[str, BaseDistribution], Any]) -> dict[str, Any]:
    """A choice, one thing after the other: what is out needs no numbers."""
    vary = space.study.spec.vary
    choice: dict[str, Any] = {}
    for name in vary.include:
        choice[f"include {name}"] = pick(f"include {name}", CategoricalDistribution((False, True)))
    included = [name for name in vary.include if choice[f"include {name}"]]
    for number in vary.numbers:
        if space.counts(number, included):
            high = number.high - (number.high - number.low) % number.stride
            values = IntDistribution(number.low, high, step=number.stride)
            choice[number.name] = pick(number.name, values)
    if vary.ranking:
        choice["ranking"] = pick("ranking", CategoricalDistribution(tuple(space.orders)))
    return choice


def _finished(space: Space, trial: Trial, spec: Tuning) -> optuna.trial.FrozenTrial:
    """A trial as the search knows it."""
    distributions: dict[str, BaseDistribution] = {}

    def known(name: str, values: BaseDistribution) -> Any:
        if name not in trial.choice:  # the base says nothing of numbers that stand in it
            return None
        distributions[name] = values
        return trial.choice[name]

    _walk(space, known)
    limits = [named(limit.figure, limit.priority) for limit in spec.limits]
    return optuna.trial.create_trial(
        values=list(trial.values(spec)),
        params={name: trial.choice[name] for name in distributions},
        distributions=distributions,
        constraints=dict(zip(limits, trial.excess(spec), strict=True)) if limits else None,
    )
