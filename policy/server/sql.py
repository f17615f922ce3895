"""SQL of users, for the API and the pages: what each may read, within a time and a size.

| who | reads |
| --- | --- |
| limited to namespaces | a copy of what concerns them: `own_sql` |
| an admin | tables and views |
| others | views; on Postgres what the reader's role may read |

A saved query is ours, to the letter, and reads whatever it reads for all but limited ones.

SQLite can be stopped between two of its steps only, and one step may take hours. Whoever has left
such a statement behind gets no other one until it ends: two of a token run at once, so that there
are never more of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from itertools import islice
from typing import Any

from policy.server.http import Failure
from policy.server.own_sql import SECONDS, own_sql
from policy.server.security.access import Principal
from policy.server.security.tokens import Role
from policy.server.service import PolicyService
from policy.store.read.bounds import ANSWER_MIB
from policy.store.read.saved_queries import saved_as


def run_sql(
    service: PolicyService,
    principal: Principal,
    sql: str,
    parameters: Mapping[str, Any],
    *,
    limit: int,
) -> dict[str, Any]:
    """Columns, rows, and whether there are more. Raises Failure, StoreError."""
    left = service.left_behind.setdefault(principal.name, [])
    for one in tuple(left):
        if not one.running:
            with suppress(ValueError):  # the other one that runs at once has removed it
                left.remove(one)
    if left:
        told = "a statement of this token is still running that was stopped and does not end"
        raise Failure(503, "unavailable", told, help="try again when it has ended")
    if principal.limited:
        return own_sql(service, principal, sql, parameters, limit=limit, left=left)
    saved = saved_as(sql) is not None
    store = service.store if saved else service.reader
    with store.sql(
        sql,
        parameters,
        timeout=SECONDS,
        trust_connection=saved,
        views_only=not saved and not principal.may(Role.ADMIN),
        most_mib=ANSWER_MIB,
        left=left,
    ) as found:
        rows = [list(row) for row in islice(found, limit + 1)]
        columns = found.columns
    return {"columns": columns, "rows": rows[:limit], "more": len(rows) > limit}
