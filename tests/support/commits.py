"""Commits that fail, and commits that take long, of the decision of one pod."""

from __future__ import annotations

from policy.store import Store

_FAILS = {
    # The commit finds that a row points nowhere.
    "sqlite": (
        "CREATE TABLE pointing (at INTEGER REFERENCES clusters (id) DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TRIGGER points AFTER INSERT ON cycles WHEN NEW.pod = '{pod}'"
        " BEGIN INSERT INTO pointing VALUES (-1); END",
    ),
    "postgresql": (
        "CREATE TABLE pointing (at bigint REFERENCES clusters (id) DEFERRABLE INITIALLY DEFERRED)",
        "CREATE FUNCTION points() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN INSERT INTO pointing VALUES (-1); RETURN NULL; END'",
        "CREATE TRIGGER points AFTER INSERT ON cycles FOR EACH ROW"
        " WHEN (NEW.pod = '{pod}') EXECUTE FUNCTION points()",
    ),
}
_TAKES_LONG = (
    "CREATE FUNCTION waits() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN PERFORM pg_sleep({seconds}); RETURN NULL; END'",
    "CREATE CONSTRAINT TRIGGER waits AFTER INSERT ON cycles"
    " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW"
    " WHEN (NEW.pod = '{pod}') EXECUTE FUNCTION waits()",
)


def fail_commit_of(store: Store, pod: str) -> None:
    """Have the commit fail with which the decision of a pod would be recorded."""
    with store._database.writing() as connection:
        for statement in _FAILS[connection.dialect.name]:
            connection.exec_driver_sql(statement.format(pod=pod))


def slow_commit_of(store: Store, pod: str, *, seconds: int = 1) -> None:
    """Have that commit take so long. Only for Postgres."""
    with store._database.writing() as connection:
        for statement in _TAKES_LONG:
            connection.exec_driver_sql(statement.format(pod=pod, seconds=seconds))
