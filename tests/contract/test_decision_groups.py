"""Decisions that share a transaction: the rows of each are those of a decision on its own."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from policy.audit.replay import replay_all
from policy.cluster.objects import ClusterObject
from policy.rules import RuleSet
from policy.scheduling import group
from policy.scheduling.cycle import Scheduler
from policy.scheduling.second_look import DecisionsDiffer
from policy.scheduling.state import Contended, StateMoved
from policy.store import Cause, Store, bulk
from policy.store.errors import StoreError
from policy.store.journal import StoreJournal
from policy.store.tables import METADATA
from tests.support.builders import NOW_MS, PodBuilder, a_node, a_pdb, a_pod, objects, selector
from tests.support.commits import fail_commit_of, slow_commit_of

RULES = RuleSet.load("kube-1.36")
WAITING = 40


def cluster() -> list[ClusterObject]:
    """Full nodes and forty pods of several sizes, of which later ones take from earlier ones."""
    nodes = [
        a_node(f"n{i:02}")
        .cpu(4)
        .running(*(a_pod(f"low-{i}-{j}").labelled(app="low").priority(j).cpu(1) for j in range(4)))
        for i in range(10)
    ]
    waiting = [
        a_pod(f"w{i:02}").priority(5 + i % 4).cpu(1 + i % 3).labelled(kind=f"k{i % 5}")
        for i in range(WAITING)
    ]
    budget = a_pdb("low").allowing(3).by(selector(app="low"))
    return list(objects(*nodes, budget, *waiting))


def scheduler(journal: StoreJournal, **options: Any) -> Scheduler:
    return Scheduler(journal, RULES, clock=lambda: NOW_MS, seed=7, **options)


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine ends no group early."""
    monkeypatch.setattr(group, "LONGEST_SECONDS", 60)


@pytest.fixture
def journal(database_url: str) -> Iterator[StoreJournal]:
    with Store.open(database_url) as store:
        yield filled(store)


def filled(store: Store, kind: type[StoreJournal] = StoreJournal) -> StoreJournal:
    store.record.import_objects("default", cluster(), at_ms=NOW_MS, source="dump")
    return kind(store, "default", actor="ann", clock=lambda: NOW_MS)


