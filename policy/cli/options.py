"""Options that several commands share, with one meaning each."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click
from click.core import ParameterSource

from policy.cli import rule_files
from policy.cluster import quantities, times

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from policy.audit.instants import WrongZone
    from policy.parts import Workers

_Function = TypeVar("_Function", bound=Callable[..., Any])

DEFAULT_DB: Final = "policy.db"
DEFAULT_CLUSTER: Final = "default"
DEFAULT_RULES: Final = "kube-1.36"
FORMATS: Final = ("table", "json", "yaml", "csv", "jsonl")


def proposing(
    what: str,
) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """What a shell proposes: a function of `completion`, loaded when a shell asks."""

    def proposed(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
        from policy.cli import completion

        found: list[CompletionItem] = getattr(completion, what)(ctx, param, typed)
        return found

    return proposed


def db_option(function: _Function) -> _Function:
    """`--db URL`"""
    return click.option(
        "--db",
        cls=Filled,
        metavar="URL",
        envvar="POLICY_DB",
        default=DEFAULT_DB,
        show_envvar=True,
        help="Database: a SQLite file, or `postgresql://user@host/name`.",
    )(function)


def cluster_option_of(help: str) -> Callable[[_Function], _Function]:
    """`--cluster NAME` of commands that look at one cluster: `session.cluster_of` says which."""
    return click.option(
        "--cluster",
        metavar="NAME",
        shell_complete=proposing("clusters"),
        help=f"{help}; by default the one named `{DEFAULT_CLUSTER}`, or else the only one.",
    )


def cluster_option(function: _Function) -> _Function:
    """`--cluster NAME`"""
    return cluster_option_of("Which of the clusters in the database")(function)


def any_cluster_option(function: _Function) -> _Function:
    """`--cluster NAME` of commands that take all clusters without it."""
    return click.option(
        "--cluster",
        metavar="NAME",
        shell_complete=proposing("clusters"),
        help="Only this cluster; all of them by default.",
    )(function)


def output_of(
    *forms: str, default: str = "table", note: str = ""
) -> Callable[[_Function], _Function]:
    """`--output FORMAT` of the forms that a command has; with CSV among them, `--raw`."""
    extra = (
        (raw_option("-o csv", lambda values: values["form"] == "csv"),) if "csv" in forms else ()
    )
    option = click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(forms),
        default=default,
        help=f"Form of what is printed on standard output. {note}".rstrip(),
    )

    def added(function: _Function) -> _Function:
        for one in extra:
            function = one(function)
        return option(function)

    return added


def output_option(function: _Function) -> _Function:
    """`--output FORMAT`"""
    return output_of(*FORMATS)(function)


def token_uses_option(function: _Function) -> _Function:
    """`--token-uses FILE`"""
    return click.option(
        "--token-uses",
        cls=Filled,
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar="POLICY_TOKEN_USES",
        show_envvar=True,
        help="Where services note when each token was seen last; by default beside the file of "
        "tokens, with `.used` at the end.",
    )(function)


def raw_option(
    only_with: str, wanted: Callable[[Mapping[str, Any]], bool]
) -> Callable[[_Function], _Function]:
    """`--raw`, which a command does not see: `raw_wanted` has it wherever CSV is written.

    wanted: whether the values of the other options leave it a meaning; only_with: says which.
    """

    def added(function: _Function) -> _Function:
        @wraps(function)
        def checked(*args: Any, raw: bool, **values: Any) -> Any:
            if raw and not wanted(values):
                raise Misused(
                    "`--raw` is about the cells of CSV", help=f"give `{only_with}` as well"
                )
            click.get_current_context().meta[_RAW] = raw
            return function(*args, **values)

        return click.option(
            "--raw",
            is_flag=True,
            help="CSV: without the apostrophe before texts that a spreadsheet takes for formulas.",
        )(cast("_Function", checked))

    return added


def raw_wanted() -> bool:
    """Whether `--raw` was given to the command that runs."""
    ctx = click.get_current_context(silent=True)
    return bool(ctx is not None and ctx.meta.get(_RAW))


_RAW: Final = "policy.raw"


class Misused(click.UsageError):
    """A command line that is wrong, and what to do about it."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message, click.get_current_context(silent=True))
        self.help = help


