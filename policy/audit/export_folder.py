"""The folder of an export: which files in it are ours, and how new ones take their places.

`policy-export.json` lists what exports wrote. Only that is replaced or removed, and a file of the
same name and form as a new one; everything else stays, or is in the way.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "policy-export.json"
_STAGE: Final = ".policy-export.part"
_FORMS: Final = ("csv", "parquet")
_DAY_FILES: Final = frozenset(f"rows.{form}" for form in _FORMS)


class ExportError(Exception):  # told to people in the words of its message
    """What was asked for cannot be written."""

    def __init__(self, message: str, *, help: str = "") -> None:
        super().__init__(message)
        self.help = help


class ExportFolder:
    """Tables on their way into a folder: first beside it, then all of them into their places."""

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        """targets: name of the file or folder in it, by table.

        Raises ExportError where something is in the way; nothing is changed by then.
        """
        self._folder = folder
        self._targets = targets
        self._stage = folder / _STAGE
        self._known = _known(folder / MANIFEST)
        self._other_forms = [
            folder / name
            for table, target in targets.items()
            for name in (table, *(f"{table}.{form}" for form in _FORMS))
            if name != target and (folder / name).exists()
        ]
        for path in self._other_forms:
            if path.name not in self._known:
                raise ExportError(
                    f"{path}: is there already, and no export that `{MANIFEST}` lists wrote it:"
                    " readers of the folder would take both for one table",
                    help="choose another folder, or remove it",
                )
        for table, target in targets.items():
            if (folder / table).exists():
                _require_days(folder / table)
            if target != table and (folder / target).is_dir():
                raise ExportError(
                    f"{folder / target}: is a folder, and would be the file of a table",
                    help="choose another folder, or remove it",
                )

    def __enter__(self) -> ExportFolder:
        shutil.rmtree(self._stage, ignore_errors=True)  # of an export that was killed
        self._stage.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._stage, ignore_errors=True)

    def unfinished(self, table: str) -> Path:
        """Where the table is written."""
        return self._stage / self._targets[table]

    def finish(self) -> list[Path]:
        """Put all tables into their places, where the other forms of them were; their paths."""
        ours = {*self._known, *self._targets.values()}
        moved: list[tuple[Path, Path]] = []

        def move(path: Path, to: Path) -> None:
            path.rename(to)
            moved.append((path, to))

        # Should the rest not come to its end, the next export knows of both what is ours.
        self._list(ours)
        try:
            before = [*self._other_forms, *(self._folder / name for name in self._targets.values())]
            for path in before:
                if path.exists():
                    move(path, self._stage / f"{path.name}.before")
            for target in self._targets.values():
                move(self._stage / target, self._folder / target)
        except BaseException:
            for path, to in reversed(moved):
                to.rename(path)
            raise
        self._list(ours - {path.name for path in self._other_forms})
        return [self._folder / target for target in self._targets.values()]

    def _list(self, names: set[str]) -> None:
        unfinished = self._stage / MANIFEST
        text = json.dumps({"files": sorted(names)}, indent=2)
        unfinished.write_text(f"{text}\n", encoding="utf-8")
        unfinished.replace(self._folder / MANIFEST)


def _known(manifest: Path) -> frozenset[str]:
    """What exports wrote, by their list. Raises ExportError."""
    try:
        found: Any = json.loads(manifest.read_text(encoding="utf-8"))
        names = found["files"]
        if all(type(name) is str for name in names):
            return frozenset(names)
    except FileNotFoundError:
        return frozenset()
    except (ValueError, TypeError, KeyError):
        pass
    raise ExportError(
        f"{manifest}: is not the list that an export wrote",
        help="choose another folder, or remove the file and what exports wrote beside it",
    )


def _require_days(target: Path) -> None:
    """Raises ExportError where the folder holds anything that no export by days has written."""
    ours = target.is_dir() and all(
        path.name.startswith("day=") and {f.name for f in path.iterdir()} <= _DAY_FILES
        for path in target.iterdir()
    )
    if not ours:
        raise ExportError(
            f"{target}: holds something else than days of this table",
            help="choose another folder, or remove it",
        )
