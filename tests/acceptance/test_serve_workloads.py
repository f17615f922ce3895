"""The page of a workload: every decision that took one of its pods, by pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import PruneScope, Store
from policy.store.journal import StoreJournal
from tests.contract.builders import BY_HAND, NOW, a_cluster, a_decision, a_victim, made_on
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
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
        one_of_two_stays(store)
    started = serving.serve(path, tmp_path_factory.mktemp("served"))
    started.ready()
    yield started
    assert started.stop() == 0


def one_of_two_stays(store: Store) -> None:
    """Both pods of ReplicaSet low/api were to leave for high/p; a later dump still has one."""
    low = [
        a_pod(name).in_namespace("low").owned_by("ReplicaSet", "api").cpu(2).on("m1").started(90)
        for name in ("api-1", "api-2")
    ]
    high = a_pod("p").in_namespace("high").priority(100).cpu(4).pod
    first = [*objects(a_node("m1").cpu(4), a_node("m2").cpu(1), *low), high]
    store.record.import_objects("halves", first, at_ms=NOW, source="dump")
    journal = StoreJournal(store, "halves", actor="ann", clock=lambda: NOW + 1_000)
    Scheduler(journal, RuleSet.load("kube-1.36"), clock=lambda: NOW + 1_000, seed=0).decide(
        "high/p"
    )
    store.record.import_objects(
        "halves",
        [low[0].pod, high],
        at_ms=NOW + 10_000,
        source="dump",
        prune=PruneScope(namespaces=frozenset({"low", "high"})),
    )


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


def test_a_victim_that_stayed_is_not_evicted(service: Serving) -> None:
    """Also where another victim of the same decision has left."""
    told = service.get("/workloads/low/api").text
    assert "2 times a victim, 1 of them evicted" in " ".join(told.split())


def test_a_name_that_nothing_is_known_of(service: Serving) -> None:
    page = service.get("/workloads/shop/never").text
    assert "Nothing is recorded of a pod or workload of this name." in page
    assert "times a victim" not in page
