"""`policy report`"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from policy.cli import options, output, period, report_health, rule_files, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.store import Store
    from policy.store.read.evictions import Range

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Rows = Sequence[dict[str, Any]]

_COLUMNS: Final = {
    "workloads": (
        "workload",
        "evictions",
        "pods",
        "shortest_gap_seconds",
        "seconds_lost",
        "first_at",
        "last_at",
    ),
    "pairs": ("preemptor", "victim", "evictions", "preemptions", "seconds_lost"),
    "histogram": ("evictions", "workloads", "pods"),
    "cascades": ("depth", "preemptions", "evictions", "example"),
    "waiting": ("ended", "nominations", "median_seconds", "longest_seconds"),
    "prevented": ("rules", "rule", "evictions", "preemptions", "seconds_saved"),
}
_HEADINGS: Final = {
    "workloads": "Workloads that were hit, the most often first",
    "pairs": "Who took pods of whom",
    "histogram": "How many workloads and pods were evicted so often",
    "cascades": "Preemptions by depth: from 2 on, the preemptor had been a victim shortly before",
    "waiting": "How long preemptors waited on their nominations, by how these ended",
    "prevented": "What each shipped rule alone would have prevented",
}
_COST: Final = ("by", "name", "evictions", "seconds_lost", "core_seconds_lost")
_TEXT: Final = frozenset(
    {"workload", "preemptor", "victim", "example", "ended", "rules", "rule", "by", "name"}
    | {"first_at", "last_at"}
)


def _range_options(function: _Function) -> _Function:
    """`--since`, `--until`, `--origin`"""
    since = period.since("Decided for this time or later")
    until = period.until("Decided for a time before this one.")
    origin = click.option(
        "--origin",
        type=click.Choice(("decided", "observed", "extender", "simulated")),
        help="Whose evictions count: `observed` are those of the cluster's own scheduler.",
    )
    return since(until(origin(function)))


@click.group("report")
def group() -> None:
    """Where decisions hurt: workloads that are hit again and again, and what was lost.

    \b
    Example:
      policy report thrash --since 7d
    """


group.add_command(report_health.health)


@group.command("thrash")
@options.db_option
@options.cluster_option
@_range_options
@click.option("--part", type=click.Choice(tuple(_COLUMNS)), help="Only this table.")
@click.option(
    "--within",
    metavar="SECONDS",
    type=click.IntRange(1),
    default=3600,
    help="A preemptor whose workload lost a pod so shortly before continues a cascade.",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1),
    default=20,
    help="At most so many workloads and pairs.",
)
@options.output_option
def thrash(
    db: str,
    cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    origin: str | None,
    part: str | None,
    within: int,
    limit: int,
    form: str,
) -> int:
    """Report who is hit again and again, and what the shipped rules would have prevented.

    A workload is the owner of pods, or a pod without one. The parts are: workloads; pairs of
    preemptor and victim; a histogram of evictions per workload and pod; cascades, in which a
    victim's workload becomes a preemptor; how long preemptors waited on their nominations; and
    what each shipped rule, asked alone about what happened, would have denied. Evictions of batch
    sessions count like those of decisions. CSV holds one part.

    \b
    Example:
      policy report thrash
      policy report thrash --part workloads --output csv
    """
    if part is None and form in ("csv", "jsonl"):
        raise options.Misused(
            f"{form} holds one table", help=f"choose it: --part {'|'.join(_COLUMNS)}"
        )
    if part is not None:
        beside = f"`--part {part}`"
        options.refuse_beside(beside, part not in ("workloads", "pairs"), "limit")
        options.refuse_beside(beside, part != "cascades", "within")
    from policy.store.read.evictions import Range

    with session.open_store(db) as store:
        wanted = Range(
            cluster=session.cluster_of(store, cluster),
            since_ms=options.millis(since),
            until_ms=options.millis(until),
            origin=origin,
        )
        found = _thrash(store, wanted, parts=[part] if part else list(_COLUMNS), within=within)
    shown = {
        name: rows[:limit] if name in ("workloads", "pairs") else rows
        for name, rows in found.items()
    }
    if part is not None:
        _rows(shown[part], form, _COLUMNS[part])
    elif form == "table":
        for name, rows in shown.items():
            output.line(f"{_HEADINGS[name]}:")
            output.line()
            _rows(rows, form, _COLUMNS[name])
            output.line()
    else:
        output.document(shown, form)
    left = [name for name, rows in found.items() if len(rows) > len(shown[name])]
    if left:
        output.say(f"the first {limit} of the {' and '.join(left)}; --limit shows more")
    return Exit.OK


def _thrash(
    store: Store, wanted: Range, *, parts: Sequence[str], within: int
) -> dict[str, list[dict[str, Any]]]:
    """The rows of the parts."""
    from dataclasses import replace

    from policy.audit import reports, reports_prevented
    from policy.cli import nominations

    evictions = store.read.evictions(wanted)

    def prevented() -> Sequence[Any]:
        before = wanted
        if wanted.since_ms is not None:
            back = reports_prevented.look_back_seconds() * 1000
            before = replace(wanted, since_ms=wanted.since_ms - back)
        earlier = evictions if before is wanted else store.read.evictions(before)
        return reports_prevented.prevented(store.read.past_preemptions(wanted), earlier)

    made: dict[str, Callable[[], Sequence[Any]]] = {
        "workloads": lambda: reports.workloads(evictions),
        "pairs": lambda: reports.pairs(evictions),
        "histogram": lambda: reports.histogram(evictions),
        "cascades": lambda: reports.cascades(evictions, window_seconds=within),
        "waiting": lambda: [
            replace(row, ended=nominations.ENDS.get(row.ended, row.ended))
            for row in reports.waiting(
                store.read.past_nominations(wanted), now_ms=session.clock_ms()
            )
        ],
        "prevented": prevented,
    }
    return {name: [_plain(asdict(row)) for row in made[name]()] for name in parts}


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Instants as people and programs read them."""
    return {
        name.replace("_ms", "_at"): session.instant(value) if name.endswith("_ms") else value
        for name, value in row.items()
    }


