"""Queries that come with the product: one file each, plain SQL for both databases.

The first line of a file says what the query answers. A query takes some of the parameters below,
each as `:name`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final

from policy.store.errors import NotFound

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
            head, _, sql = entry.read_text(encoding="utf-8").partition("\n")
            found[name] = SavedQuery(
                name=name,
                about=head.removeprefix("-- "),
                sql=sql,
                parameters=tuple(p for p in DEFAULTS if re.search(rf":{p}\b", sql)),
            )
    return found


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
