"""`policy env`"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import click
from click.core import ParameterSource
from msgspec import to_builtins

from policy.audit.writers import WRITTEN_BY, written_by
from policy.cli import env_scheduler, options, output, proofs, rule_files, session
from policy.cli.exits import Exit

if TYPE_CHECKING:
    from policy.batch.rules import BatchRules
    from policy.proving.questions import ProvenClaim
    from policy.rules import RuleSet
    from policy.store import ActivationRow, EnvironmentRow, Proofs, Store
    from policy.store.journal import StoreJournal

_Function = TypeVar("_Function", bound=Callable[..., Any])

_NAME = click.argument("name", metavar="NAME", shell_complete=options.proposing("environments"))
_REASON = click.option(
    "--reason", metavar="TEXT", required=True, help="Why; kept with the activation."
)


def env_option(function: _Function) -> _Function:
    """`--env NAME`"""
    return click.option(
        "--env",
        "environment",
        cls=options.Filled,
        metavar="NAME",
        envvar="POLICY_ENV",
        shell_complete=options.proposing("environments"),
        default="",
        show_default=False,
        show_envvar=True,
        help="Environment that picks cluster and rule set, instead of --cluster and --rules.",
    )(function)


_Rules = TypeVar("_Rules", "RuleSet", "BatchRules")


_HELD: Final = {
    False: ("rule sets for single pods", "`policy run`"),
    True: ("rules of batch sessions", "`policy batch run`"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAndRules(Generic[_Rules]):
    """What `--env`, or `--cluster` and `--rules`, come to."""

    cluster: str
    rules: _Rules
    environment: str


def journal(store: Store, chosen: ClusterAndRules[Any]) -> StoreJournal:
    """The record of what a command decides for a cluster."""
    from policy.store.journal import StoreJournal

    return StoreJournal(
        store,
        chosen.cluster,
        actor=session.actor(),
        clock=session.clock_ms,
        environment=chosen.environment,
    )


def chosen(
    store: Store, *, environment: str, cluster: str | None, rules: str
) -> ClusterAndRules[RuleSet]:
    """The cluster and the rule set to decide with. Raises RulesError, StoreError, UsageError."""
    from policy.rules import RuleSet

    if not environment:
        found = rule_files.rule_set(rules, store=store)
        of = session.cluster_of(store, cluster)
        return ClusterAndRules(cluster=of, rules=found, environment="")
    of, text = _active(store, environment, batch=False)
    return ClusterAndRules(cluster=of, rules=RuleSet.from_canonical(text), environment=environment)


def batch_given(environment: str, rules: str, *, db: str) -> BatchRules | None:
    """What `--rules` names, read before a database is opened; None where `--env` picks."""
    return None if environment else rule_files.batch_rules(rules, db=db)


def chosen_batch(
    store: Store, *, environment: str, cluster: str | None, given: BatchRules | None
) -> ClusterAndRules[BatchRules]:
    """The cluster and the rules to hold sessions with. Raises RulesError, StoreError, UsageError.

    What a configuration asks for in vain is said.
    """
    from policy.batch.rules import BatchRules

    if given is None:
        of, text = _active(store, environment, batch=True)
        return ClusterAndRules(
            cluster=of, rules=BatchRules.from_canonical(text), environment=environment
        )
    for notice in given.notices:
        output.block(str(notice), err=True)
    of = session.cluster_of(store, cluster)
    return ClusterAndRules(cluster=of, rules=given, environment="")


def _active(store: Store, environment: str, *, batch: bool) -> tuple[str, str]:
    """The cluster of an environment, and the canonical text of what is active in it."""
    ctx = click.get_current_context()
    for option in ("cluster", "rules"):
        # A command without the option has no source for it.
        if ctx.get_parameter_source(option) not in {None, ParameterSource.DEFAULT}:
            by = "`--env`"
            if ctx.get_parameter_source("environment") is ParameterSource.ENVIRONMENT:
                by = f"`POLICY_ENV={environment}`"
            raise options.Misused(
                f"{by} picks cluster and rule set, so `--{option}` cannot be given as well",
                help="leave one of them out; `--env ''` stands for no environment",
            )
    active = store.read.active_rule_set(environment)
    assert active is not None
    if active.batch != batch:
        held, command = _HELD[active.batch]
        raise options.Misused(
            f"environment `{environment}` holds {held}: `{active.name}` is active",
            help=f"{command} decides with it; `--env ''` stands for no environment",
        )
    return store.read.environment(environment).cluster, active.canonical


@click.group("env")
def group() -> None:
    """Environments: a cluster, and the rule set that is active for it.

    What was active when, who made it so and why, is part of the audited record.

    \b
    Example:
      policy env create prod
      policy env activate prod environments/prod --reason "first rules"
      policy env list
    """


group.add_command(env_scheduler.command)


@group.command("create")
@_NAME
@options.db_option
@options.cluster_option
def create(name: str, db: str, cluster: str | None) -> int:
    """Give a cluster in the database an environment, in which nothing is active yet.

    \b
    Example:
      policy env create prod --cluster default
    """
    with session.open_store(db, write=True) as store:
        of = session.cluster_of(store, cluster)
        store.state.head_revision(of)  # a misspelt cluster is an error, not a new cluster
        store.record.create_environment(name, of, at_ms=session.clock_ms(), actor=session.actor())
    output.say(f"environment `{name}` of cluster `{of}`; `policy env activate {name} RULES`")
    return Exit.OK


@group.command("list")
@options.db_option
@options.output_option
def list_(db: str, form: str) -> int:
    """List the environments, each with its active rule set.

    \b
    Example:
      policy env list
    """
    with session.open_store(db) as store:
        rows = [_environment(row) for row in store.read.environments()]
    columns = ("environment", "cluster", "rule_set", "digest", "since", "actor", "reason")
    output.rows(rows, form, columns=columns)
    return Exit.OK


@group.command("show")
@_NAME
@options.db_option
@options.output_option
def show(name: str, db: str, form: str) -> int:
    """Show what was active in an environment, the newest first.

    The first line is what decides now.

    \b
    Example:
      policy env create prod
      policy env activate prod environments/prod --reason "first rules"
      policy env show prod
    """
    with session.open_store(db) as store, store.reading() as rooms:
        environment = rooms.read.environment(name)
        found = [_activation(row) for row in rooms.read.activations(name)]
        scheduler = [row for row in rooms.read.schedulers(name) if row.rule_set]
    if form in ("json", "yaml"):
        profiles = [env_scheduler.line(row) for row in scheduler]
        values = {**_environment(environment), "activations": found, "scheduler": profiles}
        output.document(values, form)
        return Exit.OK
    output.say(f"environment `{name}` of cluster `{environment.cluster}`")
    output.rows(found, form, columns=_ACTIVATION, right=("id",))
    for row in scheduler:
        output.say(
            f"its scheduler's profile `{row.profile}` runs {row.rule_set}, from {row.source}"
        )
    return Exit.OK


@group.command("use")
@_NAME
@options.db_option
def use(name: str, db: str) -> int:
    """Print the line that makes a shell use an environment from now on.

    \b
    Example:
      policy env create prod
      policy env activate prod environments/prod --reason "first rules"
      eval "$(policy env use prod)"
      policy run
    """
    with session.open_store(db) as store:
        environment = store.read.environment(name)
        store.read.active_rule_set(name)  # nothing could be decided without one
    output.data(f"export POLICY_ENV={_quoted(name)}\n")
    output.say(f"cluster `{environment.cluster}`; `unset POLICY_ENV` ends it")
    return Exit.OK


def _quoted(name: str) -> str:
    """A word of a shell; characters that do not show themselves are spelled out (`$'...'`)."""
    import shlex

    from policy.text.printable import is_printable

    if is_printable(name):
        return shlex.quote(name)
    return "$'" + "".join(f"\\x{byte:02x}" for byte in name.encode()) + "'"


@group.command("activate")
@_NAME
@click.argument("rules", metavar="RULES", shell_complete=options.proposing("all_rules"))
@click.option(
    "--require-proof",
    "required",
    metavar="CLAIM",
    multiple=True,
    callback=proofs.Required.parse,
    help="Activate only what this is proved of: `never:EXPR`, `at-least:active`, `at-least:FILE`.",
)
@proofs.timeout_option
@rule_files.rules_root_option
@_REASON
@options.db_option
@options.output_option
def activate(
    name: str,
    rules: str,
    required: proofs.Required,
    timeout: int,
    reason: str,
    db: str,
    form: str,
) -> int:
    """Make a rule set decide in an environment, from the next decision on.

    RULES is the name of a shipped rule set, or a file. It has to load, and the cases beside it
    have to pass; otherwise nothing changes. A file without cases is activated with a warning.
    Processes that run already take it over without a restart. Batch rules, which decide sessions,
    need an environment of their own: what is activated first says which kind one holds.

    With --require-proof, each claim has to be proved as by `policy rules prove`, and that no victim
    of equal or higher priority can be taken. What is refuted changes nothing (exit status 5), nor
    does what is unknown (4). What was proved is kept with the activation.

    \b
    Example:
      policy env create prod
      policy env activate prod kube-1.36 --reason "as in the cluster"
      policy env activate prod environments/prod --reason "budgets are hard limits from now on" \\
        --require-proof "never:victim.namespace == 'kube-system'"
    """
    from policy.cases import beside, run_beside
    from policy.rules import RuleSet
    from policy.rules.files import shipped

    rule_set = rule_files.rules_of_any_kind(rules, db=db)
    _need_reason(reason)
    if rules.startswith(rule_files.DIGEST):
        failures, tested = [], False
    else:
        failures = run_beside(rules, within=rule_files.within())
        tested = rules in shipped() or beside(rules, within=rule_files.within()) is not None
    if failures:
        for failure in failures:
            output.block(str(failure), err=True)
        output.say(f"{output.number(len(failures), 'failing case')}; nothing was activated")
        return Exit.ERROR
    if not tested:
        output.say(f"warning: there are no cases beside `{rules}`: what it decides is not tested")
    options.need("--require-proof", bool(required), "timeout")
    with session.open_store(db, write=True) as store:
        before = store.read.environment(name).active
        if before is not None and before.rule_set_digest == rule_set.digest:
            output.say(f"`{rule_set.name}` is active in `{name}` already; nothing was changed")
            return Exit.OK
        proved = None
        if required:
            if not isinstance(rule_set, RuleSet):
                raise options.Misused("`--require-proof` knows rule sets, not rules of sessions")
            findings = required.findings(rule_set, _rules_of(store, before), db=db, timeout=timeout)
            status = _refused(rule_set, [finding for finding, _ in findings])
            if status is not Exit.OK:
                return status
            proved = _proofs(findings)
        row = store.record.activate(
            name,
            rules=rule_set,
            reason=reason,
            source=rules,
            at_ms=session.clock_ms(),
            actor=session.actor(),
            proofs=proved,
            instead_of=before.rule_set_digest if required and before is not None else None,
        )
    output.rows([_activation(row)], form, columns=_ACTIVATION, right=("id",))
    return Exit.OK


def _rules_of(store: Store, active: ActivationRow | None) -> RuleSet | None:
    from policy.rules import RuleSet

    if active is None:
        return None
    return RuleSet.from_canonical(store.read.rule_set(active.rule_set_digest))


def _refused(rules: RuleSet, findings: list[ProvenClaim]) -> Exit:
    """Says what is not proved; OK where everything is."""
    from policy.proving import report

    status = proofs.status(report.overall(findings))
    if status is not Exit.OK:
        for line in report.words(rules, findings):
            output.say(line)
        output.say("not everything is proved; nothing was activated")
    return status


def _proofs(findings: list[tuple[ProvenClaim, str]]) -> Proofs:
    from policy.proving.solver import version
    from policy.store import Proofs, ProvedClaim

    claims = tuple(
        ProvedClaim(claim=finding.claim, verdict=finding.verdict.value, against=digest)
        for finding, digest in findings
    )
    return Proofs(claims=claims, solver=version())


@group.command("rollback")
@_NAME
@_REASON
@options.db_option
@options.output_option
def rollback(name: str, reason: str, db: str, form: str) -> int:
    """Go back to the rule set that was active before, as a new activation.

    Going back twice goes back two steps.

    \b
    Example:
      policy env create prod
      policy env activate prod kube-1.36 --reason "as in the cluster"
      policy env activate prod environments/prod --reason "stricter"
      policy env rollback prod --reason "too strict"
    """
    _need_reason(reason)
    with session.open_store(db, write=True) as store:
        row = store.record.roll_back(
            name, reason=reason, at_ms=session.clock_ms(), actor=session.actor()
        )
    output.rows([_activation(row)], form, columns=_ACTIVATION, right=("id",))
    return Exit.OK


def _need_reason(reason: str) -> None:
    if not reason.strip():
        raise options.Misused("`--reason` is empty", help="say why, for those who read it later")


_ACTIVATION: Final = (
    "id",
    "at",
    "actor",
    *WRITTEN_BY,
    "rule_set",
    "digest",
    "before",
    "reason",
    "source",
    "proved",
)


def _activation(row: ActivationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "environment": row.environment,
        "at": session.instant(row.at_ms),
        "actor": row.actor,
        **written_by(row),
        "rule_set": row.rule_set,
        "digest": row.rule_set_digest,
        "before": row.previous_digest,
        "reason": row.reason,
        "source": row.source,
        "proved": [] if row.proofs is None else [claim.claim for claim in row.proofs.claims],
        "proofs": None if row.proofs is None else to_builtins(row.proofs),
    }


def _environment(row: EnvironmentRow) -> dict[str, Any]:
    active = row.active
    return {
        "environment": row.name,
        "cluster": row.cluster,
        "created": session.instant(row.created_ms),
        "created_by": row.created_by,
        **{f"created_{name}": value for name, value in written_by(row).items()},
        "rule_set": active.rule_set if active else None,
        "digest": active.rule_set_digest if active else None,
        "since": session.instant(active.at_ms) if active else None,
        "actor": active.actor if active else None,
        "reason": active.reason if active else None,
    }
