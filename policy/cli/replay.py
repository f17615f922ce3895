"""`policy replay`"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from policy.cli import options, period, session

if TYPE_CHECKING:
    from policy.parts import Workers
    from policy.store import SessionRow, Store


@click.command("replay")
@click.argument("decisions", metavar="[DECISION]...", nargs=-1)
@options.db_option
@options.cluster_option_of("Whose decisions `--since` and `--all` mean")
@period.since("All made for this time or later")
@click.option("--all", "everything", is_flag=True, help="All decisions of the cluster.")
@options.jobs_option
@options.output_option
def command(
    decisions: tuple[str, ...],
    db: str,
    cluster: str | None,
    since: datetime | None,
    everything: bool,
    jobs: int,
    dask: str,
    form: str,
) -> int:
    """Make recorded decisions again and compare them with the record.

    The state and the rule set are rebuilt as they were; the same seed is used. What is missing for
    that is reported, and nothing else is replayed instead. Printed are the decisions that differ,
    with the first difference, and those that cannot be replayed; named ones always. The exit
    status is 5 where a decision differs, 1 where something is missing. `session:ID` is a batch
    session, as `policy batch replay` replays it, `group:ID` the cycle of a pod group; `--all` and
    `--since` replay those, too.

    \b
    Example:
      policy replay 1
      policy replay --all --jobs 2
      policy replay --since 7d --output json
    """
    from policy.audit.decisions import over
    from policy.audit.replay import replayed
    from policy.cli import replay_view
    from policy.store.record.groups import KIND

    if (len(decisions) > 0) + (since is not None) + everything != 1:
        raise options.Misused("give decisions, `--since` or `--all`, and only one of them")
    workers = options.workers(jobs, dask)
    cycles = [n for text in decisions if (n := options.group_id(text)) is not None]
    if cycles:
        if len(cycles) < len(decisions):
            raise options.Misused("give decisions or cycles of pod groups, not both at once")
        options.refuse_beside("cycles of pod groups", cycles, "cluster")
        with session.open_store(db) as store:
            rows = [store.read.session(n, kind=KIND).row for n in sorted(set(cycles))]
        return _groups(db, rows, workers, form)
    held = [number for text in decisions if (number := options.session_id(text)) is not None]
    if held:
        if len(held) < len(decisions):
            raise options.Misused("give decisions or sessions, not both at once")
        options.refuse_beside("sessions", held, "cluster")
        from policy.cli import batch

        return batch.replayed(db, held, workers, cluster=cluster, form=form)
    options.refuse_beside("the numbers of decisions", decisions, "cluster")
    with session.open_store(db) as store:
        of = "" if decisions else session.cluster_of(store, cluster)
        ids = _ids(store, decisions, of, since)
        done = replay_view.printed(
            over(db, ids, replayed, workers),
            len(ids),
            noun="decision",
            shown=("id", "preemptor"),
            named=bool(decisions),
            form=form,
        )
        if decisions:
            return done
        rows = store.read.sessions(of, kind=KIND, since_ms=options.millis(since))
        if not rows:
            return done
        rows.sort(key=lambda row: row.id)
        return max(done, _groups(db, rows, workers, form, named=False))


def _groups(
    db: str, rows: Sequence[SessionRow], workers: Workers, form: str, *, named: bool = True
) -> int:
    """Replay cycles of pod groups."""
    from policy.audit.decisions import with_each
    from policy.audit.group_replay import GroupReplayer
    from policy.cli import replay_view

    return replay_view.printed(
        with_each(db, rows, GroupReplayer, GroupReplayer.replay_all, workers),
        len(rows),
        noun="cycle",
        shown=("id", "subject"),
        named=named,
        form=form,
    )


def _ids(store: Store, named: Sequence[str], cluster: str, since: datetime | None) -> Sequence[int]:
    if named:
        return sorted({store.read.decision(options.decision_id(text)).row.id for text in named})
    return store.read.decision_ids(cluster, since_ms=options.millis(since))
