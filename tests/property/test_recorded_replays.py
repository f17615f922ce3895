"""Law: whatever is recorded can be replayed, whatever others do to the cluster meanwhile.

Holds for one process that keeps deciding while others change the cluster between its decisions and
during them, also where the changes take each other back; for decisions and for batch sessions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.audit.inputs import ReplayVerdict
from policy.audit.replay import replay_all
from policy.audit.session_replay import SessionReplayer
from policy.batch import BatchRules
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.scheduling.sessions import SessionScheduler
from policy.scheduling.settle import Settler, VirtualClock
from policy.scheduling.watch import Watcher
from policy.store import Cause, Store
from policy.store.journal import StoreJournal
from tests.support.builders import NOW_MS, a_node, a_pod, objects

NAMES = itertools.count()
RULES = RuleSet.load("cooldown")
BATCH = BatchRules.load("batch-safe")
LAW = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
MEDDLING = st.lists(st.sampled_from(["naught", "come", "go", "label", "node", "again"]), max_size=6)


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        yield opened


def a_cluster(scheduler="default-scheduler"):
    nodes = [a_node(f"n{i}").cpu(2).running(a_pod(f"low-{i}").cpu(2).priority(i)) for i in (0, 1)]
    waiting = [a_pod(f"high-{i}").cpu(2).priority(9).scheduled_by(scheduler) for i in range(3)]
    return objects(*nodes, *waiting)


def meddle(store: Store, cluster: str, what: str, at: int) -> None:
    """Others change the cluster; `naught` and `again` leave it as it was."""

    def change(*changes) -> None:
        store.record.change(cluster, changes, at_ms=NOW_MS, source="watch", cause=Cause.LIVE)

    brief = a_pod(f"brief-{at}").cpu(1).pod
    node = a_node("n0").cpu(2)
    match what:
        case "naught":
            change(("Pod", f"default/brief-{at}", brief))
            change(("Pod", f"default/brief-{at}", None))
        case "come":
            change(("Pod", f"default/come-{at}", a_pod(f"come-{at}").cpu(1).priority(at).pod))
        case "go":
            gone = [key for key in ("default/low-0", "default/low-1") if has(store, cluster, key)]
            change(*(("Pod", key, None) for key in gone[:1]))
        case "label":
            change(("Node", "n0", node.labelled(turn=str(at)).node))
        case "node":
            change(("Node", f"new-{at}", a_node(f"new-{at}").cpu(1).node))
        case "again":
            change(("Node", "n9", node.node))
            change(("Node", "n9", None))


def has(store: Store, cluster: str, key: str) -> bool:
    return any(
        f"{o.metadata.namespace or 'default'}/{o.metadata.name}" == key
        for o in store.state.load(cluster).objects
        if type(o).__name__ == "Pod"
    )


class Meddled(StoreJournal):
    """A journal before which others change the cluster, also while something is decided."""

    def __init__(self, store: Store, cluster: str, turns: list[str]) -> None:
        super().__init__(store, cluster, actor="law", clock=lambda: NOW_MS)
        self._meddle: Callable[[str, int], None] = lambda what, at: meddle(store, cluster, what, at)
        self._turns = list(enumerate(turns))

    def _next(self) -> None:
        if self._turns:
            at, what = self._turns.pop(0)
            self._meddle(what, at)

    def record(self, *arguments, **options):
        self._next()
        return super().record(*arguments, **options)

    def record_session(self, *arguments, **options):
        self._next()
        return super().record_session(*arguments, **options)

    def change(self, *arguments, **options):
        self._next()
        return super().change(*arguments, **options)

    def delta(self, *arguments, **options):
        self._next()
        return super().delta(*arguments, **options)


def begun(store: Store, turns: list[str], **options) -> tuple[str, Meddled]:
    cluster = f"c{next(NAMES)}"
    store.record.import_objects(cluster, a_cluster(**options), at_ms=NOW_MS - 5, source="generated")
    return cluster, Meddled(store, cluster, turns)


def check(store: Store, cluster: str) -> None:
    ids = store.read.decision_ids(cluster)
    results = list(replay_all(store, ids))
    assert [(r.verdict, r.missing) for r in results] == [(ReplayVerdict.EQUAL, ())] * len(ids)
    assert ids


@LAW
@given(turns=MEDDLING)
def test_decisions_of_a_watch_replay(store, turns):
    """A watcher that others overtake records nothing that cannot be made again."""
    cluster, journal = begun(store, turns)
    clock = itertools.count(NOW_MS, 1000)
    scheduler = Scheduler(journal, RULES, clock=lambda: next(clock), seed=1)
    pauses = iter([True] * 4)
    list(Watcher(scheduler, clock=lambda: next(clock), pause=lambda: next(pauses, False)))
    check(store, cluster)


@LAW
@given(turns=MEDDLING)
def test_decisions_of_a_simulation_replay(store, turns):
    """A settling cluster that others change goes on from what they left."""
    cluster, journal = begun(store, turns)
    clock = VirtualClock(NOW_MS)
    scheduler = Scheduler(journal, RULES, clock=clock, seed=1)
    list(Settler(scheduler, RULES, clock, max_cycles=12))
    check(store, cluster)


@LAW
@given(turns=MEDDLING)
def test_batch_sessions_replay(store, turns):
    """Sessions between which others change the cluster are each on the state of their revision."""
    cluster, journal = begun(store, turns, scheduler="kube-batch")
    sessions = SessionScheduler(journal, BATCH, clock=lambda: NOW_MS)
    list(itertools.islice(sessions.until_settled(), 8))
    rows = store.read.sessions(cluster)
    results = list(SessionReplayer(store).replay_all(rows))
    assert [(r.verdict, r.missing) for r in results] == [(ReplayVerdict.EQUAL, ())] * len(rows)
    assert rows
