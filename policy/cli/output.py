"""Printing rows and documents: tables for people, JSON, YAML and CSV for programs."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_Item = TypeVar("_Item")
Row: TypeAlias = Mapping[str, Any]

_KEPT_WHOLE: Final = 24
"""Cells up to this length are not folded."""

_WIDE: Final = 10_000
"""Columns of a table that no terminal limits: a pipe or a file cuts nothing off."""


def rows(
    found: Sequence[Row],
    form: str,
    *,
    columns: Sequence[str],
    right: Iterable[str] = (),
    header: bool = True,
) -> None:
    """Print rows; `columns` in this order in tables and CSV, `right` are aligned right."""
    if form == "table":
        print_table(found, columns=columns, right=right)
    elif form == "csv":
        _csv(found, columns, header=header)
    elif form == "jsonl":
        for row in found:
            click.echo(_json(row, indent=None))
    else:
        document(list(found), form)


def document(value: Any, form: str) -> None:
    """Print one value as JSON or YAML."""
    if form == "yaml":
        import yaml

        text = yaml.dump(
            _plain(value), Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100
        )
        click.echo(text, nl=False)
    else:
        click.echo(_json(value, indent=None if form == "jsonl" else 2))


def console(*, stderr: bool = False) -> Console:
    """A console as wide as its terminal, or wide enough for anything where there is none."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDE
    return Console(
        file=stream,
        width=width,
        highlight=False,
        markup=False,  # `[NodeAffinity]` in a message is no markup
        emoji=False,
    )


def table(found: Sequence[Row], *, columns: Sequence[str], right: Iterable[str] = ()) -> Table:
    """A table whose cells are folded, never cut off; instants are shown to the second."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    to_the_right = set(right)
    cells = [[_brief(cell(row.get(column))) for column in columns] for row in found]
    for i, column in enumerate(columns):
        longest = max((len(line[i]) for line in cells), default=0)
        made.add_column(
            # Words of a heading may stand below each other where the terminal is narrow.
            Text(column.replace("-", " ") if sys.stdout.isatty() else column),
            justify="right" if column in to_the_right else "left",
            overflow="fold",
            min_width=min(longest, _KEPT_WHOLE),
        )
    for line in cells:
        made.add_row(*map(Text, line))  # not markup: `[a]` in a value stays as it is
    return made


def print_table(found: Sequence[Row], *, columns: Sequence[str], right: Iterable[str] = ()) -> None:
    """Print rows as a table, or say on standard error that there are none."""
    if not found:
        click.echo("nothing found", err=True)
        return
    console().print(table(found, columns=columns, right=right))


_MILLISECONDS: Final = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d{3}Z")


def _brief(content: str) -> str:
    found = _MILLISECONDS.fullmatch(content)
    return f"{found[1]}Z" if found else content


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={cell(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    return str(value)


def _csv(found: Sequence[Row], columns: Sequence[str], *, header: bool) -> None:
    import csv

    writer = csv.writer(sys.stdout, lineterminator="\n")
    if header:
        writer.writerow(columns)
    for row in found:
        writer.writerow([_csv_cell(row.get(column)) for column in columns])


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping | list | tuple):
        return _json(value, indent=None)
    return value


def _json(value: Any, *, indent: int | None) -> str:
    import json

    return json.dumps(_plain(value), indent=indent, ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Only what JSON and YAML know; a text of the database stays a text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, float) and not math.isfinite(value):
        # JSON has no number for them; as texts they are what Postgres' own JSON has.
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, bool | int | float):
        return value
    return str(value)


def _dumper() -> Any:
    import yaml

    return getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar for (done, total) on a terminal, silence elsewhere; total 0 where it is unknown."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (TextColumn(what), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total or None)


def watched(items: Iterable[_Item], what: str) -> Iterator[_Item]:
    """The items, with a bar on a terminal while they are made."""
    with progress(what) as advance:
        for number, item in enumerate(items, start=1):
            advance(number, 0)
            yield item


def say(text: str) -> None:
    """Words for the person at the terminal: standard error, so that data stays data."""
    click.echo(text, err=True)
