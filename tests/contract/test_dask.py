"""Map over parts on a real Dask cluster: a scheduler and workers on loopback, some killed."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from policy.audit.decisions import over
from policy.audit.replay import replay_all, replayed
from policy.parts import PartsError, WorkerLost, Workers, map_parts
from policy.simulation.trace import TraceError
from policy.store import Store
from tests.cases.test_parts import Squares
from tests.contract.test_replay import CLUSTER, keep, the_decision
from tests.support import dask
from tests.support.builders import NOW_MS


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        opened.record.import_objects("default", CLUSTER, at_ms=NOW_MS, source="dump.json")
        yield opened


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with dask.cluster(tmp_path_factory.mktemp("dask"), workers=2) as made:
        yield made


@dataclass(frozen=True)
class Ending:
    """Replays, and once ends the worker that does it with a signal that cannot be caught."""

    file: Path

    def __call__(self, replayer, ids):
        for number, result in enumerate(replayed(replayer, ids)):
            if number == 30 and not self.file.exists():
                self.file.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            yield result


def test_results_come_in_the_order_of_the_parts(cluster, tmp_path):
    """From both workers, and none is this process."""
    found = list(map_parts(Squares(tmp_path), range(40), Workers(dask=cluster.address)))
    assert [square for square, _ in found] == [n * n for n in range(40)]
    assert os.getpid() not in {process for _, process in found}


def test_an_error_comes_as_it_was_raised(cluster, tmp_path):
    """With its words and its help."""
    with pytest.raises(TraceError, match="part is wrong") as caught:
        list(map_parts(Squares(tmp_path, wrong=3), range(5), Workers(dask=cluster.address)))
    assert caught.value.help == "take another one"


def test_whoever_stops_leaves_the_cluster_as_it_was(cluster, tmp_path):
    """What has not begun is cancelled, and the next one finds free workers."""
    found = map_parts(Squares(tmp_path), range(1000), Workers(dask=cluster.address))
    assert next(found)[0] == 0
    found.close()
    assert len(list(map_parts(Squares(tmp_path), range(3), Workers(dask=cluster.address)))) == 3


def test_a_replay_survives_the_death_of_a_worker(store, database_url, tmp_path):
    """One of two workers is killed in the middle: results are those of one process, in order."""
    decision = the_decision(store)
    wrong = keep(store, replace(decision, node="n9"))
    for _ in range(250):
        keep(store, decision)
    ids = store.read.decision_ids("default")
    alone = list(replay_all(store, ids))
    with dask.cluster(tmp_path, workers=2) as cluster:
        killing = Ending(tmp_path / "killed")
        shared = list(over(database_url, ids, killing, Workers(dask=cluster.address)))
    assert shared == alone
    assert (tmp_path / "killed").exists()
    assert wrong in ids


def test_a_part_that_kills_every_worker_is_an_error(tmp_path):
    """The scheduler gives it up after several workers."""
    with dask.cluster(tmp_path, workers=5) as cluster:
        folder = tmp_path / "killed"
        folder.mkdir()
        work = Squares(folder, fatal=0, times=9)
        with pytest.raises(WorkerLost, match="again and again"):
            list(map_parts(work, [0], Workers(dask=cluster.address)))


def test_an_address_at_which_nothing_answers(tmp_path):
    """It is named."""
    with pytest.raises(PartsError, match=r"tcp://127.0.0.1:9: no Dask scheduler answers there"):
        list(map_parts(Squares(tmp_path), [1], Workers(dask="tcp://127.0.0.1:9")))


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1", "http://127.0.0.1:80"])
def test_what_is_no_address_is_said(tmp_path, address):
    """At once, by who is given it, and nothing is left that complains later."""
    with pytest.raises(PartsError) as caught:
        list(map_parts(Squares(tmp_path), [1], Workers(dask=address)))
    assert str(caught.value) == f"`{address}` is no address of a Dask scheduler"
