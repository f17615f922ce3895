"""Times as people type them, and the zone in which they are read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from policy.audit.instants import NoInstant, read

NOW = datetime(2026, 11, 22, 14, 0, tzinfo=UTC)  # a Sunday


@pytest.mark.parametrize(
    ("text", "at", "zone"),
    [
        ("2026-11-20T10:00:00Z", "2026-11-20T10:00:00", ""),
        ("2026-11-20t10:00:00z", "2026-11-20T10:00:00", ""),
        ("2016-12-31T23:59:60Z", "2017-01-01T00:00:00", ""),
        ("2026-11-20T10:00:00+02:00", "2026-11-20T08:00:00", ""),
        ("2026-11-20 10:00", "2026-11-20T10:00:00", "UTC"),
        ("2026-11-20", "2026-11-20T00:00:00", "UTC"),
        ("now", "2026-11-22T14:00:00", ""),
        ("7d", "2026-11-15T14:00:00", ""),
        ("2 hours ago", "2026-11-22T12:00:00", ""),
        ("an hour ago", "2026-11-22T13:00:00", ""),
        ("Yesterday 14:02", "2026-11-21T14:02:00", "UTC"),
        ("yesterday at 14:02 Europe/Berlin", "2026-11-21T13:02:00", ""),
        ("yesterday at 14:02 Etc/GMT+5", "2026-11-21T19:02:00", ""),
        ("today 9:30", "2026-11-22T09:30:00", "UTC"),
        ("13:00", "2026-11-22T13:00:00", "UTC"),
        ("14:05", "2026-11-21T14:05:00", "UTC"),
        ("14:05 +02:00", "2026-11-22T12:05:00", ""),
        ("9:05:07 utc", "2026-11-22T09:05:07", ""),
        ("monday 10:00", "2026-11-16T10:00:00", "UTC"),
        ("sunday", "2026-11-15T00:00:00", "UTC"),
    ],
)
def test_a_time_is_read(text: str, at: str, zone: str) -> None:
    """A time of day is the last one that has been; a weekday the last one before today."""
    found = read(text, now=NOW)
    assert (found.at, found.zone) == (datetime.fromisoformat(f"{at}Z"), zone)


@pytest.mark.parametrize(
    ("text", "relative"),
    [
        ("2026-11-20T10:00:00Z", False),
        ("2026-11-20 10:00", False),
        ("yesterday 14:02", False),  # its zone is said, and with it the instant
        ("yesterday 14:02 UTC", True),
        ("now", True),
        ("7d", True),
        ("an hour ago", True),
    ],
)
def test_what_the_clock_decides_is_told_apart(text: str, relative: bool) -> None:
    """The command line says which instant such a text was read as."""
    assert read(text, now=NOW).relative is relative


def test_the_zone_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Summer time included; who names a zone gets that one."""
    monkeypatch.setenv("POLICY_TZ", "Europe/Berlin")
    july = datetime(2026, 7, 22, 14, 0, tzinfo=UTC)
    assert [read(text, now=july).at.hour for text in ("15:30", "15:30 UTC", "15:30 +01:00")] == [
        13,
        15,
        14,
    ]
    assert read("yesterday", now=july).zone == "Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon", "`soon` is not a time such as"),
        ("yesterday 25:00", "`25:00` is not a time of day"),
        ("2026-02-30 10:00", "`2026-02-30` is not a day"),
        ("14:05-24:00", "`-24:00` is not a time zone such as"),
        ("14:05 Mars/X", "`Mars/X` is not a time zone such as"),
        ("0001-01-01T00:00:00+10:00", "outside of the years 0001 to 9999"),
    ],
)
def test_what_is_no_time_is_said(text: str, why: str) -> None:
    """The part that is wrong, in backticks."""
    with pytest.raises(NoInstant, match=why.replace("`", "`")):
        read(text, now=NOW)
