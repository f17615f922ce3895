"""Times as people type them: `yesterday 14:02`, `14:05`, `2 hours ago`, `7d`, ISO 8601."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Final
from zoneinfo import ZoneInfo

from policy.cluster import times

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)

ZONE_VARIABLE: Final = "POLICY_TZ"
"""Environment variable: the zone of times that are typed without one; UTC without it."""

FORMS: Final = "`2026-11-21T08:00:00Z`, `yesterday 14:02`, `14:05` or `2 hours ago`"

_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
_WORDS: Final = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
    **dict.fromkeys(("w", "week", "weeks"), "w"),
}
_DAY: Final = len("2026-11-21")
_DAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_AGO: Final = re.compile(r"(?:([0-9]{1,5})|an?) ?([a-z]+)(?: ago)?")
_ON_A_DAY: Final = re.compile(
    rf"(?:(today|yesterday|{'|'.join(_DAYS)}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}))?"
    r"(?:(?:^| (?:at )?|(?<=[0-9])t)([0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?))?"
    r"(?: ?(z|utc|[+-][0-9]{2}:[0-9]{2}|[a-z]+/[a-z0-9_/+-]+))?",
)


class NoInstant(ValueError):
    """A text that is no time; the message says why."""


class WrongZone(NoInstant):
    """POLICY_TZ names no zone: what is wrong is not the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedInstant:
    """A time that was typed."""

    at: datetime  #: UTC
    zone: str  #: in which it was read, where the text names none and that matters; "" otherwise
    #: the text names its zone, or needs none, and what it means still depends on the clock
    relative: bool = False


def read(text: str, *, now: datetime) -> TypedInstant:
    """The instant that a text means, as seen at `now` (aware). Raises NoInstant.

    A time without a day is the last one that has been: today's, or yesterday's. A weekday is the
    last one, today excepted. Without a zone it is that of POLICY_TZ, else UTC. Of an hour that
    there is twice, as summer time ends, it is the first one.
    """
    typed = " ".join(text.split())
    try:
        # As an API server takes it: also `z`, and a leap second.
        return TypedInstant(at=_EPOCH + times.parse(typed) * _MILLISECOND, zone="")
    except times.TimeError:
        pass  # another form, or none
    try:
        exact = datetime.fromisoformat(typed)
    except ValueError:
        exact = None
    try:
        if exact is not None and exact.tzinfo is not None:
            return TypedInstant(at=exact.astimezone(UTC), zone="")
        if exact is not None:
            local = exact.replace(tzinfo=required_zone())
            return TypedInstant(at=_utc(local, day=len(typed) <= _DAY), zone=typed_zone())
        return _in_words(typed, now)
    except OverflowError:
        raise NoInstant(f"`{text}` is outside of the years 0001 to 9999") from None


def _in_words(typed: str, now: datetime) -> TypedInstant:
    plain = typed.lower()
    if plain == "now":
        return TypedInstant(at=now.astimezone(UTC), zone="", relative=True)
    ago = _AGO.fullmatch(plain)
    if ago is not None and ago[2] in _WORDS:
        before = int(ago[1] or 1) * _UNITS[_WORDS[ago[2]]]
        return TypedInstant(at=now.astimezone(UTC) - before, zone="", relative=True)
    found = _ON_A_DAY.fullmatch(plain)
    if found is None or not (found[1] or found[2]):
        raise NoInstant(f"`{typed}` is not a time such as {FORMS}")
    if found[3]:
        zone, name = _zone(typed[slice(*found.span(3))]), ""
    else:
        zone, name = required_zone(), typed_zone()
    here = now.astimezone(zone)
    day = _day(found[1] or "today", here)
    at = datetime.combine(day, _clock(found[2]), tzinfo=zone)
    if not found[1] and at > here:
        at -= timedelta(days=1)
    return TypedInstant(at=_utc(at, day=not found[2]), zone=name, relative=not name)


def _utc(local: datetime, *, day: bool) -> datetime:
    """day: midnight stands for the beginning of the day, where its clocks skip it, too."""
    at = local.astimezone(UTC)
    back = at.astimezone(local.tzinfo)
    if not day and back.replace(tzinfo=None) != local.replace(tzinfo=None):
        raise NoInstant(
            f"there is no `{local:%Y-%m-%d %H:%M}` in `{local.tzinfo}`: its clocks are put forward"
            f" then, to {back:%H:%M}"
        )
    return at


def require_order(
    since_ms: int | None, until_ms: int | None, *, names: tuple[str, str] = ("since", "until")
) -> None:
    """Raises NoInstant where nothing can lie between them."""
    if since_ms is not None and until_ms is not None and since_ms > until_ms:
        raise NoInstant(f"`{names[0]}` is later than `{names[1]}`")


def _day(word: str, here: datetime) -> date:
    if word == "today":
        return here.date()
    if word == "yesterday":
        return here.date() - timedelta(days=1)
    if word in _DAYS:
        return here.date() - timedelta(days=(here.weekday() - _DAYS.index(word) - 1) % 7 + 1)
    try:
        return date.fromisoformat(word)
    except ValueError:
        raise NoInstant(f"`{word}` is not a day") from None


def _clock(text: str | None) -> time:
    if text is None:
        return time()
    try:
        return time.fromisoformat(text.rjust(8 if text.count(":") > 1 else 5, "0"))
    except ValueError:
        raise NoInstant(f"`{text}` is not a time of day") from None


def typed_zone() -> str:
    """The name of the zone in which a time is read that is typed without one."""
    return os.environ.get(ZONE_VARIABLE) or "UTC"


def required_zone() -> tzinfo:
    """That zone. Raises WrongZone."""
    try:
        return _zone(typed_zone())
    except NoInstant as exc:
        raise WrongZone(f"environment variable `{ZONE_VARIABLE}`: {exc}") from None


def _zone(name: str) -> tzinfo:
    """The zone of a name such as `UTC`, `+02:00` or `Europe/Berlin`. Raises NoInstant."""
    if name.lower() in ("z", "utc"):
        return UTC
    try:
        if name[0] in "+-":
            zone = datetime.fromisoformat(f"2000-01-01T00:00{name}").tzinfo
            assert zone is not None
            return zone
        return ZoneInfo(name)
    except (ValueError, OSError, KeyError):  # what an unknown name raises depends on the system
        raise NoInstant(f"`{name}` is not a time zone such as `Europe/Berlin`") from None
