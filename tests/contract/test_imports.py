"""Cluster state in: what an import adds, changes, removes, and refuses."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from sqlalchemy.exc import IntegrityError

from policy.cluster.objects import Container, ResourceRequirements, key_of, kind_of
from policy.store import ImportConflict, ImportCounts, PruneScope, Store, StoreError, bulk
from policy.store.connection import Database, parse_url
from policy.store.tables import CLUSTERS
from tests.contract.builders import NOW, a_budget, a_cluster, a_node, a_pod


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        yield opened


def imported(store, objects, **options):
    return store.record.import_objects("default", objects, at_ms=NOW, source="dump.json", **options)


def keys(store):
    return sorted((kind_of(o), key_of(o)) for o in store.state.load("default").objects)


def versions(store):
    with store.sql(
        "SELECT key, valid_from, valid_to FROM pods ORDER BY key, valid_from", trust_connection=True
    ) as found:
        return list(found)


def test_the_same_dump_twice_changes_nothing(store):
    """No revision, no version, no ledger entry comes of it."""
    first = imported(store, a_cluster())
    head = store.ledger.head("default")
    second = imported(store, reversed(a_cluster()))
    assert (second.revision, second.state_digest, second.new_revision) == (
        1,
        first.state_digest,
        False,
    )
    assert second.kinds["Pod"] == ImportCounts(unchanged=5)
    assert store.ledger.head("default") == head


def test_a_newer_dump_makes_one_revision_of_what_changed(store):
    """Only changed and new objects get a version; what the dump lacks stays."""
    imported(store, [a_pod("a/one"), a_pod("a/two")])
    result = imported(store, [a_pod("a/one", priority=7), a_pod("a/three")])
    assert (result.revision, result.kinds) == (2, {"Pod": ImportCounts(added=1, changed=1)})
    assert versions(store) == [
        ("a/one", 1, 2),
        ("a/one", 2, None),
        ("a/three", 2, None),
        ("a/two", 1, None),
    ]


def test_prune_removes_what_a_complete_dump_lacks(store):
    """Of the kinds that occur, and for namespaced kinds in the namespaces that occur."""
    imported(store, [a_node("n1"), a_node("n2"), a_budget("a/b"), a_pod("a/one"), a_pod("z/one")])
    result = imported(store, [a_node("n1"), a_pod("a/two")], prune=PruneScope())
    assert keys(store) == [
        ("Node", "n1"),
        ("Pod", "a/two"),
        ("Pod", "z/one"),
        ("PodDisruptionBudget", "a/b"),
    ]
    assert (result.total("removed"), result.total("added")) == (2, 1)


def test_prune_of_named_kinds_and_namespaces(store):
    """A scope that is given holds also for kinds of which the import has no object."""
    imported(store, [a_node("n1"), a_budget("a/b"), a_pod("a/one"), a_pod("z/one")])
    scope = PruneScope(
        kinds=frozenset({"Pod", "PodDisruptionBudget"}), namespaces=frozenset({"a", "z"})
    )
    imported(store, [a_pod("a/one")], prune=scope)
    assert keys(store) == [("Node", "n1"), ("Pod", "a/one")]


def test_an_object_that_comes_back_is_a_new_version(store):
    """Between removal and return the object was not there."""
    imported(store, [a_pod("a/one"), a_pod("a/two")])
    imported(store, [a_pod("a/two")], prune=PruneScope())
    imported(store, [a_pod("a/one")])
    assert versions(store) == [("a/one", 1, 2), ("a/one", 3, None), ("a/two", 1, None)]
    assert [key_of(o) for o in store.state.load("default", at=2).objects] == ["a/two"]


def test_the_same_object_twice_in_one_import_is_fine(store):
    """Overlapping dumps of one moment hold equal objects."""
    assert imported(store, [a_pod("a/one"), a_pod("a/one")]).kinds == {"Pod": ImportCounts(added=1)}


def test_two_different_objects_under_one_key_are_refused(store):
    """The conflict names kind, key and both places, and nothing is written."""
    objects = [a_pod("a/zero"), a_pod("a/one"), a_node("n"), a_pod("a/one", priority=9)]
    with pytest.raises(ImportConflict) as caught:
        imported(store, objects)
    conflict = caught.value
    assert (conflict.kind, conflict.key, conflict.first, conflict.second) == ("Pod", "a/one", 1, 3)
    assert store.state.clusters() == []


def test_an_impossible_quantity_imports_nothing(store):
    """The message names the object; the rest of the dump is not written either."""
    broken = a_pod("a/broken")
    container = Container(resources=ResourceRequirements(requests={"cpu": "two"}))
    broken = type(broken)(
        metadata=broken.metadata,
        spec=type(broken.spec)(containers=[container]),
    )
    with pytest.raises(StoreError, match=r"Pod `a/broken`: `two` is not a quantity"):
        imported(store, [a_pod("a/fine"), broken])
    assert store.state.clusters() == []


def test_nothing_imported_makes_no_cluster(store):
    """A dump without objects leaves the database as it was."""
    result = imported(store, [])
    assert (result.revision, result.new_revision, store.state.clusters()) == (0, False, [])


def test_progress_is_told(store):
    """The last call gives the number of all objects."""
    told: list[int] = []
    imported(store, [a_pod(f"a/p{i}") for i in range(2500)], progress=told.append)
    assert told == [1000, 2000, 2500]


def test_typed_columns_say_what_the_manifest_says(store):
    """What people filter by is taken from the object, in base units."""
    pod = a_pod("shop/web", node="n1", priority=5, cpu="250m", owner="ReplicaSet/web", leaving=True)
    imported(store, [pod, a_node("n1", unschedulable=True)])
    query = (
        "SELECT p.namespace, p.name, p.node, p.priority, p.priority_class, p.phase, p.start_ms,"
        " p.terminating, p.owner, p.cpu_milli, p.memory_bytes, n.cpu_milli, n.pod_capacity,"
        " n.unschedulable FROM pods p JOIN nodes n ON n.name = p.node"
    )
    with store.sql(query, trust_connection=True) as found:
        row = next(iter(found))
    assert row == (
        "shop",
        "web",
        "n1",
        5,
        "p5",
        "Running",
        1_795_132_800_000,
        True,
        "ReplicaSet/web",
        250,
        2**30,
        8000,
        110,
        True,
    )


def test_a_row_written_in_bulk_is_the_row_that_a_statement_writes(store):
    """Many objects at once, and the same ones by one, give the same rows in the same words."""
    pods = [a_pod(f"a/p-{i:04d}", priority=i) for i in range(600)]
    odd = a_pod("a/odd")
    odd = replace(odd, metadata=replace(odd.metadata, labels={"t": "a\tb\\n\u00e9 \\N \"'"}))
    imported(store, [*pods, odd])
    for pod in (pods[0], pods[599], odd):
        store.record.import_objects("single", [pod], at_ms=NOW, source="dump.json")
    query = (
        "SELECT v.* FROM pods v JOIN clusters c ON c.id = v.cluster_id"
        " WHERE c.name = '{}' AND v.key IN ('a/odd', 'a/p-0000', 'a/p-0599') ORDER BY v.key"
    )
    rows = []
    for cluster in ("default", "single"):
        with store.sql(query.format(cluster), trust_connection=True) as found:
            names = found.columns
            rows.append([dict(zip(names, row, strict=True)) for row in found])
    for row in [*rows[0], *rows[1]]:
        del row["cluster_id"], row["valid_from"]
    assert rows[0] == rows[1]


def test_rows_that_are_refused_in_bulk_are_refused_like_a_statement(database_url):
    """Whatever way the rows take, a broken constraint is SQLAlchemy's error with its statement."""
    database = Database(parse_url(database_url))
    names, row = ("id", "name"), (1, "twice")
    for count in (2, 1000):
        with pytest.raises(IntegrityError), database.engine.begin() as connection:
            bulk.insert_rows(connection, CLUSTERS, names, [row] * count, count=count)
    database.close()


def test_pods_from_the_store_share_what_is_equal(store):
    """Equal containers and names of two pods come back as one object."""
    imported(store, [a_pod("a/one"), a_pod("a/two")])
    one, two = store.state.load("default").objects
    assert one.spec == two.spec
    assert (one.spec.containers is two.spec.containers, one.metadata.name) == (True, "one")
    assert one.metadata.namespace is two.metadata.namespace
