"""`policy rules prove`, and what other commands need of proofs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from policy.cli import options, output, rule_files, session
from policy.cli.exits import Exit

ACTIVE: Final = "active"
"""Stands for the rule set that is active in the environment."""

if TYPE_CHECKING:
    from policy.proving.questions import Proof, ProvenClaim
    from policy.rules import RuleSet


def require_solver() -> None:
    """Start the solver. Raises ExtraMissing where the extra is not installed."""
    from policy.extras import require

    require("prove", "proofs need")
    from policy.proving import process

    process.start()


def _timeout(_ctx: click.Context, _param: click.Parameter, text: str) -> int:
    from policy.cases.fields import seconds

    found = seconds(text)
    if not found:
        raise options.Misused(
            f"`{text}` is no length of time for `--timeout`", help="write `10s` or `1m`"
        )
    return found


def timeout_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """`--timeout TIME`"""
    return click.option(
        "--timeout",
        metavar="TIME",
        default="10s",
        callback=_timeout,
        help="For each run of the solver; what takes longer is unknown.",
    )(function)


@click.command("prove")
@click.argument("rules", metavar="FILE", shell_complete=options.proposing("rules"))
@click.option(
    "--never",
    metavar="EXPR",
    multiple=True,
    help="No victim may be taken for which this condition is true.",
)
@click.option(
    "--at-least",
    metavar="FILE",
    multiple=True,
    shell_complete=options.proposing("rules"),
    help="Every pod that these rules protect has to be protected.",
)
@click.option(
    "--same",
    metavar="FILE",
    multiple=True,
    shell_complete=options.proposing("rules"),
    help="Exactly the pods that these rules protect have to be protected.",
)
@click.option("--dead", is_flag=True, help="Every rule has to decide somewhere.")
@timeout_option
@click.option(
    "--save-case",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add the counterexamples to this file of cases.",
)
@rule_files.rules_root_option
@options.db_option
@options.output_of("table", "json")
def prove(
    rules: str,
    never: tuple[str, ...],
    at_least: tuple[str, ...],
    same: tuple[str, ...],
    dead: bool,
    timeout: int,
    save_case: Path | None,
    db: str,
    form: str,
) -> int:
    """Prove what a rule set can never do, on whatever cluster, or show where it does.

    FILE is a shipped rule set or a file; with `--db` also an environment or a digest. It is always
    asked whether a victim of equal or higher priority can be taken. What is refuted is shown as
    the smallest pod and preemptor, after the product has decided on them as well. A case that is
    saved wants what the claim demands, so it fails until the rules are mended. The exit status is
    0 where every claim is proved, 5 where one is refuted, 4 where one is unknown.

    \b
    Example:
      policy rules prove environments/dev --never "victim.namespace == 'kube-system'"
      policy rules prove environments/staging --at-least environments/dev --output json
    """
    require_solver()
    from policy.proving import questions, report
    from policy.proving.solver import SolverLimits

    limits = SolverLimits(seconds=timeout)
    rule_set = _loaded(rules, db)
    unwanted = [questions.load_condition(source) for source in never]
    others = [(name, _loaded(name, db)) for name in at_least]
    equals = [(name, _loaded(name, db)) for name in same]

    def findings() -> Iterator[ProvenClaim]:
        yield questions.no_inversion(rule_set, limits)
        for condition in unwanted:
            yield questions.never(rule_set, condition, limits)
        for name, other in others:
            yield questions.at_least(rule_set, other, limits, named=name)
        for name, other in equals:
            yield questions.same(rule_set, other, limits, named=name)
        if dead:
            yield questions.no_dead_rule(rule_set, limits)

    found = list(findings())
    if rule_set.groups is not None:
        output.say(
            "the section `groups` is not part of it: proofs are about victims of single pods"
        )
    if form == "json":
        output.document(report.document(rule_set, found), form)
    else:
        for line in report.words(rule_set, found):
            output.line(line)
    if save_case is not None:
        _save(save_case, found)
    return status(report.overall(found))


def status(verdict: Proof) -> Exit:
    """The exit status of the worst verdict."""
    from policy.proving.questions import Proof

    if verdict is Proof.REFUTED:
        return Exit.DIFFERS
    return Exit.OK if verdict is Proof.PROVED else Exit.UNPROVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Required:
    """What has to be proved of a rule set before it is activated."""

    never: tuple[str, ...]
    at_least: tuple[str, ...]  #: names, files, digests, environments; `active`

    @staticmethod
    def parse(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> Required:
        """Reads `never:EXPR` and `at-least:AS`. Raises UsageError."""
        found: dict[str, list[str]] = {"never": [], "at-least": []}
        for text in texts:
            kind, colon, rest = text.partition(":")
            if kind not in found or not colon or not rest.strip():
                raise options.Misused(
                    f"`{text}` is nothing that can be proved",
                    help="write `never:EXPR`, or `at-least:` and `active`, a rule set or a file",
                )
            found[kind].append(rest.strip())
        return Required(never=tuple(found["never"]), at_least=tuple(found["at-least"]))

    def __bool__(self) -> bool:
        return bool(self.never or self.at_least)

    def findings(
        self, rules: RuleSet, active: RuleSet | None, *, db: str, timeout: int
    ) -> list[tuple[ProvenClaim, str]]:
        """Each claim with the digest of the rule set that it compares with, "" without one.

        The first is what is always proved: no victim of equal or higher priority. Raises
        UsageError where `active` is named and no rule set is, ExtraMissing, RulesError.
        """
        require_solver()
        from policy.proving import questions
        from policy.proving.solver import SolverLimits

        limits = SolverLimits(seconds=timeout)
        unwanted = [questions.load_condition(source) for source in self.never]
        others = [(name, self._other(name, active, db)) for name in self.at_least]
        found = [(questions.no_inversion(rules, limits), "")]
        found += [(questions.never(rules, condition, limits), "") for condition in unwanted]
        for name, other in others:
            named = f"`{other.name}`, which is active" if name == ACTIVE else name
            found.append((questions.at_least(rules, other, limits, named=named), other.digest))
        return found

    @staticmethod
    def _other(name: str, active: RuleSet | None, db: str) -> RuleSet:
        if name != ACTIVE:
            return _loaded(name, db)
        if active is None:
            raise options.Misused(
                "no rule set is active yet that `at-least:active` could compare with",
                help="leave it out for the first activation",
            )
        return active


def _loaded(source: str, db: str) -> RuleSet:
    """Rules by name, path or digest, or those active in an environment. Raises RulesError."""
    from policy.rules import RuleSet
    from policy.rules.files import is_path, shipped

    if source.startswith(rule_files.DIGEST):
        return rule_files.rule_set(source, db=db)
    given = click.get_current_context().get_parameter_source("db")
    if source in shipped() or is_path(source) or given is ParameterSource.DEFAULT:
        return rule_files.rule_set(source)
    with session.open_store(db) as store:
        active = store.read.active_rule_set(source)
    assert active is not None
    if active.batch:
        raise options.Misused(f"environment `{source}` holds rules of batch sessions")
    return RuleSet.from_canonical(active.canonical)


def _save(file: Path, findings: list[ProvenClaim]) -> None:
    """Add the counterexamples to a file of cases. Raises RulesError for one that holds others."""
    from policy.cases.reading import read_cases
    from policy.proving.questions import Proof
    from policy.rules.files import text_of

    refuted = [f.example.text for f in findings if f.verdict is Proof.REFUTED and f.example]
    if not refuted:
        output.say(f"no counterexample; `{file}` was not written")
        return
    text = text_of(file, str(file)) if file.exists() else ""
    if text:
        read_cases(text, str(file))
        text = text.rstrip("\n") + "\n\n"
    text += "\n".join(refuted)
    read_cases(text, str(file))
    file.write_text(text, "utf-8")
    output.say(f"{output.number(len(refuted), 'case')} in `{file}`")
