"""Printing rows and documents: tables for people, JSON, YAML and CSV for programs."""

from __future__ import annotations

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

_WIDE: Final = 2000
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
    return Console(file=stream, width=width, highlight=False, soft_wrap=not stream.isatty())


def table(
    found: Iterable[Row],
    *,
    columns: Sequence[str],
    right: Iterable[str] = (),
    title: str | None = None,
) -> Table:
    """A table whose cells are folded, never cut off."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(
        box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False, show_edge=False
    )
    to_the_right = set(right)
    for column in columns:
        justify: Any = "right" if column in to_the_right else "left"
        made.add_column(column, justify=justify, overflow="fold")
    for row in found:
        made.add_row(*(_text(cell(row.get(column))) for column in columns))
    return made


def print_table(found: Sequence[Row], *, columns: Sequence[str], right: Iterable[str] = ()) -> None:
    """Print rows as a table, or say on standard error that there are none."""
    if not found:
        click.echo("nothing found", err=True)
        return
    console().print(table(found, columns=columns, right=right))


def _text(content: str) -> Any:
    from rich.text import Text

    return Text(content)  # not markup: `[a]` in a value stays as it is


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

    return json.dumps(_plain(value), indent=indent, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """Only what JSON and YAML know; a text of the database stays a text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
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
