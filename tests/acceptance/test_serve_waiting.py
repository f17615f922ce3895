"""A call that is ahead of the followed state: it waits for the state, within the deadline."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from policy.decision.model import Outcome
from policy.store import Store
from policy.store.model.decisions import ServedCall, StoredDecision
from tests.support import serving
from tests.support.api_server import ApiServer, kubeconfig
from tests.support.api_server import serving as api_server
from tests.support.live import CLUSTER, until
from tests.support.serving import Serving

Object = dict[str, Any]


def a_node(name: str, *, version: int) -> Object:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)},
        "status": {"allocatable": {"cpu": "2", "memory": "1Gi", "pods": "10"}},
    }


def a_pod(name: str, *, priority: int, version: int, node: str = "", **status: Any) -> Object:
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {**meta, "resourceVersion": str(version)},
        "spec": {
            "priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}],
            **({"nodeName": node} if node else {}),
        },
        "status": {"phase": "Running" if node else "Pending", **status},
    }


def leaving(pod: Object) -> Object:
    """A victim during its grace period."""
    meta = {
        **pod["metadata"],
        "deletionTimestamp": "2027-01-01T00:00:00Z",
        "deletionGracePeriodSeconds": 30,
    }
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
    return {**pod, "metadata": meta, "status": {**pod["status"], "conditions": [condition]}}


URGENT = a_pod("urgent", priority=100, version=7, nominatedNodeName="n0")
VICTIM = leaving(a_pod("gone", priority=1, version=5, node="n0"))
ITEMS = [
    a_node("n0", version=1),
    a_node("n1", version=2),
    VICTIM,
    a_pod("low", priority=1, version=6, node="n1"),
    URGENT,
]


def a_call(victim: str = "low") -> Object:
    """The scheduler has seen the victims on n0 leave; it may preempt on n1."""
    victims = {"Pods": [{"UID": f"uid-{victim}"}], "NumPDBViolations": 0}
    return {
        "Pod": URGENT,
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"n1": victims},
    }


@contextmanager
def followed(
    url: str, folder: Path, *options: object, items: list[Object] = ITEMS
) -> Iterator[tuple[ApiServer, Serving]]:
    """A service that follows a cluster whose pods it hears of with a delay."""

    def slow(server: ApiServer) -> None:
        server.faults.delays["Pod"] = 0.3

    with api_server(items, slow) as server:
        with Store.open(url) as store:
            store.record.create_environment("prod", CLUSTER, at_ms=serving.NOW_MS, actor="test")
            serving.activate(store, "kube-1.36")
        config = kubeconfig(folder, server.url)
        follow = ("--follow", "--kubeconfig", config, "--cluster", CLUSTER)
        service = serving.serve(url, folder, *follow, *options)
        try:
            service.ready()
            with Store.open(url) as store:
                until(
                    lambda: len(store.state.load(CLUSTER).objects) == len(items),
                    what="the state of the cluster",
                )
            yield server, service
        finally:
            service.stop()


def the_decision(url: str) -> tuple[StoredDecision, ServedCall]:
    with Store.open(url) as store:
        (row,) = store.read.decisions(CLUSTER)
        stored = store.read.decision(row.id)
        assert stored.served is not None
        assert store.ledger.verify().ok
        return stored, stored.served


def test_a_preemptor_whose_victims_have_just_left_is_not_refused(
    database_url: str, tmp_path: Path
) -> None:
    """The state still has its victim; the answer is the one of the state without it."""
    options = ("--extender-mode", "enforce", "--deadline", 40)
    with (
        followed(database_url, tmp_path, *options) as (server, service),
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(service.preempt, a_call())
        time.sleep(1.5)
        assert not answer.done()
        server.publish(
            "DELETED", {**VICTIM, "metadata": {**VICTIM["metadata"], "resourceVersion": "9"}}
        )
        assert answer.result(40) == {"n1": ["uid-low"]}
    stored, call = the_decision(database_url)
    assert (stored.record.outcome, call.failure) == (Outcome.PREEMPT, "")
    assert 0 < call.waited_us <= call.duration_us


def test_a_victim_of_which_only_the_uid_is_known_is_waited_for(
    database_url: str, tmp_path: Path
) -> None:
    """The meta form has no object that could count in place of the state."""
    options = ("--extender-mode", "enforce", "--deadline", 40)
    items = [one for one in ITEMS if one["metadata"]["name"] not in {"gone", "low"}]
    with (
        followed(database_url, tmp_path, *options, items=items) as (server, service),
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(service.preempt, a_call("new"))
        time.sleep(1.5)
        assert not answer.done()
        server.publish("ADDED", a_pod("new", priority=1, version=9, node="n1"))
        assert answer.result(40) == {"n1": ["uid-new"]}
    _, call = the_decision(database_url)
    assert call.waited_us > 0


@pytest.mark.parametrize(("mode", "waits"), [("enforce", True), ("shadow", False)])
def test_a_state_that_does_not_come_is_not_waited_for_beyond_the_deadline(
    database_url: str, tmp_path: Path, mode: str, waits: bool
) -> None:
    """Three quarters of it are waited; the answer is decided, not that of `--on-failure`.

    In shadow mode what is offered is answered at once.
    """
    options = ("--extender-mode", mode, "--deadline", 4)
    with followed(database_url, tmp_path, *options) as (_, service):
        assert service.preempt(a_call()) == ({} if waits else {"n1": ["uid-low"]})
    stored, call = the_decision(database_url)
    assert (stored.record.outcome, call.failure) == (Outcome.NOT_ELIGIBLE, "")
    assert [pod.pod for pod in stored.record.trace.waits_for] == ["shop/gone"]
    assert (call.waited_us >= 2_000_000) is waits
    assert call.duration_us < 4_000_000


def test_calls_of_others_are_decided_meanwhile(database_url: str, tmp_path: Path) -> None:
    """A call that waits holds up none that comes after it; it is answered when the service ends."""
    options = ("--extender-mode", "enforce", "--deadline", 60)
    with (
        followed(database_url, tmp_path, *options) as (_, service),
        ThreadPoolExecutor(1) as pool,
    ):
        waiting = pool.submit(service.preempt, a_call())
        time.sleep(1.0)
        other = a_pod("other", priority=50, version=8)
        assert service.preempt({**a_call(), "Pod": other}) == {"n1": ["uid-low"]}
        assert not waiting.done()
        service.process.terminate()
        assert waiting.result(40) == {}
    with Store.open(database_url) as store:
        outcomes = [(row.preemptor, row.outcome) for row in store.read.decisions(CLUSTER)]
    assert outcomes == [("shop/urgent", Outcome.NOT_ELIGIBLE), ("shop/other", Outcome.PREEMPT)]


def test_a_node_is_not_kept_for_a_pod_that_its_own_scheduler_knows_to_be_gone(
    database_url: str, tmp_path: Path
) -> None:
    """It offers no room that it has promised itself: `kept` need not leave for what is past."""
    first = a_pod("first", priority=200, version=8, nominatedNodeName="n1")
    kept = a_pod("kept", priority=5, version=9, node="n0")
    urgent = a_pod("urgent", priority=100, version=10)
    items = [a_node("n0", version=1), a_node("n1", version=2), ITEMS[3], kept, first, urgent]
    offered = {
        node: {"Pods": [{"UID": f"uid-{victim}"}], "NumPDBViolations": 0}
        for node, victim in (("n0", "kept"), ("n1", "low"))
    }
    call = {"Pod": urgent, "NodeNameToVictims": None, "NodeNameToMetaVictims": offered}
    options = ("--extender-mode", "enforce", "--deadline", 40)
    with (
        followed(database_url, tmp_path, *options, items=items) as (server, service),
        ThreadPoolExecutor(1) as pool,
    ):
        answer = pool.submit(service.preempt, call)
        time.sleep(1.5)
        assert not answer.done()
        server.publish(
            "DELETED", {**first, "metadata": {**first["metadata"], "resourceVersion": "11"}}
        )
        assert answer.result(40) == {"n1": ["uid-low"]}
    _, served = the_decision(database_url)
    assert served.waited_us > 0
