"""`policy sql`"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit


@click.command("sql")
@click.argument("query", metavar="QUERY|-")
@options.db_option
@options.output_option
def command(query: str, db: str, form: str) -> int:
    """Run one SQL query that reads, and print what it finds.

    The tables and views are documented; the names are the same on SQLite and Postgres. Nothing
    can be changed this way. `-` reads the query from standard input.

    \b
    Example:
      policy sql "SELECT * FROM v_preemptions"
      policy sql "SELECT outcome, count(*) AS n FROM decisions GROUP BY outcome" --output csv
    """
    import sys

    text = sys.stdin.read() if query == "-" else query
    with session.open_store(db) as store, store.sql(text) as found:
        columns = _unique(found.columns)
        lines = (dict(zip(columns, row, strict=True)) for row in found)
        if form in ("csv", "jsonl"):
            _stream(lines, form, columns)
        else:
            rows = list(lines)
            output.rows(rows, form, columns=columns, right=_numbers(rows, columns))
    return Exit.OK


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    """Column names as SQL gives them; a second `id` becomes `id_2`."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return tuple(found)


def _stream(lines: Iterator[dict[str, Any]], form: str, columns: Sequence[str]) -> None:
    """Print rows as they come: a result may be larger than the memory."""
    output.rows(list(itertools.islice(lines, 1)), form, columns=columns)
    while batch := list(itertools.islice(lines, 1000)):
        output.rows(batch, form, columns=columns, header=False)


def _numbers(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """Columns that hold nothing but numbers."""
    return [
        name
        for name in columns
        if all(isinstance(row[name], int | float | None) for row in rows)
        and any(row[name] is not None for row in rows)
    ]
