"""Processes that die at any moment, and processes that decide at the same moment."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path

import pytest

from policy.store import Store
from tests.acceptance.recorder import record_at_once, record_for_ever
from tests.contract.builders import NOW, a_cluster
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
