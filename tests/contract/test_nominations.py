"""Nominations have a life: made, kept, used, replaced, taken away by whom, expired, stale."""

from __future__ import annotations

import json
import re

import pytest
from click.testing import CliRunner

from policy.cli.app import cli
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Cause, Store
from policy.store.journal import StoreJournal
from tests.contract.builders import a_node, a_pod
from tests.contract.plans import plan, statements

NOW = 10**12
"""An instant of 2001: behind the clock of every machine that runs the tests."""
AT = "2001-09-09T01:46:40Z"
"""The same as text."""


@pytest.fixture
def store(database_url):
    with Store.open(database_url) as opened:
        yield opened


def imported(store, *objects):
    store.record.import_objects("default", objects, at_ms=NOW, source="dump")


def change(store, *changes, at_ms=NOW):
    store.record.change("default", changes, at_ms=at_ms, source="test", cause=Cause.LIVE)


def decide(store, pod, *, rules="kube-1.35"):
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: NOW)
    cycle = Scheduler(journal, RuleSet.load(rules), clock=lambda: NOW, seed=0)
    return cycle.decide(pod).recording.decision_id


def listed(url, *arguments):
    """What `policy nominations` says."""
    command = ["nominations", "--db", url, "--output", "json", *arguments]
    result = CliRunner().invoke(cli, command, standalone_mode=False, catch_exceptions=False)
    return json.loads(result.stdout)


def table(url):
    """The cells of the table that people get, but for empty ones."""
    command = ["nominations", "--db", url]
    result = CliRunner().invoke(cli, command, standalone_mode=False, catch_exceptions=False)
    return [re.split(" {2,}", line.strip()) for line in result.stdout.splitlines()[2:]]


def short(rows, *names):
    return [tuple(row[name] for name in names) for row in rows]


def test_a_nomination_is_made_kept_and_used(store, database_url):
    """One cycle makes it, two wait for the victim, the fourth places the pod on the node."""
    low, high = a_pod("a/low", node="n1", cpu="8"), a_pod("a/high", priority=5, cpu="8")
    imported(store, a_node("n1"), low, high)
    made = decide(store, "a/high")
    waited = [decide(store, "a/high") for _ in range(2)]
    (row,) = listed(database_url, "--standing")
    assert (row["made_decision"], row["kept"], row["ended_by"]) == (made, len(waited), None)
    change(store, ("Pod", "a/low", None))
    used = decide(store, "a/high")
    names = ("pod", "node", "made_decision", "kept", "ended_by", "ended_decision")
    assert short(listed(database_url), *names) == [("a/high", "n1", made, 2, "bound", used)]
    (line,) = table(database_url)
    assert line == ["a/high", "5", "n1", AT, str(made), "2", "used", AT, str(used)]
    assert listed(database_url, "--standing") == []


def test_who_took_a_nomination_away_is_named(store, database_url):
    """A more important pod takes the node: the list says by which decision, and for whom."""
    low, high = a_pod("a/low", node="n1", cpu="8"), a_pod("a/high", priority=5, cpu="8")
    imported(store, a_node("n1"), low, high)
    first = decide(store, "a/high")
    change(store, ("Pod", "b/top", a_pod("b/top", priority=9, cpu="8")))
    second = decide(store, "b/top", rules="kube-1.33")
    names = ("pod", "made_decision", "ended_by", "ended_decision")
    assert short(listed(database_url), *names) == [
        ("b/top", second, None, None),
        ("a/high", first, "taken-away", second),
    ]
    assert [line[-3:] for line in table(database_url) if line[0] == "a/high"] == [
        ["taken away", AT, f"{second} (b/top)"]
    ]


@pytest.mark.parametrize(
    ("changes", "ended"),
    [
        ([("Pod", "a/high", None)], "pod gone"),
        ([("Pod", "a/high", a_pod("a/high", priority=5, cpu="8"))], "expired"),
        ([("Pod", "a/high", a_pod("a/high", priority=5, node="n2"))], "placed elsewhere"),
        ([("Pod", "a/high", a_pod("a/high", priority=5, nominated="n2"))], "replaced"),
    ],
)
def test_how_nominations_end(store, database_url, changes, ended):
    """Each way in which one ends without being used has its own word."""
    high = a_pod("a/high", priority=5, cpu="8", nominated="n1")
    imported(store, a_node("n1"), a_node("n2"), high)
    change(store, *changes)
    (line,) = [line for line in table(database_url) if line[2] == "n1"]
    assert ended in line


