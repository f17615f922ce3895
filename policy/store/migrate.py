"""Which schema a database has, and how it gets another one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, text
from sqlalchemy.engine import URL

from policy.store import partitions
from policy.store.connection import make_engine, parse_url
from policy.store.errors import StoreError, shown, translated
from policy.store.read.privileges import grant_reading, readers

if TYPE_CHECKING:
    from alembic.config import Config

    from policy.store.partitions import Partition

VERSION_TABLE: Final = "policy_schema"
REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005", "0006")
"""All schema revisions, oldest first; importing Alembic to learn them would take a second."""
HEAD: Final = REVISIONS[-1]
VIEWS: Final = frozenset(
    {
        "v_cluster_at",
        "v_evictions_daily",
        "v_extender_calls",
        "v_nominations",
        "v_pdb_violations",
        "v_preemptions",
        "v_preemptions_hourly",
        "v_rule_usage",
        "v_tie_breakers",
        "v_victims",
        "v_who_preempts_whom",
    }
)
_PARTITIONED: Final = "0003"
"""The schema from which on decisions are in partitions on Postgres."""
_MIGRATION_LOCK: Final = 0x706F6C6963790001


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """What is in a database."""

    revision: str | None  #: None where the database is empty
    newest: str  #: the revision that this version of the program works with

    @property
    def up_to_date(self) -> bool:
        return self.revision == self.newest


_A_TABLE: Final = "clusters"
"""Whoever may read it may read every table; other readers, the views alone."""


def relations() -> frozenset[str]:
    """Every table and view of the newest schema, that of the revision among them."""
    from policy.store.tables import METADATA

    return frozenset(METADATA.tables) | VIEWS | {VERSION_TABLE}


_RELATIONS: Final = """
    SELECT relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace
    WHERE nspname = current_schema() AND relkind IN ('f', 'p', 'r', 'v')
"""
"""Also those that the role may not read, which information_schema does not show."""

_NOT_READABLE: Final = text(f"""
    SELECT n.nspname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = '{VERSION_TABLE}' AND (
        n.nspname = current_schema() AND NOT has_table_privilege(c.oid, 'SELECT')
        -- A schema that the role may not use is passed over, as if the path did not name it.
        OR NOT has_schema_privilege(n.oid, 'USAGE') AND n.nspname IN (
            SELECT replace(trim(named, ' "'), '$user', CAST(current_user AS text))
            FROM unnest(string_to_array(current_setting('search_path'), ',')) AS named
        )
    )
