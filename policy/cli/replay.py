"""`policy replay`"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.audit.replay import Replayed
    from policy.store import Store

_COLUMNS: Final = (
    "id",
    "preemptor",
    "verdict",
    "first_difference",
    "recorded",
    "replayed",
    "missing",
)


@click.command("replay")
@click.argument("decisions", metavar="[DECISION]...", nargs=-1)
@options.db_option
@click.option(
    "--cluster",
    metavar="NAME",
    shell_complete=options.proposing("clusters"),
    default="default",
    show_default=True,
    help="Whose decisions `--since` and `--all` mean.",
)
@click.option(
    "--since",
    metavar="TIME",
    callback=options.past_instant,
    help="All made for this time or later: ISO 8601, or `7d`, `2h` before now.",
)
@click.option("--all", "everything", is_flag=True, help="All decisions of the cluster.")
@options.jobs_option
@options.output_option
def command(
    decisions: tuple[str, ...],
    db: str,
    cluster: str,
    since: datetime | None,
    everything: bool,
    jobs: int,
    form: str,
) -> int:
    """Make recorded decisions again and compare them with the record.

    The state and the rule set are rebuilt as they were; the same seed is used. What is missing for
    that is reported, and nothing else is replayed instead. Printed are the decisions that differ,
    with the first difference, and those that cannot be replayed; named ones always. The exit
    status is 5 where a decision differs, 1 where something is missing. `session:ID` is a batch
    session, as `policy batch replay` replays it.

    \b
    Example:
      policy replay 1
      policy replay --all --jobs 2
      policy replay --since 7d --output json
    """
    from policy.audit import processes
    from policy.audit.replay import Verdict, replay_all
    from policy.cli import batch

    if (len(decisions) > 0) + (since is not None) + everything != 1:
        raise options.Misused("give decisions, `--since` or `--all`, and only one of them")
    held = [number for text in decisions if (number := batch.session_id(text)) is not None]
    if held:
        if len(held) < len(decisions):
            raise options.Misused("give decisions or sessions, not both at once")
        options.refuse_beside("sessions", held, "cluster", "jobs")
        return batch.replayed(db, held, cluster=cluster, form=form)
    options.refuse_beside("the numbers of decisions", decisions, "cluster")
    counts: Counter[str] = Counter()
    with session.open_store(db) as store:
        ids = _ids(store, decisions, cluster, since)
        results = processes.run(db, store, ids, replay_all, jobs=jobs)
        told = [
            result
            for result in _watched(results, len(ids), counts)
            if decisions or result.verdict is not Verdict.EQUAL
        ]
    told.sort(key=lambda result: result.id)
    lines = [_line(result) for result in told]
    if lines or form != "table":
        output.rows(lines, form, columns=_COLUMNS, right=("id",))
    for result in told:
        if result.detail:
            output.say(f"decision {result.id}: {result.detail}")
    output.say(
        f"{counts.total()} decisions replayed: {counts['equal']} equal, "
        f"{counts['different']} different, {counts['incomplete']} incomplete"
    )
    if counts["different"]:
        return Exit.DIFFERS
    return Exit.ERROR if counts["incomplete"] else Exit.OK


def _ids(store: Store, named: Sequence[str], cluster: str, since: datetime | None) -> Sequence[int]:
    if named:
        return sorted({store.decision(options.decision_id(text)).row.id for text in named})
    return store.audit_queries().decision_ids(cluster, since_ms=options.millis(since))


def _watched(results: Iterator[Replayed], total: int, counts: Counter[str]) -> Iterator[Replayed]:
    with output.progress("replaying") as advance:
        for number, result in enumerate(results, start=1):
            counts[result.verdict.value] += 1
            advance(number, total)
            yield result


def _line(result: Replayed) -> dict[str, Any]:
    difference = result.difference
    return {
        "id": result.id,
        "cluster": result.cluster,
        "preemptor": result.preemptor,
        "verdict": result.verdict.value,
        "first_difference": difference.path if difference else None,
        "recorded": difference.recorded if difference else None,
        "replayed": difference.replayed if difference else None,
        "missing": [item.value for item in result.missing],
        "detail": result.detail,
        "recorded_digest": result.recorded_digest,
        "replayed_digest": result.replayed_digest,
    }