def need(flag: str, given: object, *names: str) -> None:
    """Refuse options that mean nothing without another one, `flag`. Raises Misused."""
    if not given:
        _refuse(names, f"means nothing without `{flag}`")


def refuse_beside(what: str, given: object, *names: str) -> None:
    """Refuse options that mean nothing beside `what`. Raises Misused."""
    if given:
        _refuse(names, f"means nothing beside {what}")


def _refuse(names: Iterable[str], why: str) -> None:
    ctx = click.get_current_context()
    given = {ParameterSource.COMMANDLINE, ParameterSource.PROMPT}
    for param in ctx.command.params:
        if param.name in names and ctx.get_parameter_source(param.name) in given:
            option = (
                max(param.opts, key=len)
                if isinstance(param, click.Option)
                else param.make_metavar(ctx)
            )
            raise Misused(f"`{option}` {why}", help=f"leave out `{option}`")


def rules_option(function: _Function) -> _Function:
    """`--rules NAME|PATH` and `--rules-root DIR`"""
    return click.option(
        "--rules",
        metavar="NAME|PATH|DIGEST",
        default=DEFAULT_RULES,
        shell_complete=proposing("rules"),
        help="A shipped rule set, a rule file, or `sha256:...` of one in the database.",
    )(rule_files.rules_root_option(function))


def seed_option(function: _Function) -> _Function:
    """`--seed N`"""
    return click.option(
        "--seed",
        metavar="N",
        type=click.IntRange(0, 2**63 - 1),
        default=0,
        help="What chance is drawn from; recorded with the decision.",
    )(function)


def jobs_option(function: _Function) -> _Function:
    """`--jobs N`"""
    return click.option(
        "--jobs",
        metavar="N",
        type=click.IntRange(1),
        default=1,
        help="Processes that share the work.",
    )(dask_option(function))


def dask_option(function: _Function) -> _Function:
    """`--dask ADDRESS`"""
    return click.option(
        "--dask",
        metavar="ADDRESS",
        default="",
        show_default=False,
        help="Instead of processes here: let the workers of the Dask cluster whose scheduler has "
        "this address share the work. They need this program, the database and the extra `dask`.",
    )(function)


def workers(jobs: int, dask: str) -> Workers:
    """Who does the work, as `--jobs` and `--dask` say. Raises Misused for both at once."""
    from policy.parts import Workers

    refuse_beside("`--dask`", dask, "jobs")
    return Workers(jobs=jobs, dask=dask)


def decision_id(text: str) -> int | str:
    """The number of a decision, or the beginning of its digest."""
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else text


GROUP: Final = "group:"
"""Before the number of a group's cycle, where decisions are named by their numbers."""

SESSION: Final = "session:"
"""The same of a batch session."""

OBSERVED: Final = "observed:"
"""The same of an observed preemption, or before the pod whose newest one is meant."""


def group_id(text: str) -> int | None:
    """The number in `group:ID`; None where the text names no cycle of a group."""
    return _number_behind(GROUP, text)


def session_id(text: str) -> int | None:
    """The number in `session:ID`; None where the text names no batch session."""
    return _number_behind(SESSION, text)


def _number_behind(prefix: str, text: str) -> int | None:
    number = text.removeprefix(prefix)
    if number == text:
        return None
    if not re.fullmatch(r"[0-9]{1,18}", number):
        raise Misused(f"`{text}` is not `{prefix}` and a number")
    return int(number)


