"""Canonical texts of names in cells of one width: thousands are put together by copying cells.

The digest of a decision covers the names of all candidates and victims. Looked up as text objects
and encoded one by one, they take longer than the hash.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policy.cluster import canonical

_Rows = NDArray[np.int64]
_Names = NDArray[np.object_]


class EncodedNames:
    """The canonical texts of an array of names, each made when it is first wanted.

    The array may grow at its end, and its names never change. Cells that are not filled take no
    memory: the system gives it where something is written.
    """

    __slots__ = ("_cells",)

    def __init__(self) -> None:
        self._cells = np.zeros(0, dtype="S1")

    def fragment(self, names: _Names, rows: _Rows) -> canonical.Fragment:
        """The canonical text of the list of names in these rows."""
        cells = self._filled(names, rows)
        # INVARIANT: no canonical text holds NUL, which pads the cells.
        text = cells.take(rows).tobytes().translate(None, b"\0")
        return canonical.Fragment(b"[%b]" % text[:-1])

    def _filled(self, names: _Names, rows: _Rows) -> NDArray[np.bytes_]:
        """The cells, those of the rows filled: text and comma."""
        cells = self._cells
        if names.size > cells.size:
            cells = _larger(cells, names.size + names.size // 8, cells.itemsize)
        first_bytes = cells.view(np.uint8)[:: cells.itemsize]
        missing = rows[first_bytes.take(rows) == 0]
        if missing.size:
            texts = [text + b"," for text in canonical.encode_each(names[missing].tolist())]
            width = max(map(len, texts))
            if width > cells.itemsize:
                cells = _larger(cells, cells.size, width)
            cells[missing] = texts
        self._cells = cells
        return cells


def _larger(cells: NDArray[np.bytes_], size: int, width: int) -> NDArray[np.bytes_]:
    larger = np.zeros(size, dtype=f"S{width}")
    filled = np.flatnonzero(cells.view(np.uint8)[:: cells.itemsize])
    larger[filled] = cells[filled]
    return larger
