"""Names that are put together from cells have the canonical text of the list of names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from policy.cluster import canonical
from policy.cluster.encoded import EncodedNames
from policy.cluster.rows import KeyRows
from policy.cluster.tables import name_array

ODD = ("", "a", 'a "quoted" word', "back\\slash", "a\0b", "two\nlines", "ä€", "😀", "b,c", "[]")


def text(encoded: EncodedNames, names: Sequence[str], rows: Sequence[int]) -> bytes:
    return bytes(encoded.fragment(name_array(names), np.array(rows, dtype=np.int64)))


@pytest.mark.parametrize("rows", [[], [3], [2, 2, 0], list(range(len(ODD)))[::-1]])
def test_any_rows_in_any_order(rows: list[int]) -> None:
    assert text(EncodedNames(), ODD, rows) == canonical.encode([ODD[row] for row in rows])


def test_more_and_longer_names_come_while_others_are_known() -> None:
    encoded, names = EncodedNames(), list(ODD)
    for longer in range(1, 400, 57):
        assert text(encoded, names, [0, len(names) - 1]) == canonical.encode([ODD[0], names[-1]])
        names.append(longer * "x")
    assert text(encoded, names, range(len(names))) == canonical.encode(names)


def test_two_snapshots_that_grow_from_one_keep_names_of_their_own() -> None:
    rows = np.array([2, 0], dtype=np.int64)
    base = KeyRows.of(name_array(["shop/a", "shop/b"]))
    one = base.followed(["shop/c"])
    assert bytes(one.encoded(rows)) == b'["shop/c","shop/a"]'
    other = base.followed(["shop/another"])
    assert bytes(other.encoded(rows)) == b'["shop/another","shop/a"]'
    assert bytes(one.encoded(rows)) == b'["shop/c","shop/a"]'
