"""`policy decisions`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from policy.cli import options, output, period, rule_files, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.store import DecisionRow, Store

ORIGINS: Final = ("decided", "extender", "simulated")
OUTCOMES: Final = (
    *("bind", "preempt", "not-eligible", "no-candidate", "rejected", "error"),
    "not-carried-out",
)
_AT_ONCE: Final = 1000
"""Decisions whose victims are read together."""


@click.command("decisions")
@options.db_option
@options.any_cluster_option
@period.since("Made for this time or later")
@period.until("Made for a time before this one.")
@click.option("--namespace", metavar="NAME", help="Of the preemptor, or of a victim.")
@click.option("--node", metavar="NAME", help="Placed or nominated there.")
@click.option("--pod", metavar="NAMESPACE/NAME", help="For this pod, or with it as a victim.")
@click.option("--preemptor", metavar="NAMESPACE/NAME", help="For this pod.")
@click.option("--victim", metavar="NAMESPACE/NAME", help="With this pod as a victim.")
@click.option(
    "--workload",
    metavar="NAMESPACE/KIND/NAME",
    help="With a victim of this workload, by its controlling owner.",
)
@click.option(
    "--rules",
    metavar="NAME|DIGEST",
    help="Made by this rule set: its name, that of a shipped one as `policy rules list` has it, or"
    " the beginning of its digest.",
)
@click.option(
    "--rule",
    metavar="[SECTION/]ID",
    help="That this rule decided, or this criterion of the ranking; SECTION as `policy rules show`"
    " has it, where rules of several have the same id.",
)
@click.option("--outcome", type=click.Choice(OUTCOMES), help="That ended so.")
@click.option("--origin", type=click.Choice(ORIGINS), help="Whose decision it is.")
@click.option(
    "--without-simulated", is_flag=True, help="None of kept simulations, unless --cluster names it."
)
@options.newest_option
@options.output_option
def command(
    db: str,
    cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    namespace: str | None,
    node: str | None,
    pod: str | None,
    preemptor: str | None,
    victim: str | None,
    workload: str | None,
    rules: str | None,
    rule: str | None,
    outcome: str | None,
    origin: str | None,
    without_simulated: bool,
    limit: int,
    form: str,
) -> int:
    """List recorded decisions, the newest first.

    Those about whole pod groups have a list of their own, `policy groups`.

    \b
    Example:
      policy decisions --since 7d --outcome preempt
      policy decisions --rules prod --rule victims.eligible/protect-last-replica
      policy decisions --namespace shop --output csv
    """
    from policy.audit.documents import LISTED
    from policy.cluster.names import typed_pod

    with session.open_store(db) as store:
        found = store.read.decisions(
            cluster,
            since_ms=options.millis(since),
            until_ms=options.millis(until),
            namespace=namespace,
            node=node,
            pod=typed_pod(pod),
            preemptor=typed_pod(preemptor),
            victim=typed_pod(victim),
            workload=workload,
            rule_set=rule_files.recorded_as(rules),
            rule=rule,
            outcome=outcome,
            origin=origin,
            simulated=False if without_simulated else None,
            limit=limit + 1,
        )
        found, more = found[:limit], len(found) > limit
        lines = [] if form == "table" else list(_for_programs(store, found))
    if form == "table":
        _print_table(found)
    else:
        output.rows(lines, form, columns=LISTED)
    output.say_newest(limit, more=more)
    return Exit.OK


def _for_programs(store: Store, rows: Sequence[DecisionRow]) -> Iterator[dict[str, Any]]:
    """A line of each, with its victims, which are not held for all of a long list."""
    from policy.audit.documents import listed

    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        victims = store.read.victims_of([row.id for row in some])
        for row in some:
            yield listed(row, victims.get(row.id, ()))


def _print_table(rows: Sequence[DecisionRow]) -> None:
    from policy.cli.view import SUMMARY, SUMMARY_RIGHT, summary

    # With several clusters in one list, each line says to which it belongs; where schedulers asked,
    # what they were answered: in shadow mode a decision is only a judgement.
    several = len({row.cluster for row in rows}) > 1
    asked = any(row.answer for row in rows)
    columns = ("id", "cluster", *SUMMARY[1:]) if several else SUMMARY
    columns = (*columns, "answer") if asked else columns
    lines = [
        {
            **summary(row),
            **({"cluster": row.cluster} if several else {}),
            **({"answer": row.answer} if asked else {}),
        }
        for row in rows
    ]
    output.rows(lines, "table", columns=columns, right=SUMMARY_RIGHT)