""")


def _table_names(connection: Connection) -> set[str]:
    if connection.dialect.name == "sqlite":
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
    else:
        query = _RELATIONS
    names = {str(row[0]) for row in connection.execute(text(query))}
    return {name for name in names if not name.startswith("sqlite_")}


def _require_rights(connection: Connection, url: URL) -> None:
    """Raises StoreError where the role may not read our tables, which then seem to be missing."""
    schema = connection.execute(_NOT_READABLE).scalars().first()
    if schema is None:
        return
    quoted = connection.dialect.identifier_preparer.quote
    role = connection.execute(text("SELECT current_user")).scalar_one()
    to, of = quoted(role), quoted(schema)
    raise StoreError(
        f"`{shown(url)}` has tables of this program that role `{role}` may not read",
        help="connect as their owner, or as a role that `policy db reader create` made; for this"
        f" role to read them, their owner runs `GRANT USAGE ON SCHEMA {of} TO {to}; GRANT SELECT"
        f" ON ALL TABLES IN SCHEMA {of} TO {to}`",
    )


def schema_of(connection: Connection, url: URL) -> Schema:
    """The schema as the database states it.

    Raises StoreError for a database of another kind, and for one that the role may not read.
    """
    if connection.dialect.name == "postgresql":
        _require_rights(connection, url)
    names = _table_names(connection)
    if not names:
        return Schema(revision=None, newest=HEAD)
    if VERSION_TABLE not in names:
        raise StoreError(
            f"`{shown(url)}` holds tables of something else ({', '.join(sorted(names)[:3])})",
            help="name an empty database, or one made by this program, with --db",
        )
    found = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalars().all()
    if not found:
        return Schema(revision=None, newest=HEAD)
    if len(found) != 1 or found[0] not in REVISIONS:
        raise StoreError(
            f"`{shown(url)}` was written by a newer version of this program "
            f"(schema {', '.join(map(str, found))}, known up to {HEAD})",
            help="install the newer version",
        )
    return Schema(revision=str(found[0]), newest=HEAD)


def require_newest(schema: Schema, url: URL) -> None:
    """Raises StoreError unless the schema is the one that this version works with."""
    if schema.revision is None:
        raise StoreError(
            f"`{shown(url)}` is empty", help="run `policy db upgrade`, or `policy import` a dump"
        )
    if not schema.up_to_date:
        raise StoreError(
            f"`{shown(url)}` has schema {schema.revision}, this version needs {HEAD}",
            help="run `policy db upgrade`",
        )


def migrations_folder() -> Path:
    """The migration scripts: beside the package in a checkout, inside it in a wheel."""
    package = Path(str(resources.files("policy")))
    checkout = package.parent / "migrations"
    return checkout if (checkout / "env.py").is_file() else package / "_data" / "migrations"


def config(connection: Connection | None = None) -> Config:
    """Alembic's configuration, without any file."""
    from alembic.config import Config

    made = Config()
    made.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    made.attributes["connection"] = connection
    return made


def _migrate(url: URL, step: Callable[[Connection], None]) -> None:
    """Run one step in one transaction, alone on the database."""
    engine = make_engine(url, migrating=True)
    try:
        with translated(url), engine.connect() as connection:
            sqlite = connection.dialect.name == "sqlite"
            if sqlite:
                # Rebuilding a table drops it, which foreign keys would take for deleted rows.
                raw: Any = connection.connection.dbapi_connection
                raw.execute("PRAGMA foreign_keys = OFF")
            connection.execution_options(writes=True)
            with connection.begin():
                if not sqlite:
                    lock = text("SELECT pg_advisory_xact_lock(:key)")
                    connection.execute(lock, {"key": _MIGRATION_LOCK})
                step(connection)
                if sqlite:
                    broken = connection.execute(text("PRAGMA foreign_key_check")).first()
                    if broken is not None:
                        raise StoreError(
                            f"rows of table `{broken[0]}` refer to rows that are missing"
                        )
    finally:
        engine.dispose()


def upgrade(text_url: str, *, moved: Callable[[Partition], None] = lambda _: None) -> Schema:
    """Bring a database to the newest schema; an empty or new one is filled.

    Rows of a Postgres server that were in no partitions then get them, a month after the other,
    each in a transaction after which `moved` is called; others may be using the database already.
    """
    url = parse_url(text_url)
    sqlite = url.get_backend_name() == "sqlite"
    before: list[str | None] = []

    def step(connection: Connection) -> None:
        schema = schema_of(connection, url)
        before.append(schema.revision)
        if not schema.up_to_date:
            from alembic import command

            # A view that is made anew has lost who may read it.
            may_read: set[str] = set() if sqlite else set(readers(connection, VERSION_TABLE))
            whole: set[str] = set() if sqlite else set(readers(connection, _A_TABLE))
            command.upgrade(config(connection), HEAD)
            grant_reading(connection, may_read & whole, relations())
            grant_reading(connection, may_read - whole, VIEWS | {VERSION_TABLE})

    _migrate(url, step)
    if not sqlite and any(old is not None and old < _PARTITIONED for old in before):
        for done in partitions.complete_months(text_url, now_ms=None):
            moved(done)
    return current(text_url)


