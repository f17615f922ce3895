"""`policy simulate`"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from policy.cli import options, output, rule_files, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from datetime import datetime

    from policy.cluster.objects import ClusterObject
    from policy.rules import RuleSet
    from policy.simulation.options import Options
    from policy.simulation.run import Result
    from policy.simulation.trace import Trace
    from policy.store import Store


class _SecondsOrNever(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases of click
    name = "seconds"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | None:
        if value == "never":
            return None
        try:
            seconds = int(value)
        except ValueError:
            seconds = -1
        if seconds < 0:
            self.fail(f"`{value}` is neither a number of seconds nor `never`", param, ctx)
        return seconds


@click.command("simulate")
@click.argument("trace", required=False, type=click.Path(path_type=Path))
@click.option(
    "--workload",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Instead of a trace: generate one from the distributions in this file, for each seed.",
)
@click.option(
    "--from-record",
    is_flag=True,
    help="Instead of a trace: what came to the cluster (`--cluster`) as it is recorded.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=options.instant,
    help="With --from-record: from this time on. ISO 8601, or `7d`, `2h` before now.",
)
@options.cluster_option
@click.option(
    "--truth",
    is_flag=True,
    help="Show what really happened beside the simulations, from the trace's `truth.jsonl`.",
)
@click.option(
    "--rules",
    metavar="NAME|PATH",
    multiple=True,
    required=True,
    shell_complete=options.proposing("rules"),
    help="A shipped rule set, or a rule file. Given again, the others are compared with the first.",
)
@rule_files.rules_root_option
@click.option(
    "--nodes",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Manifests that replace all objects of their kinds in the trace, mostly nodes.",
)
@click.option(
    "--seeds",
    metavar="N",
    type=click.IntRange(1, 1000),
    default=1,
    help="Simulate with the seeds 0 to N - 1.",
)
@options.jobs_option
@click.option(
    "--restart",
    type=click.Choice(["whole", "remaining"]),
    default="whole",
    help="An evicted pod comes back with its whole work, or with what is left of it.",
)
@click.option(
    "--come-back",
    metavar="SECONDS",
    type=click.IntRange(0, 10**7),
    default=0,
    help="How long after an evicted pod has gone its controller makes it again.",
)
@click.option(
    "--bare-come-back",
    metavar="SECONDS|never",
    type=_SecondsOrNever(),
    default="0",
    help="The same for pods without a controller; `never`: they are gone for good.",
)
@click.option(
    "--cycle-time",
    metavar="MS",
    type=click.IntRange(1, 60_000),
    default=5,
    help="How long a scheduling cycle takes, in milliseconds.",
)
@click.option(
    "--durations",
    type=click.Choice(["observed", "siblings"]),
    default="observed",
    help="How long a pod works whose end the trace does not show: until the simulation ends, or "
    "as the median of its workload's pods that ended. One that runs at the start works that long "
    "from then on, however long it has run before.",
)
@click.option(
    "--for",
    "length",
    metavar="SECONDS",
    type=click.IntRange(1, 10**9),
    help="End so long after the start. Without it: with the last event of the trace.",
)
@click.option(
    "--scheduler",
    metavar="NAME",
    default="default-scheduler",
    help="Only pods that name this scheduler are scheduled.",
)
@options.db_option
@click.option(
    "--into",
    metavar="CLUSTER",
    default="simulations",
    help="Record each simulation under this cluster's name, as a row of `simulations`.",
)
@click.option(
    "--keep",
    metavar="NAME",
    help="Record every decision and state too, each simulation in a cluster of its own: "
    "NAME-RULES-SEED. Every cycle is made then, and one process does it.",
)
@click.option("--dry-run", is_flag=True, help="Record nothing.")
@options.output_of("table", "json", "html", note="`html` is one page that needs nothing else.")
def command(
    trace: Path | None,
    workload: Path | None,
    from_record: bool,
    since: datetime | None,
    cluster: str | None,
    truth: bool,
    rules: tuple[str, ...],
    nodes: Path | None,
    seeds: int,
    jobs: int,
    dask: str,
    restart: str,
    come_back: int,
    bare_come_back: int | None,
    cycle_time: int,
    durations: str,
    length: int | None,
    scheduler: str,
    db: str,
    into: str,
    keep: str | None,
    dry_run: bool,
    form: str,
) -> int:
    """Simulate a trace under one or several rule sets, and compare what becomes of its pods.

    A trace is a folder: `cluster.json`, the cluster at the start, and `events.jsonl`, the pods that
    come and end. With --workload it is generated, with --from-record it is taken from the record of
    a cluster. Queue, scheduling cycles, nominations, grace periods and effects are those of
    `policy run`, on a virtual clock. Counted are waiting times, evictions, lost work, violated
    budgets and broken nominations, by priority. The same trace, rules, options and seed give the
    same result. With several rule sets each is compared with the first one, seed by seed. Each
    simulation is recorded as a row of the table `simulations`.

    \b
    Example:
      policy simulate examples/simulation/trace --rules kube-1.36
      policy simulate examples/simulation/trace --rules kube-1.36 --rules kube-1.20 --seeds 3
      policy simulate examples/simulation/trace --rules kube-1.36 --output html > simulation.html
      policy simulate --workload examples/simulation/workload.yaml --rules kube-1.36 --for 7200
    """
    from policy.cli import simulate_view
    from policy.simulation.folder import read_trace
    from policy.simulation.many import Always, simulations
    from policy.simulation.options import Durations
    from policy.simulation.run import notes_on

    options.refuse_beside("`--dry-run`", dry_run, "keep", "into")
    options.refuse_beside("`--keep`", keep is not None, "jobs", "dask")
    options.refuse_beside("`--workload`", workload is not None, "durations")
    workers = options.workers(jobs, dask)
    _require_one_source(trace, workload, from_record, truth)
    options.need("--from-record", from_record, "since", "cluster")
    rule_sets = [rule_files.rule_set(name) for name in rules]
    _require_different(rule_sets)
    chosen = _options(
        restart=restart,
        come_back=come_back,
        bare_come_back=bare_come_back,
        cycle_time=cycle_time,
        durations=durations,
        length=length,
        scheduler=scheduler,
    )
    if from_record:
        from policy.simulation.budgets import noted
        from policy.simulation.recorded import from_record as recorded
        from policy.simulation.trace import with_objects

        with session.open_store(db) as store:
            of = session.cluster_of(store, cluster)
            found = recorded(
                store, of, since_ms=options.millis(since), durations=Durations(durations)
            )
        trace_of: Callable[[int], Trace] = Always(noted(with_objects(found, _objects(nodes))))
    elif workload is not None:
        from policy.simulation.workload import Generated, read_workload

        trace_of = Generated(read_workload(workload), _objects(nodes))
    else:
        assert trace is not None  # one source was given
        found = read_trace(trace, cluster=nodes, durations=Durations(durations))
        trace_of = Always(found)
    first = trace_of(0)
    notes = notes_on(first, chosen)
    for note in notes:
        output.say(f"{first.name}: {note}")

    def simulated() -> Iterator[Result]:
        return simulations(trace_of, rule_sets, seeds=seeds, options=chosen, workers=workers)

    if dry_run:
        made = simulated()
        results = list(output.watched(made, "simulating"))
    else:
        # Before the work: what cannot be recorded need not be simulated.
        with session.open_store(db, write=True, create=True) as store:
            if keep is None:
                made = simulated()
            else:
                made = _kept(store, keep, trace_of, rule_sets, seeds=seeds, chosen=chosen)
            results = _recorded(store, output.watched(made, "simulating"), rule_sets, into, keep)
    if truth:
        from dataclasses import replace

        from policy.simulation.truth import what_happened

        assert trace is not None  # that has been checked
        real = what_happened(first, trace, chosen)
        results += [replace(real, seed=seed) for seed in range(seeds)]
    simulate_view.show(results, form, notes=notes)
    bare = "never" if bare_come_back is None else f"after {bare_come_back} s"
    reading = any(rules.history_needs for rules in rule_sets)
    past = "; `history.*` knows nothing of the time before the start" if reading else ""
    output.say(
        f"assumed: evicted pods come back after {come_back} s with their {restart} work, those"
        f" without a controller {bare}; budgets follow{past}"
    )
    return Exit.OK


def _require_one_source(
    trace: Path | None, workload: Path | None, from_record: bool, truth: bool
) -> None:
    given = [trace is not None, workload is not None, from_record]
    if sum(given) != 1:
        raise options.Misused(
            "give one of a trace folder, `--workload` and `--from-record`",
            help="`policy simulate --help` says what each of them is",
        )
    if truth and trace is None:
        raise options.Misused("`--truth` goes with a trace folder, which holds `truth.jsonl`")


def _objects(nodes: Path | None) -> tuple[ClusterObject, ...]:
    """What `--nodes` holds, without pods."""
    if nodes is None:
        return ()
    from policy.cluster.objects import Pod
    from policy.manifests import read, resolve

    found = read([nodes])
    return tuple(o for o in resolve(found.objects, places=found.places) if not isinstance(o, Pod))


def _kept(
    store: Store,
    keep: str,
    trace_of: Callable[[int], Trace],
    rule_sets: list[RuleSet],
    *,
    seeds: int,
    chosen: Options,
) -> Iterator[Result]:
    from policy.simulation.keeping import simulate_and_keep

    for seed in range(seeds):
        for rules in rule_sets:
            yield simulate_and_keep(
                store,
                _home(keep, rules.name, seed),
                trace_of(seed),
                rules,
                seed=seed,
                options=chosen,
                actor=session.actor(),
                clock=session.clock_ms,
            )


def _home(keep: str, rules: str, seed: int) -> str:
    return f"{keep}-{rules}-{seed}"


def _recorded(
    store: Store,
    results: Iterable[Result],
    rule_sets: list[RuleSet],
    into: str,
    keep: str | None,
) -> list[Result]:
    """The results, each recorded as soon as it is there."""
    from policy.simulation.keeping import keep as record

    by_name = {rules.name: rules for rules in rule_sets}
    found = []
    for result in results:
        number = record(
            store,
            into,
            result,
            by_name[result.rules],
            at_ms=session.clock_ms(),
            actor=session.actor(),
            kept_in="" if keep is None else _home(keep, result.rules, result.seed),
        ).number
        output.say(f"simulation {number}: {result.rules}, seed {result.seed}")
        found.append(result)
    return found


def _require_different(rule_sets: list[RuleSet]) -> None:
    names = [rules.name for rules in rule_sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise options.Misused(
            f"two of the rule sets are named `{twice}`",
            help="give each a name of its own in `metadata.name`",
        )


def _options(
    *,
    restart: str,
    come_back: int,
    bare_come_back: int | None,
    cycle_time: int,
    durations: str,
    length: int | None,
    scheduler: str,
) -> Options:
    from policy.simulation.options import Durations, Options, Restart

    return Options(
        restart=Restart(restart),
        return_ms=1000 * come_back,
        bare_return_ms=None if bare_come_back is None else 1000 * bare_come_back,
        cycle_ms=cycle_time,
        durations=Durations(durations),
        length_ms=None if length is None else 1000 * length,
        scheduler=scheduler,
    )
