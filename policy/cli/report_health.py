"""`policy report health`"""

from __future__ import annotations

from typing import Any, Final

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

_PARTS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "clusters": (
        (
            *("cluster", "preemptions", "victims", "pdb_violations", "revision"),
            *("state_age_seconds", "simulated", "observed", "same"),
        ),
        (
            *("preemptions", "victims", "pdb_violations", "revision"),
            *("state_age_seconds", "observed", "same"),
        ),
    ),
    "environments": (("environment", "cluster", "rule_set", "since"), ()),
    "nominated": (
        ("since", "pod", "priority", "node", "cluster", "decision"),
        ("priority", "decision"),
    ),
    "budgets": (
        ("budget", "namespace", "cluster", "victims", "newest", "decision"),
        ("victims", "decision"),
    ),
    "workloads": (("workload", "cluster", "evictions"), ("evictions",)),
    "namespaces": (("namespace", "evictions"), ("evictions",)),
}
"""What is printed as a table: its columns, and those that stand to the right."""


@click.command("health")
@options.db_option
@options.any_cluster_option
@click.option(
    "--days",
    metavar="N",
    type=click.IntRange(1, 366),
    default=1,
    show_default=True,
    help="Of so many days, up to the end of the hour that has begun.",
)
@options.output_of("table", "json", "yaml")
def health(db: str, cluster: str | None, days: int, form: str) -> int:
    """Report how preemption goes: what the service's first page shows.

    By cluster preemptions, their victims (pods that were leaving already among them) and those
    that violate budgets, how old the newest state is, and how often the cluster's own scheduler
    decided as the rules do (`same`, of the newest 1000 that were observed); which rules are active
    since when; nominated pods that wait, the longest first; and whose pods were evicted most often.
    `json` has the preemptions of each hour as well.

    \b
    Example:
      policy report health
      policy report health --days 7 --output json
    """
    from policy.audit import health as figures

    with session.open_store(db) as store:
        now_ms = session.clock_ms()
        found = figures.health(store, cluster=cluster, days=days, now_ms=now_ms)
    told: dict[str, Any] = figures.document(found, now_ms=now_ms)
    if form != "table":
        output.document(told, form)
        return Exit.OK
    output.line(f"{output.number(found.preemptions, 'preemption')} since {told['since']}")
    for name, (columns, right) in _PARTS.items():
        if told[name]:
            output.line()
            output.line(name)
            output.print_table(told[name], columns=columns, right=right)
    if found.more_nominated or figures.LINES in map(len, (told["workloads"], told["namespaces"])):
        output.say(f"at most {figures.LINES} nominated pods, workloads and namespaces are listed")
    if found.pdb_violations > figures.BUDGETS:
        output.say(f"budgets are those of the newest {figures.BUDGETS} victims that violate one")
    return Exit.OK
