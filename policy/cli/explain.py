"""`policy explain`"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.store import Store, StoredDecision


@click.command("explain")
@click.argument("id", metavar="ID")
@options.db_option
@click.option("--why-not", "why_not", metavar="NODE", help="Why this node was not chosen.")
@click.option(
    "--on-node",
    "on_node",
    is_flag=True,
    help="Its node before and after: who stays and why, who leaves, who comes, what is free.",
)
@click.option(
    "--cluster",
    metavar="NAME",
    shell_complete=options.proposing("clusters"),
    help="With `observed:NAMESPACE/POD`: the newest one in this cluster; in any by default.",
)
@options.output_option
def command(
    id: str, db: str, why_not: str | None, on_node: bool, cluster: str | None, form: str
) -> int:
    """Say why a recorded decision came out as it did.

    ID is the number of a decision, or the beginning of its digest; `session:ID` is a batch
    session, as `policy batch explain` shows it, `group:ID` the cycle of a pod group, and
    `observed:ID` (or `observed:NAMESPACE/POD`, the pod's newest) a preemption by the cluster's own
    scheduler, as `policy observed` numbers them, decided again. Shows the rule that let the pod
    preempt or not, the filters, each candidate with its value for every criterion and what
    eliminated it, the victims and why each had to leave. As CSV or JSON Lines: the candidates.
    `--on-node` shows the pods of the decision's node instead, with what keeps those that stay: the
    rules are evaluated again, on the state of then. As CSV or JSON Lines: the pods.

    \b
    Example:
      policy explain 1
      policy explain 1 --why-not node-7
      policy explain 1 --on-node
      policy explain 1 --output json
    """
    if on_node and why_not is not None:
        raise options.Misused("give `--why-not` or `--on-node`, not both")
    if on_node and ":" in id.removeprefix("sha256:"):
        raise options.Misused("`--on-node` is about the node of one decision")
    of_pod = id.startswith(options.OBSERVED) and "/" in id
    options.need("observed:NAMESPACE/POD", of_pod, "cluster")
    if id.startswith(options.OBSERVED):
        from policy.cli import explain_observed

        if why_not is not None:
            raise options.Misused("`--why-not` asks about decisions, not about observations")
        return explain_observed.explained(db, id, cluster, form)
    cycle = options.group_id(id)
    if cycle is not None:
        from policy.cli import groups_view

        if why_not is not None:
            raise options.Misused("`--why-not` asks about decisions, not about pod groups")
        return groups_view.explained(db, cycle, form)
    held = options.session_id(id)
    if held is not None:
        from policy.cli import batch, batch_why_not

        if why_not is not None:
            if form == "csv":
                raise options.Misused("what a session had against a node is no table: not as CSV")
            return batch_why_not.printed(db, held, job=None, node=why_not, form=form)
        return batch.explained(db, held, job=None, form=form)
    from policy.cli import view

    with session.open_store(db) as store:
        stored = store.read.decision(options.decision_id(id))
        if why_not is not None:
            from policy.audit.why_not import why_not_chosen

            answer = why_not_chosen(store, stored, why_not)
            _print_answer(answer, form)
            return Exit.OK
        if on_node:
            from policy.cli import explain_node

            return explain_node.printed(store, stored, form)
        if form == "table":
            row, best = stored.row, stored.record.candidates.best
            named = {pod for candidate in best for pod in candidate.victims}
            leaving = store.read.leaving_already(row.cluster, row.base_revision, named)
            _print(stored, _rules_text(store, stored), leaving)
        elif form in ("json", "yaml"):
            output.document(view.document(stored), form)
        else:
            lines = [_flat(candidate) for candidate in view.document(stored)["candidates"]]
            output.rows(lines, form, columns=_candidate_columns(stored))
    return Exit.OK


def _rules_text(store: Store, stored: StoredDecision) -> str:
    """The canonical text of the decision's rule set; "" where it is gone."""
    from policy.store import NotFound

    try:
        return store.read.rule_set(stored.row.rule_set_digest)
    except NotFound:
        return ""


def _print_answer(answer: dict[str, Any], form: str) -> None:
    if form == "table":
        output.line(answer["text"])
    elif form in ("json", "yaml"):
        output.document(answer, form)
    else:
        output.rows([answer], form, columns=tuple(answer))


def _candidate_columns(stored: StoredDecision) -> tuple[str, ...]:
    return ("position", "node", *stored.record.candidates.criteria, "victims", "eliminated_by")


def _flat(candidate: dict[str, Any]) -> dict[str, Any]:
    return {**candidate, **candidate["values"]}


# --- for people --------------------------------------------------------------------------------


def _print(stored: StoredDecision, rules: str, leaving: Collection[str]) -> None:
    from policy.cli import view

    row = stored.row
    output.line(f"decision {row.id}: {row.preemptor} {view.verdict(stored)}")
    if row.message and not row.fits:
        output.line(f"  {row.message}")
    for sentence in view.not_carried_out(stored.outcomes):
        output.line(f"  {sentence}")
    output.line()
    _print_facts(stored)
    print_reasons(stored, rules, leaving)
    _print_effects(stored)


def print_reasons(stored: StoredDecision, rules: str, leaving: Collection[str] = ()) -> None:
    """What a decision rests on: rules, filters, candidates, victims.

    rules: canonical text of its rule set, "" where it is gone. leaving: potential victims that were
    being deleted then.
    """
    _print_rules(stored)
    _print_filters(stored)
    _print_causes(stored)
    _print_candidates(stored, rules, leaving)
    _print_victims(stored)


def _print_facts(stored: StoredDecision) -> None:
    from policy.audit import sentences

    row = stored.row
    facts = (
        ("preemptor", f"{row.preemptor}, priority {row.preemptor_priority}"),
        ("uid", row.preemptor_uid),
        ("outcome", row.outcome + (f" on {row.node}" if row.node else "")),
        ("rule set", f"{row.rule_set} {row.rule_set_digest}"),
        ("environment", row.environment),
        ("made for", session.instant(row.now_ms)),
        ("recorded", f"{session.instant(row.at_ms)} by {session.writer(row)}"),
        ("state", f"cluster {row.cluster}, revision {row.base_revision}, {row.snapshot_digest}"),
        ("led to", f"revision {row.revision}" if row.revision is not None else "no change"),
        ("origin", "" if row.origin == "decided" else row.origin),
        ("answer", "" if stored.served is None else sentences.answered(stored.served)),
        ("only asked", "what would be, by `policy what-if`" if row.hypothetical else ""),
        ("seed", str(row.seed)),
        ("digest", row.digest),
        ("ledger", _position(stored)),
    )
    for name, value in facts:
        if value:
            output.line(f"{name:<12}{value}")


def _position(stored: StoredDecision) -> str:
    found = stored.ledger
    return "" if found is None else f"entry {found.sequence}, {found.hash}, after {found.previous}"


def _section(title: str, rows: Sequence[dict[str, Any]], *right: str) -> None:
    output.line()
    output.line(title)
    output.print_table(rows, columns=tuple(rows[0]), right=right)


def _print_rules(stored: StoredDecision) -> None:
    from policy.cli.view import inputs
    from policy.decision.model import NO_VALUE

    decided = [
        {
            "section": fired.section,
            "rule": fired.rule or "(none)",
            "verdict": fired.verdict,
            "reason": fired.reason,
            "looked at": inputs(fired.inputs),
        }
        for fired in stored.record.trace.rules
        if fired.verdict != NO_VALUE
    ]
    if decided:
        _section("Rules that decided", decided)
    without = [
        {
            "section": fired.section,
            "rule": fired.rule,
            "why": fired.reason,
            "of": inputs(fired.inputs),
        }
        for fired in stored.record.trace.rules
        if fired.verdict == NO_VALUE
    ]
    if without:
        _section("Expressions without a value", without)


def _print_filters(stored: StoredDecision) -> None:

    trace = stored.record.trace
    for statuses, title in (
        (trace.filter_statuses, "Filters"),
        (trace.dry_run_statuses, "Nodes that preemption would not help"),
    ):
        rows = [
            {
                "nodes": found.nodes,
                "status": found.code.label,
                "filter": found.filter,
                "reasons": found.reasons,
            }
            for found in statuses
        ]
        if rows:
            _section(title, rows, "nodes")


def _print_causes(stored: StoredDecision) -> None:
    from policy.audit import sentences

    trace = stored.record.trace
    if trace.dry_run_statuses and not trace.obstacles:
        output.line("`--why-not NODE` names what stands in the way on one of them")
    for title, lines in (
        ("Waits for", [sentences.waiting(pod) for pod in trace.waits_for]),
        (
            "What stands in the way, on one node for each status",
            list(sentences.in_the_way(trace, priority=stored.row.preemptor_priority)),
        ),
    ):
        if lines:
            output.line()
            output.line(title)
            for line in lines:
                output.line(f"  {line}")


def _print_candidates(stored: StoredDecision, rules: str, leaving: Collection[str]) -> None:
    from policy.audit import sentences
    from policy.rules.criteria import first_listed_criteria, instant_criteria
    from policy.rules.problems import RulesError

    found = stored.record.candidates
    if not found.best:
        return
    try:
        instants = instant_criteria(rules)
    except RulesError:
        instants = frozenset()
        output.say(
            "the rule set is gone, or this version cannot read it: which values of candidates are"
            " times is not known, and they are shown in milliseconds since 1970"
        )
    row = stored.row
    rows = [
        {
            "": candidate.position + 1,
            "node": candidate.node,
            **{
                name: session.instant(value) if name in instants and value is not None else value
                for name, value in candidate.values.items()
            },
            "eliminated by": candidate.eliminated_by or "chosen",
        }
        for candidate in found.best
    ]
    criteria = [name for name in found.criteria if name not in instants]
    title = f"Candidates: {row.kept_candidates} kept of {row.candidate_count}"
    if row.decided_by:
        title += f", decided by {row.decided_by}"
    if not row.fits and not row.eligible:
        title += " (hypothetical: the pod may not preempt)"
    _section(title, rows, "", *criteria)
    for broken in found.violations:
        output.line(f"{broken.node}: {sentences.violation(broken)}")
    tied = row.decided_by not in found.criteria
    for line in sentences.freed_already(found.best, leaving, tied=tied):
        output.line(line)
    for criterion in sorted(first_listed_criteria(rules)):
        output.line(_first_listed(stored, criterion))
    sampling = stored.record.trace.sampling
    if sampling is not None and sampling.examined < sampling.potential:
        output.line(
            f"examined {sampling.examined} of {sampling.potential} potential nodes,"
            f" from the {_ordinal(sampling.offset + 1)} by name on"
        )


def _first_listed(stored: StoredDecision, criterion: str) -> str:
    """What a criterion really compared where victims are not listed by importance."""
    text = f"`{criterion}` compares the priority of the first listed victim"
    victims = stored.record.victims
    if not victims:
        return text
    first, highest = victims[0], max(victims, key=lambda victim: victim.priority)
    text += f": on {first.node} that is {first.priority} ({first.pod})"
    if highest.priority == first.priority:
        return text
    return f"{text}, although {highest.pod} of {highest.priority} goes as well"


def _print_victims(stored: StoredDecision) -> None:
    from policy.audit import spared
    from policy.cli.view import victim_rows

    row = stored.row
    if stored.record.victims:
        rows = victim_rows(stored)
        _section("Victims" if "node" in rows[0] else f"Victims on {row.node}", rows, "priority")
    reprieved = [
        {
            "pod": one.pod,
            "priority": one.priority,
            "started": session.instant(one.start_ms),
            "budgets": "; ".join(one.budgets),
            "why it may stay": one.why,
        }
        for one in spared.reprieved(stored.record)
    ]
    if reprieved:
        _section("Reprieved: the preemptor still fits with them back", reprieved, "priority")


def _print_effects(stored: StoredDecision) -> None:
    from policy.audit import sentences

    effects = stored.record.effects
    lines = [
        f"placed on {effects.bind}" if effects.bind else "",
        _listed("evicted", effects.evict),
        _listed("marked as disrupted", effects.mark_disrupted),
        _listed("nominations cleared", effects.clear_nominations),
        {
            "set": f"nominated to {stored.row.node}",
            "clear": "own nomination cleared",
            "leave": "",
        }[effects.nomination],
    ]
    told = [line for line in lines if line]
    output.line()
    output.line("Effects")
    for line in told or ["none"]:
        output.line(f"  {line}")
    if told and stored.row.is_judgement_only:
        output.line(f"  {sentences.WOULD_HAVE}")


def _listed(what: str, pods: Iterable[str]) -> str:
    text = ", ".join(pods)
    return f"{what}: {text}" if text else ""


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
