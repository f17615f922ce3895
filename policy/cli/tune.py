"""`policy tune`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.parts import Workers
    from policy.rules import RuleSet
    from policy.simulation.run import Result
    from policy.simulation.tuning.candidate import Space
    from policy.simulation.tuning.outcome import TuningResult
    from policy.simulation.tuning.search import KeepTrial
    from policy.simulation.tuning.study import Trial, TrialPlace
    from policy.store import Store


@click.command("tune")
@click.argument("spec", type=click.Path(path_type=Path))
@options.db_option
@options.jobs_option
@click.option(
    "--choose",
    metavar="TRIAL",
    type=click.IntRange(0),
    help="Choose this trial. Without it: one that is worse than the base in no figure where there "
    "is any, and of these the one with the least sum of figures, each as a share of the base's.",
)
@click.option(
    "--write",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the chosen rules to this file, and beside it, as FILE.cases.yaml, cases that show "
    "how they differ from the base, and each of the file's own rules at work.",
)
@options.output_of("table", "json", "html", note="`html` is one page that needs nothing else.")
def command(
    spec: Path, db: str, jobs: int, dask: str, choose: int | None, write: Path | None, form: str
) -> int:
    """Search for rules that do better than a base on traces.

    SPEC names the base, what may vary (rule sets that are included or not, numbers in rules, the
    order of ranking criteria), the traces, what should be small, and limits. Every trial is
    simulated and recorded as rows of `simulations` under the study's name: after Ctrl-C the same
    command goes on where it was. Printed are the trials that no other one beats, the one that is
    chosen of them, and what it gains on traces that the search has not seen. The exit status is 1
    where no trial keeps the limits. Needs the extra `tune`.

    \b
    Example:
      policy tune examples/simulation/tuning.yaml
      policy tune examples/simulation/tuning.yaml --write tuned.yaml
      policy tune examples/simulation/tuning.yaml --output html > tuning.html
    """
    from policy.extras import require

    require("tune", "`policy tune` needs")
    from policy.simulation.tuning import search, study
    from policy.simulation.tuning.candidate import Space
    from policy.simulation.tuning.outcome import TuningResult
    from policy.simulation.tuning.spec import read_study

    workers = options.workers(jobs, dask)
    if write is not None:
        _require_new(write)
    read = read_study(spec)
    if choose is not None and choose >= read.spec.trials:
        raise options.Misused(f"there is no trial {choose}; the last one is {read.spec.trials - 1}")
    space = Space.of(read)
    for note in read.notes:
        output.say(note)
    if write is not None:
        _require_name(write, space)
    with session.open_store(db, write=True, create=True) as store:
        trials = study.recorded(store, space)
        keep = _keeping(store, space)
        made = _searched(space, trials, keep, workers)
        by_number = {trial.number: trial for trial in made}
        chosen = study.chosen(by_number, space) if choose is None else by_number[choose]
        if chosen is not None and read.judging:
            output.say("judging the chosen trial and the base on what the search has not seen")
            judged = [by_number[number] for number in sorted({0, chosen.number})]
            search.judge(space, judged, keep, workers)
    outcome = TuningResult(space=space, trials=made, chosen=chosen)
    _show(outcome, form)
    if chosen is None:
        output.say("no trial keeps all limits", help="raise a limit, or let more vary")
        return Exit.ERROR
    if chosen is outcome.base:
        why = "no trial is better than the base in one figure and worse in none"
        told = why if choose is None else "the base itself is chosen"
        output.say(f"{told}: nothing is written" if write is not None else told)
    elif write is not None:
        _write(outcome, chosen, write)
    return Exit.OK


def _keeping(store: Store, space: Space) -> KeepTrial:
    from policy.simulation.tuning import study

    def keep(trial: Trial, place: TrialPlace, result: Result, rules: RuleSet) -> None:
        study.record(
            *(store, space, trial, place, result, rules),
            at_ms=session.clock_ms(),
            actor=session.actor(),
        )

    return keep


def _searched(
    space: Space, trials: dict[int, Trial], keep: KeepTrial, workers: Workers
) -> list[Trial]:
    """All trials; a line for each one that no earlier one beats."""
    from policy.simulation.tuning.outcome import words
    from policy.simulation.tuning.search import search
    from policy.simulation.tuning.study import chosen

    spec = space.study.spec
    made: list[Trial] = []
    best: Trial | None = None
    with output.progress("tuning") as advance:
        for trial in search(space, trials, keep, workers):
            made.append(trial)
            found = chosen({t.number: t for t in made}, space)
            if found is not None and found is not best:
                best = found
                output.say(
                    f"trial {found.number} is the best so far: {_figures(found, spec)};"
                    f" {words(found.choice, space)}"
                )
            shown = "tuning" if best is None else f"best so far: trial {best.number}"
            advance(len(made), spec.trials, shown)
    return made


def _figures(trial: Trial, spec: Any) -> str:
    from policy.simulation.tuning.figures import shown

    pairs = zip(spec.goals, trial.values(spec), strict=True)
    return ", ".join(f"{goal.words} {shown(goal.figure, value)}" for goal, value in pairs)


def _show(outcome: TuningResult, form: str) -> None:
    from policy.simulation.tuning.outcome import judged_lines, page, trial_line
    from policy.simulation.tuning.study import plain

    if form == "html":
        output.data(page(outcome))
        return
    if form == "json":
        told = {
            "name": outcome.space.study.name,
            "base": outcome.space.base.name,
            "base_digest": outcome.space.base.digest,
            "chosen": None if outcome.chosen is None else outcome.chosen.number,
            "front": [trial.number for trial in outcome.front],
            "assumed": outcome.spec.simulation.model_dump(by_alias=True),
            "trials": [plain(trial, outcome.spec) for trial in outcome.trials],
        }
        output.document(told, form)
        return
    # The base may be on the front, and with `--choose` the chosen one may be any.
    shown = (outcome.base, *outcome.front, outcome.chosen)
    each = {trial.number: trial for trial in shown if trial is not None}
    lines = [trial_line(outcome, trial) for trial in each.values()]
    lines[0]["trial"] += " base"
    columns = tuple(lines[0])
    output.print_table(lines, columns=columns, right=columns[1:-2])
    if outcome.chosen is not None:
        output.line()
        output.line(f"chosen: trial {outcome.chosen.number}")
    judged = judged_lines(outcome)
    if judged:
        output.line()
        output.line("on what the search has not seen")
        output.print_table(judged, columns=tuple(judged[0]), right=tuple(judged[0])[1:])


def _require_new(file: Path) -> None:
    """Before the search: it would be a pity to find out afterwards."""
    if not file.parent.is_dir():
        raise options.Misused(f"there is no folder `{file.parent}` for the rule file")
    for found in (file, _beside(file)):
        if found.exists():
            raise options.Misused(
                f"`{found}` is there already", help="remove it, or give `--write` another name"
            )


def _require_name(file: Path, space: Space) -> None:
    """The rules are named after their file; also before the search."""
    from policy.rules import RulesError

    try:
        space.rule_set(space.unchanged(), _name(file))
    except RulesError as exc:
        first = exc.problems[0]
        raise options.Misused(
            f"the rules in `{file}` would have the name of the file: {first.message}",
            help=first.help,
        ) from exc


def _name(file: Path) -> str:
    return file.name.removesuffix(".yaml")


def _beside(file: Path) -> Path:
    """Where `policy rules test` looks for the cases of a rule file."""
    return file.with_name(f"{_name(file)}.cases.yaml")


def _write(outcome: TuningResult, chosen: Trial, file: Path) -> None:
    from policy.simulation.tuning.cases import written
    from policy.simulation.tuning.outcome import own_rules, rule_file, rules_named

    name = _name(file)
    text = rule_file(outcome, chosen, name, file.parent)
    study = outcome.space.study
    cases = written(
        study.training[0](0),
        outcome.space.base,
        rules_named(outcome, chosen, name),
        options=study.spec.simulation.options(),
        own=own_rules(text),
    )
    file.write_text(text, "utf-8")
    output.say(f"wrote {file}")
    if cases.text:
        beside = _beside(file)
        beside.write_text(cases.text, "utf-8")
        output.say(f"wrote {beside}")
    if not cases.differing:
        output.say("no decision of the first trace differs from the base in a way a case can hold")
    for rule, why in cases.untouched.items():
        output.say(
            f"no case touches `{rule}`: {why}", help="`policy rules lint` reports it, write a case"
        )