def instant(_: click.Context, param: click.Parameter, text: str | None) -> datetime | None:
    """Callback of an option that takes a time as people type it: `policy.audit.instants`.

    What the text left open is said on standard error.
    """
    if text is None:
        return None
    from policy.audit import instants
    from policy.cli import output

    try:
        found = instants.read(text, now=clock())
    except instants.WrongZone as exc:
        raise wrong_zone(exc) from None
    except instants.NoInstant as exc:
        raise click.BadParameter(str(exc), param=param) from None
    read = times.to_text(times.from_datetime(found.at))
    if found.relative:
        output.say(f"`{text}` is read as {read} (UTC)")
    if found.zone:
        output.say(
            f"`{text}` is read as {read} (in {found.zone};"
            f" {instants.ZONE_VARIABLE} names another zone)"
        )
    return found.at


def wrong_zone(error: WrongZone) -> Misused:
    """The variable is to be mended, whichever option was read."""
    return Misused(str(error), help="set it to the name of a time zone, or unset it")


def deciding_instant(
    ctx: click.Context, param: click.Parameter, text: str | None
) -> datetime | None:
    """Like `instant`, for a time to decide for: what is computed from it still is a time."""
    found = instant(ctx, param, text)
    if found is not None and times.from_datetime(found) > times.LATEST_NOW:
        latest = times.to_text(times.LATEST_NOW)
        message = f"`{text}` is too late: decisions can be made up to {latest}"
        raise click.BadParameter(message, param=param)
    return found


def now_option(function: _Function) -> _Function:
    """`--now TIME`"""
    return click.option(
        "--now",
        metavar="TIME",
        callback=deciding_instant,
        default=None,
        help="The time to decide for (ISO 8601, `yesterday 14:02`, `2h`); the clock by default."
        " Recorded with the decision.",
    )(function)


class Filled(click.Option):
    """An option that is left out or has a value: `""` is a shell's variable that is not set."""

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        given = ctx.get_parameter_source(self.name or "") is ParameterSource.COMMANDLINE
        if given and isinstance(value, str) and not value.strip():
            option = max(self.opts, key=len)
            raise Misused(
                f"`{option}` is given without a value", help=f"give it one, or leave out `{option}`"
            )
        return super().process_value(ctx, value)


class Seconds(click.FloatRange):
    """A number of seconds in a range; `nan`, which compares with no bound, is in none."""

    name = "seconds"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        found: float = super().convert(value, param, ctx)
        if math.isnan(found):
            self.fail(f"`{value}` is no number of seconds", param, ctx)
        return found


class _Size(click.ParamType):  # type: ignore[type-arg]  # generic in newer releases only
    """A number of bytes as Kubernetes writes it: `3Mi`, `500k`, `1048576`."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            found = quantities.units(value)
        except quantities.QuantityError as exc:
            self.fail(f"{exc}; for example `3Mi`", param, ctx)
        if found < 1:
            self.fail(f"`{value}` is less than one byte", param, ctx)
        return found


def newest_option(function: _Function) -> _Function:
    """`--limit N`, of a list that begins with the newest"""
    return click.option(
        "--limit",
        metavar="N",
        type=click.IntRange(1, 1_000_000),
        default=50,
        help="At most so many, the newest.",
    )(function)


def limit_options(function: _Function) -> _Function:
    """`--max-object-size SIZE`, `--max-input-size SIZE`, `--max-objects N`"""
    for option in (
        click.option(
            "--max-objects",
            metavar="N",
            type=click.IntRange(1),
            default=2_000_000,
            help="Most objects of all files together.",
        ),
        click.option(
            "--max-input-size",
            metavar="SIZE",
            type=_Size(),
            default="4Gi",
            help="Most text of all files together, after decompression.",
        ),
        click.option(
            "--max-object-size",
            metavar="SIZE",
            type=_Size(),
            default="3Mi",
            help="Most text of one object, after decompression; an API server accepts 3Mi.",
        ),
    ):
        function = option(function)
    return function


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
