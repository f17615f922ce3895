"""`policy compare`"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import click

from policy.cli import env, options, output, period, rule_files, session
from policy.cli.exits import Exit
from policy.text.words import duration

if TYPE_CHECKING:
    from policy.audit.compare import Comparison, ComparisonSummary, DecisionResult, Group
    from policy.audit.recorded import Skipped
    from policy.rules import RuleSet
    from policy.store import SessionRow, Store

_CHANGED: Final = ("id", "preemptor", "priority", "change", "before", "after", "victims")
_SHOWN: Final = 50
"""Decisions that a table lists."""


@click.command("compare")
@click.option(
    "--rules",
    metavar="NAME|PATH|DIGEST",
    default="",
    show_default=False,
    shell_complete=options.proposing("rules"),
    help="The other rules: a shipped rule set, a rule file, or `sha256:...` of one in the"
    " database.",
)
@rule_files.rules_root_option
@env.env_option
@options.db_option
@options.cluster_option
@period.since("Only decisions and cycles made for this time or later")
@click.option(
    "--newest",
    metavar="N",
    type=click.IntRange(1),
    help="Only the newest N decisions, and as many cycles; all by default.",
)
@click.option(
    "--show",
    metavar="ID|group:ID",
    help="One decision, or cycle of a pod group, under both rule sets, side by side.",
)
@options.jobs_option
@options.output_of("table", "json", "html", note="`html` is one page that needs nothing else.")
def command(
    rules: str,
    environment: str,
    db: str,
    cluster: str | None,
    since: datetime | None,
    newest: int | None,
    show: str | None,
    jobs: int,
    dask: str,
    form: str,
) -> int:
    """Decide recorded decisions again under other rules, and report what would be different.

    Each decision is judged on the state it was really made on, with the same seed. Counted are
    other nodes and victims, pods that find a node only under one of the rule sets, and what
    preemption costs: victims, violated disruption budgets and lost run time, by namespace and
    priority. Decisions that cannot be judged are counted apart; the exit status is 1 where none
    can. Cycles of pod groups count as decisions; other rules without `groups` cannot judge them.

    \b
    Example:
      policy compare --rules kube-1.20
      policy compare --rules kube-1.20 --output html > report.html
      policy compare --rules kube-1.20 --show 1
    """
    from policy.audit.compare import Comparison, summarise
    from policy.audit.decisions import over
    from policy.audit.group_compare import ComparingCycles
    from policy.audit.recorded import Comparing

    options.refuse_beside(
        "`--show`", show is not None, "since", "newest", "cluster", "jobs", "dask"
    )
    if show is not None and form == "html":
        raise options.Misused("`--show` prints a table or JSON")
    workers = options.workers(jobs, dask)
    if not (rules or environment):
        raise options.Misused("give the other rules with `--rules` or `--env`")
    with session.open_store(db) as store:
        looked_at = cluster if show is None else ""  # one decision says itself of which it is
        chosen = env.chosen(store, environment=environment, cluster=looked_at, rules=rules)
        other, of = chosen.rules, chosen.cluster
        if show is not None:
            return _show(store, show, other, form)
        ids = store.read.decision_ids(of, since_ms=options.millis(since))
        cycles = _cycles(store, of, since)
        if newest is not None:
            ids, cycles = ids[-newest:], cycles[-newest:]
        groups = [row.id for row in cycles]
        results = chain(
            over(db, ids, Comparing(other).compared, workers),
            over(db, groups, ComparingCycles(other).compared, workers),
        )
        found = []
        with output.progress("comparing") as advance:
            for number, result in enumerate(results, start=1):
                found.append(result)
                advance(number, len(ids) + len(groups))
        by = [(row.rule_set, row.rule_set_digest) for row in store.read.decisions_by_id(ids)]
        by += [(row.rule_set, row.rule_set_digest) for row in cycles]
        names = sorted({name for name, _ in by})
    compared = [r for r in found if isinstance(r, Comparison)]
    skipped = [r for r in found if not isinstance(r, Comparison)]
    _print(other, of, names, summarise(compared), compared, skipped, form)
    _tell(skipped)
    own = sum(digest == other.digest for _, digest in by)
    if own:
        output.say(
            f"made by these very rules, so that none of them differs: {own} of"
            f" {output.number(len(found), 'decision')}",
            help="what a scheduler did instead, as in shadow mode, is compared by"
            " `policy observed --compare`",
        )
    if not found:
        output.say(
            f"nothing to compare: no decision of cluster `{of}` is recorded{_for(since)}",
            help="`policy observed --compare` is about preemptions by the cluster's own scheduler",
        )
    return Exit.ERROR if skipped and not compared else Exit.OK


def _for(since: datetime | None) -> str:
    return "" if since is None else " for this time or later"


def _cycles(store: Store, cluster: str, since: datetime | None) -> list[SessionRow]:
    """Recorded cycles of pod groups, ascending."""
    from policy.store.record.groups import KIND

    rows = store.read.sessions(cluster, kind=KIND, since_ms=options.millis(since))
    return sorted(rows, key=lambda row: row.id)


def _tell(skipped: Sequence[Skipped]) -> None:
    if skipped:
        first = skipped[0]
        counted = output.number(len(skipped), "decision")
        output.say(f"{counted} cannot be judged; the first, {first.id}: {first.why}")


def _print(
    rules: RuleSet,
    cluster: str,
    recorded_rules: Sequence[str],
    summary: ComparisonSummary,
    compared: Sequence[Comparison],
    skipped: Sequence[Skipped],
    form: str,
) -> None:
    from policy.audit.compare import DecisionChange

    changed = [c for c in compared if c.change is not DecisionChange.SAME]
    if form == "html":
        from policy.audit.compare_page import About, page

        about = About(
            recorded_rules=recorded_rules,
            rules=rules.name,
            rules_digest=rules.digest,
            cluster=cluster,
            skipped=len(skipped),
        )
        output.data(page(about, summary, changed))
    elif form == "json":
        from policy.audit.compare_documents import comparison_document, summary_document

        output.document(
            {
                "rules": rules.name,
                "rules_digest": rules.digest,
                "recorded_rules": recorded_rules,
                "cluster": cluster,
                **summary_document(summary),
                "changed": [comparison_document(c) for c in changed],
                "skipped": [
                    {"id": s.id, "missing": list(s.missing), "detail": s.detail} for s in skipped
                ],
            },
            form,
        )
    else:
        _print_tables(summary, changed)


# --- tables ------------------------------------------------------------------------------------


def _print_tables(summary: ComparisonSummary, changed: Sequence[Comparison]) -> None:
    from policy.audit.compare_documents import report_parts

    changes = [
        {"change": change.value, "decisions": count, "meaning": change.meaning}
        for change, count in summary.changes.items()
        if count
    ]
    output.rows(changes, "table", columns=("change", "decisions", "meaning"), right=("decisions",))
    for part in report_parts(summary):
        lines = [_line(key, group) for key, group in part.groups.items()]
        output.line()
        output.line(part.title)
        columns = tuple(name for name in lines[0] if any(line[name] != "" for line in lines))
        output.print_table(lines, columns=columns, right=columns[1:])
        if part.not_listed:
            output.line(f"not listed: {part.not_listed}")
    if changed:
        output.line()
        output.line("decisions that differ")
        lines = [_changed(comparison) for comparison in changed[:_SHOWN]]
        output.print_table(lines, columns=_CHANGED, right=("id", "priority", "victims"))
    if len(changed) > _SHOWN:
        output.say(f"{len(changed) - _SHOWN} more differ; `--output json` holds all of them")


def _line(key: str, group: Group) -> dict[str, Any]:
    """A group with each figure as `before -> after`."""
    before, after = group.before, group.after
    counted = group.decisions > 0
    return {
        "group": key,
        "decisions": group.decisions if counted else "",
        "differ": group.changed if counted else "",
        "preemptions": _arrow(before.preemptions, after.preemptions) if counted else "",
        "victims": _arrow(before.victims, after.victims),
        "violated budgets": _arrow(before.pdb_violations, after.pdb_violations),
        "lost run time": duration(before.lost_seconds)
        if before.lost_seconds == after.lost_seconds
        else f"{duration(before.lost_seconds)} -> {duration(after.lost_seconds)}",
    }


def _arrow(before: int, after: int) -> str:
    return str(before) if before == after else f"{before} -> {after} ({after - before:+d})"


def _changed(comparison: Comparison) -> dict[str, Any]:
    before, after = comparison.before, comparison.after
    return {
        "id": comparison.id,
        "preemptor": comparison.preemptor,
        "priority": comparison.priority,
        "change": comparison.change.value,
        "before": _where(before),
        "after": _where(after),
        "victims": _arrow(len(before.victims), len(after.victims)),
    }


def _where(result: DecisionResult) -> str:
    return f"{result.outcome.value} {result.node}" if result.node else result.outcome.value


# --- one decision ------------------------------------------------------------------------------


def _show(store: Store, wanted: str, rules: RuleSet, form: str) -> int:
    from policy.audit.compare_documents import comparison_document
    from policy.audit.group_compare import ComparingCycles
    from policy.audit.recorded import Comparing, Skipped
    from policy.cli import groups_view

    cycle = options.group_id(wanted)
    found: Comparison | Skipped
    if cycle is not None:
        session_row = groups_view.cycle(store, cycle).row
        recorded_by = session_row.rule_set
        (found,) = ComparingCycles(rules)(store, [cycle])
    else:
        row = store.read.decision(options.decision_id(wanted)).row
        recorded_by = row.rule_set
        (found,) = Comparing(rules)(store, [row.id])
    if isinstance(found, Skipped):
        output.say(f"decision {found.id} cannot be judged: {found.why}")
        return Exit.ERROR
    if form == "json":
        output.document({"rules": rules.name, **comparison_document(found)}, form)
        return Exit.OK
    output.line(
        f"decision {found.id}: {found.preemptor} (priority {found.priority}),"
        f" {found.change.meaning}"
    )
    output.line()
    lines = [
        {"": name, recorded_by: before, f"{rules.name} (now)": after}
        for name, before, after in _sides(found.before, found.after)
    ]
    output.print_table(lines, columns=tuple(lines[0]))
    return Exit.OK


def _sides(before: DecisionResult, after: DecisionResult) -> list[tuple[str, str, str]]:
    """Lines of the table: what, before, after."""
    lines = [
        ("outcome", before.outcome.value, after.outcome.value),
        ("node", before.node or "", after.node or ""),
        ("decided by", before.decided_by, after.decided_by),
        ("message", before.message, after.message),
        ("victims", str(len(before.victims)), str(len(after.victims))),
    ]
    places = [dict(getattr(result, "bound", ())) for result in (before, after)]
    promises = [dict(getattr(result, "nominated", ())) for result in (before, after)]
    for name, (one, other) in (("bound", places), ("nominated", promises)):
        lines += [(name, _on(pod, one), _on(pod, other)) for pod in sorted({*one, *other})]
    sides = [{v.pod: v for v in result.victims} for result in (before, after)]
    for pod in dict.fromkeys([*sides[0], *sides[1]]):
        cells = [_victim(side.get(pod)) for side in sides]
        lines.append(("", cells[0], cells[1]))
    return lines


def _on(pod: str, nodes: Mapping[str, str]) -> str:
    return f"{pod} on {nodes[pod]}" if pod in nodes else ""


def _victim(victim: Any) -> str:
    if victim is None:
        return ""
    violates = ", violates a pdb" if victim.pdb_violating else ""
    lost = duration(victim.lost_seconds)
    return f"{victim.pod} (priority {victim.priority}, {lost} lost{violates})"
