"""Lists by time: the ids that they look at leave no decision out, whatever its time."""

from itertools import product

import pytest

from policy.store import Store
from tests.contract.builders import BY_HAND, NOW, a_cluster, a_decision, made_on
from tests.contract.test_ledger import tampering

MINUTES = (5, 1, 9, 3, 7, 3, 0, 8)
"""That decisions are made for, in the order in which they are recorded."""


def move_on(url: str, number: int) -> None:
    """Have the ids of decisions go on behind a number."""
    with tampering(url) as connection:
        if connection.dialect.name == "sqlite":
            statement = f"UPDATE sqlite_sequence SET seq = {number} WHERE name = 'cycles'"
        else:
            statement = f"SELECT setval('cycles_id_seq', {number})"
        connection.exec_driver_sql(statement)
        connection.commit()


def decide(store: Store, cluster: str, minute: int, *, at_ms: int) -> None:
    now_ms = NOW + minute * 60_000
    made = made_on(store, a_decision(seed=at_ms, now_ms=now_ms), cluster)
    store.record.decision(
        cluster,
        made,
        [],
        expected_revision=store.state.head_revision(cluster),
        rules=BY_HAND,
        actor="ann",
        at_ms=NOW + at_ms,
    )


@pytest.fixture
def jumbled(database_url: str) -> str:
    """Decisions of two clusters at times that go up and down, with ids of several thousands."""
    with Store.open(database_url) as store:
        for cluster in ("one", "two"):
            store.record.import_objects(cluster, a_cluster(), at_ms=NOW, source="dump", actor="ann")
    for place, minute in enumerate(MINUTES):
        with Store.open(database_url) as store:
            decide(store, "one", minute, at_ms=place)
            decide(store, "two", -minute, at_ms=place)
        if place % 3 == 1:
            move_on(database_url, 1000 * (place + 1) - 1)
    return database_url


def spans(store: Store) -> list[tuple[int, ...]]:
    with store.sql(
        "SELECT * FROM decision_spans ORDER BY 1, 2", {}, trust_connection=True
    ) as found:
        return [tuple(row) for row in found]


def test_every_decision_of_a_time_is_listed(jumbled):
    with Store.open(jumbled) as store:
        assert len({thousand for _, thousand, *_ in spans(store)}) == 3
        for cluster in ("one", "two", None):
            every = store.read.decisions(cluster)
            times = sorted({d.now_ms for d in every} | {NOW - 3_600_000, NOW + 3_600_000})
            for since, until in product([None, *times], repeat=2):
                wanted = [
                    d
                    for d in every
                    if (since is None or d.now_ms >= since) and (until is None or d.now_ms < until)
                ]
                given = {"since_ms": since, "until_ms": until}
                assert store.read.decisions(cluster, **given) == wanted, (cluster, given)


def test_spans_are_those_of_the_decisions(jumbled):
    """Also after the older ones were taken out; what differs is found and put right."""
    with Store.open(jumbled) as store:
        for older_than_ms in (None, NOW + 2, NOW + 5, NOW + 100):
            if older_than_ms is not None:
                store.ledger.prune(older_than_ms, cluster="one", actor="ann", at_ms=NOW + 200)
            before = spans(store)
            store.ledger.recount()
            assert spans(store) == before
            assert store.ledger.verify().findings == ()
    with tampering(jumbled) as connection:
        connection.exec_driver_sql("UPDATE decision_spans SET latest_ms = 0 WHERE thousand = 0")
        connection.commit()
    with Store.open(jumbled) as store:
        assert [(f.cluster, f.detail) for f in store.ledger.verify().findings] == [
            (
                "two",
                "decision_spans at thousand 0 is not what the rows of the record add up to;"
                " `policy db recount` computes it again",
            )
        ]
        store.ledger.recount()
        assert store.ledger.verify().findings == ()