def every_row(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables, in the order of their values."""
    with store._database.reading() as connection:
        return {
            table.name: sorted(map(tuple, connection.execute(select(table))), key=repr)
            for table in METADATA.sorted_tables
        }


@pytest.fixture(params=["sqlite", "postgres"])
def two_databases(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Two empty databases of one kind."""
    if request.param == "postgres":
        make = request.getfixturevalue("make_postgres")
        template = request.getfixturevalue("postgres_template")
        return [make(template), make(template)]
    paths = [tmp_path / f"{i}.db" for i in range(2)]
    for path in paths:
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
    return list(map(str, paths))


def test_the_rows_are_those_of_decisions_one_by_one(
    two_databases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of one and groups of many leave the same rows and digests in every table."""
    found = []
    for url, largest in zip(two_databases, (1, 64), strict=True):
        monkeypatch.setattr(group, "LARGEST", largest)
        with Store.open(url) as store:
            steps = list(scheduler(filled(store)).run())
            found.append(every_row(store))
            assert store.ledger.verify().ok
            assert len(steps) == WAITING
            assert len(store.state.revisions("default")) > 20
    assert found[0] == found[1]


def test_a_group_of_many_rows_is_written_like_one_of_few(
    two_databases: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a table is given as many rows as are otherwise copied into it."""
    found = []
    for url, many in zip(two_databases, (1, 10**6), strict=True):
        monkeypatch.setattr(bulk, "_WORTH_A_COPY", many)
        with Store.open(url) as store:
            list(scheduler(filled(store)).run())
            found.append(every_row(store))
    assert found[0] == found[1]


def test_decisions_of_a_group_replay(journal: StoreJournal) -> None:
    """Each is the decision that the full path makes on its revision."""
    ids = [step.recording.decision_id for step in scheduler(journal).run() if step.recording]
    verdicts = Counter(r.verdict.value for r in replay_all(journal._store, ids))
    assert verdicts == {"equal": WAITING}


class Meddled(StoreJournal):
    """A journal beside which somebody else changes the cluster before some of its records."""

    meddle: Callable[[int], None] = staticmethod(lambda number: None)
    records = 0

    def record_ahead(self, decided: Any, **options: Any) -> Any:
        self.records += 1
        self.meddle(self.records)
        return super().record_ahead(decided, **options)


def test_a_group_that_was_overtaken_is_decided_again(database_url: str) -> None:
    """No pod is lost or decided twice, and every decision is on the state that others left."""
    with Store.open(database_url) as store:
        journal = filled(store, Meddled)
        assert isinstance(journal, Meddled)

        def meddle(number: int) -> None:
            if number in {1, 4, 5, 6, 9}:
                pod: PodBuilder = a_pod(f"other-{number}").cpu(1).labelled(kind="other")
                change = ("Pod", f"default/other-{number}", pod.pod)
                store.record.change(
                    "default", [change], at_ms=NOW_MS, source="watch", cause=Cause.LIVE
                )

        journal.meddle = meddle
        steps = list(scheduler(journal).run())
        ids = [row.id for row in store.read.decisions("default")]
        verdicts = Counter(r.verdict.value for r in replay_all(store, ids))
        assert {
            "decided": Counter(step.decision.preemptor for step in steps),
            "recorded": Counter(row.preemptor for row in store.read.decisions("default")),
            "told": sorted(s.recording.decision_id for s in steps if s.recording),
            "verdicts": verdicts,
            "ledger": store.ledger.verify().findings,
        } == {
            "decided": Counter({f"default/w{i:02}": 1 for i in range(WAITING)}),
            "recorded": Counter({f"default/w{i:02}": 1 for i in range(WAITING)}),
            "told": sorted(ids),
            "verdicts": {"equal": WAITING},
            "ledger": (),
        }


def test_a_pod_that_others_placed_meanwhile_is_left_out(database_url: str) -> None:
    """What was decided for it in the group that was overtaken is not recorded."""
    with Store.open(database_url) as store:
        journal = filled(store, Meddled)
        assert isinstance(journal, Meddled)
        placed = a_pod("w20").priority(5).cpu(1).on("n00").pod

        def meddle(number: int) -> None:
            if number == 4:
                change = ("Pod", "default/w20", placed)
                store.record.change(
                    "default", [change], at_ms=NOW_MS, source="watch", cause=Cause.LIVE
                )

        journal.meddle = meddle
        decided = {step.decision.preemptor for step in scheduler(journal).run()}
        assert decided == {f"default/w{i:02}" for i in range(WAITING) if i != 20}
        assert store.ledger.verify().ok


class Failing(Scheduler):
    """Fails at one pod."""

    failure: BaseException
    fails: str

    def _propose(self, pod: str, *arguments: Any) -> Any:
        if pod == self.fails:
            raise self.failure
        return super()._propose(pod, *arguments)


def given_and_kept(cycle: Scheduler, failure: type[BaseException]) -> tuple[list[str], list[str]]:
    """Which pods' decisions a run that fails has given, and which are in the record."""
    given: list[str] = []
    journal = cycle._journal
    assert isinstance(journal, StoreJournal)
    with pytest.raises(failure):
        given.extend(step.decision.preemptor for step in cycle.run())
    assert journal._store.ledger.verify().ok
    kept = [row.preemptor for row in journal._store.read.decisions("default")]
    return given, sorted(kept, key=ORDER.index)


@pytest.mark.parametrize("at", [0, 1, 17])
def test_what_was_decided_before_a_failure_is_recorded(journal: StoreJournal, at: int) -> None:
    """The error comes behind the decisions of its group, and nothing is recorded of its pod."""
    cycle = Failing(journal, RULES, clock=lambda: NOW_MS, seed=7)
    cycle.failure, cycle.fails = DecisionsDiffer("they differ"), ORDER[at]
    assert given_and_kept(cycle, DecisionsDiffer) == (ORDER[:at], ORDER[:at])


def test_what_is_recorded_is_given_before_an_interruption(journal: StoreJournal) -> None:
    """Nothing is kept of the group that is being decided; the one before is being committed."""
    cycle = Failing(journal, RULES, clock=lambda: NOW_MS, seed=7)
    cycle.failure, cycle.fails = KeyboardInterrupt(), ORDER[17]
    assert given_and_kept(cycle, KeyboardInterrupt) == (ORDER[:15], ORDER[:15])


def test_what_is_recorded_is_given_before_a_commit_that_fails(journal: StoreJournal) -> None:
    """The group is in vain, and so is the next one, which was decided meanwhile."""
    fail_commit_of(journal._store, ORDER[9])
    cycle = scheduler(journal)
    assert given_and_kept(cycle, StoreError) == (ORDER[:7], ORDER[:7])


def test_what_is_recorded_is_given_before_a_record_that_fails(database_url: str) -> None:
    """Where it cannot be written, or not before others changed the cluster a hundred times."""
    with Store.open(database_url) as store:
        journal = filled(store, Meddled)
        assert isinstance(journal, Meddled)

        def meddle(number: int) -> None:
            if number >= 4:
                raise StateMoved

        journal.meddle = meddle
        assert given_and_kept(scheduler(journal), Contended) == (ORDER[:7], ORDER[:7])


def test_the_next_group_is_decided_while_one_is_committed(
    make_postgres: Callable[[str], str], postgres_template: str
) -> None:
    """And given behind it."""
    with Store.open(make_postgres(postgres_template)) as store:
        events: list[str] = []

        class Told(StoreJournal):
            def record_ahead(self, decided: Any, **options: Any) -> Any:
                commit = super().record_ahead(decided, **options)
                commit.add_done_callback(lambda _: events.append(f"committed {len(decided)}"))
                return commit

        class Telling(Scheduler):
            def _propose(self, pod: str, *arguments: Any) -> Any:
                events.append(f"decide {pod}")
                return super()._propose(pod, *arguments)

        journal = filled(store, Told)
        slow_commit_of(store, ORDER[0])
        run = Telling(journal, RULES, clock=lambda: NOW_MS, seed=7).run()
        events.append(f"given {next(run).decision.preemptor}")
        run.close()
        # The commit of the next ones may have ended by then, too.
        assert [event for event in events if event != "committed 2"][:5] == [
            *(f"decide {pod}" for pod in ORDER[:3]),
            "committed 1",
            f"given {ORDER[0]}",
        ]


ORDER = [
    f"default/w{i:02}" for priority in (3, 2, 1, 0) for i in range(WAITING) if i % 4 == priority
]
