"""Tables as files: CSV, and Parquet where the extra is installed."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Final

from policy.store import Store
from policy.store.read.tables import ColumnInfo, tables
from policy.text.csv_cells import csv_cell
from policy.text.system import explained


class ExportError(Exception):  # told to people in the words of its message
    """What was asked for cannot be written."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


def export(
    store: Store, names: Sequence[str], folder: Path, form: str, *, raw: bool = False
) -> Iterator[tuple[str, int]]:
    """Write whole tables into a folder, one file each, all as they are at one instant.

    form: `csv` or `parquet`; raw: CSV without marks before what a spreadsheet would take for
    formulas (see `csv_cell`). Yields each table with its number of rows once it is written; a file
    appears under its name only when it is complete. Raises ExportError.
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
                target = folder / f"{name}.{form}"
                unfinished = target.with_suffix(f".{form}.part")
                found = rooms.read.rows(name)
                if form == "csv":
                    count = _write_csv(unfinished, known[name], found, raw=raw)
                else:
                    count = _write_parquet(unfinished, known[name], found)
                unfinished.replace(target)
                yield name, count
    except OSError as exc:
        said = explained(exc)
        raise ExportError(f"{exc.filename or folder}: {said.message}", help=said.help) from exc


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
