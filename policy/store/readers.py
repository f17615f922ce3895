"""Roles of a Postgres server that can read our tables and views, and do nothing else."""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL
from sqlalchemy.exc import SQLAlchemyError

from policy.store import migrate
from policy.store.connection import Database, parse_url
from policy.store.errors import StoreError, first_line, shown, sqlstate
from policy.store.read.privileges import grant_reading, powers, readers

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_PASSWORD_BYTES: Final = 24
_KEPT_OF_URL: Final = frozenset(
    {"channel_binding", "host", "hostaddr", "port", "service", "sslmode", "sslrootcert"}
)
"""What a reader's connection has from the administrator's: the way to the server, no identity."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """A role that was made."""

    name: str
    url: str  #: of its connection, with the password where that was generated
    relations: int  #: tables and views, or views, that it can read
    open_schema: str  #: schema in which every role may make objects; empty where none may


def create_reader(
    text_url: str, name: str, *, password: str | None = None, views_only: bool = False
) -> Reader:
    """Make a role that may log in and read our tables and views, or our views alone.

    password: None to have one generated, which is in the URL of the result and nowhere else. The
    server gets its SCRAM verifier, never the password. Raises StoreError; then nothing was made.
    """
    url = _server(text_url)
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise StoreError(
            f"`{name}` cannot be the name of a reader",
            help="up to 63 lower-case letters, digits and `_`, not beginning with a digit or `pg_`",
        )
    if password is not None and (not password or "\0" in password):
        raise StoreError("the password is empty or has a NUL character")
    given = password if password is not None else secrets.token_urlsafe(_PASSWORD_BYTES)
    relations = migrate.relations()
    # The revision of the schema says whether the views are those of this version.
    read = migrate.VIEWS | {migrate.VERSION_TABLE} if views_only else relations
    database = Database(url, create=False)
    try:
        with database.writing() as connection:
            migrate.require_newest(migrate.schema_of(connection, url), url)
            _make(connection, url, name, given)
            grant_reading(connection, [name], read)
            found = powers(connection, [name], relations)
            if found:
                raise StoreError(
                    f"every role of this server may do more than read: {found[0]}",
                    help="take that right from PUBLIC, then make the reader",
                )
            schema = connection.execute(_OPEN_SCHEMA).scalar_one_or_none() or ""
    finally:
        database.close()
    return Reader(
        name=name,
        url=_url(url, name, given if password is None else None),
        relations=len(migrate.VIEWS if views_only else relations),
        open_schema=schema,
    )


def drop_reader(text_url: str, name: str) -> None:
    """Remove a role that `create_reader` made. Raises StoreError; then nothing was removed."""
    url = _server(text_url)
    database = Database(url, create=False)
    try:
        with database.writing() as connection:
            if not _exists(connection, name):
                raise StoreError(f"there is no role `{name}`")
            if name not in readers(connection, migrate.VERSION_TABLE):
                raise StoreError(f"role `{name}` is no reader of this database")
            role, schema, of = _quoted(connection, name)
            relations = ", ".join(
                map(connection.dialect.identifier_preparer.quote, sorted(migrate.relations()))
            )
            try:
                for statement in (
                    f"REVOKE SELECT ON {relations} FROM {role}",
                    f"REVOKE USAGE ON SCHEMA {schema} FROM {role}",
                    f"REVOKE CONNECT ON DATABASE {of} FROM {role}",
                    f"DROP ROLE {role}",
                ):
                    connection.exec_driver_sql(statement)
            except SQLAlchemyError as exc:
                raise _refused(exc, url, f"role `{name}` cannot be removed") from exc
    finally:
        database.close()


def _server(text_url: str) -> URL:
    url = parse_url(text_url)
    if url.get_backend_name() == "sqlite":
        raise StoreError(
            f"`{shown(url)}` is a file, which has no roles",
            help="who may read a SQLite file is for its permissions to say; readers are roles of a"
            " Postgres server: name one with --db or POLICY_DB",
        )
    return url


def _exists(connection: Connection, name: str) -> bool:
    query = text("SELECT 1 FROM pg_roles WHERE rolname = :name")
    return connection.execute(query, {"name": name}).first() is not None


def _quoted(connection: Connection, name: str) -> tuple[str, str, str]:
    """Role, schema and database, as SQL names them."""
    schema, database = connection.execute(
        text("SELECT quote_ident(current_schema()), quote_ident(current_database())")
    ).one()
    return connection.dialect.identifier_preparer.quote_identifier(name), schema, database


def _make(connection: Connection, url: URL, name: str, password: str) -> None:
    if _exists(connection, name):
        raise StoreError(
            f"there is a role `{name}` already",
            help=f"name another one, or remove it with `policy db reader drop {name}`",
        )
    role, schema, database = _quoted(connection, name)
    raw: Any = connection.connection.dbapi_connection
    # What the server gets may stand in its log; the password itself never leaves this process.
    verifier = raw.pgconn.encrypt_password(password.encode(), name.encode(), b"scram-sha-256")
    try:
        for statement in (
            f"CREATE ROLE {role} LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE NOREPLICATION"
            f" NOBYPASSRLS NOINHERIT PASSWORD '{verifier.decode()}'",
            f"GRANT CONNECT ON DATABASE {database} TO {role}",
            f"GRANT USAGE ON SCHEMA {schema} TO {role}",
            f"ALTER ROLE {role} IN DATABASE {database} SET search_path = {schema}",
            # For those who come with psql or a dashboard; the role itself may write nothing.
            f"ALTER ROLE {role} SET default_transaction_read_only = on",
        ):
            connection.exec_driver_sql(statement)
    except SQLAlchemyError as exc:
        raise _refused(exc, url, f"role `{name}` cannot be made") from exc


def _refused(exc: SQLAlchemyError, url: URL, what: str) -> StoreError:
    advice = ""
    if sqlstate(exc) == "42501":
        advice = "connect as the owner of the tables, with the right to make roles (CREATEROLE)"
    elif sqlstate(exc) == "2BP01":
        advice = "it has other rights or objects: see `DROP OWNED` in the manual of Postgres"
    return StoreError(f"{what}: {first_line(exc, url)}", help=advice)


def _url(url: URL, name: str, password: str | None) -> str:
    query = {key: value for key, value in url.query.items() if key in _KEPT_OF_URL}
    made = url.set(drivername="postgresql", username=name, password=password, query=query)
    if password is None:
        made = made._replace(password=None)
    return made.render_as_string(hide_password=False)


_OPEN_SCHEMA: Final = text("""
    SELECT current_schema() WHERE has_schema_privilege('public', current_schema(), 'CREATE')
""")
