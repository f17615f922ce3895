"""`--since TIME` and `--until TIME`, the same for every command that takes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from policy.cli import options

_Function = TypeVar("_Function", bound=Callable[..., Any])


def bound(ctx: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    """Callback, as `options.instant`: whichever of the two is read last is compared, too."""
    found = options.instant(ctx, param, text)
    if found is not None:
        from policy.audit import instants

        ends = {**ctx.params, param.name: found}
        since, until = (options.millis(ends.get(name)) for name in ("since", "until"))
        try:
            instants.require_order(since, until, names=("--since", "--until"))
        except instants.NoInstant as exc:
            raise options.Misused(str(exc), help="exchange them, or leave one out") from None
    return found


def since(what: str) -> Callable[[_Function], _Function]:
    """`--since TIME`; what: the beginning of its help, up to the forms of a time."""
    forms = "ISO 8601, `yesterday 14:02`, or `7d` before now."
    return click.option("--since", metavar="TIME", callback=bound, help=f"{what}: {forms}")


def until(what: str) -> Callable[[_Function], _Function]:
    """`--until TIME`; what: its help."""
    return click.option("--until", metavar="TIME", callback=bound, help=what)
