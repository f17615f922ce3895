"""Which database is opened, and what is said where it cannot be."""

from __future__ import annotations

import grp
import multiprocessing
import os
import sqlite3
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text

from policy.store import Store, StoreError, current
from policy.store.connection import Database, parse_url
from tests.contract.builders import NOW, a_cluster, a_node


def said(url, **options):
    with pytest.raises(StoreError) as caught:
        Store.open(str(url), **options)
    return caught.value


def test_a_new_database_is_filled_on_first_use(empty_database_url):
    """A file that does not exist, or an empty database, becomes one with the newest schema."""
    with Store.open(empty_database_url) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="x")
    assert current(empty_database_url).up_to_date


def test_a_plain_path_is_a_sqlite_file(tmp_path, monkeypatch):
    """`policy.db`, `./policy.db` and `sqlite:///policy.db` name the same file."""
    monkeypatch.chdir(tmp_path)
    Store.open("policy.db").close()
    for url in ("./policy.db", "sqlite:///policy.db", str(tmp_path / "policy.db")):
        Store.open(url, create=False).close()
    assert [p.name for p in tmp_path.iterdir()] == ["policy.db"]


def test_closing_releases_every_file(tmp_path):
    """After `close` no journal of the database is left beside it."""
    with Store.open(str(tmp_path / "policy.db")) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="x")
        assert len(list(tmp_path.iterdir())) == 3
    assert [p.name for p in tmp_path.iterdir()] == ["policy.db"]


def test_strange_characters_in_a_path(tmp_path):
    """Blanks, percent signs, question marks and hashes are part of the name."""
    path = tmp_path / "a b%20c?d#e.db"
    Store.open(str(path)).close()
    Store.open(str(path), create=False).close()
    assert path.is_file()


def test_what_is_no_database_url(tmp_path):
    """Each wrong name has its own sentence, with the forms that are right as help."""
    folder = tmp_path / "folder"
    folder.mkdir()
    found = {
        said("mysql://host/db").message,
        said("sqlite://").message,
        said("sqlite:///:memory:").message,
        said("").message,
        said("postgresql://host:port/db").message,
        said(folder).message,
    }
    assert found == {
        "`mysql` is not a supported database",
        "a database in memory keeps nothing",
        "the database has no name",
        "that is not a database URL",
        f"`{folder}` is a folder, not a database file",
    }


def test_a_file_that_lacks(tmp_path):
    """Reading, or insisting on an existing database, makes no new file."""
    for options in ({"read_only": True}, {"create": False}):
        error = said(tmp_path / "none.db", **options)
        assert error.message == f"there is no database at `{tmp_path / 'none.db'}`"
    assert "there is no folder" in said(tmp_path / "no" / "none.db").message
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_another_kind(tmp_path):
    """A text file, and an SQLite file of something else, are left as they are."""
    words = tmp_path / "words.txt"
    words.write_text("these are words, not a database\n" * 100)
    assert "no SQLite database" in said(words).message
    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE songs (title TEXT)")
    connection.commit()
    connection.close()
    before = foreign.read_bytes()
    assert "holds tables of something else (songs)" in said(foreign).message
    assert words.read_text().startswith("these are words")
    assert sqlite3.connect(foreign).execute("SELECT name FROM sqlite_master").fetchall() == [
        ("songs",)
    ]
    del before


@contextmanager
def another_user():
    """Somebody else, where the tests run as root; whoever runs them elsewhere."""
    root = os.geteuid() == 0
    groups = os.getgroups()
    if root:
        os.setgroups([])
        os.seteuid(34567)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
            os.setgroups(groups)


def refused(path, place, what):
    """What is said where the right to a place is missing."""
    right = f"the right to read and write `{place}`"
    if os.geteuid():
        return f"database `{path}`: permission denied", f"its user needs {right}"
    return (
        f"database `{path}`: permission denied: {what} belongs to user `root` and group"
        f" `{grp.getgrgid(place.stat().st_gid).gr_name}`",
        f"run the command as user `root` or as root, or have it given {right}",
    )


def test_whose_a_file_is_that_may_not_be_read_or_written():
    """SQLite opens nothing, or for reading only, and does not say why."""
    with tempfile.TemporaryDirectory() as name:
        folder, found, wanted = Path(name), [], []
        folder.chmod(0o755)
        for number, mode in enumerate((0o000, 0o444)):
            path = folder / f"{number}.db"
            Store.open(str(path)).close()
            path.chmod(mode)
            with (
                another_user(),
                pytest.raises(StoreError) as caught,
                Store.open(str(path)) as store,
            ):
                store.record.import_objects("default", [a_node("n")], at_ms=NOW, source="x")
            found.append((caught.value.message, caught.value.help))
            wanted.append(refused(path, path, "the file"))
        assert found == wanted


def test_whose_a_folder_is_in_which_no_database_can_be_made():
    """SQLite writes beside the file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o555)
        with another_user():
            error = said(folder / "new.db")
        what = f"SQLite writes beside the file, and its folder `{folder}`"
        assert (error.message, error.help) == refused(folder / "new.db", folder, what)
        folder.chmod(0o755)


def test_a_server_that_does_not_answer_is_named_without_password():
    """Host and database are told, the password is not, in whatever part of the URL it stood."""
    for url in (
        "postgresql://ann:s3cr3t@127.0.0.1:1/policy",
        "postgresql://ann@127.0.0.1:1/policy?password=s3cr3t",
    ):
        error = said(url)
        assert "127.0.0.1" in error.message
        assert "s3cr3t" not in f"{error.message} {error.help}"


def test_a_wrong_database_name_is_told(postgres_server):
    """What the server says comes through in one line."""
    head, _, query = postgres_server.partition("?")
    url = f"{head.rpartition('/')[0]}/nowhere?{query}"
    assert 'database "nowhere" does not exist' in said(url).message


def test_a_read_only_store_does_not_write(database_url):
    """The store refuses, and so does the database beneath it."""
    with (
        Store.open(database_url, read_only=True) as store,
        pytest.raises(StoreError, match="open for reading only"),
    ):
        store.record.import_objects("default", [a_node("n")], at_ms=NOW, source="x")
    database = Database(parse_url(database_url), read_only=True)
    with (
        pytest.raises(StoreError, match="open for reading only"),
        database.reading() as connection,
    ):
        connection.execute(text("DELETE FROM clusters"))
    database.close()


def _open_and_import(url, name, start, results):
    start.wait()
    try:
        with Store.open(url) as store:
            store.record.import_objects(name, a_cluster(), at_ms=NOW, source="x")
        results.put("")
    except StoreError as error:
        results.put(error.message)


def test_many_processes_may_open_a_new_database_at_once(empty_database_url):
    """One of them fills it, the others wait; none fails."""
    spawn = multiprocessing.get_context("spawn")
    start, results = spawn.Event(), spawn.Queue()
    workers = [
        spawn.Process(target=_open_and_import, args=(empty_database_url, name, start, results))
        for name in ("a", "b", "c", "a")
    ]
    for worker in workers:
        worker.start()
    start.set()
    told = [results.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join()
    with Store.open(empty_database_url) as store:
        names = [c.name for c in store.state.clusters()]
        verified = store.ledger.verify().ok
    assert (told, names, verified) == ([""] * 4, ["a", "b", "c"], True)
