"""`policy decisions`"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import click

from policy.cli import options, output, period, rule_files, session
from policy.cli.exits import Exit

ORIGINS: Final = ("decided", "extender", "simulated")
OUTCOMES: Final = (
    *("bind", "preempt", "not-eligible", "no-candidate", "rejected", "error"),
    "not-carried-out",
)


@click.command("decisions")
@options.db_option
@options.any_cluster_option
@period.since("Made for this time or later")
@period.until("Made for a time before this one.")
@click.option("--namespace", metavar="NAME", help="Of the preemptor, or of a victim.")
@click.option("--node", metavar="NAME", help="Placed or nominated there.")
@click.option("--pod", metavar="NAMESPACE/NAME", help="For this pod, or with it as a victim.")
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
    from policy.audit.documents import LISTED, listed
    from policy.cli.view import SUMMARY, SUMMARY_RIGHT, summary
    from policy.cluster.names import typed_pod

    with session.open_store(db) as store:
        found = store.read.decisions(
            cluster,
            since_ms=options.millis(since),
            until_ms=options.millis(until),
            namespace=namespace,
            node=node,
            pod=typed_pod(pod),
            victim=typed_pod(victim),
            workload=workload,
            rule_set=rule_files.recorded_as(rules),
            rule=rule,
            outcome=outcome,
            origin=origin,
            simulated=False if without_simulated else None,
            limit=limit + 1,
        )
        victims = {} if form == "table" else store.read.victims_of([row.id for row in found])
    found, more = found[:limit], len(found) > limit
    if form != "table":
        lines = [listed(row, victims.get(row.id, ())) for row in found]
        output.rows(lines, form, columns=LISTED)
        output.say_newest(limit, more=more)
        return Exit.OK
    # With several clusters in one list, each line says to which it belongs; where schedulers asked,
    # what they were answered: in shadow mode a decision is only a judgement.
    several = len({row.cluster for row in found}) > 1
    asked = any(row.answer for row in found)
    columns = ("id", "cluster", *SUMMARY[1:]) if several else SUMMARY
    columns = (*columns, "answer") if asked else columns
    lines = [
        {
            **summary(row),
            **({"cluster": row.cluster} if several else {}),
            **({"answer": row.answer} if asked else {}),
        }
        for row in found
    ]
    output.rows(lines, form, columns=columns, right=SUMMARY_RIGHT)
    output.say_newest(limit, more=more)
    return Exit.OK
