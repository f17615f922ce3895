"""Who writes: the process as the system knows it, and the user that the database authenticated.

The name that records carry as `actor` is what somebody claims to be (`LOGNAME`, or a caller's
argument). These two are facts, found here where rows are written, so that no caller can give
others.
"""

from __future__ import annotations

import os
import pwd
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection

DATABASE_USER: Final = "database_user"
"""Key in a connection's `info`: Postgres' `session_user`, read when the connection was made."""


def columns(connection: Connection) -> dict[str, Any]:
    """The columns of `tables.base.written_by` for a row that is written now."""
    uid = os.getuid()
    return {
        "process_uid": uid,
        "process_user": _name(uid),
        "database_user": connection.info.get(DATABASE_USER, ""),
    }


@cache
def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # a container's user without a name
        return ""
