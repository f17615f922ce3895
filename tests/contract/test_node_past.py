"""One node as it was, and the decision that was about it."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from policy.audit.node_change import Fate, NoNodeChange, node_change
from policy.cluster.objects import Node, Pod, key_of
from policy.store import NotFound, Store
from tests.contract.filled import fill
from tests.contract.plans import plan, statements


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        fill(opened)
        yield opened


def test_a_node_at_every_revision_is_that_of_the_whole_state(store):
    """Its object, the pods on it, and those whose nomination to it stood."""
    nominations = store.read.nominations("default")
    expected, found = {}, {}
    for revision in range(1, store.state.head_revision("default") + 1):
        objects = store.state.load("default", at=revision).objects
        pods = {key_of(o): o for o in objects if isinstance(o, Pod)}
        for name in ("n1", "n2", "n3"):
            standing = {
                n.pod
                for n in nominations
                if n.node == name
                and n.made_revision <= revision
                and (n.ended_revision is None or n.ended_revision > revision)
            }
            expected[revision, name] = (
                next((o for o in objects if isinstance(o, Node) and key_of(o) == name), None),
                {key for key, pod in pods.items() if pod.spec.node_name == name},
                standing & pods.keys(),
                [pods["team/urgent"]],
                True,
            )
            at = store.state.node_at("default", name, revision, named=("team/urgent", "no/pod"))
            found[revision, name] = (
                at.node,
                {key_of(pod) for pod in at.pods},
                {key_of(pod) for pod in at.nominated},
                list(at.named),
                at.intact,
            )
    assert found == expected
    assert any(nominated for _, _, nominated, _, _ in found.values())


def test_a_node_is_left_out_where_too_many_pods_changed_since(store):
    """At the newest revision none did; at the first one, three versions ended since."""
    head = store.state.head_revision("default")

    def shown(at, most):
        return store.state.node_at("default", "n1", at, most=most) is not None

    assert [shown(head, 0), shown(1, 1), shown(1, 100)] == [True, False, True]


def test_a_node_is_found_by_indexes(store):
    """Of the pods that are true now those on the node alone, of others those that ended since."""
    with statements(store) as sent:
        store.state.node_at("default", "n1", 2, named=("team/urgent",), most=100)
    plans = ["\n".join(plan(store, *one)) for one in sent if "FROM pods" in one[0]]
    assert ["ix_pods_on_node" in found for found in plans].count(True) == 1
    assert ["ix_pods_ended" in found for found in plans].count(True) >= 1
    assert not any("SCAN pods" in found or "Seq Scan on pods" in found for found in plans)


def test_the_node_of_a_decision_before_and_after(store):
    """Who leaves, who comes, and who loses the nomination by it."""
    change = node_change(store, store.read.decision(1), None)
    assert change is not None
    assert [(one.pod, one.fate) for one in change.pods] == [
        ("shop/web-1", Fate.LEAVES),
        ("shop/web-2", Fate.LEAVES),
        ("team/urgent", Fate.COMES),
        ("lab/waiting", Fate.LOSES_NOMINATION),
    ]
    assert (change.requested_before("cpu"), change.requested_after("cpu")) == (2000, 4000)


def test_a_state_that_was_changed_is_not_shown(store):
    """A version that is not what was written is named as such, and so is one that is gone."""
    with store._database.writing() as connection:
        connection.execute(
            text("UPDATE pods SET digest = 'other' WHERE key = 'shop/web-1' AND valid_from = 1")
        )
    with pytest.raises(NoNodeChange) as changed:
        node_change(store, store.read.decision(1), None)
    with store._database.writing() as connection:
        connection.execute(text("DELETE FROM revisions WHERE number = 1"))
    with pytest.raises(NoNodeChange) as gone:
        node_change(store, store.read.decision(1), None)
    assert [str(changed.value), str(gone.value)] == [
        "decision 1 has no node to show: the rows of revision 1 are not those that were written:"
        " `policy audit verify` names them",
        "decision 1 has no node to show: its state is not kept: cluster `default` has no"
        " revision 1: it has revisions 2 to 6",
    ]
    with pytest.raises(NotFound):
        store.state.node_at("default", "n1", 1)


def test_a_decision_knows_its_place_in_the_ledger(store):
    """Each decision's entry goes on from the one before it."""
    with store._database.reading() as connection:
        entries = connection.execute(
            text("SELECT decision_id, sequence, hash, previous FROM ledger")
        ).all()
    found = {
        one.decision_id: store.read.decision(one.decision_id).ledger
        for one in entries
        if one.decision_id is not None
    }
    assert {i: (p.sequence, p.hash, p.previous) for i, p in found.items()} == {
        one.decision_id: (one.sequence, one.hash, one.previous)
        for one in entries
        if one.decision_id is not None
    }
    hashes = {one.hash for one in entries}
    assert all(position.previous in hashes for position in found.values())
