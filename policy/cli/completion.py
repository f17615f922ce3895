"""What a shell proposes for a word that is being typed.

A proposal is put on the command line as it is, and some shells do not quote it: names that would
mean anything else than themselves there are not proposed. Where nothing can be read, nothing is
proposed, because a shell has no room for a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from policy.store import Store

_PLAIN: Final = re.compile(r"[\w./@-]+", re.ASCII)


def rules(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Shipped rule sets, and files."""
    from policy.rules.files import shipped_environments, shipped_names, shipped_rules

    names = (*shipped_names(), *shipped_rules(), *shipped_environments())
    return [CompletionItem(typed, type="file"), *_matching(names, typed)]


def batch_rules(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Shipped rules of batch sessions, and files."""
    from policy.rules.files import BATCH_RULES, shipped_names

    return [CompletionItem(typed, type="file"), *_matching(shipped_names(BATCH_RULES), typed)]


def all_rules(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
    """Shipped rules of both kinds, and files."""
    from policy.rules.files import BATCH_RULES, shipped_names

    return [*rules(ctx, param, typed), *_matching(shipped_names(BATCH_RULES), typed)]


def files(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    return [CompletionItem(typed, type="file")]


def environments(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """The environments in the database."""
    return _matching(_stored(ctx, lambda store: [e.name for e in store.read.environments()]), typed)


def clusters(ctx: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
    """The clusters in the database."""
    return _matching(_stored(ctx, lambda store: [c.name for c in store.state.clusters()]), typed)


def queries(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """The saved queries."""
    from policy.store.read.saved_queries import saved_queries

    return _matching(saved_queries(), typed)


def _matching(names: Iterable[str], typed: str) -> list[CompletionItem]:
    return [
        CompletionItem(name)
        for name in sorted(names)
        if name.startswith(typed) and _PLAIN.fullmatch(name)
    ]


def _stored(ctx: click.Context, names: Callable[[Store], list[str]]) -> list[str]:
    """Names out of the database of the command line, as far as it has been typed."""
    import os

    from policy.cli import options, session
    from policy.store import StoreError

    url = ctx.params.get("db") or os.environ.get("POLICY_DB") or options.DEFAULT_DB
    try:
        with session.open_store(url) as store:
            return names(store)
    except (StoreError, OSError):
        return []
