"""`policy import` that dies at any moment: the cluster is what it was, or what the file holds."""

from __future__ import annotations

import json
import multiprocessing
import time
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from policy.cluster.digest import object_digest
from policy.manifests import read, resolve
from policy.store import Store
from policy.store.bulk import _WORTH_SORTING
from tests.acceptance.importer import import_file
from tests.support.tried import Kind

FIRST_KILLS = 6
LATER_KILLS = 10
#: What the command loads when it runs: most of a process is then the import itself.
PRELOADED = ["policy.cli.importing", "policy.cli.import_observed", "policy.manifests"]
PODS = _WORTH_SORTING + 100  # SQLite takes the indexes away meanwhile
NODES = 100


def a_dump(file: Path, *, newer: bool) -> Path:
    """A cluster. In the newer one a tenth of the pods is gone, a tenth changed, a tenth new."""
    pods = [number + newer * PODS * (number % 10 == 1) for number in range(PODS)]
    items: list[dict[str, Any]] = [
        {
            "kind": "Node",
            "apiVersion": "v1",
            "metadata": {"name": f"n{number}"},
            "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "500"}},
        }
        for number in range(NODES)
    ]
    items += [
        {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": f"web-{number}", "namespace": "shop", "uid": f"u{number}"},
            "spec": {
                "nodeName": f"n{number % NODES}",
                "priority": number % 7,
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "100m"}}}],
            },
            "status": {"phase": "Failed" if newer and number % 10 == 2 else "Running"},
        }
        for number in pods
    ]
    file.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
    return file


def held(file: Path) -> list[str]:
    """Digests of the objects of a file, as they are kept."""
    found = read([file])
    return sorted(map(object_digest, resolve(found.objects, places=found.places)))


def kept(url: str) -> tuple[int, str, list[str]]:
    """Revision, digest, and digests of the objects of the cluster; the whole record verifies."""
    with Store.open(url) as store:
        assert store.ledger.verify().findings == ()
        if not store.state.clusters():
            return 0, "", []
        state = store.state.load("default")
        return state.revision, state.state_digest, sorted(map(object_digest, state.objects))


@pytest.mark.slow
def test_an_import_that_is_killed_did_all_or_nothing(database_url, tmp_path, tried):
    """And what is imported again is the state of a cluster whose imports were never killed."""
    tried(Kind.KILL, FIRST_KILLS + LATER_KILLS)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.acceptance.importer", *PRELOADED])

    def import_for(seconds: float | None, url: str, file: Path) -> tuple[int | None, float]:
        process = context.Process(target=import_file, args=(url, str(file)))
        process.start()
        start = time.monotonic()
        process.join(seconds)
        process.kill()
        process.join()
        return process.exitcode, time.monotonic() - start

    files = [a_dump(tmp_path / f"{name}.json", newer=name == "new") for name in ("old", "new")]
    states = [held(file) for file in files]
    never_killed = str(tmp_path / "never_killed.db")
    status, whole = import_for(None, never_killed, files[0])
    assert status == 0
    revision = 0
    for kills in (FIRST_KILLS, LATER_KILLS):
        killed = 0
        while killed < kills:
            file = files[revision % 2]
            status, took = import_for(whole * (killed + 0.5) / kills, database_url, file)
            assert status in (0, -9)
            before, (revision, _, objects) = revision, kept(database_url)
            assert revision in ((before, before + 1) if status else (before + 1,))
            assert objects == (states[(revision - 1) % 2] if revision else [])
            if status:
                killed += 1
            else:  # it was done sooner than the one that was measured: kill the next ones earlier
                whole = took
        status, whole = import_for(None, database_url, files[revision % 2])
        assert status == 0
        revision += 1
    for file in islice(cycle([files[1], files[0]]), revision - 1):
        assert import_for(None, never_killed, file)[0] == 0
    assert kept(database_url) == kept(never_killed)
