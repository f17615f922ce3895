"""`policy sql`"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit

_FORMS: Final = (*options.FORMATS, "parquet")


def _parameters(
    _: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int | str]:
    """`NAME=VALUE` options by name; whole numbers as numbers."""
    found: dict[str, int | str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"`{text}` is not like `NAME=VALUE`", param=param)
        found[name] = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
    return found


@click.command("sql")
@click.argument("query", metavar="[QUERY|NAME|-]", required=False)
@options.db_option
@click.option("--list", "show_list", is_flag=True, help="List the saved queries.")
@click.option("--text", is_flag=True, help="Print the SQL of a saved query instead of running it.")
@click.option(
    "--since",
    metavar="TIME",
    callback=options.past_instant,
    help="Parameter `since`, in milliseconds since 1970: ISO 8601, or `7d`, `2h` before now.",
)
@click.option(
    "--until", metavar="TIME", callback=options.past_instant, help="Parameter `until`, likewise."
)
@click.option("--cluster", metavar="NAME", help="Parameter `cluster`; all by default.")
@click.option("--namespace", metavar="NAME", help="Parameter `namespace`; all by default.")
@click.option("--limit", metavar="N", type=click.IntRange(1), help="Parameter `limit`: 50.")
@click.option(
    "-p",
    "--param",
    "more",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_parameters,
    help="A parameter of your own query, which stands in it as `:NAME`.",
)
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(_FORMS),
    default="table",
    show_default=True,
    help="Form of what is printed on standard output; Parquet needs the extra `parquet`.",
)
def command(
    query: str | None,
    db: str,
    show_list: bool,
    text: bool,
    since: datetime | None,
    until: datetime | None,
    cluster: str | None,
    namespace: str | None,
    limit: int | None,
    more: dict[str, int | str],
    form: str,
) -> int:
    """Run one SQL query that reads, your own or a saved one, and print what it finds.

    The tables and views are documented in docs/sql.md; the names are the same on SQLite and
    Postgres. Nothing can be changed this way. `-` reads the query from standard input.

    \b
    Example:
      policy sql "SELECT * FROM v_preemptions"
      policy sql --list
      policy sql who-preempts-whom --since 7d
      policy sql "SELECT count(*) AS n FROM decisions WHERE node = :node" -p node=n1 --output csv
    """
    if show_list:
        return _list(form)
    if query is None:
        raise click.UsageError("give a query, or `--list` for the saved ones")
    given = {
        "since": options.millis(since),
        "until": options.millis(until),
        "cluster": cluster,
        "namespace": namespace,
        "limit": limit,
    }
    parameters = {name: value for name, value in given.items() if value is not None} | more
    sql, parameters = _resolved(query, parameters)
    if text:
        click.echo(sql.strip())
        return Exit.OK
    if form == "parquet" and sys.stdout.isatty():
        raise click.UsageError("Parquet is no text: write it to a file with `>`")
    with session.open_store(db) as store, store.sql(sql, parameters) as found:
        columns = _unique(found.columns)
        if form == "parquet":
            from policy.audit.tables_out import write_result

            write_result(sys.stdout.buffer, columns, found)
            return Exit.OK
        lines = (dict(zip(columns, row, strict=True)) for row in found)
        if form in ("csv", "jsonl"):
            _stream(lines, form, columns)
        else:
            rows = list(lines)
            output.rows(rows, form, columns=columns, right=_numbers(rows, columns))
    return Exit.OK


def _list(form: str) -> int:
    from policy.store.read.saved_queries import saved_queries

    if form == "parquet":
        raise click.UsageError("the list of saved queries is no table of the database")
    lines = [
        {"name": saved.name, "about": saved.about, "parameters": saved.parameters}
        for saved in saved_queries().values()
    ]
    output.rows(lines, form, columns=("name", "about", "parameters"))
    return Exit.OK


def _resolved(query: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The SQL of a query, and all of its parameters. Raises NotFound, click.UsageError."""
    from policy.store.read.saved_queries import DEFAULTS, saved_query

    if query == "-":
        return sys.stdin.read(), parameters
    if not re.fullmatch(r"[a-z]+(-[a-z]+)*", query):
        return query, parameters
    saved = saved_query(query)
    alien = [name for name in parameters if name not in saved.parameters]
    if alien:
        takes = ", ".join(f"`{name}`" for name in saved.parameters)
        raise click.UsageError(f"`{query}` has no parameter `{alien[0]}`; it has {takes}")
    return saved.sql, {name: DEFAULTS[name] for name in saved.parameters} | parameters


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
