"""`policy sql`"""

from __future__ import annotations

import io
import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import click
from click.core import ParameterSource

from policy.cli import options, output, period, session
from policy.cli.exits import Exit
from policy.text.csv_cells import unique_names

_FORMS: Final = (*options.FORMATS, "parquet")
_TIMEOUT_SECONDS: Final = 60
_MOST_ROWS: Final = 1_000_000_000
"""That of `policy.store.read.sql`, which is not imported before it is needed."""


def _parameters(
    _: click.Context, param: click.Parameter, texts: tuple[str, ...]
) -> dict[str, int | str]:
    """`NAME=VALUE` options by name; whole numbers as numbers."""
    found: dict[str, int | str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise click.BadParameter(f"`{text}` is not like `NAME=VALUE`", param=param)
        if name in found:
            raise click.BadParameter(f"`{name}` is given twice", param=param)
        found[name] = int(value) if re.fullmatch(r"-?[0-9]{1,18}", value) else value
    return found


@click.command("sql")
@click.argument(
    "query",
    metavar="[QUERY|NAME|-]",
    required=False,
    shell_complete=options.proposing("queries"),
)
@options.db_option
@click.option(
    "--reader-url",
    "reader",
    metavar="URL",
    envvar="POLICY_READER_DB",
    show_envvar=True,
    help="Run the query over this connection, that of a role which `policy db reader create` made."
    " A `--db` on the command line goes before the environment variable.",
)
@click.option(
    "--trust-connection",
    "trust",
    is_flag=True,
    help="Run your own query on Postgres also where the connection may do more than read, such as"
    " that of a superuser: the query then may do what the connection may do.",
)
@click.option(
    "--timeout",
    metavar="SECONDS",
    type=click.IntRange(0, 7 * 24 * 3600),
    default=_TIMEOUT_SECONDS,
    help="Stop the query when the database has worked on it for so long; 0 for no limit.",
)
@click.option("--list", "show_list", is_flag=True, help="List the saved queries.")
@click.option("--text", is_flag=True, help="Print the SQL of a saved query instead of running it.")
@period.since("Parameter `since`, in milliseconds since 1970")
@period.until("Parameter `until`, likewise.")
@click.option(
    "--cluster",
    metavar="NAME",
    shell_complete=options.proposing("clusters"),
    help="Parameter `cluster`; all by default.",
)
@click.option("--namespace", metavar="NAME", help="Parameter `namespace`; all by default.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, _MOST_ROWS),
    help="Parameter `limit` of a saved query, its most rows: 50.",
)
@click.option(
    "-p",
    "--param",
    "more",
    metavar="NAME=VALUE",
    multiple=True,
    callback=_parameters,
    help="A parameter of your own query, which stands in it as `:NAME`.",
)
@options.output_of(*_FORMS, note="Parquet needs the extra `parquet`.")
def command(
    query: str | None,
    db: str,
    reader: str | None,
    trust: bool,
    timeout: int,
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

    On Postgres a query of your own runs only over a connection that can do nothing but read:
    `policy db reader create` makes such a role, and --reader-url or POLICY_READER_DB names it.
    Saved queries run over any connection.

    \b
    Example:
      policy sql "SELECT * FROM v_preemptions"
      policy sql --list
      policy sql who-preempts-whom --since 7d
      policy sql "SELECT count(*) AS n FROM decisions WHERE node = :node" -p node=n1 --output csv
    """
    if show_list:
        others = ("text", "since", "until", "cluster", "namespace", "limit", "more", "db")
        options.refuse_beside("`--list`", True, "query", *others)
        return _list(form)
    if query is None:
        raise options.Misused("give a query, or `--list` for the saved ones")
    given = {
        "since": options.millis(since),
        "until": options.millis(until),
        "cluster": cluster,
        "namespace": namespace,
        "limit": limit,
    }
    own = {name: value for name, value in given.items() if value is not None}
    for name in own.keys() & more.keys():
        raise options.Misused(f"`{name}` is given twice", help=f"leave out `-p {name}=...`")
    sql, parameters, saved = _resolved(query, own | more)
    most: int | None = None
    if saved:
        most = _most(parameters["limit"])
        parameters["limit"] = most + 1  # the row that says that there are more
    options.refuse_beside("`--text`", text, "form", "db")
    if text:
        output.data(f"{sql.strip()}\n")
        return Exit.OK
    if form == "parquet" and sys.stdout.isatty():
        raise options.Misused("Parquet is no text: write it to a file with `>`")
    with (
        _told_of_options(),
        session.open_store(_connection(db, reader)) as store,
        store.sql(
            sql, parameters, timeout=timeout or None, trust_connection=trust or saved
        ) as found,
    ):
        columns = unique_names(found.columns)
        kept = _Kept(found, most)
        if form == "parquet":
            from policy.audit.tables_out import write_result

            made = io.BytesIO()
            write_result(made, columns, kept)
            output.out().write_bytes(made.getvalue())
        elif form in ("csv", "jsonl"):
            _stream((dict(zip(columns, row, strict=True)) for row in kept), form, columns)
        else:
            rows = [dict(zip(columns, row, strict=True)) for row in kept]
            output.rows(rows, form, columns=columns, right=_numbers(rows, columns))
    if kept.more:
        output.say(f"the first {most} rows; --limit shows more")
    return Exit.OK


@contextmanager
def _told_of_options() -> Iterator[None]:
    """Options of this command may be the way out where a query is not run to its end."""
    from policy.store import NoReader
    from policy.store.read.sql import NotTrusted, QueryTooLong

    try:
        yield
    except QueryTooLong as exc:
        exc.help += ", or give it more time with --timeout"
        raise
    except (NoReader, NotTrusted) as exc:
        before = f"{exc.help}; " if exc.help else ""
        exc.help = f"{before}--trust-connection runs the query as it is"
        raise


def _most(limit: int | str) -> int:
    """The most rows of a saved query, which `-p limit=...` may have given. Raises Misused."""
    if isinstance(limit, str) or not 1 <= limit <= _MOST_ROWS:
        raise options.Misused(f"`limit` is a number from 1 to {_MOST_ROWS}")
    return limit


class _Kept:
    """The first rows of a result, and whether there are more."""

    def __init__(self, found: Iterable[Sequence[Any]], most: int | None) -> None:
        self._found, self._most = found, most
        self.more = False

    def __iter__(self) -> Iterator[Sequence[Any]]:
        for number, row in enumerate(self._found):
            if number == self._most:
                self.more = True
                return
            yield row


def _list(form: str) -> int:
    from policy.store.read.saved_queries import saved_queries

    if form == "parquet":
        raise options.Misused("the list of saved queries is no table of the database")
    lines = [
        {"name": saved.name, "about": saved.about, "parameters": saved.parameters}
        for saved in saved_queries().values()
    ]
    output.rows(lines, form, columns=("name", "about", "parameters"))
    return Exit.OK


def _connection(db: str, reader: str | None) -> str:
    """The database to query: what stands on the command line goes before the environment."""
    if reader is None:
        return db
    source = click.get_current_context().get_parameter_source
    typed = [source(name) is ParameterSource.COMMANDLINE for name in ("db", "reader")]
    if all(typed):
        raise options.Misused("give `--db` or `--reader-url`, not both")
    return db if typed[0] else reader


def _resolved(query: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any], bool]:
    """The SQL of a query, all of its parameters, and whether it is a saved one.

    Raises NotFound, Misused.
    """
    if query == "-":
        query = _from_standard_input()
    elif re.fullmatch(r"[a-z]+(-[a-z]+)*", query):
        sql, parameters = _saved(query, parameters)
        return sql, parameters, True
    from policy.store.read.sql import parameters_in

    unused = [name for name in parameters if name not in parameters_in(query)]
    if unused:
        raise options.Misused(
            f"the query has no parameter `{unused[0]}`",
            help=f"it would stand there as `:{unused[0]}`",
        )
    return query, parameters, False


def _from_standard_input() -> str:
    stream = session.standard_input()
    if stream is None:
        raise options.Misused("standard input is closed")
    try:
        return stream.read().decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise options.Misused(f"the query is not UTF-8 text: byte {exc.start + 1}") from None


def _saved(query: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Raises NotFound, Misused."""
    from policy.store.read.saved_queries import DEFAULTS, saved_query

    saved = saved_query(query)
    alien = [name for name in parameters if name not in saved.parameters]
    if alien:
        takes = ", ".join(f"`{name}`" for name in saved.parameters)
        raise options.Misused(f"`{query}` has no parameter `{alien[0]}`; it has {takes}")
    return saved.sql, {name: DEFAULTS[name] for name in saved.parameters} | parameters


def _stream(lines: Iterator[dict[str, Any]], form: str, columns: Sequence[str]) -> None:
    """Print rows as they come: a result may be larger than the memory."""
    output.rows(list(itertools.islice(lines, 1)), form, columns=columns)
    while not output.out().unread and (batch := list(itertools.islice(lines, 1000))):
        output.rows(batch, form, columns=columns, header=False)


def _numbers(rows: Sequence[dict[str, Any]], columns: Sequence[str]) -> list[str]:
    """Columns that hold nothing but numbers."""
    return [
        name
        for name in columns
        if all(isinstance(row[name], int | float | None) for row in rows)
        and any(row[name] is not None for row in rows)
    ]
