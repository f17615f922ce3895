"""What a search came to: in words, as a rule file with its cases, and as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from policy.audit.pages import environment
from policy.rules import RuleSet
from policy.simulation import charts
from policy.simulation.tuning.candidate import Space
from policy.simulation.tuning.figures import shown
from policy.simulation.tuning.spec import Goal, Tuning, named
from policy.simulation.tuning.study import JUDGING, TRAINING, Trial, front
from policy.simulation.words import assumed


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """A search that has ended, and the trial that was chosen of it."""

    space: Space
    trials: Sequence[Trial]
    chosen: Trial | None  #: None where no trial keeps the limits

    @property
    def spec(self) -> Tuning:
        return self.space.study.spec

    @property
    def base(self) -> Trial:
        return self.trials[0]

    @property
    def front(self) -> list[Trial]:
        return front(self.trials, self.space)


def words(choice: Mapping[str, Any], space: Space) -> str:
    """`include cooldown, rest 5m`; `as the base` where nothing differs."""
    numbers = {n.name: n for n in space.study.spec.vary.numbers}
    found = [name for name, value in choice.items() if value is True]
    found += [f"{n} {numbers[n].written(int(v))}" for n, v in choice.items() if n in numbers]
    order = choice.get("ranking")
    if order and order != space.orders[0]:
        found.append(f"ranking {order}")
    return ", ".join(found) or "as the base"


def trial_line(outcome: TuningResult, trial: Trial) -> dict[str, str]:
    """A trial as a line of a table: its choice and figures."""
    values = trial.values(outcome.spec, TRAINING)
    return {
        "trial": str(trial.number),
        **{g.words: shown(g.figure, v) for g, v in zip(outcome.spec.goals, values, strict=True)},
        "limits": ""
        if not outcome.spec.limits
        else ("kept" if trial.allowed(outcome.spec, TRAINING) else "exceeded"),
        "choice": words(trial.choice, outcome.space),
    }


def judged_lines(outcome: TuningResult) -> list[dict[str, str]]:
    """Each figure of base and chosen, on what was searched and on what was held out."""
    if outcome.chosen is None or not outcome.chosen.of(JUDGING):
        return []
    return [
        _judged(outcome, outcome.chosen, number, goal)
        for number, goal in enumerate(outcome.spec.goals)
    ]


def _judged(outcome: TuningResult, chosen: Trial, number: int, goal: Goal) -> dict[str, str]:
    line = {"figure": goal.words}
    gains = []
    for part in (TRAINING, JUDGING):
        before = outcome.base.values(outcome.spec, part)[number]
        after = chosen.values(outcome.spec, part)[number]
        gains.append((before - after) / before if before else 0.0)
        line[part] = f"{shown(goal.figure, before)} -> {shown(goal.figure, after)}"
        line[f"{part} gain"] = f"{100 * gains[-1]:+.1f} %"
    if gains[0] <= 0:
        line["survives"] = "no gain"
    else:
        line["survives"] = f"{100 * gains[1] / gains[0]:.0f} % of it" if gains[1] > 0 else "nothing"
    return line


# --- the rule file -------------------------------------------------------------------------------


def rule_file(outcome: TuningResult, trial: Trial, name: str, folder: Path) -> str:
    """The text of a rule file in `folder` with the trial's rules, each with its `why`."""
    space = outcome.space
    gain = "; ".join(
        f"{goal.words} {shown(goal.figure, before)} -> {shown(goal.figure, after)}"
        for goal, before, after in zip(
            outcome.spec.goals,
            outcome.base.values(outcome.spec),
            trial.values(outcome.spec),
            strict=True,
        )
    )
    why = (
        f"trial {trial.number} of {len(outcome.trials)} in the tuning `{space.study.name}`: {gain}"
    )
    whys = {n.rule: why for n in outcome.spec.vary.numbers if n.rule is not None}
    file = space.file(
        trial.choice,
        name=name,
        description=f"{space.base.name}, tuned: {words(trial.choice, space)}",
        whys=whys | {"ranking": why},
        folder=folder,
    )
    head = f"# Found by `policy tune`, {why}.\n"
    return head + yaml.safe_dump(file, sort_keys=False, width=100, allow_unicode=True)


def own_rules(text: str) -> set[str]:
    """Ids of the rules and criteria that a rule file itself holds."""

    def ids(part: Any) -> Iterator[str]:
        for key, value in part.items() if isinstance(part, dict) else ():
            if key in ("replace", "insert"):
                yield from (entry.get("rule", entry)["id"] for entry in value)
            else:
                yield from ids(value)

    return set(ids(yaml.safe_load(text).get("spec")))


# --- the page ------------------------------------------------------------------------------------


def page(outcome: TuningResult) -> str:
    """One page that needs nothing else: the front as pictures, the trials, the judgement."""
    spec = outcome.spec
    return (
        environment("policy.simulation")
        .get_template("tune.html")
        .render(
            name=outcome.space.study.name,
            base=outcome.space.base.name,
            digest=outcome.space.base.digest,
            trials=len(outcome.trials),
            goals=[goal.words for goal in spec.goals],
            limits=[
                f"{named(m.figure, m.priority)} at most {shown(m.figure, m.amount)}"
                for m in spec.limits
            ],
            charts=_fronts(outcome),
            names=_GROUPS,
            colours=[charts.colour(i) for i in range(len(_GROUPS))],
            front=[trial_line(outcome, trial) for trial in outcome.front],
            chosen=None if outcome.chosen is None else trial_line(outcome, outcome.chosen),
            judged=judged_lines(outcome),
            options=assumed(spec.simulation.options()),
            notes=outcome.space.study.notes,
            all=[trial_line(outcome, trial) for trial in outcome.trials],
            width=charts.WIDTH,
            height=charts.HEIGHT,
            left=charts.LEFT,
        )
    )


_GROUPS = ("base", "trials", "chosen")


def _fronts(outcome: TuningResult) -> list[charts.Chart]:
    """One picture for each pair of figures; what exceeds a limit is left out."""
    spec = outcome.spec
    fit = [trial for trial in outcome.trials if trial.allowed(spec)]
    left = len(outcome.trials) - len(fit)
    return [
        _front(
            outcome, fit, x, y, f"; {left} trials that exceed a limit are left out" if left else ""
        )
        for x in range(len(spec.goals))
        for y in range(x + 1, len(spec.goals))
    ]


def _front(outcome: TuningResult, fit: Sequence[Trial], x: int, y: int, left: str) -> charts.Chart:
    goals = outcome.spec.goals
    points: dict[str, list[charts.ChartPoint]] = {name: [] for name in _GROUPS}
    for trial in fit:
        group = "base" if trial is outcome.base else "trials"
        values = trial.values(outcome.spec)
        points["chosen" if trial is outcome.chosen else group].append((values[x], values[y]))
    return charts.front(
        f"{goals[x].words} against {goals[y].words}",
        list(points.items()),
        shown=(lambda v: shown(goals[x].figure, v), lambda v: shown(goals[y].figure, v)),
        note=f"{goals[x].words} (across) and {goals[y].words} (up), a point for each trial; less is"
        f" better in both directions, and no trial beats those on the broken line{left}",
    )


def rules_named(outcome: TuningResult, trial: Trial, name: str) -> RuleSet:
    """The trial's rules under the name of the file that they go to."""
    return outcome.space.rule_set(trial.choice, name)
