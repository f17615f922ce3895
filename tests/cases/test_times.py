"""Times are read exactly as RFC 3339 writes them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from policy.cluster import times

NOON = int(datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("2026-11-21T12:00:00Z", NOON),
        ("2026-11-21t12:00:00z", NOON),
        ("2026-11-21T12:00:00+00:00", NOON),
        ("2026-11-21T12:00:00-00:00", NOON),
        ("2026-11-21T13:30:00+01:30", NOON),
        ("2026-11-21T00:01:00-11:59", NOON),
        ("2026-11-21T12:00:00.5Z", NOON + 500),
        ("2026-11-21T12:00:00.0009Z", NOON),
        ("2026-11-21T12:00:00.123456789Z", NOON + 123),
        ("1969-12-31T23:59:59.999Z", -1),
        ("0001-01-01T00:00:00Z", times.EARLIEST),
        ("9999-12-31T23:59:59.999Z", times.LATEST),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000),
        ("2017-01-01T00:59:60+01:00", 1_483_228_800_000),
    ],
)
def test_rfc_3339_is_read(text: str, millis: int) -> None:
    """Every form of the grammar is read, to the millisecond."""
    assert times.parse(text) == millis


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-21",
        "2026-11-21 12:00:00Z",
        "2026-11-21T12:00:00",
        "2026-11-21T12:00Z",
        "2026-11-21T12:00:00+01",
        "2026-11-21T12:00:00+0100",
        "2026-11-21T12:00:00+24:00",
        "2026-11-21T12:00:00+01:60",
        "2026-11-21T12:00:00,5Z",
        "2026-11-21T12:00:00.Z",
        "20261121T120000Z",
        "2026-W47-6T12:00:00Z",
        "2026-02-29T12:00:00Z",
        "2026-13-01T12:00:00Z",
        "2026-11-21T24:00:00Z",
        "2026-11-21T12:00:60Z",
        "2026-11-21T23:59:60Z",
        "0001-01-01T00:59:60+01:00",
        "2026-11-21T12:00:00Z\n",
        "٢٠٢٦-11-21T12:00:00Z",
        "12026-11-21T12:00:00Z",
        "",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    """What RFC 3339 does not write is refused, whatever ISO 8601 says."""
    with pytest.raises(times.TimeError) as caught:
        times.parse(text)
    assert str(caught.value) == f"`{text}` is not an RFC 3339 time"


@pytest.mark.parametrize(
    "text",
    [
        "0000-01-01T00:00:00Z",
        "0001-01-01T00:00:00+00:01",
        "9999-12-31T23:59:59-00:01",
        "9999-12-31T23:59:60Z",
    ],
)
def test_times_that_cannot_be_written_are_refused(text: str) -> None:
    """A time whose UTC form has no year of four digits from 0001 on is out of range."""
    with pytest.raises(times.TimeError) as caught:
        times.parse(text)
    assert str(caught.value) == f"`{text}` is outside of the years 0001 to 9999"


def test_every_readable_time_has_a_datetime() -> None:
    """The first and the last time are converted without an overflow."""
    assert times.to_datetime(times.EARLIEST) == datetime(1, 1, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
    assert times.to_datetime(times.LATEST) == last


@pytest.mark.parametrize("day", ["2024-02-29", "1969-12-31", "0001-01-01"])
def test_parts_that_were_read_before_make_the_same_time(day: str) -> None:
    """A time is the same whether its day, minute and second were read in others or never."""
    for text in (f"{day}T00:00:59Z", f"{day}T23:59:00Z", "2026-11-21T12:30:07Z"):
        times.parse(text)
    for clock in ("00:00:00", "23:59:59", "12:30:59", "12:31:07"):
        since = datetime.fromisoformat(f"{day}T{clock}Z") - datetime(1970, 1, 1, tzinfo=UTC)
        assert times.parse(f"{day}T{clock}Z") == since // timedelta(milliseconds=1)
    for text in ("2024-02-30T12:30:07Z", f"{day}T12:30:60Z", f"{day}T24:00:07Z", f"{day}T12:3007Z"):
        with pytest.raises(times.TimeError, match=text):
            times.parse(text)
