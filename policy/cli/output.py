"""Printing rows and documents: tables for people, JSON, YAML and CSV for programs."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeAlias, TypeVar, cast

from policy.cli import options
from policy.cli.streams import Sink, sink
from policy.text.csv_cells import csv_cell
from policy.text.printable import is_printable, json_escaped, printable, yaml_escaped
from policy.text.words import number as number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_Item = TypeVar("_Item")
Row: TypeAlias = Mapping[str, Any]

_KEPT_WHOLE: Final = 24
"""Cells up to this length are not folded."""

_KEPT_OF_HEADING: Final = 8
"""Words of a heading up to this length are not folded."""

_WIDE: Final = 10_000
"""Columns of a table that no terminal limits: a pipe or a file cuts nothing off."""


def line(text: str = "") -> None:
    """One line on standard output for people; whatever would end or turn it is escaped."""
    _write(printable(text))


def say(text: str, *, help: str = "") -> None:
    """One line for people on standard error, so that data stays data; `help` stands below it."""
    _write(printable(text), err=True)
    if help:
        _write(f"  help: {printable(help)}", err=True)


def say_newest(limit: int, *, more: bool) -> None:
    """Say that a list was cut; more: one row more than `--limit N` was found."""
    if more:
        say(f"the newest {limit}; --limit shows more")


def block(text: str, *, err: bool = False) -> None:
    """Several lines of an object whose own text form has escaped what is not ours."""
    _write(text, err=err)


def _write(text: str, *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    stream.write(f"{text}\n")
    stream.flush()  # so that words and data stand in the order in which they were said


def data(text: str) -> None:
    """Text for programs, as it is."""
    out().write_data(text)


def out() -> Sink:
    """Where data goes; `unread` is true once it is not read any more."""
    return sink(sys.stdout)


def list_columns(
    columns: Sequence[str], found: Sequence[Row], form: str, *, behind: str = ""
) -> tuple[str, ...]:
    """The columns of a list of what clusters have, with `cluster` behind the one that is named.

    A table of one cluster does not repeat its name. CSV has the same columns whatever is listed.
    """
    if form == "table" and len({row["cluster"] for row in found}) <= 1:
        return tuple(columns)
    at = columns.index(behind) + 1 if behind else 0
    return (*columns[:at], "cluster", *columns[at:])


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
            document(row, form)
    else:
        document(list(found), form)


def document(value: Any, form: str) -> None:
    """Print one value as JSON or YAML; what a terminal would obey is escaped as they do."""
    if form == "yaml":
        data(as_yaml(value))
    else:
        data(_json(value, indent=None if form == "jsonl" else 2) + "\n")
    if form == "jsonl":  # who reads line by line has each as soon as it is there
        out().flush()


def print_table(found: Sequence[Row], *, columns: Sequence[str], right: Iterable[str] = ()) -> None:
    """Print rows as a table, or say on standard error that there are none.

    Cells are folded, never cut off; where a terminal is too narrow for all columns, every row is
    printed as a list of them. Instants are shown to the second.
    """
    if not found:
        say("nothing found")
        return
    cells = [[_brief(printable(cell(row.get(column)))) for column in columns] for row in found]
    if not sys.stdout.isatty():
        _print_unfolded(cells, columns, set(right))
        return
    made = _console(sys.stdout)
    least = [_least(column, [row[i] for row in cells]) for i, column in enumerate(columns)]
    if sum(least) + len(columns) > made.width:
        _print_lists(cells, columns)
    else:
        made.print(_table(cells, columns, least, set(right)))


def _print_unfolded(
    cells: Sequence[Sequence[str]], columns: Sequence[str], right: set[str]
) -> None:
    """The table for a pipe or a file, where nothing is folded: the library would load longer."""
    headings = [_heading(column) for column in columns]
    widths = [max(map(_width, contents)) for contents in zip(headings, *cells, strict=True)]
    lines = [
        "  ".join(
            " " * (width - _width(content)) + content
            if column in right
            else content + " " * (width - _width(content))
            for column, width, content in zip(columns, widths, row, strict=True)
        )
        for row in (headings, *cells)
    ]
    lines.insert(1, _RULE * (sum(widths) + 2 * len(widths) - 2))
    block("\n".join(lines))


_RULE: Final = "\N{BOX DRAWINGS LIGHT HORIZONTAL}"


def _width(content: str) -> int:
    """Characters of a terminal that a text takes."""
    if content.isascii():
        return len(content)
    from rich.cells import cell_len

    return cell_len(content)


def _console(stream: TextIO) -> Console:
    """A console as wide as its terminal, or wide enough for anything where there is none."""
    from rich.console import Console

    return Console(
        # The console colours what it is given, so it must not be escaped any more.
        file=cast("TextIO", sink(stream)),
        width=None if stream.isatty() else _WIDE,
        highlight=False,
        markup=False,  # `[NodeAffinity]` in a message is no markup
        emoji=False,
    )


def _table(
    cells: Sequence[Sequence[str]], columns: Sequence[str], least: Sequence[int], right: set[str]
) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    made = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for column, width in zip(columns, least, strict=True):
        made.add_column(
            Text(_heading(column)),
            justify="right" if column in right else "left",
            overflow="fold",
            min_width=width,
        )
    for row in cells:
        made.add_row(*map(Text, row))  # not markup: `[a]` in a value stays as it is
    return made


def _print_lists(cells: Sequence[Sequence[str]], columns: Sequence[str]) -> None:
    """Every row as lines of column and value; rows are a blank line apart."""
    longest = max(len(_heading(column)) for column in columns)
    for place, row in enumerate(cells):
        if place:
            line()
        for column, content in zip(columns, row, strict=True):
            if content:
                line(f"{_heading(column):<{longest}}  {content}")


def _heading(column: str) -> str:
    """Words of a heading may stand below each other where the terminal is narrow."""
    return printable(column.replace("-", " ") if sys.stdout.isatty() else column)


def _least(column: str, contents: Sequence[str]) -> int:
    """Characters that a column needs: its cells are folded at _KEPT_WHOLE, words of its heading
    at _KEPT_OF_HEADING."""
    word = max(map(len, _heading(column).split()), default=0)
    longest = max(map(_width, contents), default=0)
    return max(min(longest, _KEPT_WHOLE), min(word, _KEPT_OF_HEADING))


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

    raw = options.raw_wanted()
    made = io.StringIO()
    writer = csv.writer(made, lineterminator="\n")
    if header:
        writer.writerow([csv_cell(column, raw=raw) for column in columns])
    for row in found:
        writer.writerow([csv_cell(row.get(column), raw=raw) for column in columns])
    data(made.getvalue())


def _json(value: Any, *, indent: int | None) -> str:
    import json

    from policy.text.plain import plain

    text = json.dumps(plain(value), indent=indent, ensure_ascii=False, allow_nan=False)
    return json_escaped(text)


def as_yaml(value: Any) -> str:
    """YAML in which every character shows itself."""
    import yaml

    from policy.text.plain import plain

    text: str = yaml.dump(
        plain(value), Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100
    )
    return yaml_escaped(text)


@cache
def _dumper() -> Any:
    """A dumper that puts into double quotes, the style with escapes, whatever needs one."""
    import yaml

    class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]  # either
        pass

    def text(dumper: Any, value: str) -> Any:
        plain = all(map(is_printable, value.split("\n")))
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, None if plain else '"')

    Dumper.add_representer(str, text)
    return Dumper


@contextmanager
def progress(what: str) -> Iterator[Callable[..., None]]:
    """A bar for (done, total) on a terminal, silence elsewhere; total 0 where it is unknown.

    A third value are words in place of `what`, from then on.
    """
    if not sys.stderr.isatty():
        yield lambda done, total, words=what: None
        return
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    parts = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*parts, console=_console(sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total, words=what: bar.update(
            task, completed=done, total=total or None, description=words
        )


def on_terminal() -> bool:
    """Whether words go to a person."""
    return sys.stderr.isatty()


@contextmanager
def status_line(line: Callable[[], str]) -> Iterator[None]:
    """A line at the bottom of a terminal, renewed every second; silence elsewhere."""
    if not on_terminal():
        yield
        return
    import threading

    stop = threading.Event()

    def renew() -> None:
        with _console(sys.stderr).status(line()) as shown:
            while not stop.wait(1.0):
                shown.update(line())

    thread = threading.Thread(target=renew, name="status-line", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def watched(items: Iterable[_Item], what: str) -> Iterator[_Item]:
    """The items, with a bar on a terminal while they are made."""
    with progress(what) as advance:
        for number, item in enumerate(items, start=1):
            advance(number, 0)
            yield item
