"""`policy nominations`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit
from policy.cluster import times

if TYPE_CHECKING:
    from policy.store import NominationRow, Store

_COLUMNS: Final = (
    "pod",
    "priority",
    "node",
    "made_at",
    "made_by",
    "outcome",
    "kept",
    "ended",
    "ended_at",
    "ended_by",
    "stale",
)
_FOR_PROGRAMS: Final = (
    *("pod", "priority", "node", "made_revision", "made_decision", "made_at", "kept", "outcome"),
    *("ended_by", "ended_revision", "ended_decision", "ended_at", "stale"),
)
_OLD: Final = timedelta(hours=1)
ENDS: Final[Mapping[str, str]] = {
    "bound": "used",
    "bound-elsewhere": "placed elsewhere",
    "superseded": "replaced",
    "taken-away": "taken away",
    "cleared": "expired",
    "pod-gone": "pod gone",
}
"""How the stored words for an end are shown."""


@click.command("nominations")
@options.db_option
@options.any_cluster_option
@click.option("--pod", metavar="NAMESPACE/NAME", help="Only of this pod.")
@click.option("--node", metavar="NAME", help="Only to this node.")
@click.option("--standing", is_flag=True, help="Only those that have not ended.")
@click.option(
    "--stale",
    is_flag=True,
    help="Only standing ones whose node is gone, or that are too old; with its pod one ends.",
)
@click.option(
    "--older-than",
    metavar="TIME",
    callback=options.instant,
    help="A standing one that was made before is stale (`10m`, `2d`, or a time; `1h` by default).",
)
@options.newest_option
@options.output_option
def command(
    db: str,
    cluster: str | None,
    pod: str | None,
    node: str | None,
    standing: bool,
    stale: bool,
    older_than: datetime | None,
    limit: int,
    form: str,
) -> int:
    """List nominations: who was promised which node, and what came of it.

    In the table `made_by` and `ended_by` are decisions; behind the one that took a nomination away
    stands its preemptor. `outcome` says `not-carried-out` where a later state of the cluster
    contradicts the decision that made it. `kept` counts the later cycles of the pod that left the
    nomination as it was. The other forms have the names and words of the view `v_nominations` and
    of the API: `ended_by` is how it ended there, and decisions are numbers.

    \b
    Example:
      policy nominations
      policy nominations --stale --older-than 10m
    """
    from policy.audit.documents import nomination

    stale_before = older_than or options.clock() - _OLD
    with session.open_store(db) as store:
        found = store.read.nominations(
            cluster,
            pod=pod,
            node=node,
            standing=True if standing or stale else None,
            limit=None if stale else limit + 1,
        )
        kept = store.read.tries_while_nominated(found)
        stale_because = _stale(store, found, stale_before=stale_before)
        if stale:
            found = [row for row in found if stale_because.get(_key(row))]
        found, more = found[:limit], len(found) > limit
        if form == "table":
            lines = _for_people(store, found)
        else:
            lines = [nomination(row, kept=kept.get(_key(row), 0)) for row in found]
    lines = [
        {**line, "kept": kept.get(_key(row), 0), "stale": stale_because.get(_key(row), "")}
        for row, line in zip(found, lines, strict=True)
    ]
    columns = output.list_columns(_COLUMNS if form == "table" else _FOR_PROGRAMS, lines, form)
    output.rows(lines, form, columns=columns, right=("priority", "made_by", "kept"))
    output.say_newest(limit, more=more)
    return Exit.OK


def _key(row: NominationRow) -> tuple[str, int, str]:
    return row.cluster, row.made_revision, row.pod


def _for_people(store: Store, found: Sequence[NominationRow]) -> list[dict[str, Any]]:
    """The lines of a table, but for what depends on other rows."""
    enders = {row.ended_decision for row in found if row.ended_decision is not None}
    preemptors = {row.id: row.preemptor for row in store.read.decisions_by_id(sorted(enders))}
    return [
        {
            "cluster": row.cluster,
            "pod": row.pod,
            "priority": row.priority,
            "node": row.node,
            "made_at": session.instant(row.made_ms),
            "made_by": row.made_decision,
            "outcome": row.outcome,
            "ended": ENDS.get(row.ended_by, row.ended_by) if row.ended_by else "",
            "ended_at": session.instant(row.ended_ms),
            "ended_by": _ender(row, preemptors),
        }
        for row in found
    ]


def _stale(
    store: Store, found: Sequence[NominationRow], *, stale_before: datetime
) -> dict[tuple[str, int, str], str]:
    """Why standing nominations are stale; "" for those that are not."""
    standing = [row for row in found if row.ended_by is None]
    reasons = {
        name: _Reasons(store, name, stale_before_ms=times.from_datetime(stale_before))
        for name in {row.cluster for row in standing}
    }
    return {_key(row): reasons[row.cluster].of(row) for row in standing}


def _ender(row: NominationRow, preemptors: Mapping[int, str]) -> str:
    """`17 (default/urgent)`, where another pod's decision ended it; else only the number."""
    if row.ended_decision is None:
        return ""
    preemptor = preemptors.get(row.ended_decision, "")
    other = preemptor and preemptor != row.pod
    return f"{row.ended_decision} ({preemptor})" if other else str(row.ended_decision)


class _Reasons:
    """Why standing nominations of one cluster are stale."""

    def __init__(self, store: Store, cluster: str, *, stale_before_ms: int) -> None:
        at = store.state.head_revision(cluster)
        self._nodes = {found.key for found in store.state.objects_at(cluster, "Node", at=at)}
        self._now_ms = session.clock_ms()
        self._stale_before_ms = stale_before_ms

    def of(self, row: NominationRow) -> str:
        """ "" for one that is not stale."""
        if row.node not in self._nodes:
            return f"node `{row.node}` is gone"
        if row.made_ms < self._stale_before_ms:
            return f"made {timedelta(seconds=(self._now_ms - row.made_ms) // 1000)} ago"
        return ""
