"""`policy who`"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from policy.cli import options, output, period, session
from policy.cli.exits import Exit
from policy.cluster import times

if TYPE_CHECKING:
    from policy.store import DecisionRow, Store
    from policy.store.read.hits import EvictionSubject, Hit

COLUMNS: Final = (
    *("at", "victim", "owner", "preemptor", "node", "decision", "rule", "criterion"),
    *("environment", "rule_set", "activated_by", "cluster", "session", "group", "observation"),
    "simulated",
)

_MINUTE_MS: Final = 60_000


@click.command("who")
@click.argument("name", metavar="NAMESPACE/NAME|WORKLOAD")
@click.option(
    "--around",
    metavar="TIME",
    callback=options.instant,
    help="Only evictions near this time: ISO 8601, `yesterday 14:02`, `14:05`, `2 hours ago`.",
)
@click.option(
    "--within",
    metavar="MINUTES",
    type=click.IntRange(1, 1_000_000),
    default=60,
    help="How far from `--around`, before and after.",
)
@period.since("Only evictions of this time or later")
@period.until("Only evictions before this time.")
@options.db_option
@options.any_cluster_option
@options.newest_option
@options.output_option
def command(
    name: str,
    around: datetime | None,
    within: int,
    since: datetime | None,
    until: datetime | None,
    db: str,
    cluster: str | None,
    limit: int,
    form: str,
) -> int:
    """List who evicted a pod, or the pods of a workload: for whom, by which rule, who answers.

    A workload is `NAMESPACE/KIND/NAME`, `KIND/NAME`, or a name; where no pod and no owner has the
    name, the pods and owners count whose name begins with it (`checkout` for
    `checkout-7f9-x2k4p`). Decisions, batch sessions and what was observed of a real scheduler are
    listed, the newest first; those of a kept simulation only where `--cluster` names its cluster.
    The exit status is 1 where nothing was found.

    \b
    Example:
      policy who shop/old
      policy who shop/old --since 7d
    """
    options.need("--around", around, "within")
    options.refuse_beside("`--around`", around, "since", "until")
    since_ms, until_ms = options.millis(since), options.millis(until)
    if (around_ms := options.millis(around)) is not None:
        since_ms = max(times.EARLIEST, around_ms - within * _MINUTE_MS)
        until_ms = min(times.LATEST, around_ms + within * _MINUTE_MS)
    with session.open_store(db) as store:
        meaning, found = _found(store, name, cluster, since_ms, until_ms, limit + 1)
        left_out = [] if cluster is not None else sorted(store.read.kept_simulations())
    found, more = found[:limit], len(found) > limit
    lines = [_line(hit) for hit in found]
    if form != "table":
        output.rows(lines, form, columns=COLUMNS)
    else:
        for hit in found:
            for line in _sentences(hit):
                output.line(line)
    if not found:
        when = _when(since_ms, until_ms, near=around is not None)
        output.say(f"no eviction of `{name}` is recorded{when}")
        _say_left_out(left_out)
        return Exit.ERROR
    in_vain = sum(bool(hit.outcome) for hit in found)
    what = "simulated eviction" if found[0].simulated else "eviction"
    output.say(
        f"{output.number(len(found) - in_vain, what)} of {meaning}"
        + (f", and {in_vain} not carried out" if in_vain else "")
    )
    output.say_newest(limit, more=more)
    _say_left_out(left_out)
    first = next((hit for hit in found if hit.decision_id is not None), None)
    if first is not None:
        output.say(
            f"`policy explain {first.decision_id}` says why,"
            f" `policy avoidable {first.decision_id}` what would have avoided it"
        )
    return Exit.OK


def _say_left_out(clusters: list[str]) -> None:
    """Simulations that are not looked at; several fill no line with their names."""
    if clusters:
        others = f" and {len(clusters) - 1} more" if clusters[1:] else ""
        output.say(
            f"kept simulations are left out: cluster {clusters[0]}{others};"
            " `--cluster` names one to look at"
        )


def _when(since_ms: int | None, until_ms: int | None, *, near: bool) -> str:
    """The time that was looked at, which an option or its default gave; near: `--around`."""
    first, last = session.instant(since_ms), session.instant(until_ms)
    if near:
        return f" from {first} to {last}; `--within` widens that"
    return (f" since {first}" if first else "") + (f" before {last}" if last else "")


def _found(
    store: Store,
    name: str,
    cluster: str | None,
    since_ms: int | None,
    until_ms: int | None,
    limit: int,
) -> tuple[str, list[Hit]]:
    """The evictions of the first reading of the name that has some, and that reading."""
    for meaning, wanted in _readings(name):
        found = store.read.hits(cluster, wanted, since_ms=since_ms, until_ms=until_ms, limit=limit)
        if found:
            return meaning, found
    return "", []


def _readings(name: str) -> Iterator[tuple[str, EvictionSubject]]:
    """What a name may mean, the most exact first."""
    from policy.store.read.hits import EvictionSubject

    parts = name.split("/")
    if len(parts) == 3:
        namespace, owner = parts[0], f"{parts[1]}/{parts[2]}"
        yield f"pods of {owner} in {namespace}", EvictionSubject(owner=(namespace, owner))
        return
    if len(parts) == 2 and parts[0][:1].isupper():
        yield f"pods of {name}", EvictionSubject(owner=("", name))
        return
    namespace, own = ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])
    where = f" in {namespace}" if namespace else ""
    yield f"pod {name}", EvictionSubject(pod=(namespace, own))
    yield f"pods of a workload {own}{where}", EvictionSubject(owner=(namespace, own))
    yield (
        f"pods whose name or owner begins with `{own}-`{where}",
        EvictionSubject(beginning=(namespace, own)),
    )


def _line(hit: Hit) -> dict[str, Any]:
    made, activation = hit.made, hit.activation
    return {
        "at": session.instant(hit.now_ms),
        "cluster": hit.cluster,
        "victim": hit.victim,
        "owner": hit.victim_owner,
        "victim_priority": hit.victim_priority,
        "preemptor": hit.preemptor,
        "preemptor_priority": hit.preemptor_priority,
        "node": hit.node,
        "origin": hit.origin,
        "simulated": hit.simulated,
        "confidence": hit.confidence,
        "decision": hit.decision_id,
        "session": hit.session_id,
        "group": hit.session.subject if hit.session else "",
        "observation": hit.observation_id,
        "rule": ", ".join(hit.allowed_by),
        "filter": hit.filter,
        "criterion": hit.decision.decided_by if hit.decision else "",
        "pdb_violating": hit.pdb_violating,
        "outcome": hit.outcome,
        "environment": made.environment if made else "",
        "rule_set": made.rule_set if made else "",
        "rule_set_digest": made.rule_set_digest if made else "",
        "activated_by": activation.actor if activation else "",
        "activated_at": session.instant(activation.at_ms) if activation else "",
        "activation_reason": activation.reason if activation else "",
    }


def _sentences(hit: Hit) -> Iterator[str]:
    """The eviction for people."""
    from policy.cli import view

    owner = f" of {hit.victim_owner}" if hit.victim_owner else ""
    left = "was to leave" if hit.outcome else "left"
    yield (
        f"{session.instant(hit.now_ms)}  {hit.victim}{owner} ({_priority(hit.victim_priority)})"
        f" {left} {hit.node} for {hit.preemptor} ({_priority(hit.preemptor_priority)})"
        f"{' in a simulation' if hit.simulated else ''}"
    )
    for line in view.not_carried_out(hit.contradicted_by):
        yield f"  {line}"
    made = hit.made
    if made is None:
        yield (
            f"  observed in cluster {hit.cluster} of its own scheduler, {hit.confidence}:"
            f" observation {hit.observation_id}"
        )
        return
    recorded = f"recorded {session.instant(made.at_ms)} by {session.writer(made)}"
    yield f"  {_named(hit)} in cluster {hit.cluster}, {recorded}"
    if hit.decision is not None:
        yield from _chosen(hit, hit.decision)
    elif hit.allowed_by:
        yield f"  allowed by {_rules(hit)}"
    if hit.pdb_violating:
        yield f"  it violated a disruption budget (`policy explain {_id(hit)}` names it)"
    if not made.environment:
        yield f"  rule set {made.rule_set}, in no environment"
        return
    yield f"  rule set {made.rule_set}, in environment {made.environment}"
    if hit.activation is not None:
        row = hit.activation
        yield f"  activated {session.instant(row.at_ms)} by {session.writer(row)}: {row.reason}"


def _priority(priority: int | None) -> str:
    """Of a pod that the record does not have as it was then, it is not known."""
    return "priority not known" if priority is None else f"priority {priority}"


def _id(hit: Hit) -> str:
    """What `policy explain` takes, where a decision or the cycle of a pod group evicted it."""
    return f"{options.GROUP}{hit.session_id}" if hit.decision is None else str(hit.decision_id)


def _named(hit: Hit) -> str:
    """What evicted it, and the command that explains it where its number is not enough."""
    if hit.decision is not None:
        return f"decision {hit.decision_id}"
    if hit.session is not None and hit.session.subject:
        return f"cycle {_id(hit)} (`policy explain {_id(hit)}`) of pod group {hit.session.subject}"
    return f"batch session {hit.session_id} (`policy batch explain {hit.session_id}`)"


def _chosen(hit: Hit, decision: DecisionRow) -> Iterator[str]:
    """Why this pod, and why its node."""
    yield f"  allowed by {_rules(hit)}; with it in place the preemptor fails `{hit.filter}`"
    criterion = decision.decided_by
    yield (
        f"  {hit.node} was chosen of {decision.candidate_count} candidates by `{criterion}`"
        if criterion
        else f"  {hit.node} was the only candidate"
    )


def _rules(hit: Hit) -> str:
    return ", ".join(f"`{rule}`" for rule in hit.allowed_by) or "no rule"
