"""Readers: roles of a server that can read the record, and who else is no reader."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from sqlalchemy.engine import make_url

from policy.cli.app import run
from policy.store import Store, StoreError, upgrade
from policy.store.migrate import REVISIONS, VERSION_TABLE, VIEWS, downgrade, relations
from policy.store.readers import create_reader, drop_reader

POWERS = {
    "ALTER ROLE {name} SUPERUSER": "`{name}` is a superuser",
    "ALTER ROLE {name} CREATEROLE": "`{name}` may make roles (CREATEROLE)",
    "ALTER ROLE {name} CREATEDB": "`{name}` may make databases (CREATEDB)",
    "ALTER ROLE {name} REPLICATION": "`{name}` may replicate the server (REPLICATION)",
    "ALTER ROLE {name} BYPASSRLS": "`{name}` is above row level security (BYPASSRLS)",
    **{
        f"GRANT {role} TO {{name}}": f"it can act as `{role}`, which is a role of the server itself"
        for role in (
            "pg_execute_server_program",
            "pg_read_all_data",
            "pg_read_server_files",
            "pg_signal_backend",
            "pg_write_all_data",
            "pg_write_server_files",
        )
    },
    # Also over another role, and where nothing of it is inherited: readers are NOINHERIT.
    "CREATE ROLE other_{name} CREATEROLE; CREATE ROLE more_{name};"
    " GRANT other_{name} TO more_{name}; GRANT more_{name} TO {name}": (
        "it can act as `other_{name}`, which may make roles (CREATEROLE)"
    ),
    "CREATE ROLE other_{name}; GRANT INSERT ON pods TO other_{name};"
    " GRANT other_{name} TO {name}": "it can act as `other_{name}`, which may write pods",
    "GRANT UPDATE ON ledger TO {name}": "`{name}` may write ledger",
    "GRANT TRUNCATE ON decisions TO {name}": "`{name}` may write decisions",
    "GRANT UPDATE (priority) ON pods TO {name}": "`{name}` may write pods",
    "ALTER TABLE victims OWNER TO {name}": "`{name}` owns victims",
    "ALTER SCHEMA public OWNER TO {name}": "`{name}` owns the schema public",
    "GRANT EXECUTE ON FUNCTION pg_read_file(text) TO {name}": "`{name}` may call pg_read_file",
}


@pytest.fixture
def url(make_postgres: Callable[[str | None], str], postgres_template: str) -> str:
    return make_postgres(postgres_template)


@pytest.fixture
def name(url: str) -> Iterator[str]:
    """A name for a role; whatever was made under it is gone after the test."""
    made = f"reader_{uuid.uuid4().hex[:12]}"
    yield made
    with psycopg.connect(url, autocommit=True) as admin:
        for role in (made, f"other_{made}", f"more_{made}"):
            if admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone():
                admin.execute(f"REASSIGN OWNED BY {role} TO CURRENT_USER; DROP OWNED BY {role}")
                admin.execute(f"DROP ROLE {role}")


def refused(url: str, query: str = "SELECT count(*) FROM pods") -> str:
    """Why a query does not run; empty where it does."""
    try:
        with Store.open(url, read_only=True) as store, store.sql(query) as found:
            list(found)
    except StoreError as error:
        return error.message
    return ""


def test_a_reader_reads_every_table_and_view(url: str, name: str) -> None:
    """All of ours, and it says nothing but reading in its attributes and rights."""
    reader = create_reader(url, name)
    for relation in sorted(relations()):
        assert (relation, refused(reader.url, f"SELECT * FROM {relation}")) == (relation, "")
    with psycopg.connect(url) as admin:
        rights = admin.execute(
            "SELECT DISTINCT privilege_type FROM information_schema.role_table_grants"
            " WHERE grantee = %s",
            (name,),
        ).fetchall()
    assert rights == [("SELECT",)]


@pytest.mark.parametrize("statement", POWERS)
def test_whoever_may_do_more_is_no_reader(url: str, name: str, statement: str) -> None:
    """Attributes, memberships of any kind, ownership and rights to write are found and named."""
    reader = create_reader(url, name)
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(statement.format(name=name))
    found = refused(reader.url)
    assert found == f"this connection may do more than read: {POWERS[statement].format(name=name)}"


@pytest.mark.parametrize("setting", ["role", "session_authorization"])
def test_a_mask_is_no_reader(url: str, name: str, setting: str) -> None:
    """A superuser that takes a reader's role when it connects can put it off again."""
    create_reader(url, name)
    masked = make_url(url).update_query_dict({"options": f"-c {setting}={name}"})
    found = refused(masked.render_as_string(hide_password=False))
    assert found.startswith("this connection may do more than read: ")
    assert found.endswith("is a superuser")


def test_the_password_is_generated_and_never_stored(url: str, name: str) -> None:
    """It stands in the URL; the server has the verifier of SCRAM only."""
    reader = create_reader(url, name)
    password = make_url(reader.url).password
    with psycopg.connect(url) as admin:
        query = "SELECT rolpassword FROM pg_authid WHERE rolname = %s"
        row = admin.execute(query, (name,)).fetchone()
    assert row is not None
    assert row[0].startswith("SCRAM-SHA-256$")
    assert password is not None
    assert len(str(password)) == 32


def test_the_administrators_secrets_are_not_handed_on(url: str, name: str) -> None:
    """The reader's URL has the way to the server, without password, key or options of others."""
    given = make_url(url).update_query_dict(
        {"password": "s3cr3t", "sslkey": "/root/key", "options": "-c work_mem=64kB"}
    )
    reader = create_reader(given.render_as_string(hide_password=False), name, password="own")
    made = make_url(reader.url)
    expected = {k: v for k, v in make_url(url).query.items() if k in ("host", "port")}
    assert (made.username, made.password, dict(made.query)) == (name, None, expected)


