"""`policy conform`"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from policy.cli import options, output, rule_files
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.rules import RuleSet


@click.command("conform")
@click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, shell_complete=options.proposing("files")
)
@options.rules_option
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(1),
    default=options.processors,
    show_default="number of processors",
    help="Processes that work side by side.",
)
@options.dask_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per scenario, and one with the numbers.",
)
@click.option(
    "--strict", is_flag=True, help="Compare codes, plugins, reasons, statuses and messages too."
)
@click.option(
    "--family",
    "families",
    metavar="A,B",
    default="",
    show_default=False,
    help="Only scenarios of these families.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(0),
    help="Stop after so many scenarios, and say how many are left out.",
)
def command(
    files: tuple[str, ...],
    rules: str,
    jobs: int,
    dask: str,
    as_json: bool,
    strict: bool,
    families: str,
    limit: int | None,
) -> int:
    """Compare a rule set with decisions of the real schedulers.

    FILE is a recording: one scenario (cluster, pod, what kube-scheduler did) per line of JSON,
    also gzipped; first cycles and tables of scores of a running scheduler are read, too. Prints
    the scenarios whose decision differs, and as the last line
    `N scenarios: A agree, T tie, D differ`; the exit status is 0 only where D is 0. A tie differs
    only by the order among pods of equal priority and start time, or among nodes that are equal in
    every criterion. Recorded sessions of kube-batch are decided by the configuration that each of
    them carries.

    \b
    Example:
      policy conform tests/data/conformance/kube-1.35.jsonl.gz --rules kube-1.35
      policy conform kube-1.28.jsonl.gz --rules kube-1.28 --family pdb,taints --json
    """
    from policy.conformance import Agreement, ConformanceSummary, run

    workers = options.workers(jobs, dask)
    rule_set = _rule_set(rules)
    wanted = frozenset(name.strip() for name in families.split(",") if name.strip())
    verdicts = []
    beyond: Counter[str] = Counter()
    for result in run(
        files,
        rule_set,
        families=wanted,
        limit=limit,
        left_out=lambda: beyond.update(("scenarios",)),
        strict=strict,
        workers=workers,
    ):
        verdicts.append(result.verdict)
        if as_json:
            output.document(
                {
                    "source": result.source,
                    "id": result.id,
                    "family": result.family,
                    "verdict": result.verdict.value,
                    "differences": result.differences,
                },
                "jsonl",
            )
        elif result.verdict is Agreement.DIFFER:
            output.line(f"{result.id}: differs")
            for line in result.differences:
                output.line(f"  {line}")
    if wanted and not verdicts and not beyond:
        names = ", ".join(f"`{name}`" for name in sorted(wanted))
        raise options.Misused(f"no scenario of these files is of family {names}")
    summary = ConformanceSummary.of(verdicts)
    left_out = beyond["scenarios"]
    if left_out:
        output.say(f"{output.number(left_out, 'scenario')} left out; --limit takes more")
    if as_json:
        numbers = {"agree": summary.agree, "tie": summary.tie, "differ": summary.differ}
        output.document({"scenarios": summary.total, **numbers, "left_out": left_out}, "jsonl")
    (output.say if as_json else output.line)(str(summary))
    return Exit.ERROR if summary.differ else Exit.OK


def _rule_set(source: str) -> RuleSet | None:
    """The rule set for scheduling cycles; None for batch rules, which decide sessions only."""
    from policy.conformance.compare import OVERRIDES
    from policy.rules import RulesError
    from policy.rules.ruleset import RuleSet

    try:
        return RuleSet.load(source, overrides=OVERRIDES, within=rule_files.within())
    except RulesError:
        with suppress(RulesError):
            rule_files.batch_rules(source)
            return None
        raise
