"""Rule files that a command is given: loaded in one place, inside of `--rules-root` where named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from policy.batch.rules import BatchRules
    from policy.rules import RuleSet

_Function = TypeVar("_Function", bound=Callable[..., Any])

_KEY: Final = "policy.rules_root"


def rules_root_option(function: _Function) -> _Function:
    """`--rules-root DIR`, for `rule_set`, `batch_rules` and `within` of this file."""
    return click.option(
        "--rules-root",
        metavar="DIR",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        envvar="POLICY_RULES_ROOT",
        show_envvar=True,
        expose_value=False,
        callback=_remember,
        help="Read no rule file outside of this folder, symbolic links followed.",
    )(function)


def _remember(ctx: click.Context, _: click.Parameter, folder: Path | None) -> None:
    ctx.meta[_KEY] = folder


def within() -> Path | None:
    """The folder outside of which the running command reads no rule file."""
    found: Path | None = click.get_current_context().meta.get(_KEY)
    return found


def rule_set(source: str) -> RuleSet:
    """A shipped rule set, or a rule file. Raises RulesError."""
    from policy.rules import RuleSet

    return RuleSet.load(source, within=within())


def batch_rules(source: str) -> BatchRules:
    """Shipped batch rules, a file of them, or another scheduler's file. Raises RulesError."""
    from policy.batch.rules import BatchRules

    return BatchRules.load(source, within=within())


def rules_of_any_kind(source: str) -> RuleSet | BatchRules:
    """Either, as the file says. Raises RulesError."""
    from policy.rules.files import BATCH_RULES, is_of_kind

    return batch_rules(source) if is_of_kind(source, BATCH_RULES) else rule_set(source)
