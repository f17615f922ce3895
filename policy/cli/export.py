"""`policy export`"""

from __future__ import annotations

from pathlib import Path

import click

from policy.cli import options, output, session
from policy.cli.exits import Exit


@click.command("export")
@options.db_option
@click.option(
    "--table", "names", metavar="NAME", multiple=True, help="Only this table; all by default."
)
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to; it is made where it is not there.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("parquet", "csv")),
    default="csv",
    help="Parquet needs the extra `parquet`.",
)
@click.option(
    "--by-day",
    is_flag=True,
    help="Write a folder for each table whose rows have a day, with a file for each day.",
)
@options.raw_option("--format csv", lambda values: values["form"] == "csv")
def command(db: str, names: tuple[str, ...], folder: Path, form: str, by_day: bool) -> int:
    """Write whole tables to files, one file per table, all as they are at one instant.

    Columns and units are those of the tables. The files appear when all of them are complete.
    Another export into the same folder replaces the tables that it writes, also where they were
    written in another form: `policy-export.json` lists what exports wrote there. Other files
    stay; one that would be read beside a table, such as `TABLE.csv` beside `TABLE.parquet`, is
    refused where no export wrote it.

    With --by-day a table whose rows have a day (UTC) becomes a folder with a file for each day,
    `TABLE/day=2026-05-04/rows.parquet`, which DuckDB, Polars and Spark read as one table with a
    column `day`. The day is that of `now_ms` or `at_ms`; what belongs to a decision, a session or
    an observation is of its day. Other tables stay one file.

    \b
    Example:
      policy export --output tables
      policy export --table decisions --table victims --output tables --format parquet
      policy export --output tables --format parquet --by-day
    """
    from policy.audit.tables_out import export
    from policy.store.read.tables import tables

    wanted = tuple(dict.fromkeys(names)) or tuple(tables())
    with session.open_store(db) as store, output.progress("exporting") as advance:
        paths, total = export(
            store,
            wanted,
            folder,
            form,
            raw=options.raw_wanted(),
            by_day=by_day,
            advance=lambda number: advance(number, len(wanted)),
        )
    for path in paths:
        output.line(str(path))
    output.say(f"{output.number(len(wanted), 'table')}, {output.number(total, 'row')}")
    return Exit.OK