def downgrade(text_url: str, revision: str) -> Schema:
    """Bring a database to an older schema (`base`: none); what that has no place for is lost."""
    url = parse_url(text_url)
    if revision not in {"base", *REVISIONS}:
        raise StoreError(
            f"there is no schema revision `{revision}`",
            help=f"the revisions are base, {', '.join(REVISIONS)}",
        )

    def step(connection: Connection) -> None:
        from alembic import command

        have = schema_of(connection, url).revision
        order = ("base", *REVISIONS)
        if have is None or order.index(revision) > order.index(have):
            raise StoreError(
                f"`{shown(url)}` has schema {have or 'base'}, which is older than {revision}",
                help="run `policy db upgrade`",
            )
        command.downgrade(config(connection), revision)

    _migrate(url, step)
    return current(text_url)


def current(text_url: str) -> Schema:
    """The schema of an existing database. Raises StoreError for one that is none of ours."""
    url = parse_url(text_url)
    engine = make_engine(url, read_only=True)
    try:
        with translated(url), engine.connect() as connection, connection.begin():
            return schema_of(connection, url)
    finally:
        engine.dispose()


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Whether a database is what this version of the program works with."""

    schema: Schema
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def check(text_url: str) -> Check:
    """Compare an existing database with the tables and views, and have SQLite check its file.

    Raises StoreError for a database that is none of ours.
    """
    url = parse_url(text_url)
    engine = make_engine(url, read_only=True, migrating=True)
    try:
        with translated(url), engine.connect() as connection, connection.begin():
            schema = schema_of(connection, url)
            if not schema.up_to_date:
                have = f"schema {schema.revision}" if schema.revision else "no schema"
                problem = f"the database has {have}, this version needs {HEAD}"
                return Check(schema=schema, problems=(problem,))
            problems = [_difference(found) for found in differences(connection)]
            problems += sorted(f"view {v} is missing" for v in VIEWS - _table_names(connection))
            if connection.dialect.name == "sqlite":
                problems += _damage(connection)
            else:
                problems += partitions.problems(connection)
            return Check(schema=schema, problems=tuple(problems))
    finally:
        engine.dispose()


_MAX_DAMAGE: Final = 100


def _damage(connection: Connection) -> Iterator[str]:
    """What SQLite's own checks say of its file."""
    said = connection.execute(text(f"PRAGMA quick_check({_MAX_DAMAGE})")).scalars().all()
    for line in said:
        if line != "ok":
            yield f"the file is damaged: {line}"
    if len(said) >= _MAX_DAMAGE:
        yield f"the file is damaged: SQLite stopped after {_MAX_DAMAGE} places"
    broken = Counter(row[0] for row in connection.execute(text("PRAGMA foreign_key_check")))
    for table, count in sorted(broken.items()):
        rows = "1 row refers" if count == 1 else f"{count} rows refer"
        yield f"table {table}: {rows} to rows that are missing"


def _difference(found: Any) -> str:
    """One of Alembic's findings, in words: what would have to be done."""
    if isinstance(found, list):
        return _difference(found[0])
    action, *parts = found
    if action.startswith("modify"):
        return f"{action.replace('_', ' ')} of column {parts[1]}.{parts[2]}"
    subject = parts[-1]
    where = f"{parts[1]}." if action.endswith("_column") else ""
    return f"{action.replace('_', ' ')} {where}{getattr(subject, 'name', subject)}"


def differences(connection: Connection) -> list[Any]:
    """What autogenerate would change: empty where the database equals the tables."""
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from policy.store.tables import METADATA

    postgres = connection.dialect.name == "postgresql"
    parts = partitions.names(connection) if postgres else set()

    def compared(found: Any, name: str | None, kind: str, *_: object) -> bool:
        if kind == "table":
            return name not in parts
        if kind != "foreign_key_constraint" or not postgres:
            return True
        # Those between partitions are looked at with the partitions.
        refers = found.referred_table.name
        its = found.table.name in partitions.KEYS and refers == partitions.DECISIONS
        return not its and refers not in parts

    context = MigrationContext.configure(
        connection,
        opts={
            "compare_type": True,
            "version_table": VERSION_TABLE,
            "include_object": compared,
        },
    )
    return list(compare_metadata(context, METADATA))
