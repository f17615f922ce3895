"""Rule files that a command is given: loaded in one place, inside of `--rules-root` where named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

if TYPE_CHECKING:
    from policy.batch.rules import BatchRules
    from policy.rules import RuleSet
    from policy.store import Store

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


DIGEST: Final = "sha256:"
"""Before (the beginning of) a digest that stands for a rule set, shipped or in the database."""


def rule_set(source: str, *, store: Store | None = None, db: str | None = None) -> RuleSet:
    """A shipped rule set, a rule file, or `sha256:...`: shipped, or of the database.

    store, db: the database, open or where it is. Raises RulesError, StoreError.
    """
    from policy.rules import RuleSet

    if source.startswith(DIGEST):
        return RuleSet.from_canonical(_by_digest(source, store, db))
    return RuleSet.load(source, within=within())


def batch_rules(source: str, *, db: str | None = None) -> BatchRules:
    """Batch rules in the same ways, or another scheduler's file. Raises RulesError, StoreError."""
    from policy.batch.rules import BatchRules

    if source.startswith(DIGEST):
        return BatchRules.from_canonical(_by_digest(source, None, db))
    return BatchRules.load(source, within=within())


def rules_of_any_kind(source: str, *, db: str | None = None) -> RuleSet | BatchRules:
    """Either, as the file or the stored text says. Raises RulesError, StoreError."""
    from policy.rules.files import BATCH_RULES, is_of_kind

    if source.startswith(DIGEST):
        import json

        batch = json.loads(_by_digest(source, None, db)).get("kind") == BATCH_RULES
    else:
        batch = is_of_kind(source, BATCH_RULES, within=within())
    return batch_rules(source, db=db) if batch else rule_set(source, db=db)


def recorded_as(wanted: str | None) -> str | None:
    """The rule set that decisions are filtered by, as the store takes it. Raises InvalidValue."""
    if wanted is None:
        return None
    from policy.audit import rule_sets

    return rule_sets.recorded_as(wanted)


def _by_digest(digest: str, store: Store | None, db: str | None) -> str:
    """The canonical text of a shipped rule set, or of one in the database. Raises StoreError."""
    from policy.audit.rule_sets import canonical_of
    from policy.store.errors import NotFound

    def stored(wanted: str) -> str:
        if store is not None:
            return store.read.rule_set(wanted)
        if db is None:
            raise NotFound(f"there is no shipped rule set with digest `{wanted}`", help=_NO_DB)
        from policy.cli import session

        with session.open_store(db) as opened:
            return opened.read.rule_set(wanted)

    return canonical_of(digest, stored)


_NO_DB: Final = (
    "this command reads no rule set of a database; `policy rules show DIGEST > FILE` makes a file"
    " of one"
)
