"""`--since TIME` and `--until TIME`, the same for every command that takes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from policy.cli import options

_Function = TypeVar("_Function", bound=Callable[..., Any])


def since(what: str) -> Callable[[_Function], _Function]:
    """`--since TIME`; what: the beginning of its help, up to the forms of a time."""
    forms = "ISO 8601, `yesterday 14:02`, or `7d` before now."
    return click.option(
        "--since", metavar="TIME", callback=options.instant, help=f"{what}: {forms}"
    )


def until(what: str) -> Callable[[_Function], _Function]:
    """`--until TIME`; what: its help."""
    return click.option("--until", metavar="TIME", callback=options.instant, help=what)
