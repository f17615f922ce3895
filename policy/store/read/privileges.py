"""What a Postgres role may do beside reading our tables, and who may do nothing else."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from sqlalchemy import Connection, text

_REACHED: Final = """
    reached AS (
        SELECT r.* FROM pg_roles r
        WHERE EXISTS (
            SELECT 1 FROM pg_roles s
            WHERE s.rolname = ANY(CAST(:roles AS text[])) AND pg_has_role(s.oid, r.oid, 'MEMBER')
        )
    )
"""
"""The roles and all that they can SET ROLE to, also where nothing of those is inherited."""

_AS_ROLES: Final = text(f"""
    WITH {_REACHED}
    SELECT rolname, power FROM (
        SELECT 1 AS rank, rolname, 'is a superuser' AS power FROM reached WHERE rolsuper
        UNION ALL
        SELECT 2, rolname, 'may make roles (CREATEROLE)' FROM reached WHERE rolcreaterole
        UNION ALL
        SELECT 3, rolname, 'may make databases (CREATEDB)' FROM reached WHERE rolcreatedb
        UNION ALL
        SELECT 4, rolname, 'may replicate the server (REPLICATION)' FROM reached
        WHERE rolreplication
        UNION ALL
        SELECT 5, rolname, 'is above row level security (BYPASSRLS)' FROM reached
        WHERE rolbypassrls
        UNION ALL
        SELECT 6, rolname, 'is a role of the server itself' FROM reached
        WHERE starts_with(rolname, 'pg_')
    ) AS found
    ORDER BY rolname = ANY(CAST(:roles AS text[])) DESC, rank, rolname
""")

_AS_OWNER: Final = text(f"""
    WITH {_REACHED},
    ours AS (
        SELECT c.* FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = current_schema() AND c.relname = ANY(CAST(:relations AS text[]))
    ),
    guarded AS (
        SELECT p.oid, p.proname FROM pg_proc p
        WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proacl IS NOT NULL
            AND NOT has_function_privilege('public', p.oid, 'EXECUTE')
    )
    SELECT rolname, power FROM (
        SELECT 1 AS rank, r.rolname, 'owns the database' AS power
        FROM reached r JOIN pg_database d ON d.datdba = r.oid
        WHERE d.datname = current_database()
        UNION ALL
        SELECT 2, r.rolname, 'owns the schema ' || quote_ident(n.nspname)
        FROM reached r JOIN pg_namespace n ON n.nspowner = r.oid
        WHERE n.nspname = current_schema()
        UNION ALL
        SELECT 3, r.rolname, 'owns ' || quote_ident(o.relname)
        FROM reached r JOIN ours o ON o.relowner = r.oid
        UNION ALL
        SELECT 4, r.rolname, 'may write ' || quote_ident(o.relname)
        FROM reached r CROSS JOIN ours o
        WHERE has_table_privilege(r.oid, o.oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')
            OR has_any_column_privilege(r.oid, o.oid, 'INSERT, UPDATE')
        UNION ALL
        SELECT 5, r.rolname, 'may call ' || g.proname
        FROM reached r CROSS JOIN guarded g
        WHERE has_function_privilege(r.oid, g.oid, 'EXECUTE')
    ) AS found
    ORDER BY rolname = ANY(CAST(:roles AS text[])) DESC, rank, rolname, power
""")


def powers(
    connection: Connection, roles: Sequence[str], relations: Collection[str]
) -> tuple[str, ...]:
    """What the roles, or a role that they can take, may do beside reading.

    Their own powers come first, the worst of them at the head.
    relations: names of our tables and views in the current schema. Empty for a reader. Which
    objects anyone may make in a schema is not looked at: a transaction that reads makes none.
    """
    given = {"roles": list(roles), "relations": list(relations)}
    # One after the other: a superuser reaches every role and may call every function.
    for query in (_AS_ROLES, _AS_OWNER):
        found = connection.execute(query, given).all()
        if found:
            return tuple(
                f"`{role}` {power}" if role in roles else f"it can act as `{role}`, which {power}"
                for role, power in found
            )
    return ()


_READERS: Final = text("""
    SELECT DISTINCT r.rolname
    FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    CROSS JOIN aclexplode(c.relacl) AS a
    JOIN pg_roles r ON r.oid = a.grantee
    WHERE n.nspname = current_schema() AND c.relname = :relation
        AND a.privilege_type = 'SELECT' AND a.grantee <> c.relowner
    ORDER BY r.rolname
""")


def readers(connection: Connection, relation: str) -> list[str]:
    """Roles that somebody gave the right to read one of our tables to."""
    return list(connection.execute(_READERS, {"relation": relation}).scalars())


def grant_reading(
    connection: Connection, roles: Collection[str], relations: Collection[str]
) -> None:
    """Let roles read tables and views of the current schema."""
    quoted = connection.dialect.identifier_preparer.quote_identifier
    if roles and relations:
        of = ", ".join(map(quoted, sorted(relations)))
        to = ", ".join(map(quoted, sorted(roles)))
        connection.exec_driver_sql(f"GRANT SELECT ON {of} TO {to}")


_HARMLESS: Final = (
    "array_sample",
    "array_shuffle",
    "clock_timestamp",
    "gen_random_uuid",
    "pg_column_size",
    "pg_database_size",
    "pg_indexes_size",
    "pg_relation_size",
    "pg_sleep",
    "pg_sleep_for",
    "pg_sleep_until",
    "pg_table_size",
    "pg_total_relation_size",
    "random",
    "random_normal",
    "timeofday",
    "uuidv4",
    "uuidv7",
)
"""Volatile only because they answer differently each time."""

_VOLATILE: Final = text("""
    SELECT DISTINCT p.proname FROM pg_proc p
    WHERE p.provolatile = 'v'
        AND p.proname <> ALL(CAST(:harmless AS text[]))
        AND 'internal'::regtype <> ALL(p.proargtypes::oid[])
        AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
    ORDER BY p.proname
""")


def functions_with_effects(connection: Connection) -> list[str]:
    """Names of the functions that may do more than answer, extensions' and users' among them.

    Some of them work for everyone and in a transaction that only reads: locks, messages, ending
    one's other sessions, settings of the session, and SQL that stands in a text.
    """
    return list(connection.execute(_VOLATILE, {"harmless": list(_HARMLESS)}).scalars())
