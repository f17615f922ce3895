"""What spares a session work changes nothing that it decides.

POLICY_PROPERTY_EXAMPLES says how many sessions are tried.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.batch import BatchRules, SessionResult, run_session
from policy.batch.model import TaskStatus
from policy.batch.plugins.base import Plugin
from policy.batch.registry import PLUGINS
from policy.batch.session import Session
from policy.cluster.objects import ClusterObject
from policy.cluster.snapshot import Snapshot
from tests.support.batch import NOW_MS, a_gang, a_node, a_queue
from tests.support.batch import cluster as snapshot_of
from tests.support.batch_clusters import cluster, configuration
from tests.support.golden_sessions import a_crowded_cluster

EXAMPLES = int(os.environ.get("POLICY_PROPERTY_EXAMPLES", "60"))
many = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
few = settings(
    max_examples=max(6, EXAMPLES // 10),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
seeds = st.integers(0, 2**31)
CLASSES = frozenset({"predicate_class", "predicate_at", "node_order_class"})


def without_classes(plugin: type[Plugin]) -> type[Plugin]:
    """The plugin, but no two tasks are alike to it."""

    class Silent(plugin):  # type: ignore[valid-type, misc]  # a class of each plugin
        def open(self, session: Any) -> None:
            super().open(_Deaf(session))

    return Silent


class _Deaf:
    """A session that takes everything from a plugin but its classes."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def register(self, plugin: str, **functions: Callable[..., Any]) -> None:
        kept = {kind: f for kind, f in functions.items() if kind not in CLASSES}
        self._session.register(plugin, **kept)


def both(objects: list[ClusterObject], rules: BatchRules) -> tuple[SessionResult, SessionResult]:
    """The session, and the same where every task is put to every node anew."""
    snapshot = Snapshot.from_objects(objects, now_ms=NOW_MS)
    plain = {name: without_classes(plugin) for name, plugin in PLUGINS.items()}
    return run_session(snapshot, rules), run_session(snapshot, rules, plugins=plain)


@many
@given(seed=seeds)
def test_classes_of_equal_tasks_change_no_session(seed: int) -> None:
    """Answers that are kept from task to task are those that all nodes would give anew."""
    dice = Random(seed)
    objects = cluster(dice)
    kept, anew = both(objects, BatchRules.load(configuration(dice)))
    assert kept.canonical == anew.canonical


@few
@given(seed=seeds, name=st.sampled_from(["kube-batch-sample", "batch-safe"]))
def test_classes_change_no_session_on_crowded_nodes(seed: int, name: str) -> None:
    """The same where gangs of few kinds follow each other, so that most answers are kept ones."""
    kept, anew = both(list(a_crowded_cluster(Random(seed))), BatchRules.load(name))
    assert kept.canonical == anew.canonical


# --- totals ------------------------------------------------------------------------------------


def totals_anew(session: Session, jobs: np.ndarray, tasks: np.ndarray) -> dict[str, list[float]]:
    """Numbers and requests per node, counted task by task."""
    size = len(session.nodes.names)
    found: dict[str, list[float]] = {name: [0.0] * size for name in ("tasks", "cpu", "memory")}
    for i in range(size):
        for held in session.nodes.tasks(i):
            task, job = held.task, session.jobs.get(held.task.job)
            if held.status is not TaskStatus.RUNNING or job is None:
                continue
            if jobs[job.index] and tasks[task.index]:
                found["tasks"][i] += 1
                found["cpu"][i] += task.request.cpu
                found["memory"][i] += task.request.memory
    return found


def totals_kept(session: Session, jobs: np.ndarray, tasks: np.ndarray) -> dict[str, list[float]]:
    totals = session.running.totals("one name for all", jobs, tasks)
    return {
        "tasks": totals.per_node.tolist(),
        "cpu": totals.amount("cpu").tolist(),
        "memory": totals.amount("memory").tolist(),
    }


def walk(session: Session, dice: Random) -> None:
    """Asks for totals of any jobs and tasks, and evicts between two questions."""
    session.arrange()
    for _ in range(8):
        jobs = np.array([dice.random() < 0.6 for _ in session.jobs], dtype=np.bool_)
        tasks = np.array([dice.random() < 0.8 for _ in session.tasks], dtype=np.bool_)
        assert totals_kept(session, jobs, tasks) == totals_anew(session, jobs, tasks)
        running = [t for t in session.tasks if session.nodes.running[t.index] and t.job]
        running = [t for t in running if t.job in session.jobs]
        for victim in dice.sample(running, min(2, len(running))):
            session.release(victim)


@few
@given(seed=seeds)
def test_totals_that_are_kept_equal_totals_anew(seed: int) -> None:
    """Whatever is asked after whatever, the totals are those of the tasks that run now."""
    dice = Random(seed)
    snapshot = Snapshot.from_objects(list(a_crowded_cluster(dice)), now_ms=NOW_MS)
    walk(Session(snapshot, BatchRules.load("kube-batch-sample")), dice)


def test_amounts_beyond_exact_floats_are_summed_anew() -> None:
    """Where a float cannot count a node's bytes, a difference would leave a rounding error."""
    huge = 2**53
    snapshot = snapshot_of(
        a_node("n1", memory=4 * huge),
        a_queue("default"),
        a_gang("a", on=["n1"], memory=huge, cpu="1m"),
        a_gang("b", on=["n1"], memory=1, cpu="1m"),
        a_gang("c", on=["n1"], memory=1, cpu="1m"),
    )
    session = Session(snapshot, BatchRules.load("kube-batch-sample"))
    every = np.ones(3, dtype=np.bool_)
    without = np.array([False, True, True])
    assert totals_kept(session, every, every)["memory"] == [float(huge)]
    assert totals_kept(session, without, every)["memory"] == [2.0]
