"""Sessions and cycles of pod groups that several workers replay and compare."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from policy import RuleSet
from policy.audit.decisions import SESSIONS, over, with_each
from policy.audit.group_compare import ComparingCycles
from policy.audit.group_replay import GroupReplayer
from policy.audit.inputs import ReplayVerdict
from policy.audit.session_replay import SessionReplayer
from policy.cli.app import run
from policy.parts import Workers
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.contract import test_batch_sessions as batch
from tests.contract import test_group_cycles as groups
from tests.support import dask
from tests.support.builders import NOW_MS

TIMES = 2 * SESSIONS + 1


@pytest.fixture
def store(database_url):
    """Nine sessions of one cluster, nine cycles of a group of another one."""
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", batch.a_cluster(), at_ms=NOW_MS, source="a.json")
        opened.record.import_objects("groups", groups.a_cluster(), at_ms=NOW_MS, source="b.json")
        journal = StoreJournal(opened, "groups", actor="ann", clock=lambda: NOW_MS + 5)
        scheduler = Scheduler(journal, groups.RULES, clock=lambda: NOW_MS + 1000, seed=7)
        for _ in range(TIMES):
            batch.scheduler_of(opened).run()
            scheduler.decide_group("default/train")
        yield opened


def rows_of(store, kind):
    cluster = "default" if kind == "batch" else "groups"
    found = sorted(store.read.sessions(cluster, kind=kind), key=lambda row: row.id)
    assert len(found) == TIMES
    return found


@dataclass(frozen=True)
class Noting:
    """Replays, and notes which processes did."""

    folder: Path
    replayer: type

    def __call__(self, replayer, rows):
        (self.folder / str(os.getpid())).touch()
        return self.replayer.replay_all(replayer, rows)


@pytest.mark.parametrize(
    ("kind", "replayer"), [("batch", SessionReplayer), ("group", GroupReplayer)]
)
def test_processes_give_what_one_gives(store, database_url, tmp_path, kind, replayer):
    """In the same order, and none of them is this one."""
    rows = rows_of(store, kind)
    alone = list(replayer(store).replay_all(rows))
    folder = tmp_path / "processes"
    folder.mkdir()
    work = Noting(folder, replayer)
    shared = list(with_each(database_url, rows, replayer, work, Workers(jobs=2)))
    assert shared == alone
    assert {result.verdict for result in shared} == {ReplayVerdict.EQUAL}
    assert str(os.getpid()) not in {path.name for path in folder.iterdir()} != set()


def test_workers_of_a_cluster_replay_and_compare(store, database_url, tmp_path):
    """Sessions, cycles, and cycles under other rules: as one process does."""
    rules = RuleSet.load("kube-1.37-groups")
    cycles = [row.id for row in rows_of(store, "group")]
    with dask.cluster(tmp_path, workers=2) as cluster:
        workers = Workers(dask=cluster.address)
        sessions = rows_of(store, "batch")
        work = SessionReplayer.replay_all
        found = list(with_each(database_url, sessions, SessionReplayer, work, workers))
        assert found == list(SessionReplayer(store).replay_all(sessions))
        comparing = ComparingCycles(rules)
        compared = list(over(database_url, cycles, comparing.compared, workers))
    assert compared == list(comparing(store, cycles))


@pytest.mark.parametrize(
    "words",
    [
        ("batch", "replay", "--all"),
        ("replay", "--all", "--cluster", "groups"),
        ("replay", *(f"group:{2 * n}" for n in range(1, TIMES + 1))),
        ("compare", "--rules", "kube-1.37-groups", "--cluster", "groups"),
    ],
)
def test_the_commands_print_the_same_with_several_processes(store, database_url, capsys, words):
    """`--jobs` changes how long it takes, and nothing that is printed."""
    told = []
    for jobs in ("1", "2"):
        assert run([*words, "--db", database_url, "--jobs", jobs, "--output", "json"]) == 0
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
