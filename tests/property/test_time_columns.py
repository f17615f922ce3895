"""Instants that are read many at a time are those that are read one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from policy.cluster import times
from policy.cluster.time_columns import parse_many

_USUAL = st.datetimes().map(lambda of: of.strftime("%Y").zfill(4) + of.strftime("-%m-%dT%H:%M:%SZ"))
_ODD = st.sampled_from(
    [None, "", "2016-12-31T23:59:60Z", "2026-11-21T12:00:00.5Z", "0001-01-01T00:00:00Z"]
)


@given(st.lists(_USUAL | _ODD))
def test_many_are_what_each_is(texts: list[str | None]) -> None:
    found = parse_many(texts)
    assert found.dtype == np.int64
    assert found.tolist() == [times.parse_optional(text) for text in texts]


@given(
    st.from_regex(r"\A[0-9:;/ ٣]{4}-[0-3][0-9]-[0-3][0-9][T-][0-2][0-9]:[0-6][0-9]:[0-6][0-9]Z\Z")
)
def test_what_is_no_time_is_refused_alike(text: str) -> None:
    try:
        wanted: int | str = times.parse(text)
    except times.TimeError as exc:
        wanted = str(exc)
    try:
        found: int | str = int(parse_many(["2024-06-01T00:00:00Z", text])[1])
    except times.TimeError as exc:
        found = str(exc)
    assert found == wanted
