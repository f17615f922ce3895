"""Times as people type them, and the zone in which they are read."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from policy.audit.instants import NoInstant, WrongZone, read, require_order

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
        ("2026-11-28T20:00:00 Europe/Berlin", "2026-11-28T19:00:00", ""),
        ("2026-11-28T20:00 Europe/Berlin", "2026-11-28T19:00:00", ""),
        ("2026-10-25 02:30 Europe/Berlin", "2026-10-25T00:30:00", ""),  # the first of two
        ("2026-10-25T02:30+01:00", "2026-10-25T01:30:00", ""),
        ("2018-11-04 America/Sao_Paulo", "2018-11-04T03:00:00", ""),  # a day without 00:00
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
        ("todayT10:00", "`todayT10:00` is not a time such as"),
        (
            "2026-03-29T02:30:00 Europe/Berlin",
            "there is no `2026-03-29 02:30` in `Europe/Berlin`: its clocks are put forward then,"
            " to 03:30",
        ),
        ("14:05-24:00", "`-24:00` is not a time zone such as"),
        ("14:05 Mars/X", "`Mars/X` is not a time zone such as"),
        ("0001-01-01T00:00:00+10:00", "outside of the years 0001 to 9999"),
    ],
)
def test_what_is_no_time_is_said(text: str, why: str) -> None:
    """The part that is wrong, in backticks."""
    with pytest.raises(NoInstant, match=why.replace("`", "`")):
        read(text, now=NOW)


def test_the_zone_of_the_environment_skips_hours_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_TZ", "Europe/Berlin")
    with pytest.raises(NoInstant, match="there is no `2026-03-29 02:30` in `Europe/Berlin`"):
        read("2026-03-29T02:30", now=NOW)


def test_a_zone_that_is_none_is_wrong_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, not the text: that has nothing to do with it."""
    monkeypatch.setenv("POLICY_TZ", "Nope/Zone")
    for text in ("now", "7d", "14:00 UTC", "2026-11-20 10:00 Europe/Berlin", "2026-11-20T10:00Z"):
        read(text, now=NOW)
    said = []
    for text in ("14:00", "yesterday", "2026-11-20", "2026-11-20T10:00"):
        with pytest.raises(WrongZone) as refused:
            read(text, now=NOW)
        said.append(str(refused.value))
    told = "environment variable `POLICY_TZ`: `Nope/Zone` is not a time zone such as"
    assert said == [f"{told} `Europe/Berlin`"] * 4


def test_an_end_before_the_beginning_is_refused() -> None:
    """Nothing lies between them; between equal ones nothing does, but each is as it was meant."""
    for ends in ((None, 1), (1, None), (1, 1), (1, 2)):
        require_order(*ends)
    with pytest.raises(NoInstant) as refused:
        require_order(10**18, 1000)
    assert str(refused.value) == "`since` is later than `until`"
