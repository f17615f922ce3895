"""Law: whatever is recorded, contradicted, observed and pruned, totals are those of the rows.

As the views show the rows, in every table of totals with and without days; and a saved query
answers for any span of time what the query over the views does.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.observing.model import Confidence, Evidence, Preemption, SeenVictim
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import SessionRecord, SessionStep, Store
from policy.store.journal import StoreJournal
from policy.store.observed import NewObservation
from policy.store.read.saved_queries import DEFAULTS, saved_queries
from policy.store.tables import TOTALS
from tests.contract.builders import made_on
from tests.contract.test_ledger import tampering
from tests.contract.test_saved_queries import OVER_VIEWS
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pod, objects

HOUR: Final = 3_600_000
RULES: Final = RuleSet.load("kube-1.36")
NUMBERS: Final = itertools.count()
WHAT: Final = ["decide"] * 3 + ["hopeless", "contradict", "guess", "see", "session", "prune"]
STREAMS: Final = st.lists(
    st.tuples(st.sampled_from(WHAT), st.integers(min_value=1, max_value=30)),
    min_size=3,
    max_size=10,
)
LAW: Final = settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def store(database_url: str) -> Iterator[Store]:
    with Store.open(database_url) as opened:
        yield opened


class World:
    """A cluster in which one thing happens after another."""

    def __init__(self, store: Store, cluster: str) -> None:
        self._store, self._cluster = store, cluster
        self._now = NOW_MS
        self._count = itertools.count()
        self._victims: list[PodBuilder] = []
        self._guessed: list[Preemption] = []
        store.record.import_objects(
            cluster, objects(a_node("full").cpu(1)), at_ms=NOW_MS, source="dump"
        )

    def happen(self, what: str, hours: int) -> None:
        self._now += hours * HOUR
        getattr(self, f"_{what}")(next(self._count))

    def _import(self, *parts: Any) -> None:
        self._store.record.import_objects(
            self._cluster, objects(*parts), at_ms=self._now, source="dump"
        )

    def _decide(self, number: int) -> None:
        victim = (
            a_pod(f"low-{number}")
            .in_namespace(f"low-{number % 2}")
            .owned_by("ReplicaSet", f"web-{number % 3}")
            .cpu(2)
            .on(f"n{number}")
            .started(number)
        )
        wanting = a_pod(f"high-{number % 4}").in_namespace("high").priority(10).cpu(2)
        self._victims.append(victim)
        self._import(a_node(f"n{number}").cpu(2), victim, wanting)
        self._schedule(f"high/high-{number % 4}")

    def _hopeless(self, number: int) -> None:
        self._import(a_pod(f"huge-{number % 2}").in_namespace("high").priority(5).cpu(999))
        self._schedule(f"high/huge-{number % 2}")

    def _schedule(self, pod: str) -> None:
        journal = StoreJournal(self._store, self._cluster, actor="ann", clock=lambda: self._now)
        Scheduler(journal, RULES, clock=lambda: self._now, seed=0).decide(pod)

    def _contradict(self, _: int) -> None:
        if self._victims:
            self._import(self._victims[-1])

    def _guess(self, number: int) -> None:
        seen = self._seen(number, Confidence.LIKELY)
        self._guessed.append(seen)
        self._observe(seen)

    def _see(self, number: int) -> None:
        if self._guessed:
            before = self._guessed.pop()
            (victim,) = before.victims
            number = int(victim.uid.rpartition("-")[2])
        self._observe(self._seen(number, Confidence.CERTAIN))

    def _seen(self, number: int, confidence: Confidence) -> Preemption:
        return Preemption(
            preemptor="real/one",
            preemptor_uid="real-one",
            preemptor_kind="Pod",
            node="full",
            scheduler="default-scheduler",
            at_ms=self._now,
            confidence=confidence,
            victims=(
                SeenVictim(
                    pod=f"seen/pod-{number % 3}",
                    uid=f"seen-{number}",
                    evidence=(Evidence.EVENT,),
                    event_uid=f"{self._cluster}-{number}-{confidence}",
                    event_version=number,
                ),
            ),
        )

    def _observe(self, seen: Preemption) -> None:
        found = NewObservation(
            preemption=seen, situation=self._store.read.situation(self._cluster, seen)
        )
        self._store.record.observations(
            self._cluster, [found], at_ms=self._now, source="https://cluster", actor="carl"
        )

    def _session(self, number: int) -> None:
        self._import(a_pod("job").in_namespace("batch"), a_pod("gone").in_namespace("low-0"))
        steps = [
            SessionStep(action="preempt", operation="evict", task=task, for_task="batch/job")
            for task in ("low-0/gone", "batch/job")
        ]
        session = SessionRecord(
            digest=f"sha256:{number:064d}",
            now_ms=self._now,
            snapshot_digest="",
            seed=0,
            engine_version="1",
            bound_count=0,
            evicted_count=len(steps),
            steps=tuple(steps),
            document={},
        )
        self._store.record.session(
            self._cluster,
            made_on(self._store, session, self._cluster),
            [],
            expected_revision=self._store.state.head_revision(self._cluster),
            at_ms=self._now,
            rules=RULES,
            actor="carl",
        )

    def _prune(self, _: int) -> None:
        self._store.ledger.prune(
            self._now - 40 * HOUR, cluster=self._cluster, actor="ann", at_ms=self._now
        )


def answered(store: Store, query: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    given = {name: value for name, value in parameters.items() if f":{name}" in query}
    with store.sql(query, given, trust_connection=True) as found:
        return [tuple(found.columns), *map(tuple, found)]


def kept(store: Store) -> dict[str, Counter[tuple[Any, ...]]]:
    return {of.name: Counter(answered(store, f"SELECT * FROM {of.name}", {})) for of in TOTALS}


@LAW
@given(stream=STREAMS, since=st.integers(0, 250), hours=st.integers(1, 250))
def test_totals_are_those_of_the_rows(
    store: Store, stream: list[tuple[str, int]], since: int, hours: int
) -> None:
    """Kept, computed again, and asked for over all the time and a part of it."""
    cluster = f"law-{next(NUMBERS)}"
    world = World(store, cluster)
    for what, later in stream:
        world.happen(what, later)
    assert store.ledger.verify(cluster).findings == ()
    before = kept(store)
    store.ledger.recount()
    assert kept(store) == before
    begin = NOW_MS + since * HOUR
    for span in ({}, {"since": begin, "until": begin + hours * HOUR}):
        asked = {**DEFAULTS, "cluster": cluster, **span}
        for name, query in OVER_VIEWS.items():
            found = answered(store, saved_queries()[name].sql, asked)
            assert (name, found) == (name, answered(store, query, asked))


def test_a_total_that_differs_is_found_and_put_right(store: Store, database_url: str) -> None:
    """`audit verify` names it; `db recount` makes it what the rows say."""
    World(store, "default").happen("decide", 1)
    with tampering(database_url) as connection:
        connection.exec_driver_sql("UPDATE eviction_totals SET evictions = 5 WHERE day >= 0")
        connection.commit()
    (finding,) = store.ledger.verify().findings
    assert (finding.cluster, finding.harm.value) == ("default", "changed")
    assert "eviction_totals at day 20778, namespace low-0" in finding.detail
    assert "`policy db recount`" in finding.detail
    store.ledger.recount()
    assert store.ledger.verify().findings == ()


def test_a_workload_with_another_name_is_found_and_put_right(
    store: Store, database_url: str
) -> None:
    """Its evictions were another's: the right one gets a number, the wrong one goes."""
    World(store, "default").happen("decide", 1)
    named = "SELECT cluster_id, namespace, owner FROM evicted_workloads"
    before = answered(store, named, {})
    with tampering(database_url) as connection:
        connection.exec_driver_sql("UPDATE evicted_workloads SET owner = 'Job/other'")
        connection.commit()
    found = [finding.detail for finding in store.ledger.verify().findings]
    for where in ("eviction_totals at day 20778,", "pair_totals at"):
        for owner in ("Job/other", "ReplicaSet/web-0"):
            key = f"{where} namespace low-0, owner {owner},"
            assert len([detail for detail in found if key in detail]) == 1
    assert len(found) == 4
    store.ledger.recount()
    assert store.ledger.verify().findings == ()
    assert answered(store, named, {}) == before
