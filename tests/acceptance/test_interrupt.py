"""Ctrl-C: every command ends with status 130 and one word, whatever it was waiting for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from policy.store import Store
from tests.contract.test_replay import CLUSTER, keep, the_decision
from tests.support import dask
from tests.support.builders import NOW_MS

ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests" / "data" / "conformance" / "kube-1.28.jsonl.gz"
ENDLESS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
#: One step of SQLite's machine, which looks at nothing else before it is done.
ONE_ENDLESS_STEP = "SELECT instr(zeroblob(20000000), CAST(zeroblob(10000000) || x'01' AS BLOB))"

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts a command line in a process group of its own, as a shell does."""
    started: list[subprocess.Popen[str]] = []

    def call(*arguments: object) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "policy", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield call
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit status and what it said, after a Ctrl-C that reached the whole group."""
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process.returncode, err.strip()


def wait_until(holds: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    given_up = time.monotonic() + 60
    while not holds():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < given_up
        time.sleep(0.01)


def threads(process: subprocess.Popen[str]) -> int:
    return len(list(Path(f"/proc/{process.pid}/task").iterdir()))


def workers(process: subprocess.Popen[str]) -> int:
    """Processes that it has started."""
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(len((task / "children").read_text().split()) for task in tasks)


@pytest.mark.parametrize("query", [ENDLESS, ONE_ENDLESS_STEP])
def test_an_endless_query_on_a_file(start: Start, tmp_path: Path, query: str) -> None:
    """SQLite stops, also where it cannot be told to."""
    Store.open(str(tmp_path / "policy.db")).close()
    process = start("sql", query, "--timeout", 0)
    wait_until(lambda: threads(process) > 1, process)
    assert interrupted(process) == (130, "interrupted")


def test_an_endless_query_on_a_server(start: Start, make_postgres, postgres_template) -> None:
    """Postgres stops, and its own words are not printed."""
    url = make_postgres(postgres_template)
    query = "SELECT count(*) FROM generate_series(1, 1000000000000)"
    process = start("sql", query, "--timeout", 0, "--trust-connection", "--db", url)
    with Store.open(url, read_only=True) as store:
        wait_until(lambda: running(store, "FETCH%"), process)
        assert interrupted(process) == (130, "interrupted")
        assert not running(store, "FETCH%")


def running(store: Store, like: str) -> bool:
    """Another connection to this database, of all on the server, works on a statement like that."""
    query = (
        "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE :like"
        " AND datname = current_database() AND pid <> pg_backend_pid()"
    )
    with store.sql(query, {"like": like}, trust_connection=True) as found:
        [(count,)] = found
    return bool(count)


@pytest.mark.parametrize(
    "command", [("replay", "--all"), ("compare", "--rules", "kube-1.20")], ids=lambda c: c[0]
)
def test_a_command_with_workers(start: Start, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Workers that are starting, and those that work, say nothing."""
    with Store.open(str(tmp_path / "policy.db")) as store:
        store.record.import_objects("default", CLUSTER, at_ms=NOW_MS, source="dump.json")
        decision = the_decision(store)
        for _ in range(210):
            keep(store, decision)
    process = start(*command, "--jobs", 2)
    wait_until(lambda: workers(process) >= 3, process)  # two, and the one that watches them
    assert interrupted(process) == (130, "interrupted")


def test_comparing_with_recordings(start: Start) -> None:
    """`conform` has workers of another kind, to which the same applies."""
    process = start("conform", RECORDING, "--rules", "kube-1.28", "--jobs", 2)
    wait_until(lambda: workers(process) >= 3, process)
    assert interrupted(process) == (130, "interrupted")


def test_a_command_that_waits_for_a_server(start: Start, make_postgres, postgres_template) -> None:
    """A statement of ours that waits for somebody else's lock is given up as well."""
    import psycopg

    url = make_postgres(postgres_template)
    with psycopg.connect(url) as other, Store.open(url, read_only=True) as store:
        other.execute("LOCK TABLE decisions, clusters IN ACCESS EXCLUSIVE MODE")
        process = start("decisions", "--db", url)
        wait_until(lambda: running(store, "%clusters%"), process)
        assert interrupted(process) == (130, "interrupted")


def test_a_long_statement_of_ours_on_a_file(start: Start, tmp_path: Path) -> None:
    """SQLite ends a statement of ours, too."""
    with Store.open(str(tmp_path / "policy.db")) as store:
        store.record.import_objects("default", CLUSTER, at_ms=NOW_MS, source="dump.json")
    script = (
        "import sys\n"
        "from sqlalchemy import text\n"
        "from policy.store.connection import Database, parse_url\n"
        "database = Database(parse_url('policy.db'), read_only=True)\n"
        "def work():\n"
        "    with database.reading() as connection:\n"
        "        print('working', flush=True)\n"
        f"        connection.execute(text({ENDLESS!r})).all()\n"
        "try:\n"
        "    work()\n"
        "except KeyboardInterrupt:\n"
        "    sys.exit(130)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    assert interrupted(process) == (130, "")


def test_work_on_a_dask_cluster(start: Start, tmp_path: Path) -> None:
    """What has not begun is cancelled, and the workers are free for the next command."""
    with dask.cluster(tmp_path, workers=2) as cluster:
        common = ("conform", RECORDING, "--rules", "kube-1.28", "--dask", cluster.address)
        process = start(*common, "--json")
        assert process.stdout is not None
        assert process.stdout.readline().startswith("{")
        assert interrupted(process) == (130, "interrupted")
        out, err = start(*common, "--limit", "50").communicate(timeout=120)
    left_out = "76 scenarios left out; --limit takes more\n"
    assert (out, err) == ("50 scenarios: 49 agree, 1 tie, 0 differ\n", left_out)
