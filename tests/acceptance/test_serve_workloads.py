"""The page of a workload: every decision that took one of its pods, by pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.store import Store
from tests.contract.builders import BY_HAND, NOW, a_cluster, a_decision, a_victim, made_on
from tests.support import serving
from tests.support.serving import Serving

TOOK_WEB = 52


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Iterator[Serving]:
    """The oldest decisions took a pod of shop/web, the others another one of its namespace."""
    path = str(tmp_path_factory.mktemp("workloads") / "policy.db")
    shutil.copy(sqlite_template, path)
    with Store.open(path) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="test")
        store.record.create_environment("prod", "default", at_ms=NOW, actor="test")
        serving.activate(store, "kube-1.36")
        for seed in range(TOOK_WEB + 10):
            owner = "ReplicaSet/web" if seed < TOOK_WEB else "ReplicaSet/other"
            decision = a_decision(a_victim("shop/web-2", owner=owner), seed=seed)
            store.record.decision(
                "default",
                made_on(store, decision),
                [],
                expected_revision=1,
                rules=BY_HAND,
                actor="ann",
                at_ms=NOW + seed,
            )
    started = serving.serve(path, tmp_path_factory.mktemp("served"))
    started.ready()
    yield started
    assert started.stop() == 0


def shown(service: Serving, path: str) -> tuple[list[int], bool, bool]:
    """The decisions that a page names; whether it leads to older ones, and to the newest."""
    found = service.get(path)
    assert found.status_code == 200, found.text
    listed = found.text.partition('id="evictions"')[2]
    numbers = [int(part.partition('"')[0]) for part in listed.split('<a href="/decisions/')[1:]]
    return numbers, ">Older</a>" in found.text, ">Newest</a>" in found.text


def test_a_workload_leads_back_to_its_first_eviction(service: Serving) -> None:
    """However many newer decisions concern its namespace; a pod is found by its own name."""
    newest = list(range(TOOK_WEB, TOOK_WEB - 50, -1))
    assert shown(service, "/workloads/shop/web") == (newest, True, False)
    assert shown(service, f"/workloads/shop/web?after={newest[-1]}") == ([2, 1], False, True)
    assert shown(service, "/workloads/shop/other")[0] == list(range(TOOK_WEB + 10, TOOK_WEB, -1))
    assert shown(service, "/workloads/shop/web-2")[0][:2] == [TOOK_WEB + 10, TOOK_WEB + 9]
    assert shown(service, "/workloads/team/web") == ([], False, False)
