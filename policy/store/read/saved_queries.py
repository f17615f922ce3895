"""Queries that come with the product: one file each, plain SQL for both databases.

The first line of a file says what the query answers. A query takes some of the parameters below,
each as `:name`. What many of them have in common is written once, here, as `$name`.

Without a cluster they are about all clusters but those of kept simulations (`$clusters`).

Most of them add up totals: whole days of the asked time, or the rows over all days together where
everything in the table is of such days (`$span`), and beside them the rows of the record from the
parts of days at both ends: before `$first_ms`, and from `$behind_ms` on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from policy.store.errors import NotFound
from policy.store.kept import CLUSTERS_IN_QUESTION
from policy.store.tables.totals import ALL_DAYS, UNKNOWN_PRIORITY

DEFAULTS: Final[dict[str, Any]] = {
    "since": 0,
    "until": 2**62,
    "cluster": "",
    "namespace": "",
    "limit": 50,
}
"""Parameters and what they are where nobody gives them: no restriction, and at most 50 rows.

`since` and `until` are milliseconds since 1970 UTC of the time that a decision was made for.
"""

_FIRST_DAY: Final = "(CAST(:since AS BIGINT) + 86399999) / 86400000"
_BEHIND_DAY: Final = "CAST(:until AS BIGINT) / 86400000"
_SHARED: Final = {
    # The days to add up where they are not all: Postgres counts how many rows these are, which it
    # cannot do with the columns of `$span`, and would read a whole table for a week of it.
    "$clusters": f"({CLUSTERS_IN_QUESTION})",
    "$first_day": f"({_FIRST_DAY})",
    "$behind_day": f"({_BEHIND_DAY})",
    "$first_ms": f"{_FIRST_DAY} * 86400000",
    "$behind_ms": f"{_BEHIND_DAY} * 86400000",
    "$unknown": f"CAST({UNKNOWN_PRIORITY} AS BIGINT)",
}


def _span(table: str) -> str:
    """Of each cluster in question, the days to add up in a table: `first_day` to `behind_day`.

    -1 and 0 stand for the rows over all days together.
    """
    column, days = ("hour", 24) if table == "hour_totals" else ("day", 1)
    ends = ",\n               ".join(
        f"(SELECT {end}(t.{column}) FROM {table} t"
        f" WHERE t.cluster_id = c.id AND t.{column} >= 0) / {days} AS {name}"
        for end, name in (("min", "earliest"), ("max", "latest"))
    )
    everything = f"e.earliest >= {_FIRST_DAY} AND e.latest < {_BEHIND_DAY}"
    return f"""
    SELECT c.id AS cluster_id, c.name AS cluster,
           CASE WHEN {everything}
                THEN {ALL_DAYS} ELSE {_FIRST_DAY} END AS first_day,
           CASE WHEN {everything}
                THEN {ALL_DAYS} + 1 ELSE {_BEHIND_DAY} END AS behind_day
    FROM ({CLUSTERS_IN_QUESTION}) c
    CROSS JOIN (
        SELECT min(earliest) AS earliest, max(latest) AS latest
        FROM (
            SELECT {ends}
            FROM ({CLUSTERS_IN_QUESTION}) c
        ) b
    ) e
"""


def _whole(sql: str) -> str:
    """The SQL with what it names of the shared parts."""
    sql = re.sub(r"\$span\((\w+)\)", lambda found: _span(found[1]), sql)
    for name, part in _SHARED.items():
        sql = sql.replace(name, part)
    return sql


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedQuery:
    """A query with a name."""

    name: str
    about: str  #: one sentence
    sql: str
    parameters: tuple[str, ...]  #: those of `DEFAULTS` that it takes


@lru_cache(maxsize=1)
def saved_queries() -> dict[str, SavedQuery]:
    """All saved queries by name."""
    found = {}
    folder = files("policy.store.read").joinpath("saved")
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        name, dot, ending = entry.name.partition(".")
        if dot and ending == "sql":
            head, _, body = entry.read_text(encoding="utf-8").partition("\n")
            sql = _whole(body)
            found[name] = SavedQuery(
                name=name,
                about=head.removeprefix("-- "),
                sql=sql,
                parameters=tuple(p for p in DEFAULTS if re.search(rf":{p}\b", sql)),
            )
    return found


def saved_as(sql: str) -> SavedQuery | None:
    """The saved query whose text this is; line ends and blanks around it do not count."""
    plain = sql.replace("\r\n", "\n").strip()
    return next((q for q in saved_queries().values() if q.sql.strip() == plain), None)


def saved_query(name: str) -> SavedQuery:
    """Raises NotFound, with the closest names."""
    found = saved_queries().get(name)
    if found is None:
        from difflib import get_close_matches

        close = get_close_matches(name, saved_queries(), n=1)
        raise NotFound(
            f"there is no saved query `{name}`",
            help=f"did you mean `{close[0]}`?" if close else "`policy sql --list` shows them",
        )
    return found
