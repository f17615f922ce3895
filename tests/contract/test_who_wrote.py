"""Who wrote: the claimed name, the process's user and the database's, each as what it is."""

from __future__ import annotations

import os
import pwd

import pytest
from sqlalchemy import select, text

from policy.store import Store, rows
from policy.store.ledger import covering, entries
from policy.store.tables import (
    ACTIVATIONS,
    CYCLES,
    ENVIRONMENTS,
    LEDGER,
    PRUNINGS,
    SESSIONS,
)
from tests.contract.builders import NOW
from tests.contract.filled import fill
from tests.contract.test_ledger import tampering


@pytest.fixture
def filled_url(database_url):
    with Store.open(database_url) as store:
        fill(store)
        store.ledger.prune(NOW + 1, actor="ann", at_ms=NOW + 100)
    return database_url


def test_every_row_that_names_an_actor_says_who_really_wrote(filled_url):
    """The uid and its name come from the system; the third from Postgres, and SQLite has none."""
    uid = os.getuid()
    with tampering(filled_url) as connection:
        postgres = connection.dialect.name == "postgresql"
        user = connection.execute(text("SELECT session_user")).scalar() if postgres else ""
        found = {
            table.name: {
                (row.process_uid, row.process_user, row.database_user)
                for row in connection.execute(select(table))
            }
            for table in (CYCLES, SESSIONS, ENVIRONMENTS, ACTIVATIONS, PRUNINGS, LEDGER)
        }
    expected = {(uid, pwd.getpwuid(uid).pw_name, user)}
    assert found == dict.fromkeys(found, expected)


def test_a_claimed_name_changes_nothing_else(filled_url, monkeypatch):
    """`LOGNAME` is what somebody claims: the process's user stays what it is."""
    monkeypatch.setenv("LOGNAME", "somebody-else")
    with Store.open(filled_url) as store:
        store.record.create_environment("other", "default", at_ms=NOW, actor="somebody-else")
        row = store.read.environment("other")
    uid = os.getuid()
    assert (row.created_by, row.process_uid, row.process_user) == (
        "somebody-else",
        uid,
        pwd.getpwuid(uid).pw_name,
    )


def test_entries_of_the_first_format_go_on_verifying(database_url):
    """Format 1 covered neither column: such entries hold after an upgrade, with those empty."""
    with Store.open(database_url) as store:
        fill(store)
    with Store.open(database_url) as store, tampering(database_url) as connection:
        for table in (CYCLES, SESSIONS, ENVIRONMENTS, ACTIVATIONS, PRUNINGS, LEDGER):
            empty = {"process_uid": None, "process_user": "", "database_user": ""}
            connection.execute(table.update().values(**empty))
        connection.execute(LEDGER.update().values(format=1))
        ordered = select(LEDGER).order_by(LEDGER.c.sequence)
        previous = entries.GENESIS
        for entry in connection.execute(ordered).all():
            known = covering.RuleSetLines(connection)
            covered = covering.read(connection, 1, [entry], known)
            lines = [x for owner in covering.owners_of(entry) for x in covered.lines[owner]]
            new = {**entry._mapping, "rows_digest": rows.digest_of(lines), "previous": previous}
            new["hash"] = previous = entries.hash_of(1, "default", new)
            same = LEDGER.c.sequence == entry.sequence
            connection.execute(LEDGER.update().where(same).values(**new))
        connection.commit()
        found = store.ledger.verify()
    assert (found.findings, found.entries) == ((), 10)
