"""`policy rules`"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from policy.cli import (
    env,
    options,
    output,
    proofs,
    rule_files,
    rules_for,
    rules_from_config,
    session,
)
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.rules.lint import LintWarning

_RULES = click.argument(
    "rules",
    metavar="[NAME|PATH|DIGEST]",
    required=False,
    shell_complete=options.proposing("all_rules"),
)


def _source(rules: str | None, environment: str, db: str) -> str:
    """What is named: an argument, else the rule set that is active in the environment."""
    ctx = click.get_current_context()
    if rules is not None:
        if environment and ctx.get_parameter_source("environment") is ParameterSource.COMMANDLINE:
            raise options.Misused(
                "`--env` names the rule set, so it cannot be given as an argument as well",
                help="leave one of them out",
            )
        return rules
    if not environment:
        raise options.Misused("name a rule set, or an environment with `--env`")
    with session.open_store(db) as store:
        active = store.read.environment(environment).active
    if active is None:
        raise options.Misused(
            f"environment `{environment}` has no active rule set",
            help=f"`policy env activate {environment} RULES` activates one",
        )
    return active.rule_set_digest


@click.group("rules")
def group() -> None:
    """Look at rule sets: what they say, how they differ, and whether they do what they should.

    \b
    Example:
      policy rules list
      policy rules test
    """


group.add_command(rules_for.command)
group.add_command(rules_from_config.command)


@group.command("list")
@options.output_option
def list_(form: str) -> int:
    """List what is shipped: rule sets, rules to include, environments, rules of batch sessions.

    \b
    Example:
      policy rules list
    """
    from policy.audit.rule_sets import every_shipped

    rows = [
        {
            "name": one.name,
            "kind": one.kind.value,
            "description": one.description,
            "digest": one.digest,
        }
        for one in every_shipped()
    ]
    output.rows(rows, form, columns=("name", "kind", "description", "digest"))
    return Exit.OK


@group.command("show")
@_RULES
@rule_files.rules_root_option
@env.env_option
@options.db_option
@options.output_of("yaml", "json", default="yaml")
def show(rules: str | None, environment: str, db: str, form: str) -> int:
    """Print a rule set whole: overlays merged, defaults filled in.

    What is printed is what the digest is made of; it is a rule file of its own.

    \b
    Example:
      policy rules show kube-1.36
    """
    import json

    source = _source(rules, environment, db)
    rule_set = rule_files.rules_of_any_kind(source, db=db)
    if form == "json":
        output.data(f"{rule_set.canonical}\n")
    else:
        output.document(json.loads(rule_set.canonical), form)
    output.say(rule_set.digest)
    return Exit.OK


@group.command("explain")
@_RULES
@rule_files.rules_root_option
@env.env_option
@options.db_option
@options.output_option
def explain(rules: str | None, environment: str, db: str, form: str) -> int:
    """List every rule that takes effect, with its reason and the line that it comes from.

    \b
    Example:
      policy rules explain kube-1.28
    """
    from dataclasses import asdict

    from policy.rules.explain import effective_rules

    rule_set = rule_files.rule_set(_source(rules, environment, db), db=db)
    rows = [asdict(rule) for rule in effective_rules(rule_set)]
    columns = ("section", "position", "id", "text", "why", "origin")
    output.rows(rows, form, columns=columns, right=("position",))
    return Exit.OK


@group.command("lint")
@_RULES
@rule_files.rules_root_option
@env.env_option
@options.db_option
@options.output_option
def lint(rules: str | None, environment: str, db: str, form: str) -> int:
    """Report what a rule set allows but hardly means.

    Errors of the file are reported like everywhere; lint adds rules that are never reached,
    conditions that never hold or may have no value, orders that leave ties, ranking keys that
    decide less than they seem to, rules that take pods of higher priority, expressions that are
    slow, and rules that no case beside the file touches. Of batch rules it reports plugins that are
    never consulted, actions that can do nothing, what holds queues and groups together and is
    missing, and actions that do nothing in the cases beside the file. The exit status is 1 where
    anything was found.

    \b
    Example:
      policy rules lint kube-1.36
    """
    from policy.cases.linting import findings
    from policy.rules import RuleSet

    source = _source(rules, environment, db)
    rule_set = rule_files.rules_of_any_kind(source, db=db)
    if not isinstance(rule_set, RuleSet):
        for notice in rule_set.notices:
            output.block(str(notice), err=True)
    stored = source.startswith(rule_files.DIGEST)
    found = findings(rule_set, source, stored=stored, within=rule_files.within())
    return _print_findings(found, form)


def _print_findings(found: Sequence[LintWarning], form: str) -> int:
    from dataclasses import asdict

    if form == "table":
        for warning in found:
            output.block(str(warning))
    else:
        rows = [{**asdict(warning), "finding": warning.finding.value} for warning in found]
        columns = ("finding", "place", "rule", "message", "help")
        output.rows(rows, form, columns=columns)
    output.say(output.number(len(found), "finding"))
    return Exit.ERROR if found else Exit.OK


@group.command("test")
@click.argument(
    "targets",
    metavar="[NAME|PATH]...",
    nargs=-1,
    shell_complete=options.proposing("all_rules"),
)
@rule_files.rules_root_option
@options.output_option
def test(targets: tuple[str, ...], form: str) -> int:
    """Run the cases beside rules: a small cluster each, and what has to be decided on it.

    NAME is a shipped rule set, PATH a rule file or a folder of them; without any, the shipped
    rules are tested, also those of batch sessions. The cases of `NAME.yaml` are in
    `NAME.cases.yaml` beside it, those of `NAME/rules.yaml` in `NAME/cases.yaml`. The exit status
    is 1 where a case fails.

    \b
    Example:
      policy rules test
      policy rules test cooldown environments/prod
    """
    from policy.cases import suites
    from policy.cases.results import case_results

    found = suites(targets, within=rule_files.within())
    rows = []
    for suite in found:
        for rules, case, failed in case_results(suite):
            rows.append(
                {
                    "rules": rules,
                    "case": case.note,
                    "place": case.place,
                    "result": "fails" if failed else "holds",
                    "differences": list(failed.differences) if failed else [],
                }
            )
            if failed and form == "table":
                output.block(str(failed))
    failures = sum(row["result"] == "fails" for row in rows)
    if form != "table":
        output.rows(rows, form, columns=("rules", "case", "place", "result", "differences"))
    files = f" in {len(found)} files" if len(found) > 1 else ""
    counted = f"{output.number(len(rows), 'case')}{files}"
    one = failures == 1 if failures else len(rows) == 1
    said = f", {failures} fail" if failures else " hold"
    output.say(f"{counted}{said}{'s' if one else ''}")
    return Exit.ERROR if failures else Exit.OK


@group.command("diff")
@click.argument("old", metavar="OLD", shell_complete=options.proposing("all_rules"))
@click.argument("new", metavar="NEW", shell_complete=options.proposing("all_rules"))
@rule_files.rules_root_option
@options.db_option
@options.output_option
def diff(old: str, new: str, db: str, form: str) -> int:
    """Say what differs between two rule sets, rule by rule and in words.

    OLD and NEW are names of shipped rule sets, files, or digests. The table has both side by side;
    where an order matters, the place in it stands first.

    \b
    Example:
      policy rules diff kube-1.35 kube-1.36
    """
    from dataclasses import asdict

    from policy.audit.rule_sets import NothingInCommonError, difference_rows, differences

    before, after = (rule_files.rules_of_any_kind(one, db=db) for one in (old, new))
    try:
        changes = differences(before, after)
    except NothingInCommonError as exc:
        raise options.Misused(str(exc)) from exc
    table = difference_rows(before, after, changes) if form == "table" else []
    if form == "table" and changes:
        names = (before.name, after.name) if before.name != after.name else ("old", "new")
        rows = [
            {
                "section": row.section,
                "rule": row.rule,
                names[0]: row.old,
                names[1]: row.new,
                "meaning": row.meaning,
            }
            for row in table
        ]
        output.rows(rows, form, columns=("section", "rule", *names, "meaning"))
    elif form != "table":
        rows = [{**asdict(change), "kind": change.kind.value} for change in changes]
        columns = ("kind", "section", "rule", "before", "after", "words")
        output.rows(rows, form, columns=columns)
    output.say(output.number(len(changes), "difference") if changes else "no difference")
    return Exit.OK


group.add_command(proofs.prove)


@group.command("coverage")
@click.argument("rules", metavar="[NAME|DIGEST]", required=False)
@options.db_option
@options.cluster_option
@click.option(
    "--since",
    metavar="TIME",
    callback=options.instant,
    help="Decided for this time or later: ISO 8601, `yesterday 14:02`, or `7d` before now.",
)
@click.option("--unused", is_flag=True, help="Only what never decided.")
@options.output_option
def coverage(
    rules: str | None,
    db: str,
    cluster: str | None,
    since: datetime | None,
    unused: bool,
    form: str,
) -> int:
    """Count which rules and criteria decided how often in the recorded history.

    Every rule set that made decisions is listed with all its rules, the one that was used last
    first. A ranking criterion decides where it leaves one candidate.

    \b
    Example:
      policy rules coverage
      policy rules coverage kube-1.36 --unused
    """
    from dataclasses import asdict

    from policy.audit.reports_coverage import coverage as count
    from policy.store.read.evictions import Range

    with session.open_store(db) as store:
        of = session.cluster_of(store, cluster)
        wanted = Range(cluster=of, since_ms=options.millis(since))
        used = store.read.rule_sets_used(wanted, rule_files.recorded_as(rules))
        uses = store.read.rule_uses(wanted)
    rows = [asdict(row) for one in used for row in count(one, uses)]
    rows = [row for row in rows if not (unused and row["decisions"])]
    several = len({row["digest"] for row in rows}) > 1
    columns = ("section", "rule", "decisions", "share", "pods")
    shown = ("rule_set", "digest", *columns) if several or form == "csv" else columns
    output.rows(rows, form, columns=shown, right=columns[2:])
    for one in used:
        output.say(f"`{one.name}` made {output.number(one.decisions, 'decision')} ({one.digest})")
    return Exit.OK


@group.command("schema")
def schema() -> int:
    """Print the JSON Schema of rule files, for editors.

    \b
    Example:
      policy rules schema > rules.schema.json
    """
    from policy.rules.schema import json_schema

    output.document(json_schema(), "json")
    return Exit.OK
