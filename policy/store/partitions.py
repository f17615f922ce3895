"""Partitions of the record on Postgres: decisions and their children, a month to a partition.

A partition holds a range of decision ids: ids grow as decisions are recorded, and a month begins at
the first one that was recorded in it (UTC). Every partitioned table is cut at the same ids, and the
rows of a decision lie in partitions of the same name. So a foreign key from a child to its decision
stands between two such partitions: one between the partitioned tables would not let a partition
change hands. New decisions go into the `open` partition, which has no end; `complete_months` gives
each month that is over a partition of its own. A partition that is no longer written to says within
which times its decisions were made: Postgres passes over it in a query about others.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_left
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

from policy.store.connection import Database, parse_url
from policy.store.errors import StoreError, shown, sqlstate

DECISIONS: Final = "decisions"
KEYS: Final[dict[str, str]] = {
    DECISIONS: "id",
    "decision_traces": "decision_id",
    "extender_calls": "decision_id",
    "decision_filters": "decision_id",
    "decision_rules": "decision_id",
    "candidates": "decision_id",
    "candidate_violations": "decision_id",
    "victims": "decision_id",
}
"""The partitioned tables, decisions before what refers to them, and what they are cut by."""
OPEN: Final = "open"
"""Name of the partition that new decisions go into."""

_TIMED: Final = frozenset({DECISIONS, "victims"})
"""Tables with `now_ms`."""
_LOCK: Final = 0x706F6C6963790002
_LOCK_MS: Final = 400
"""Half of what it takes Postgres to look for a deadlock: it never ends those who wait for us."""
_PAUSE_SECONDS: Final = 0.2
_TRY_SECONDS: Final = 60
_BRIEFLY: Final = 2.0
_NO_RIGHT: Final = "42501"
_NOT_LOCKED: Final = frozenset({_NO_RIGHT, "55P03", "57014"})
"""The last two: the lock is not available; the statement took too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A stretch of decisions in partitions of its own, in every partitioned table."""

    name: str  #: `2026_01`, or `open`; the tables are `decisions_2026_01`, ...
    first_id: int | None  #: None: from the beginning
    behind_id: int | None  #: the first id that is no longer in it; None: without end


def of_decisions(connection: Connection, table: str = DECISIONS) -> list[Partition]:
    """The partitions, oldest first. Empty where the table is not partitioned."""
    found = [
        Partition(name=row.name.removeprefix(f"{DECISIONS}_"), first_id=row.low, behind_id=row.high)
        for row in connection.execute(_BOUNDS, {"table": table})
    ]
    return sorted(found, key=lambda one: (one.first_id is not None, one.first_id))


_BOUNDS: Final = text(r"""
    SELECT c.relname AS name,
           CAST(substring(pg_get_expr(c.relpartbound, c.oid) FROM $$FROM \('?(-?\d+)$$) AS bigint)
           AS low,
           CAST(substring(pg_get_expr(c.relpartbound, c.oid) FROM $$TO \('?(-?\d+)$$) AS bigint)
           AS high
    FROM pg_inherits i
    JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass(:table) AND c.relispartition
""")


def names(connection: Connection) -> set[str]:
    """Names of all partitions in the current schema, as tables."""
    query = text("""
        SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relispartition AND c.relkind = 'r' AND n.nspname = current_schema()
    """)
    return set(connection.execute(query).scalars())


def problems(connection: Connection) -> Iterator[str]:
    """What is wrong with the partitions, in words: every decision has its rows beside it."""
    wanted = of_decisions(connection)
    if not wanted or wanted[-1].behind_id is not None:
        yield f"table {DECISIONS} has no partition for new decisions"
    for table in KEYS:
        if (
            connection.execute(text("SELECT to_regclass(:table)"), {"table": table}).scalar()
            is None
        ):
            continue
        have = {
            (row.name.removeprefix(f"{table}_"), row.low, row.high)
            for row in connection.execute(_BOUNDS, {"table": table})
        }
        for one in wanted:
            leaf = f"{table}_{one.name}"
            if (one.name, one.first_id, one.behind_id) not in have:
                yield f"table {table} has no partition {leaf} like that of {DECISIONS}"
            elif table != DECISIONS and not _refers(connection, leaf, f"{DECISIONS}_{one.name}"):
                yield f"table {leaf} has no foreign key to {DECISIONS}_{one.name}"
        if len(have) > len(wanted):
            yield f"table {table} has partitions that {DECISIONS} has not"


def _refers(connection: Connection, child: str, decisions: str) -> bool:
    query = text("""
        SELECT 1 FROM pg_constraint
        WHERE contype = 'f' AND convalidated AND conrelid = to_regclass(:child)
            AND confrelid = to_regclass(:decisions)
    """)
    return connection.execute(query, {"child": child, "decisions": decisions}).first() is not None


# --- from plain tables to partitioned ones and back ----------------------------------------------


def make_partitioned(connection: Connection) -> None:
    """Make plain tables partitioned ones; their rows stay where they are, in `open`.

    Views, privileges and foreign keys of others then are about the partitioned tables.
    """
    with _taking_the_place(connection, OPEN) as shapes:
        for table, shape in shapes.items():
            leaf = f"{table}_{OPEN}"
            _run(
                connection,
                f"CREATE TABLE {table} (LIKE {leaf} INCLUDING DEFAULTS INCLUDING COMMENTS)"
                f" PARTITION BY RANGE ({KEYS[table]})",
            )
            for name, definition in shape.constraints:
                if not _to_decision(definition):
                    _run(connection, f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
            _attach(connection, table, Partition(name=OPEN, first_id=None, behind_id=None))
            for _, definition in shape.indexes:
                _run(connection, definition)


def make_plain(connection: Connection) -> None:
    """Make partitioned tables plain ones, with the rows of all partitions."""
    suffix = "partitioned"
    with _taking_the_place(connection, suffix) as shapes:
        for table, shape in shapes.items():
            old = f"{table}_{suffix}"
            _run(
                connection,
                f"CREATE TABLE {table} (LIKE {old} INCLUDING DEFAULTS INCLUDING COMMENTS)",
            )
            _run(connection, f"INSERT INTO {table} SELECT * FROM {old}")
            for name, definition in shape.constraints:
                _run(connection, f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}")
            if table != DECISIONS:
                _refer(connection, table, DECISIONS, name=f"fk_{table}_{KEYS[table]}")
            for _, definition in shape.indexes:
                _run(connection, definition.replace(" ON ONLY ", " ON ", 1))
    for one in of_decisions(connection, f"{DECISIONS}_{suffix}"):
        for table in reversed(KEYS):
            _run(connection, f"ALTER TABLE {table}_{suffix} DETACH PARTITION {table}_{one.name}")
            _run(connection, f"DROP TABLE {table}_{one.name}")
    for table in reversed(KEYS):
        _run(connection, f"DROP TABLE {table}_{suffix}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """What a table has beside its columns."""

    owner: str
    indexes: tuple[tuple[str, str], ...]  #: name and statement; the primary key is none of them
    constraints: tuple[tuple[str, str], ...]  #: name and definition
    rights: tuple[tuple[str, str, bool], ...]  #: right, role, and whether that may pass it on


def _shape(connection: Connection, table: str) -> _Shape:
    of = {"table": table}
    indexes = text("""
        SELECT quote_ident(c.relname), pg_get_indexdef(c.oid)
        FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE i.indrelid = to_regclass(:table) AND NOT i.indisprimary ORDER BY c.oid
    """)
    constraints = text("""
        SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint
        WHERE conrelid = to_regclass(:table) AND contype IN ('p', 'f', 'c', 'u')
        ORDER BY contype DESC, oid
    """)
    rights = text("""
        SELECT a.privilege_type,
               CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(r.rolname) END,
               a.is_grantable
        FROM pg_class c CROSS JOIN aclexplode(c.relacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
        WHERE c.oid = to_regclass(:table) AND a.grantee <> c.relowner
    """)
    owner = text("""
        SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = to_regclass(:table)
    """)
    return _Shape(
        owner=connection.execute(owner, of).scalar_one(),
        indexes=tuple(map(tuple, connection.execute(indexes, of))),
        constraints=tuple(map(tuple, connection.execute(constraints, of))),
        rights=tuple(map(tuple, connection.execute(rights, of))),
    )


@contextmanager
def _taking_the_place(connection: Connection, suffix: str) -> Iterator[dict[str, _Shape]]:
    """Give the tables other names, and what the block makes under the old ones their part."""
    _refuse_other_users(connection)
    views = connection.execute(_VIEWS, {"tables": list(KEYS)}).all()
    triggers = connection.execute(_TRIGGERS, {"tables": list(KEYS)}).scalars().all()
    shapes = {table: _shape(connection, table) for table in KEYS}
    with _without_foreign_keys(connection, valid=True):
        for table, shape in shapes.items():
            _run(connection, f"ALTER TABLE {table} RENAME TO {table}_{suffix}")
            for name, _ in shape.constraints:
                renamed = f"RENAME CONSTRAINT {name} TO {name}_{suffix}"
                _run(connection, f"ALTER TABLE {table}_{suffix} {renamed}")
            for name, _ in shape.indexes:
                _run(connection, f"ALTER INDEX {name} RENAME TO {name}_{suffix}")
        yield shapes
        for table, shape in shapes.items():
            _run(connection, f"ALTER TABLE {table} OWNER TO {shape.owner}")
            for right, role, passes_on in shape.rights:
                _run(
                    connection,
                    f"GRANT {right} ON {table} TO {role}"
                    + (" WITH GRANT OPTION" if passes_on else ""),
                )
                _run(connection, f"REVOKE {right} ON {table}_{suffix} FROM {role} CASCADE")
    for view in views:
        options = f" WITH ({view.options})" if view.options else ""
        _run(connection, f"CREATE OR REPLACE VIEW {view.name}{options} AS {view.definition}")
    for trigger in triggers:
        _run(connection, trigger)


_VIEWS: Final = text("""
    SELECT DISTINCT quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS name,
           pg_get_viewdef(c.oid) AS definition, array_to_string(c.reloptions, ', ') AS options
    FROM pg_depend d
    JOIN pg_rewrite r ON r.oid = d.objid
    JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'v'
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid = ANY (SELECT to_regclass(t) FROM unnest(CAST(:tables AS text[])) t)
    ORDER BY name
""")
"""Views that read the tables. What is put in the place of one keeps its rights and its readers."""

_TRIGGERS: Final = text("""
    SELECT pg_get_triggerdef(oid) FROM pg_trigger
    WHERE NOT tgisinternal AND tgparentid = 0
        AND tgrelid = ANY (SELECT to_regclass(t) FROM unnest(CAST(:tables AS text[])) t)
    ORDER BY tgname
""")

_OTHER_USERS: Final = text("""
    SELECT DISTINCT c.relname
    FROM pg_depend d
    JOIN pg_rewrite r ON r.oid = d.objid
    JOIN pg_class c ON c.oid = r.ev_class AND c.relkind = 'm'
    WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass
        AND d.refobjid = ANY (SELECT to_regclass(t) FROM unnest(CAST(:tables AS text[])) t)
    ORDER BY 1
""")


def _refuse_other_users(connection: Connection) -> None:
    """Raises StoreError for what would go on reading the tables that were put aside."""
    found = connection.execute(_OTHER_USERS, {"tables": list(KEYS)}).scalars().all()
    if found:
        raise StoreError(
            f"materialized view `{found[0]}` reads tables that are to be made anew",
            help="drop it, and make it again afterwards",
        )


@contextmanager
def _without_foreign_keys(connection: Connection, *, valid: bool) -> Iterator[None]:
    """Leave out the foreign keys of other tables to decisions for the length of the block.

    valid: look at all rows when they are there again; else only at new ones, see `_validate`.
    """
    found = connection.execute(_FOREIGN_KEYS, {"tables": list(KEYS)}).all()
    for one in found:
        _run(connection, f"ALTER TABLE {one.table} DROP CONSTRAINT {one.name}")
    yield
    for one in found:
        unchecked = "" if valid else " NOT VALID"
        definition = one.definition.removesuffix(" NOT VALID")
        _run(
            connection,
            f"ALTER TABLE {one.table} ADD CONSTRAINT {one.name} {definition}{unchecked}",
        )


_FOREIGN_KEYS: Final = text("""
    SELECT CAST(CAST(conrelid AS regclass) AS text) AS table, quote_ident(conname) AS name,
           pg_get_constraintdef(oid) AS definition, convalidated AS valid
    FROM pg_constraint
    WHERE contype = 'f' AND confrelid = to_regclass('decisions') AND conparentid = 0
        AND conrelid <> ALL (SELECT to_regclass(t) FROM unnest(CAST(:tables AS text[])) t)
    ORDER BY 1, 2
""")


def _validate(connection: Connection) -> None:
    """Have the foreign keys to decisions looked at in full; writers go on meanwhile."""
    for one in connection.execute(_FOREIGN_KEYS, {"tables": list(KEYS)}).all():
        if not one.valid:
            _run(connection, f"ALTER TABLE {one.table} VALIDATE CONSTRAINT {one.name}")


def _to_decision(definition: str) -> bool:
    return f" REFERENCES {DECISIONS}(" in definition or f".{DECISIONS}(" in definition


def _refer(connection: Connection, table: str, decisions: str, *, name: str) -> None:
    key = f"FOREIGN KEY (decision_id) REFERENCES {decisions} (id)"
    _run(connection, f"ALTER TABLE {table} ADD CONSTRAINT {name} {key}")


def _run(connection: Connection, statement: str) -> int:
    """Gives how many rows it was about."""
    return connection.exec_driver_sql(statement.replace("%", "%%")).rowcount


# --- months that are over ------------------------------------------------------------------------


def complete_months(text_url: str, *, now_ms: int | None) -> Iterator[Partition]:
    """Give every month that is over at `now_ms` a partition of its own, the oldest first.

    None: every month before that of the newest decision. Each is one transaction, after which the
    next one begins: what was done stays done. Raises StoreError.
    """
    url = parse_url(text_url)
    if url.get_backend_name() == "sqlite":
        raise StoreError(
            f"`{shown(url)}` is a file, which has no partitions",
            help="partitions are for a Postgres server: name one with --db or POLICY_DB",
        )
    from policy.store import migrate

    database = Database(url, create=False)
    try:
        with database.reading() as connection:
            migrate.require_newest(migrate.schema_of(connection, url), url)
        made: list[Partition] = []
        while True:
            with database.writing() as connection:
                alone(connection)
                before = _newest_month(connection) if now_ms is None else _month_of(now_ms)
                if before is None:
                    break
                done = _complete_month(connection, before=before, copy=bool(made))
            if done is None:
                break
            made.append(done)
            yield done
        with database.writing() as connection:
            _validate(connection)
            if made:
                _run(connection, f"ANALYZE {', '.join(KEYS)}")
    finally:
        database.close()


def alone(connection: Connection) -> None:
    """Keep others out who change which partitions there are, or take old rows out."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})


def _newest_month(connection: Connection) -> datetime | None:
    """The month of the newest decision; None where there is none."""
    newest = f"SELECT at_ms FROM cycles WHERE id = (SELECT max(id) FROM {DECISIONS})"
    at_ms = connection.exec_driver_sql(newest).scalar()
    return None if at_ms is None else _month_of(at_ms)


def _complete_month(connection: Connection, *, before: datetime, copy: bool) -> Partition | None:
    """Give the oldest month in `open` that lies before a month a partition of its own.

    None where there is none. copy: the month is copied, where something came after it; else that is
    copied of the two which is less, and the other one keeps the tables. What is copied leaves room
    in these that only new decisions fill again. A month is copied while others read and write, and
    whatever else is done while they wait.

    Raises StoreError where others do not let go of the tables.
    """
    open_before = of_decisions(connection)[-1]
    first, last = connection.exec_driver_sql(
        f"SELECT min(id), max(id) FROM {DECISIONS}_{OPEN}"
    ).one()
    if first is None:
        return None
    began = connection.exec_driver_sql(f"SELECT at_ms FROM cycles WHERE id = {first}").scalar_one()
    month = _month_of(began)
    if month >= before:
        return None
    # Who is writing ends, and may write decisions of the month until then; those of whoever
    # begins afterwards have later numbers.
    savepoint = connection.begin_nested()
    _lock(connection, ["clusters"], "EXCLUSIVE")
    savepoint.rollback()
    behind = _first_behind(connection, month, first)
    copies_month = behind is not None and (copy or behind - first < last - behind)
    if not copies_month:
        _lock_all(connection)
        behind = _first_behind(connection, month, first)
    if behind is None:
        behind = 1 + connection.exec_driver_sql(f"SELECT max(id) FROM {DECISIONS}").scalar_one()
    name = f"{month:%Y_%m}"
    if any(one.name == name for one in of_decisions(connection)):
        name = f"{name}_{first}"  # recorded by a clock that was set back
    done = Partition(name=name, first_id=open_before.first_id, behind_id=behind)
    rest = Partition(name=OPEN, first_id=behind, behind_id=None)
    if copies_month:
        kept, new, which = OPEN, name, f"< {behind}"
    else:
        kept, new, which = name, OPEN, f">= {behind}"
        for table in KEYS:
            _run(connection, f"ALTER TABLE {table}_{OPEN} RENAME TO {table}_{name}")
    copied = {table: _copy(connection, table, kept, new, which) for table in KEYS}
    if copies_month:
        _lock_all(connection)
    with _without_foreign_keys(connection, valid=False):
        for table in reversed(KEYS):
            gone = _run(connection, f"DELETE FROM {table}_{kept} WHERE {KEYS[table]} {which}")
            if gone != copied[table]:
                raise StoreError(
                    f"rows of table {table} were changed meanwhile", help="run it again"
                )
            _run(connection, f"ALTER TABLE {table} DETACH PARTITION {table}_{kept}")
        for table in KEYS:
            _say_what_is_in_it(connection, table, done)
            _attach(connection, table, done)
            _attach(connection, table, rest)
    return done


def _first_behind(connection: Connection, month: datetime, first: int) -> int | None:
    """The first decision that was recorded after a month, of those from `first` on."""
    query = text(
        "SELECT id FROM cycles WHERE id >= :first AND at_ms >= :behind_ms ORDER BY id LIMIT 1"
    )
    behind = month.replace(year=month.year + month.month // 12, month=month.month % 12 + 1)
    at_ms = int(behind.timestamp()) * 1000
    return connection.execute(query, {"first": first, "behind_ms": at_ms}).scalar()


def _copy(connection: Connection, table: str, source: str, target: str, which: str) -> int:
    """Make the tables of a partition, with rows of another one; gives how many."""
    leaf, shape = f"{table}_{target}", _shape(connection, table)
    _run(connection, f"CREATE TABLE {leaf} (LIKE {table} INCLUDING ALL EXCLUDING INDEXES)")
    _run(connection, f"ALTER TABLE {leaf} OWNER TO {shape.owner}")
    rows = f"SELECT * FROM {table}_{source} WHERE {KEYS[table]} {which}"
    copied = _run(connection, f"INSERT INTO {leaf} {rows}")
    # Sorted once instead of entered row by row; what is left out here, attaching would make.
    for _, definition in shape.constraints:
        if definition.startswith("PRIMARY KEY"):
            _run(connection, f"ALTER TABLE {leaf} ADD {definition}")
    for _, definition in shape.indexes:
        _run(connection, _INDEX_OF.sub(f" INDEX ON {leaf} ", definition, count=1))
    if table != DECISIONS:
        _refer(connection, leaf, f"{DECISIONS}_{target}", name=f"fk_{leaf}_{KEYS[table]}")
    return copied


_INDEX_OF: Final = re.compile(r" INDEX \S+ ON ONLY \S+ ")


def _say_what_is_in_it(connection: Connection, table: str, one: Partition) -> None:
    """The limits of a partition that is no longer written to, as a condition on its rows.

    With those on the ids nothing has to be looked at again when it is attached; by those on the
    time Postgres passes over it.
    """
    leaf, key = f"{table}_{one.name}", KEYS[table]
    conditions = [f"{key} < {one.behind_id}"]
    if one.first_id is not None:
        conditions.append(f"{key} >= {one.first_id}")
    if table in _TIMED:
        times = f"SELECT min(now_ms), max(now_ms) FROM {leaf}"
        oldest, newest = connection.exec_driver_sql(times).one()
        if oldest is not None:
            conditions.append(f"now_ms BETWEEN {oldest} AND {newest}")
    condition = " AND ".join(conditions)
    _run(connection, f"ALTER TABLE {leaf} ADD CONSTRAINT ck_{leaf}_limits CHECK ({condition})")


def _attach(connection: Connection, table: str, one: Partition) -> None:
    low = "MINVALUE" if one.first_id is None else one.first_id
    high = "MAXVALUE" if one.behind_id is None else one.behind_id
    limits = f"FOR VALUES FROM ({low}) TO ({high})"
    _run(connection, f"ALTER TABLE {table} ATTACH PARTITION {table}_{one.name} {limits}")


def drop_whole(connection: Connection, ids: Collection[int]) -> list[int]:
    """Drop the partitions that hold no decisions but these; gives those that are still there.

    Where the tables are in use, or are another role's, all of them are.
    """
    left = sorted(ids)
    found = []
    for one in of_decisions(connection)[:-1]:
        low = 0 if one.first_id is None else bisect_left(left, one.first_id)
        inside = left[low : bisect_left(left, one.behind_id or 0)]
        leaf = f"{DECISIONS}_{one.name}"
        count = connection.exec_driver_sql(f"SELECT count(*) FROM {leaf}").scalar_one()
        if count == len(inside):
            found.append((one, inside))
    # Who takes old rows out has rows of its own locked, which others may be waiting for: it never
    # waits while they may wait for it.
    mode: Final = "ACCESS EXCLUSIVE"
    alone = found and _locked(connection, _family(connection), mode, wait_ms=0, seconds=_BRIEFLY)
    if not alone:
        return left
    for one, inside in found:
        for table in reversed(KEYS):
            _run(connection, f"ALTER TABLE {table} DETACH PARTITION {table}_{one.name}")
            _run(connection, f"DROP TABLE {table}_{one.name}")
        low = bisect_left(left, inside[0]) if inside else 0
        del left[low : low + len(inside)]
    return left


def _family(connection: Connection) -> list[str]:
    """The partitioned tables and all that are tied to them, in the order in which writers go."""
    tied = connection.execute(_TIED, {"tables": list(KEYS)}).scalars()
    others = connection.execute(_FOREIGN_KEYS, {"tables": list(KEYS)}).all()
    return [*tied, *KEYS, *(one.table for one in others)]


_TIED: Final = text("""
    SELECT DISTINCT CAST(confrelid AS regclass)::text AS name FROM pg_constraint
    WHERE contype = 'f' AND conrelid = to_regclass('decisions') ORDER BY name
""")
"""Tables that decisions refer to: a foreign key that comes or goes changes them too."""


def _lock_all(connection: Connection) -> None:
    _lock(connection, _family(connection), "ACCESS EXCLUSIVE")


def _lock(connection: Connection, tables: Sequence[str], mode: str) -> None:
    """Raises StoreError where others do not let go of the tables."""
    if not _locked(connection, tables, mode, wait_ms=_LOCK_MS, seconds=_TRY_SECONDS):
        raise StoreError(
            f"others have been using the tables for {_TRY_SECONDS} seconds, or own them",
            help="run it again as their owner when no long query or import runs; what was done"
            " stays done",
        )


def _locked(
    connection: Connection, tables: Sequence[str], mode: str, *, wait_ms: int, seconds: float
) -> bool:
    """Lock tables, all or none of them; False where they are in use, or another role's.

    wait_ms: how long each attempt waits while it holds some of them.
    """
    before = connection.exec_driver_sql("SHOW statement_timeout").scalar_one()
    deadline = time.monotonic() + seconds
    nowait = "" if wait_ms else " NOWAIT"
    while True:
        savepoint = connection.begin_nested()
        try:
            _run(connection, f"SET LOCAL statement_timeout = {wait_ms}")
            _run(connection, f"LOCK TABLE {', '.join(tables)} IN {mode} MODE{nowait}")
            _run(connection, f"SET LOCAL statement_timeout = '{before}'")
        except DBAPIError as exc:
            savepoint.rollback()
            state = sqlstate(exc)
            if state not in _NOT_LOCKED:
                raise
            if state == _NO_RIGHT or time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_SECONDS)
        else:
            savepoint.commit()
            return True


def _month_of(at_ms: int) -> datetime:
    """The beginning of the month."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
