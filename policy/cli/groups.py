"""`policy groups`"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from policy.cli import options, output, period, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.store import SessionRow

OUTCOMES: Final = ("scheduled", "preempting", "unschedulable", "error", "not-tried")
_COLUMNS: Final = ("id", "now", "group", "outcome", "bound", "evicted", "rule_set")


@click.command("groups")
@options.db_option
@options.any_cluster_option
@period.since("Made for this time or later")
@period.until("Made for a time before this one.")
@click.option("--group", metavar="NAMESPACE/NAME", help="Of this pod group.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="That ended so.")
@options.newest_option
@options.output_option
def command(
    db: str,
    cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    group: str | None,
    outcome: str | None,
    limit: int,
    form: str,
) -> int:
    """List recorded cycles of pod groups, the newest first.

    Each is one attempt to schedule a whole group. `policy explain` says of one, by its id, why it
    came out as it did.

    \b
    Example:
      policy groups --outcome preempting --since 7d
      policy groups --group team-a/training
    """
    from policy.cluster.names import typed_pod
    from policy.store.record.groups import KIND

    with session.open_store(db) as store:
        found = store.read.sessions(
            cluster,
            kind=KIND,
            since_ms=options.millis(since),
            until_ms=options.millis(until),
            group=typed_pod(group),
            outcome=outcome,
            limit=limit + 1,
        )
    found, more = found[:limit], len(found) > limit
    lines = [_line(row) for row in found]
    columns = output.list_columns(_COLUMNS, lines, form, behind="id")
    output.rows(lines, form, columns=columns, right=("id", "bound", "evicted"))
    output.say_newest(limit, more=more)
    return Exit.OK


def _line(row: SessionRow) -> dict[str, Any]:
    return {
        "id": f"{options.GROUP}{row.id}",
        "cluster": row.cluster,
        "now": session.instant(row.now_ms),
        "group": row.subject,
        "outcome": row.outcome,
        "bound": row.bound_count,
        "evicted": row.evicted_count,
        "rule_set": row.rule_set,
    }
