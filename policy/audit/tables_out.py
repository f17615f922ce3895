"""Tables as files: CSV, and Parquet where the extra is installed."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Sequence
from datetime import date
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final

from policy.audit.export_folder import ExportError, ExportFolder
from policy.extras import require
from policy.store import Store
from policy.store.read.tables import ColumnInfo, has_days, tables
from policy.text.csv_cells import csv_cell
from policy.text.system import explained

_EPOCH: Final = date(1970, 1, 1).toordinal()

_NO_DAY: Final = "day=__HIVE_DEFAULT_PARTITION__"
"""What readers of Hive's partitions take for no value."""


def export(
    store: Store,
    names: Sequence[str],
    folder: Path,
    form: str,
    *,
    raw: bool = False,
    by_day: bool = False,
    advance: Callable[[int], None] = lambda _: None,
) -> tuple[list[Path], int]:
    """Write whole tables into a folder, one file each, all as they are at one instant.

    form: `csv` or `parquet`; raw: CSV without marks before what a spreadsheet would take for
    formulas (see `csv_cell`). by_day: tables whose rows have a day become folders with a file for
    each day (see `has_days`). advance: gets how many tables are written. The paths, and the
    number of all rows. All tables take their places once the last one is complete, and those of
    an export of before leave theirs, in whatever form they were. Raises ExportError, ExtraMissing.
    """
    known = tables()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ExportError(f"there is no table `{unknown[0]}`", help=f"there are {', '.join(known)}")
    if form == "parquet":
        _pyarrow()
    days = {name for name in names if by_day and has_days(name)}
    targets = {name: name if name in days else f"{name}.{form}" for name in names}
    total = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with ExportFolder(folder, targets) as made, store.reading() as rooms:
            for number, name in enumerate(names, start=1):
                write = partial(_write, known[name], form=form, raw=raw)
                place = made.unfinished(name)
                if name in days:
                    total += _write_days(place, rooms.read.rows_by_day(name), form, write)
                else:
                    total += write(place, rooms.read.rows(name))
                advance(number)
            return made.finish(), total
    except OSError as exc:
        said = explained(exc)
        raise ExportError(f"{exc.filename or folder}: {said.message}", help=said.help) from exc


def _write_days(
    target: Path,
    batches: Iterable[tuple[int, Sequence[tuple[Any, ...]]]],
    form: str,
    write: Callable[[Path, Iterable[Sequence[tuple[Any, ...]]]], int],
) -> int:
    """One folder for each day, named as Hive names partitions.

    A table without rows has one file without rows, of no day: readers find its columns there.
    """
    count = 0
    for day, of_day in groupby(batches, key=itemgetter(0)):
        place = target / f"day={date.fromordinal(_EPOCH + day).isoformat()}"
        place.mkdir(parents=True)
        count += write(place / f"rows.{form}", (batch for _, batch in of_day))
    if not count:
        (target / _NO_DAY).mkdir(parents=True)
        write(target / _NO_DAY / f"rows.{form}", ())
    return count


def _write(
    columns: Sequence[ColumnInfo],
    path: Path,
    batches: Iterable[Sequence[tuple[Any, ...]]],
    *,
    form: str,
    raw: bool,
) -> int:
    if form == "csv":
        return _write_csv(path, columns, batches, raw=raw)
    return _write_parquet(path, columns, batches)


def _write_csv(
    path: Path,
    columns: Sequence[ColumnInfo],
    batches: Iterable[Sequence[tuple[Any, ...]]],
    *,
    raw: bool,
) -> int:
    count = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([column.name for column in columns])
        for batch in batches:
            writer.writerows([[csv_cell(value, raw=raw) for value in row] for row in batch])
            count += len(batch)
    return count


# --- Parquet -----------------------------------------------------------------------------------

_TYPES: Final = {
    "int64": "int64",
    "millis": "int64",
    "bool": "bool_",
    "text": "string",
    "json": "string",
}


def _pyarrow() -> Any:
    """Raises ExtraMissing."""
    require("parquet", "Parquet needs")
    import pyarrow.parquet

    return pyarrow


def _write_parquet(
    path: Path, columns: Sequence[ColumnInfo], batches: Iterable[Sequence[tuple[Any, ...]]]
) -> int:
    """Every column with its type, also where a table is empty; instants stay milliseconds."""
    pa = _pyarrow()
    schema = pa.schema(
        [pa.field(c.name, getattr(pa, _TYPES[c.type])(), nullable=c.nullable) for c in columns]
    )
    count = 0
    with pa.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for batch in batches:
            arrays = [
                pa.array(values, type=field.type)
                for values, field in zip(zip(*batch, strict=True), schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))
            count += len(batch)
    return count


def write_result(sink: IO[bytes], columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """The result of a query as Parquet, types as its values have them.

    Raises ExportError, ExtraMissing.
    """
    pa = _pyarrow()
    found = list(rows)
    by_column = list(zip(*found, strict=True)) if found else [() for _ in columns]
    try:
        arrays = [pa.array(values) for values in by_column]
    except pa.ArrowException as exc:
        raise ExportError(f"the result mixes types within a column: {exc}") from exc
    pa.parquet.write_table(pa.table(arrays, names=list(columns)), sink, compression="zstd")
    return len(found)
