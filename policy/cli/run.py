"""`policy run`"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from policy.cli import env, options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.cluster.snapshot import Snapshot
    from policy.scheduling.cycle import GroupStep, Step
    from policy.scheduling.settle import Settled


@click.command("run")
@options.db_option
@options.cluster_option
@options.rules_option
@env.env_option
@options.seed_option
@options.now_option
@click.option(
    "--scheduler",
    metavar="NAME",
    default="default-scheduler",
    help="Only pods that name this scheduler.",
)
@click.option("--dry-run", is_flag=True, help="Decide, and neither record nor change anything.")
@click.option(
    "--settle",
    is_flag=True,
    help="Go on, on a virtual clock, until nothing changes any more: victims leave after their "
    "grace period and come back as new pods, preemptors are tried again.",
)
@click.option(
    "--max-cycles",
    metavar="N",
    type=click.IntRange(min=1),
    default=100_000,
    help="With --settle: end after so many decisions.",
)
@click.option(
    "--watch",
    is_flag=True,
    help="Keep deciding as pods appear in the database, until interrupted or terminated.",
)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=options.Seconds(min=0.01, max=3600),
    default=1.0,
    help="With --watch: how often to look where nothing is to be decided.",
)
@click.option(
    "--paranoid",
    metavar="N",
    type=click.IntRange(min=1),
    help="Make every N-th decision again on the state put together anew, without anything that is "
    "kept for equal pods, and stop with an error where the two differ. The cycle of a pod group "
    "counts as one decision. Each takes as long as to load the cluster.",
)
@options.output_option
def command(
    db: str,
    cluster: str | None,
    rules: str,
    environment: str,
    seed: int,
    now: datetime | None,
    scheduler: str,
    dry_run: bool,
    settle: bool,
    max_cycles: int,
    watch: bool,
    interval: float,
    paranoid: int | None,
    form: str,
) -> int:
    """Decide for all pending pods, in the order of the queue.

    Higher priority first, then the earlier arrival. Each decision sees what the ones before it
    changed: placed pods take room, nominated pods hold theirs, evicted pods are leaving. Every
    decision is recorded before it is printed, up to 64 of them in one transaction. A pod that
    cannot be decided is recorded with outcome `error` and its reason, the others go on, and the
    exit status is 3. With --settle the time that passes is simulated, and every departure and
    return is recorded like the decisions.

    With --watch the command stays and decides pods as they appear; failed ones are tried again when
    a change of the cluster may help them, after the backoff that the rule file's `queue` names.
    Several of them share the work of one cluster. SIGINT and SIGTERM end it after the decision that
    is being made, with exit status 0, or 3 as above.

    \b
    Example:
      policy run
      policy run --dry-run --output csv > decisions.csv
      policy run --settle --dry-run
      policy run --dry-run --paranoid 100
    """
    if watch and (settle or dry_run):
        raise options.Misused(
            "`--watch` records its decisions as they come, on the real clock",
            help="leave out `--settle` and `--dry-run`",
        )
    options.need("--settle", settle, "max_cycles")
    options.need("--watch", watch, "interval")
    options.refuse_beside("`--watch`, which goes by the real clock", watch, "now")
    from policy.extenders.client import HttpExtenders
    from policy.scheduling.cycle import Scheduler
    from policy.scheduling.settle import Settler, VirtualClock

    clock = session.deciding_at(now)
    outcomes: Counter[str] = Counter()
    made: Counter[type] = Counter()
    with session.open_store(db, write=not dry_run) as store:
        chosen = env.chosen(store, environment=environment, cluster=cluster, rules=rules)
        rule_set = chosen.rules
        journal = env.journal(store, chosen)
        if watch:
            from policy.cli.run_watch import watching

            cycle = Scheduler(
                journal,
                rule_set,
                clock=clock,
                seed=seed,
                extenders=HttpExtenders(),
                paranoid=paranoid,
            )
            steps = watching(cycle, interval=interval, name=scheduler)
            _print_as_they_come(_counted(steps, outcomes, made), form)
        elif settle:
            start = clock()
            virtual = VirtualClock(start)
            cycle = Scheduler(
                journal,
                rule_set,
                clock=virtual,
                seed=seed,
                dry_run=dry_run,
                extenders=HttpExtenders(),
                paranoid=paranoid,
            )
            _say_left_out(cycle.state.snapshot, scheduler)
            settler = Settler(cycle, rule_set, virtual, name=scheduler, max_cycles=max_cycles)
            _print(_counted(settler, outcomes, made), form)
            output.say(_settled(settler.result, since_ms=start))
        else:
            cycle = Scheduler(
                journal,
                rule_set,
                clock=clock,
                seed=seed,
                dry_run=dry_run,
                extenders=HttpExtenders(),
                paranoid=paranoid,
            )
            session.tell_of_projections(rule_set, cycle.state.snapshot)
            _say_left_out(cycle.state.snapshot, scheduler)
            _print(_counted(cycle.run(scheduler=scheduler), outcomes, made), form)
    told = ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items()))
    done = "made, nothing recorded (--dry-run)" if dry_run else "made and recorded"
    output.say(f"{_number(made)} {done}" + (f": {told}" if told else ""))
    return Exit.UNDECIDED if outcomes["error"] else Exit.OK


def _say_left_out(snapshot: Snapshot, scheduler: str) -> None:
    from policy.scheduling.order import left_out

    found = left_out(snapshot, scheduler=scheduler)
    if found:
        told = ", ".join(f"{n} {why}" for why, n in sorted(found.items()))
        pods = output.number(found.total(), "pending pod")
        output.say(f"{pods} not in the queue of {scheduler}: {told}")


def _settled(result: Settled, *, since_ms: int) -> str:
    """How the simulation ended, in one sentence."""
    left = len(result.waiting)
    end = "settled" if result.finished else "stopped by --max-cycles"
    passed = (result.end_ms - since_ms) // 1000
    cycles, waiting = output.number(result.cycles, "cycle"), output.number(left, "pod")
    return f"{end} after {cycles} and {passed} s of virtual time; still waiting: {waiting}"


def _number(made: Counter[type]) -> str:
    """`2 decisions and 1 cycle of a pod group`: a pod that was tried again counts again."""
    from policy.scheduling.cycle import GroupStep, Step

    groups = made[GroupStep]
    cycles = f"{groups} cycles of pod groups" if groups > 1 else "1 cycle of a pod group"
    decisions = output.number(made[Step], "decision")
    if not groups:
        return decisions
    return f"{decisions} and {cycles}" if made[Step] else cycles


def _counted(
    steps: Iterable[Step | GroupStep], outcomes: Counter[str], made: Counter[type]
) -> Iterator[dict[str, Any]]:
    """The lines of the list, counting outcomes and what they are of on the way."""
    from policy.cli import groups_view
    from policy.cli.view import step_summary
    from policy.scheduling.cycle import GroupStep

    for step in steps:
        outcomes[step.decision.outcome.value] += 1
        made[type(step)] += 1
        if isinstance(step, GroupStep):
            yield groups_view.step_summary(step)
        else:
            yield step_summary(step)


def _print_as_they_come(lines: Iterator[dict[str, Any]], form: str) -> None:
    from policy.cli.view import SUMMARY

    for number, line in enumerate(lines):
        if form == "table":
            output.line("  ".join(output.cell(line.get(column)) or "-" for column in SUMMARY))
        elif form in ("csv", "jsonl"):
            output.rows([line], form, columns=SUMMARY, header=number == 0)
        else:
            output.document([line], form)
        sys.stdout.flush()


def _print(lines: Iterator[dict[str, Any]], form: str) -> None:
    from policy.cli.view import SUMMARY, SUMMARY_RIGHT

    if form == "jsonl":  # one line as soon as it is decided
        for line in lines:
            output.document(line, form)
    else:
        found = list(output.watched(lines, "deciding"))
        output.rows(found, form, columns=SUMMARY, right=SUMMARY_RIGHT)