def _rows(rows: _Rows, form: str, columns: Sequence[str]) -> None:
    output.rows(rows, form, columns=columns, right=[c for c in columns if c not in _TEXT])


@group.command("cost")
@options.db_option
@options.cluster_option
@_range_options
@click.option(
    "--by",
    type=click.Choice(("namespace", "priority", "preemptor")),
    help="Only by namespace or priority of the victims, or by the preemptor's workload.",
)
@options.output_option
def cost(
    db: str,
    cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    origin: str | None,
    by: str | None,
    form: str,
) -> int:
    """Report the run time that evictions threw away: by namespace, priority and preemptor.

    Evictions of batch sessions and of the cluster's own scheduler count like those of decisions;
    `--origin` tells them apart.

    \b
    Example:
      policy report cost
      policy report cost --by namespace --output csv
    """
    from policy.audit import reports
    from policy.store.read.evictions import Range

    with session.open_store(db) as store:
        wanted = Range(
            cluster=session.cluster_of(store, cluster),
            since_ms=options.millis(since),
            until_ms=options.millis(until),
            origin=origin,
        )
        evictions = store.read.evictions(wanted)
    rows = [
        asdict(row)
        for name in ([by] if by else reports.COST_BY)
        for row in reports.cost(evictions, by=name)
    ]
    _rows(rows, form, _COST)
    lost = output.number(sum(eviction.run_seconds for eviction in evictions), "second")
    output.say(f"{output.number(len(evictions), 'eviction')}, {lost} of run time lost")
    idle = sum(eviction.run_seconds == 0 for eviction in evictions)
    if idle:
        output.say(f"{idle} of the evicted pods had no start time, or just started: they count 0 s")
    return Exit.OK


@group.command("observed")
@options.db_option
@options.any_cluster_option
@period.since("That happened at this time or later")
@period.until("That happened before this time.")
@click.option(
    "--rules",
    metavar="NAME|PATH",
    shell_complete=options.proposing("rules"),
    help="The rules to set them against; the active ones of the cluster's environment, where left"
    " out.",
)
@rule_files.rules_root_option
@options.output_option
def observed(
    db: str,
    cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    rules: str | None,
    form: str,
) -> int:
    """Report what the preemptions of the cluster's own scheduler would have been under your rules.

    By week and namespace of the victims: evictions that took place and those that there would have
    been, pods that would have stayed and those that would have left in their place, the run time
    of the former, and disruption budgets that would have been kept. `policy observed --compare`
    lists them one by one. What cannot be decided again is counted apart, and in no sum.

    \b
    Example:
      policy report observed --since 30d --rules environments/prod
      policy report observed --rules kube-1.30 --output csv
    """
    from policy.audit.observed.against import compare, sums, total
    from policy.cli.observed import SUMS, other_rules

    with session.open_store(db) as store:
        found = store.read.observations(
            cluster, since_ms=options.millis(since), until_ms=options.millis(until)
        )
        clusters = {row.cluster for row in found} if cluster is None else {cluster}
        chosen = other_rules(store, clusters, rules)
        compared = list(compare(store, found, chosen))
    lines = sums(compared)
    undecided = sum(not row.outcome for row in compared)
    if form in ("json", "yaml"):
        values = {
            "rules": chosen.name,
            "digest": chosen.digest,
            "preemptions": len(compared),
            "undecided": undecided,
            "total": asdict(total(lines)),
            "sums": [asdict(line) for line in lines],
        }
        output.document(values, form)
        return Exit.OK
    output.rows([asdict(line) for line in lines], form, columns=SUMS, right=SUMS[2:])
    all_ = total(lines)
    pods = output.number(all_.evictions, "eviction")
    output.say(
        f"{len(compared) - undecided} of {output.number(len(compared), 'observed preemption')}"
        f" decided under {chosen.name}: {pods}, {all_.would_be} under these rules;"
        f" {all_.budgets_kept} violations of budgets fewer; {all_.seconds_saved} seconds of run"
        " time kept"
    )
    return Exit.OK
