"""`policy observed`"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from policy.cli import options, output, period, rule_files, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.audit.observed.against import ComparedRow
    from policy.rules import RuleSet
    from policy.store import EnvironmentRow, Store
    from policy.store.observed import ObservationRow

VERDICTS: Final = ("same", "tie", "order", "sampling", "lag", "answered", "other", "unknown")
_CONFIDENCES: Final = ("certain", "likely", "possible")
_COLUMNS: Final = (
    "id",
    "at",
    "preemptor",
    "node",
    "victims",
    "confidence",
    "verdict",
    "reason",
)
_COMPARED: Final = (
    "id",
    "at",
    "preemptor",
    "node",
    "victims",
    "outcome",
    "to",
    "instead",
    "spared",
)
SUMS: Final = (
    "week",
    "namespace",
    "evictions",
    "would_be",
    "avoided",
    "spared",
    "others",
    "seconds_saved",
    "pdb_violations",
    "pdb_violations_would_be",
    "budgets_kept",
)


@click.command("observed")
@options.db_option
@options.any_cluster_option
@period.since("That happened at this time or later")
@period.until("That happened before this time.")
@click.option("--namespace", metavar="NAME", help="Of the preemptor, or of a victim.")
@click.option("--node", metavar="NAME", help="On this node.")
@click.option("--preemptor", metavar="NAMESPACE/NAME", help="Made for this pod.")
@click.option("--victim", metavar="NAMESPACE/NAME", help="That evicted this pod.")
@click.option("--pod", metavar="NAMESPACE/NAME", help="In which this pod took part, either way.")
@click.option("--verdict", type=click.Choice(VERDICTS), help="With this verdict.")
@click.option("--confidence", type=click.Choice(_CONFIDENCES), help="So sure.")
@click.option(
    "--compare",
    is_flag=True,
    help="Decide each one under other rules as well, and report what these would have done.",
)
@click.option(
    "--rules",
    metavar="NAME|PATH",
    shell_complete=options.proposing("rules"),
    help="The other rules; the active ones of the cluster's environment, where left out.",
)
@rule_files.rules_root_option
@options.newest_option
@options.output_option
def command(
    db: str,
    cluster: str | None,
    since: datetime | None,
    until: datetime | None,
    namespace: str | None,
    node: str | None,
    preemptor: str | None,
    victim: str | None,
    pod: str | None,
    verdict: str | None,
    confidence: str | None,
    compare: bool,
    rules: str | None,
    limit: int,
    form: str,
) -> int:
    """List the preemptions that a cluster's own scheduler made, the newest first.

    They come from imports (`policy import` of dumps with events and of recorded watches) and from
    followed clusters (`policy follow`). Confidence says how sure it is who preempted whom:
    `certain` where an event names both, `likely` where a marked victim's node is the one that a
    single pod was nominated to, `possible` otherwise. Each was decided again, by the rule set of
    its server's version, on the state just before it; the verdict says what came of that:

    \b
      same      the same node and victims
      tie       another node, equal on every criterion
      order     other victims, equal in priority and start time
      sampling  a candidate; the scheduler need not have looked at the better one
      lag       the same on the state a moment earlier or later
      answered  what the service's extender answered; the reason names the decision
      other     something else; the reason names the first difference
      unknown   it cannot be decided again; the reason says what is missing

    `policy explain observed:ID` shows one in full. With `--compare` each is also decided under
    other rules: evictions avoided, other victims, budgets kept, by namespace and week.

    \b
    Example:
      policy observed --since 7d --verdict other
      policy observed --compare --rules kube-1.30 --output json
    """
    from policy.cluster.names import typed_pod

    with session.open_store(db) as store:
        found = store.read.observations(
            cluster,
            since_ms=options.millis(since),
            until_ms=options.millis(until),
            namespace=namespace,
            node=node,
            preemptor=typed_pod(preemptor),
            victim=typed_pod(victim),
            pod=typed_pod(pod),
            verdict=verdict,
            confidence=confidence,
            limit=limit + 1,
        )
        found, more = found[:limit], len(found) > limit
        if compare:
            others = other_rules(store, {row.cluster for row in found}, rules)
            status = _compare(store, found, others, form)
            output.say_newest(limit, more=more)
            return status
        if rules is not None:
            raise options.Misused("`--rules` goes with `--compare`")
    if form in ("json", "yaml", "jsonl"):
        from policy.audit.observed.documents import document

        output.rows([document(row) for row in found], form, columns=())
    else:
        lines = [_line(row) for row in found]
        columns = output.list_columns(_COLUMNS, lines, form, behind="id")
        output.rows(lines, form, columns=columns, right=("id", "victims"))
    output.say_newest(limit, more=more)
    return Exit.OK


def _line(row: ObservationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "cluster": row.cluster,
        "at": session.instant(row.now_ms),
        "preemptor": row.preemptor or "(unknown)",
        "node": row.node,
        "victims": row.victim_count,
        "confidence": row.confidence,
        "verdict": row.verdict,
        "reason": row.reason,
    }


def other_rules(store: Store, clusters: Collection[str], source: str | None) -> RuleSet:
    """The rules to compare with: those that are named, or the active ones of the clusters.

    Raises Misused where no environment of theirs has active rules, or several have.
    """
    if source is not None:
        return rule_files.rule_set(source)
    from policy.rules import RuleSet

    active = [
        row
        for row in store.read.environments()
        if row.cluster in clusters and row.active and not row.active.batch
    ]
    if len(active) != 1:
        raise options.Misused(
            _no_other_rules(clusters, active), help="name the other rules with `--rules`"
        )
    activation = active[0].active
    assert activation is not None
    return RuleSet.from_canonical(store.read.rule_set(activation.rule_set_digest))


def _no_other_rules(clusters: Collection[str], active: Sequence[EnvironmentRow]) -> str:
    if not clusters:
        return "no preemption was found, so no cluster says whose active rules to compare with"
    of = f"{'clusters' if len(clusters) > 1 else 'cluster'} {session.listed(sorted(clusters))}"
    if not active:
        return f"no environment of {of} has active rules"
    return f"several environments of {of} have active rules: " + session.listed(
        [row.name for row in active]
    )


def _compare(store: Store, found: list[ObservationRow], rules: RuleSet, form: str) -> int:
    from dataclasses import asdict

    from policy.audit.observed.against import compare, sums

    rows = list(compare(store, found, rules))
    totals = [asdict(row) for row in sums(rows)]
    lines = [_compared(row) for row in rows]
    if form in ("json", "yaml"):
        output.document({"rules": rules.name, "preemptions": lines, "sums": totals}, form)
        return Exit.OK
    if form == "table":
        output.line(f"Observed preemptions, and what {rules.name} would have done")
        output.print_table(lines, columns=_COMPARED, right=("id", "victims", "instead"))
        output.line()
        output.line("By week and namespace of the victims")
        output.print_table(totals, columns=SUMS, right=SUMS[2:])
    else:
        output.rows(lines, form, columns=_COMPARED)
    undecided = sum(not row.outcome for row in rows)
    if undecided:
        output.say(f"{output.number(undecided, 'preemption')} cannot be decided again")
    return Exit.OK


def _compared(row: ComparedRow) -> dict[str, Any]:
    observation = row.observation
    return {
        "id": observation.id,
        "at": session.instant(observation.now_ms),
        "preemptor": observation.preemptor or "(unknown)",
        "node": observation.node,
        "victims": len(row.theirs),
        "outcome": row.outcome or f"unknown: {row.detail}",
        "to": row.node,
        "instead": len(row.victims) if row.outcome else None,
        "spared": ", ".join(row.kept),
    }
