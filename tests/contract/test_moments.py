"""States around observed preemptions: those in memory are those of the store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from policy.audit.observed import held, moments
from policy.audit.observed.deciding import states_of
from policy.audit.observed.moments import Moments
from policy.cluster.digest import Change
from policy.cluster.objects import ClusterObject, key_of, kind_of
from policy.cluster.snapshot import Snapshot
from policy.manifests import from_dicts
from policy.store import Store
from policy.store.observed import Followed
from tests.support.live import CLUSTER, Identity, identity, initial, lines

NAME = "wave-kubelet"


def written(store: Store, changes: Sequence[Change]) -> Followed:
    return store.record.follow(
        CLUSTER, [changes], at_ms=1_790_000_000_000, source="test", actor="ann"
    )


def put(obj: ClusterObject) -> Change:
    return kind_of(obj), key_of(obj), obj


def shown(snapshot: Snapshot) -> tuple[str, Identity]:
    return snapshot.state_digest, identity(snapshot.objects())


@pytest.mark.parametrize("most", [6, 10_000])
@pytest.mark.parametrize("others", [False, True])
def test_states_in_memory_are_those_of_the_store(
    others: bool, most: int, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forwards and backwards, also beyond what is kept, and after another program wrote."""
    monkeypatch.setattr(held, "_MOST_CHANGES", most)
    monkeypatch.setattr(held, "_KEPT", 5)
    monkeypatch.setattr(moments, "_KEPT", 5)
    objects = from_dicts(initial(NAME))
    with Store.open(database_url) as store:
        begun = written(store, [put(obj) for obj in objects])
        kept = Moments(store, CLUSTER)
        kept.begin(objects, revision=begun.revision, state_digest=begun.state_digest)
        for number, (what, item) in enumerate(lines(NAME)):
            if item["kind"] == "Event":
                continue
            (obj,) = from_dicts([item])
            gone = ("Pod", key_of(obj), None)
            done = written(store, [gone if what == "DELETED" else put(obj)])
            if others and number == 30:
                continue  # somebody else's
            kept.advance(done.written)
        last = done.revision
        asked = [last, last - 1, last - 12, last - 3, 2, 1, last - 20, last]
        states = kept.at(0)
        found = [shown(states(number)) for number in asked]
        expected = [shown(states_of(store, CLUSTER, now_ms=0)(number)) for number in asked]
    assert (found, kept.begun) == (expected, True)