def test_stale_nominations_are_found_and_named(store, database_url):
    """A node that is gone, and an age: both are told; a fresh one on its node is not."""
    fresh, lost, used = (a_pod(f"a/{n}", priority=5, nominated=n) for n in ("n1", "n2", "n3"))
    imported(store, a_node("n1"), a_node("n2"), a_node("n3"), fresh, lost, used)
    change(store, ("Node", "n2", None), ("Pod", "a/n3", a_pod("a/n3", node="n3")))
    found = listed(database_url, "--stale", "--older-than", "1970-01-01T00:00:00Z")
    assert short(found, "pod", "stale") == [("a/n2", "node `n2` is gone")]
    everything = listed(database_url, "--stale", "--older-than", "1s")
    assert [row["pod"] for row in everything] == ["a/n1", "a/n2"]
    assert everything[0]["stale"].startswith("made ")


def test_the_view_holds_the_same(store, database_url):
    """`v_nominations` has every nomination with its end, and programs get it in the same words."""
    imported(store, a_node("n1"), a_pod("a/high", priority=5, nominated="n1"))
    change(store, ("Pod", "a/high", None))
    names = ("cluster", "pod", "node", "made_revision", "made_decision", "ended_by")
    names = (*names, "ended_revision", "ended_decision")
    query = f"SELECT {', '.join(names)} FROM v_nominations"
    with store.sql(query, trust_connection=True) as rows:
        found = [tuple(row) for row in rows]
    assert found == [("default", "a/high", "n1", 1, None, "pod-gone", 2, None)]
    assert short(listed(database_url), *names) == found


def test_nominations_are_chosen_by_pod_node_and_cluster(store, database_url):
    """The options narrow the list; a table of one cluster does not repeat its name."""
    imported(store, a_node("n1"), *(a_pod(f"a/{n}", nominated="n1") for n in "xy"))
    store.record.import_objects("two", [a_pod("a/x", nominated="n9")], at_ms=NOW, source="dump")
    counts = [
        len(listed(database_url, *arguments))
        for arguments in ([], ["--pod", "a/x"], ["--node", "n1"], ["--cluster", "two"])
    ]
    assert counts == [3, 2, 2, 1]


def test_nominations_are_read_page_by_page_and_of_some_namespaces(store):
    """Nominations of one revision are read one by one; namespace `a` does not include `a-b`."""
    pods = ("a/x", "a-b/x", "b/y")
    imported(store, a_node("n1"), *(a_pod(pod, nominated="n1") for pod in pods))
    imported(store, a_pod("a/z", nominated="n1"))
    order = [("a/z", 2), ("a-b/x", 1), ("a/x", 1), ("b/y", 1)]
    read = []
    before = None
    while rows := store.read.nominations("default", before=before, limit=1):
        before = (rows[0].made_revision, rows[0].pod)
        read.append((rows[0].pod, rows[0].made_revision))
    own = {
        names: [row.pod for row in store.read.nominations("default", namespaces=names)]
        for names in ((), ("a",), ("a", "b"), ("c",))
    }
    assert (read, own) == (
        order,
        {(): [], ("a",): ["a/z", "a/x"], ("a", "b"): ["a/z", "a/x", "b/y"], ("c",): []},
    )


def test_what_kept_a_nomination_is_counted_of_the_listed_ones_alone(store):
    """Of others there may be a million, each with the decisions about its pod."""
    for name in ("a/x", "a/y", "a/z"):
        imported(store, a_node("n1"), a_pod(name, nominated="n1"))
    newest = store.read.nominations(limit=1)
    with statements(store) as sent:
        store.read.tries_while_nominated(newest)
    (asked,) = (one for one in sent if "nominations" in one[0])
    steps = plan(store, *asked)
    words = {
        "by pod": any("decisions" in step and "preemptor" in step for step in steps),
        "by revision": any("made_revision=" in step.replace(" = ", "=") for step in steps),
        "whole": any("SCAN" in step or "Seq Scan" in step for step in steps),
    }
    assert words == {"by pod": True, "by revision": True, "whole": False}


def test_the_newest_of_several_clusters_are_listed(store, database_url):
    """Of whatever cluster they are: a limit leaves out the oldest ones, not other clusters."""
    for seconds, (cluster, pod) in enumerate([("one", "a/x"), ("two", "a/y"), ("one", "a/z")]):
        at_ms = NOW + seconds * 1000
        nominated = [a_node("n1"), a_pod(pod, nominated="n1")]
        store.record.import_objects(cluster, nominated, at_ms=at_ms, source="dump")
    found = [
        [(row["cluster"], row["pod"]) for row in listed(database_url, "--limit", limit)]
        for limit in ("2", "50")
    ]
    newest = [("one", "a/z"), ("two", "a/y"), ("one", "a/x")]
    assert found == [newest[:2], newest]