def test_a_reader_stays_one_when_the_schema_is_upgraded(
    url: str, name: str, newer_program: Callable[[], str]
) -> None:
    """Views that are made anew, and tables that come, can be read as before."""
    reader = create_reader(url, name)
    newer_program()
    upgrade(url)
    assert refused(reader.url, "SELECT count(*) FROM v_rule_usage") == ""


def test_a_reader_of_views_reads_no_table(url: str, name: str) -> None:
    """Also after an upgrade; and it is removed like the others."""
    reader = create_reader(url, name, views_only=True)

    def may_read() -> set[str]:
        return {one for one in relations() if not refused(reader.url, f"SELECT 1 FROM {one}")}

    assert reader.relations == len(VIEWS)
    assert may_read() == VIEWS | {VERSION_TABLE}
    downgrade(url, REVISIONS[-2])
    upgrade(url)
    assert may_read() == VIEWS | {VERSION_TABLE}
    drop_reader(url, name)
    assert "authentication" in refused(reader.url) or "role" in refused(reader.url)


def test_a_reader_is_removed(url: str, name: str) -> None:
    """What was granted goes with it; a role that is none is left."""
    create_reader(url, name)
    drop_reader(url, name)
    with psycopg.connect(url, autocommit=True) as admin:
        query = "SELECT 1 FROM pg_roles WHERE rolname = %s"
        assert admin.execute(query, (name,)).fetchone() is None
        admin.execute(f"CREATE ROLE {name}")
    with pytest.raises(StoreError, match=f"role `{name}` is no reader of this database"):
        drop_reader(url, name)
    with pytest.raises(StoreError, match=f"there is no role `no_{name}`"):
        drop_reader(url, f"no_{name}")


def test_what_cannot_be_made_is_told(url: str, name: str, tmp_path) -> None:
    """A taken name, a wrong one, an empty password, a file; nothing is made."""
    create_reader(url, name)
    told = []
    for given, on, password in (
        (name, url, None),
        ("pg_mine", url, None),
        ('a"; DROP TABLE ledger; --', url, None),
        ("fine", url, ""),
        ("fine", str(tmp_path / "policy.db"), None),
    ):
        with pytest.raises(StoreError) as caught:
            create_reader(on, given, password=password)
        told.append(caught.value.message)
    assert told == [
        f"there is a role `{name}` already",
        "`pg_mine` cannot be the name of a reader",
        '`a"; DROP TABLE ledger; --` cannot be the name of a reader',
        "the password is empty or has a NUL character",
        f"`{tmp_path / 'policy.db'}` is a file, which has no roles",
    ]


def test_the_command_line(url: str, name: str, capsys, monkeypatch) -> None:
    """`db reader create` prints the URL; with it `sql` runs, without it only saved queries."""
    monkeypatch.setenv("POLICY_DB", url)
    assert run(["db", "reader", "create", name]) == 0
    reader = capsys.readouterr().out.strip()
    assert run(["sql", "SELECT 1 AS a", "-o", "csv"]) == 1
    assert "may do more than read" in capsys.readouterr().err
    assert run(["sql", "outcomes", "-o", "csv"]) == 0
    assert run(["sql", "SELECT 1 AS a", "-o", "csv", "--trust-connection"]) == 0
    capsys.readouterr()
    monkeypatch.setenv("POLICY_READER_DB", reader)
    assert run(["sql", "SELECT current_user AS a", "-o", "csv"]) == 0
    assert capsys.readouterr().out == f"a\n{name}\n"
    # What is typed goes before the environment; both typed is a mistake.
    assert run(["sql", "SELECT 1 AS a", "--db", url]) == 1
    assert run(["sql", "SELECT 1 AS a", "--db", url, "--reader-url", reader]) == 2


@pytest.mark.parametrize("usage", [True, False])
def test_a_role_without_rights_is_told_which_ones(url: str, name: str, usage: bool) -> None:
    """The tables of others are there for it, too: the database is not taken for an empty one."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN")
        if not usage:
            admin.execute("REVOKE USAGE ON SCHEMA public FROM PUBLIC")
        own = make_url(url).set(username=name).render_as_string(hide_password=False)
        found = []
        for use in (Store.open, upgrade, lambda url: Store.open(url, read_only=True)):
            with pytest.raises(StoreError) as caught:
                use(own)
            found.append((caught.value.message, caught.value.help))
        said = f"has tables of this program that role `{name}` may not read"
        grant = re.findall("`(GRANT [^`]*)`", found[0][1])
        assert ([one.endswith(said) for one, _ in found], len(set(found)), len(grant)) == (
            [True] * 3,
            1,
            1,
        )
        admin.execute(grant[0])
    Store.open(own, read_only=True).close()


def test_an_empty_schema_beside_that_of_others_is_one(url: str, name: str) -> None:
    """Of a role that may not use the schema of others, and has one of its own."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE {name} LOGIN; CREATE SCHEMA {name} AUTHORIZATION {name}")
        admin.execute(f"ALTER ROLE {name} SET search_path = {name}")
        admin.execute("REVOKE USAGE ON SCHEMA public FROM PUBLIC")
    own = make_url(url).set(username=name).render_as_string(hide_password=False)
    with Store.open(own) as store:
        assert store.state.clusters() == []


def test_the_documentation_makes_each_reader_once() -> None:
    """Whoever follows a page to its end makes no role twice: that would be an error."""
    for page in (Path(__file__).parents[2] / "docs").glob("*.md"):
        made = re.findall(r"\(policy db reader create (\w+)", page.read_text())
        assert sorted(set(made)) == sorted(made), page.name
