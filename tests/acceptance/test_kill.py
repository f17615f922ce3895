"""Processes that die at any moment, and processes that decide at the same moment."""

from __future__ import annotations

import json
import multiprocessing
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from policy.store import Store
from tests.acceptance.recorder import record_at_once, record_for_ever
from tests.contract.builders import NOW, a_cluster
from tests.support.builders import a_node, a_pod, objects
from tests.support.tried import Kind

KILLS = 40


@pytest.fixture(scope="module")
def processes():
    """A server that forks fresh processes in which everything is imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.acceptance.recorder"])
    return context


@pytest.fixture
def filled_url(database_url):
    with Store.open(database_url) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="dump.json")
    return database_url


def lines(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


def test_sigkill_loses_no_commit_and_leaves_no_half(filled_url, processes, tmp_path, tried):
    """Whenever the process dies: what was reported is there, and the whole record verifies."""
    tried(Kind.KILL, KILLS)
    journal = tmp_path / "journal"
    moments = random.Random(20261121)
    for kill in range(KILLS):
        before = len(lines(journal))
        process = processes.Process(
            target=record_for_ever, args=(filled_url, str(journal), kill * 10_000)
        )
        process.start()
        deadline = time.monotonic() + 60
        while len(lines(journal)) == before:
            assert process.is_alive()
            assert time.monotonic() < deadline
            time.sleep(0.002)
        time.sleep(moments.uniform(0, 0.025))
        process.kill()
        process.join()
        assert process.exitcode == -9
    told = {int(line) for line in lines(journal) if line}
    with Store.open(filled_url) as store:
        kept = {row.id for row in store.read.decisions()}
        assert told <= kept
        # The last commit of each process may have come before it could be written down.
        assert len(kept - told) <= KILLS
        assert store.ledger.verify().findings == ()
        assert store.state.load("default").revision == 1 + len(kept)
    assert len(told) >= KILLS


def test_of_two_that_decide_on_one_state_one_wins(filled_url, processes, tmp_path, tried):
    """In every round exactly one is recorded; the other learns of the new revision."""
    rounds = 25
    tried(Kind.CONCURRENT, rounds)
    start = processes.Barrier(2)
    journals = [tmp_path / "a", tmp_path / "b"]
    workers = [
        processes.Process(
            target=record_at_once, args=(filled_url, rounds, start, str(journal), journal.name)
        )
        for journal in journals
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    told = [line.split() for journal in journals for line in lines(journal)]
    won = sorted(int(revision) for word, revision, _ in told if word == "won")
    stale = sorted(int(actual) for word, _, actual in told if word == "stale")
    with Store.open(filled_url) as store:
        assert len(store.read.decisions()) == rounds
        assert store.ledger.verify().ok
    assert won == list(range(1, rounds + 1))
    assert stale == [revision + 1 for revision in won]


RUNS = 6
WAITING = 120


def test_a_run_that_is_killed_loses_nothing_that_it_printed(database_url, tmp_path, tried):
    """Decisions are recorded in groups: none is printed before, and all are made in the end."""
    tried(Kind.KILL, RUNS)
    waiting = [f"w{i:03}" for i in range(WAITING)]
    with Store.open(database_url) as store:
        store.record.import_objects(
            "default",
            objects(
                *(
                    a_node(f"n{i:02}")
                    .cpu(8)
                    .running(*(a_pod(f"low-{i}-{j}").priority(j).cpu(1) for j in range(8)))
                    for i in range(30)
                ),
                *(a_pod(name).priority(9).cpu(1) for name in waiting),
            ),
            at_ms=NOW,
            source="dump.json",
        )
    moments = random.Random(20261122)
    command = [sys.executable, "-u", "-m", "policy", "run", "--db", database_url, "-o", "jsonl"]
    printed: list[int] = []
    for run in range(RUNS + 1):
        with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                printed.append(json.loads(line)["id"])
                if run < RUNS and moments.random() < 0.05:
                    time.sleep(moments.uniform(0, 0.1))
                    process.kill()
                    break
    with Store.open(database_url) as store:
        rows = store.read.decisions("default")
        changed = [row for row in rows if row.revision is not None]
        assert set(printed) <= {row.id for row in rows}
        assert {row.preemptor for row in rows} == {f"default/{name}" for name in waiting}
        assert store.ledger.verify().findings == ()
        assert store.state.load("default").revision == 1 + len(changed)
