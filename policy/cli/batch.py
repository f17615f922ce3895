"""`policy batch`"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from policy.cli import (
    batch_compare,
    batch_why_not,
    env,
    groups_view,
    options,
    output,
    period,
    session,
)
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.audit.session_documents import Shown
    from policy.parts import Workers
    from policy.store import SessionRow, Store

_document_option = options.output_of("table", "json", "yaml", "jsonl")


@click.group("batch")
def group() -> None:
    """Hold sessions over queues and gangs, as kube-batch and Volcano do.

    \b
    Example:
      policy batch run --rules kube-batch-sample
      policy batch sessions
    """


# --- run ---------------------------------------------------------------------------------------


@group.command("run")
@options.db_option
@options.cluster_option
@batch_compare.batch_rules_option
@env.env_option
@click.option(
    "--until-settled",
    is_flag=True,
    help="Hold session after session until nothing changes any more; between two of them evicted "
    "pods go and bound pods start.",
)
@options.now_option
@click.option("--dry-run", is_flag=True, help="Decide, and neither record nor change anything.")
@batch_compare.anyway_option
@_document_option
def run(
    db: str,
    cluster: str | None,
    rules: str,
    environment: str,
    until_settled: bool,
    now: datetime | None,
    dry_run: bool,
    anyway: bool,
    form: str,
) -> int:
    """Hold a session on the cluster's newest state: bind, promise, evict.

    Shows the pods that were bound, promised room or evicted, the shares of queues and jobs before
    and after, and why gangs still wait. A session is recorded with every step that it tried; its
    changes are made with the record or not at all. Programs get one document per session.

    \b
    Example:
      policy batch run
      policy batch run --rules kube-batch-sample --until-settled
      policy batch run --rules batch-safe --dry-run --output json
    """
    from policy.cli.batch_view import shown_now
    from policy.scheduling.sessions import SessionScheduler

    clock = session.deciding_at(now)
    totals: Counter[str] = Counter()
    given = env.batch_given(environment, rules, db=db)
    with session.open_store(db, write=not dry_run) as store:
        chosen = env.chosen_batch(store, environment=environment, cluster=cluster, given=given)
        batch_compare.require_division(chosen.rules, anyway=anyway)
        journal = env.journal(store, chosen)
        scheduler = SessionScheduler(journal, chosen.rules, clock=clock, dry_run=dry_run)
        held = scheduler.until_settled() if until_settled else iter([scheduler.run()])
        shown = (shown_now(one, cluster=chosen.cluster) for one in held)
        _print_sessions(_counted(shown, totals), form)
        batch_compare.say_left_out(scheduler.snapshot, chosen.rules)
    output.say(
        f"{output.number(totals['sessions'], 'session')} held"
        + (", nothing recorded (--dry-run)" if dry_run else " and recorded")
        + f": {totals['bound']} bound, {totals['evicted']} evicted; "
        + f"{output.number(totals['waiting'], 'job')} still waiting"
    )
    return Exit.OK


def _counted(sessions: Iterator[Shown], totals: Counter[str]) -> Iterator[Shown]:
    for one in sessions:
        totals["sessions"] += 1
        totals["bound"] += len(one.result.binds)
        totals["evicted"] += len(one.result.evicts)
        totals["waiting"] = len(one.result.reasons)  # what the last one leaves
        yield one


def _print_sessions(sessions: Iterator[Shown], form: str) -> None:
    from policy.audit import session_documents
    from policy.cli import batch_view

    if form == "table":
        for number, one in enumerate(sessions):
            if number:
                output.line()
            batch_view.print_result(one)
    elif form == "jsonl":  # one line as soon as it is held
        for one in sessions:
            output.document(session_documents.document(one), form)
    else:
        held = output.watched(sessions, "holding sessions")
        output.document([session_documents.document(one) for one in held], form)


group.add_command(batch_compare.compare)
group.add_command(batch_compare.what_if)


# --- sessions ----------------------------------------------------------------------------------


@group.command("sessions")
@options.db_option
@options.any_cluster_option
@period.since("Held for this time or later")
@period.until("Held for a time before this one.")
@options.newest_option
@options.output_option
def sessions(
    db: str,
    cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
    form: str,
) -> int:
    """List recorded sessions, the newest first.

    \b
    Example:
      policy batch sessions --since 7d
      policy batch sessions --limit 5 --output csv
    """
    from policy.audit.session_documents import SUMMARY, SUMMARY_RIGHT, summary

    with session.open_store(db) as store:
        found = store.read.sessions(
            cluster,
            kind="batch",
            since_ms=options.millis(since),
            until_ms=options.millis(until),
            limit=limit + 1,
        )
    found, more = found[:limit], len(found) > limit
    lines = [summary(row) for row in found]
    columns = output.list_columns(SUMMARY, lines, form, behind="id")
    output.rows(lines, form, columns=columns, right=SUMMARY_RIGHT)
    output.say_newest(limit, more=more)
    return Exit.OK


# --- explain -----------------------------------------------------------------------------------


@group.command("explain")
@click.argument("id", metavar="ID", type=click.IntRange(1))
@options.db_option
@click.option("--job", metavar="NAMESPACE/NAME", help="Only what concerns this job.")
@click.option(
    "--why-not",
    "node",
    metavar="NODE",
    help="What every attempt to place a pod had against this node, with scores.",
)
@_document_option
def explain(id: int, db: str, job: str | None, node: str | None, form: str) -> int:
    """Say step by step what a recorded session tried, and why gangs still wait.

    Shows each operation in order, which statements were committed or discarded, which plugin
    spared which pod, and for every job that waits the reason. Steps that were taken back are shown
    too.

    With --why-not the session is held again as it was, and each attempt to place a pod is shown
    as it concerns one node: what rejects it, its room, what each plugin scores it beside the best
    node, and who would have to leave.

    \b
    Example:
      policy batch run --rules kube-batch-sample
      policy batch explain 1
      policy batch explain 1 --why-not node-1
      policy batch explain 1 --output json
    """
    if node is not None:
        return batch_why_not.printed(db, id, job=job, node=node, form=form)
    return explained(db, id, job=job, form=form)


def explained(db: str, id: int, *, job: str | None, form: str) -> int:
    """Print a recorded session with its steps."""
    from policy.audit.session_documents import explanation
    from policy.cli import batch_view
    from policy.store.record.groups import KIND

    with session.open_store(db) as store:
        stored = store.read.session(id)
    if stored.row.kind == KIND:
        options.refuse_beside("a cycle of a pod group", id, "job")
        return groups_view.explained(db, id, form)
    if job is not None:
        batch_why_not.require_job(stored, job)
    if form == "table":
        batch_view.print_explanation(stored, job)
    elif form == "csv":
        steps = explanation(stored, job)["steps"]
        output.rows(steps, form, columns=_STEP_COLUMNS)
    else:
        output.document(explanation(stored, job), form)
    return Exit.OK


_STEP_COLUMNS: Final = (
    "position",
    "action",
    "operation",
    "queue",
    "job",
    "task",
    "node",
    "statement",
    "outcome",
    "claimant",
    "refusal",
)


# --- replay ------------------------------------------------------------------------------------


@group.command("replay")
@click.argument("ids", metavar="[ID]...", nargs=-1, type=click.IntRange(1))
@options.db_option
@options.cluster_option_of("Whose sessions `--all` means")
@click.option("--all", "everything", is_flag=True, help="All sessions of the cluster.")
@options.jobs_option
@options.output_option
def replay(
    ids: tuple[int, ...],
    db: str,
    cluster: str | None,
    everything: bool,
    jobs: int,
    dask: str,
    form: str,
) -> int:
    """Run recorded sessions again and compare them with the record.

    The state and the rules are rebuilt as they were. Printed are the sessions that differ, with
    the first difference, and those that cannot be replayed; named ones always. The exit status is
    5 where a session differs, 1 where something is missing.

    \b
    Example:
      policy batch run
      policy batch replay 1
      policy batch replay --all --jobs 2 --output json
    """
    if bool(ids) == everything:
        raise options.Misused("give sessions or `--all`, and only one of them")
    options.refuse_beside("the numbers of sessions", ids, "cluster")
    return replayed(db, ids, options.workers(jobs, dask), cluster=cluster, form=form)


def replayed(
    db: str, ids: Sequence[int], workers: Workers, *, cluster: str | None, form: str
) -> int:
    """Replay the named sessions, or all of the cluster where none is named."""
    from policy.audit.decisions import with_each
    from policy.audit.session_replay import SessionReplayer
    from policy.cli import replay_view

    with session.open_store(db) as store:
        chosen = _rows(store, ids, cluster)
    return replay_view.printed(
        with_each(db, chosen, SessionReplayer, SessionReplayer.replay_all, workers),
        len(chosen),
        noun="session",
        shown=("id",),
        named=bool(ids),
        form=form,
    )


def _rows(store: Store, ids: Sequence[int], cluster: str | None) -> list[SessionRow]:
    if ids:
        return [store.read.session(number, kind="batch").row for number in sorted(set(ids))]
    of = session.cluster_of(store, cluster)
    return sorted(store.read.sessions(of, kind="batch"), key=lambda row: row.id)
