"""Tables as files: CSV, and Parquet where the extra is installed."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Final

from policy.store import Store
from policy.store.read.tables import ColumnInfo, has_days, tables
from policy.text.csv_cells import csv_cell
from policy.text.system import explained

_EPOCH: Final = date(1970, 1, 1).toordinal()

_NO_DAY: Final = "day=__HIVE_DEFAULT_PARTITION__"
"""What readers of Hive's partitions take for no value."""

_DAY_FILES: Final = frozenset({"rows.csv", "rows.parquet"})


class ExportError(Exception):  # told to people in the words of its message
    """What was asked for cannot be written."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


def export(
    store: Store,
    names: Sequence[str],
    folder: Path,
    form: str,
    *,
    raw: bool = False,
    by_day: bool = False,
) -> Iterator[tuple[Path, int]]:
    """Write whole tables into a folder, one file each, all as they are at one instant.

    form: `csv` or `parquet`; raw: CSV without marks before what a spreadsheet would take for
    formulas (see `csv_cell`). by_day: tables whose rows have a day become folders with a file for
    each day (see `has_days`). Yields each table's file or folder with the number of its rows once
    it is written; neither appears under its name before it is complete. Raises ExportError.
    """
    known = tables()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ExportError(f"there is no table `{unknown[0]}`", help=f"there are {', '.join(known)}")
    if form == "parquet":
        _pyarrow()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with store.reading() as rooms:
            for name in names:
                write = partial(_write, known[name], form=form, raw=raw)
                if by_day and has_days(name):
                    target = folder / name
                    count = _write_days(target, rooms.read.rows_by_day(name), form, write)
                else:
                    target = folder / f"{name}.{form}"
                    unfinished = target.with_suffix(f".{form}.part")
                    count = write(unfinished, rooms.read.rows(name))
                    unfinished.replace(target)
                yield target, count
    except OSError as exc:
        said = explained(exc)
        raise ExportError(f"{exc.filename or folder}: {said.message}", help=said.help) from exc


def _write_days(
    target: Path,
    batches: Iterable[tuple[int, Sequence[tuple[Any, ...]]]],
    form: str,
    write: Callable[[Path, Iterable[Sequence[tuple[Any, ...]]]], int],
) -> int:
    """One folder for each day, named as Hive names partitions; what was there before is replaced.

    A table without rows has one file without rows, of no day: readers find its columns there.
    """
    _require_days(target)
    unfinished = target.with_name(f"{target.name}.part")
    shutil.rmtree(unfinished, ignore_errors=True)
    count = 0
    for day, of_day in groupby(batches, key=itemgetter(0)):
        place = unfinished / f"day={date.fromordinal(_EPOCH + day).isoformat()}"
        place.mkdir(parents=True)
        count += write(place / f"rows.{form}", (batch for _, batch in of_day))
    if not count:
        (unfinished / _NO_DAY).mkdir(parents=True)
        write(unfinished / _NO_DAY / f"rows.{form}", ())
    if target.exists():
        shutil.rmtree(target)
    unfinished.rename(target)
    return count


def _require_days(target: Path) -> None:
    """Raises ExportError where the folder holds anything that no export by days has written."""
    if not target.exists():
        return
    ours = target.is_dir() and all(
        path.name.startswith("day=") and {f.name for f in path.iterdir()} <= _DAY_FILES
        for path in target.iterdir()
    )
    if not ours:
        raise ExportError(
            f"{target}: holds something else than days of this table",
            help="choose another folder, or remove it",
        )


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
    """Raises ExportError where the extra is not installed."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise ExportError(
            "Parquet needs a package that is not installed",
            help="install the extra: `pip install 'preemption-policy[parquet]'`",
        ) from None
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
    """The result of a query as Parquet, types as its values have them. Raises ExportError."""
    pa = _pyarrow()
    found = list(rows)
    by_column = list(zip(*found, strict=True)) if found else [() for _ in columns]
    try:
        arrays = [pa.array(values) for values in by_column]
    except pa.ArrowException as exc:
        raise ExportError(f"the result mixes types within a column: {exc}") from exc
    pa.parquet.write_table(pa.table(arrays, names=list(columns)), sink, compression="zstd")
    return len(found)
