"""Options that several commands share, with one meaning each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import click

from policy.cli import rule_files
from policy.cluster import times

_Function = TypeVar("_Function", bound=Callable[..., Any])

DEFAULT_DB: Final = "policy.db"
DEFAULT_RULES: Final = "kube-1.35"
FORMATS: Final = ("table", "json", "yaml", "csv", "jsonl")


def db_option(function: _Function) -> _Function:
    """`--db URL`"""
    return click.option(
        "--db",
        metavar="URL",
        envvar="POLICY_DB",
        default=DEFAULT_DB,
        show_default=True,
        show_envvar=True,
        help="Database: a SQLite file, or `postgresql://user@host/name`.",
    )(function)


def cluster_option(function: _Function) -> _Function:
    """`--cluster NAME`"""
    return click.option(
        "--cluster",
        metavar="NAME",
        default="default",
        show_default=True,
        help="Which of the clusters in the database.",
    )(function)


def output_option(function: _Function) -> _Function:
    """`--output FORMAT`"""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(FORMATS),
        default="table",
        show_default=True,
        help="Form of what is printed on standard output.",
    )(function)


def rules_option(function: _Function) -> _Function:
    """`--rules NAME|PATH` and `--rules-root DIR`"""
    return click.option(
        "--rules",
        metavar="NAME|PATH",
        default=DEFAULT_RULES,
        show_default=True,
        help="A shipped rule set, or a rule file.",
    )(rule_files.rules_root_option(function))


def seed_option(function: _Function) -> _Function:
    """`--seed N`"""
    return click.option(
        "--seed",
        metavar="N",
        type=click.IntRange(0, 2**63 - 1),
        default=0,
        show_default=True,
        help="What chance is drawn from; recorded with the decision.",
    )(function)


def jobs_option(function: _Function) -> _Function:
    """`--jobs N`"""
    return click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Processes that share the work.",
    )(function)


def decision_id(text: str) -> int | str:
    """The number of a decision, or the beginning of its digest."""
    return int(text) if text.isdecimal() and len(text) < 19 else text


def instant(_: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    """Callback of an option that takes an ISO 8601 time; without a zone it is UTC."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"`{text}` is not a time such as {_FORM}", param=param) from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def past_instant(ctx: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    """Like `instant`; `7d`, `2h`, `30m`, `45s` and `1w` are that long before now."""
    if text is not None and (found := re.fullmatch(r"(\d{1,5})([smhdw])", text)):
        return clock() - int(found[1]) * _UNITS[found[2]]
    try:
        return instant(ctx, param, text)
    except click.BadParameter:
        message = f"`{text}` is not a time such as {_FORM}, `7d` or `2h`"
        raise click.BadParameter(message, param=param) from None


_FORM: Final = "`2026-11-21T08:00:00Z`"
_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def now_option(function: _Function) -> _Function:
    """`--now TIME`"""
    return click.option(
        "--now",
        metavar="TIME",
        callback=instant,
        default=None,
        help="The time to decide for (ISO 8601, UTC without zone); the clock by default."
        " Recorded with the decision.",
    )(function)


def millis(instant: datetime | None) -> int | None:
    """Milliseconds since 1970 UTC, as the database keeps them."""
    return None if instant is None else times.from_datetime(instant)


def clock() -> datetime:
    """The current time in whole milliseconds: what is recorded is what was used."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)


def processors() -> int:
    """Processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1
