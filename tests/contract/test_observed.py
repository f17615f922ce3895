"""Recorded watches of a real API server, imported: the states, and the preemptions in them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from policy.cli.app import run
from policy.store import Store
from policy.store.read.saved_queries import DEFAULTS, saved_queries
from tests.support.live import EXPECTED, LIVE, final, identity, told


def files(name: str) -> list[str]:
    return [str(LIVE / f"{name}.initial.json.gz"), str(LIVE / f"{name}.jsonl.gz")]


def imported(url: str, *paths: str, cluster: str = "real") -> None:
    assert run(["import", "--db", url, "--cluster", cluster, *paths]) == 0


def recorded(name: str) -> list[dict[str, Any]]:
    with gzip.open(LIVE / f"{name}.jsonl.gz", "rt") as stream:
        return [json.loads(line) for line in stream]


@pytest.mark.parametrize("name", EXPECTED)
def test_every_preemption_is_found_and_comes_out_the_same(name: str, database_url: str) -> None:
    """The state is that of the final list; the ledger holds; the right pods, the same or a tie."""
    imported(database_url, *files(name))
    with Store.open(database_url) as store:
        state = identity(store.state.load("real").objects)
        rows = store.read.observations("real")
        assert (told(store), state) == (EXPECTED[name], final(name))
        assert {row.confidence for row in rows} == {"certain"}
        assert store.ledger.verify().ok


def test_importing_it_again_observes_nothing_new(database_url: str) -> None:
    """The evidence is known by its events; the state stays as it is."""
    imported(database_url, *files("wave-kubelet"))
    with Store.open(database_url) as store:
        before = (told(store), store.state.head_revision("real"))
    imported(database_url, files("wave-kubelet")[1])
    with Store.open(database_url) as store:
        after = (told(store), identity(store.state.load("real").objects))
    assert after == (before[0], final("wave-kubelet"))


def test_a_victim_of_two_counts_once(database_url: str) -> None:
    """In sums; each preemption has it in its own list."""
    imported(database_url, *files("wave-kubelet"))
    with Store.open(database_url) as store:
        victims = [v for row in store.read.observations("real") for v in row.victims]
        query = "SELECT sum(evictions) FROM v_who_preempts_whom WHERE origin = 'observed'"
        with store.sql(query, trust_connection=True) as result:
            ((evictions,),) = list(result)
    assert (len(victims), sum(v.counted for v in victims), int(evictions)) == (6, 5, 5)


def test_priorities_that_are_not_known_come_last(database_url: str, tmp_path: Path) -> None:
    """Where events alone tell of pods; on either database a limit leaves these out first."""
    imported(database_url, *files("kubelet-grace"))
    events = [line["object"] for line in recorded("kubelet-grace") if line["watch"] == "Event(v1)"]
    dump = tmp_path / "events.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": events}))
    imported(database_url, str(dump), cluster="events-only")
    query = saved_queries()["victims-by-priority"].sql
    with (
        Store.open(database_url) as store,
        store.sql(query, DEFAULTS, trust_connection=True) as rows,
    ):
        found = [tuple(row)[:3] for row in rows]
    assert found == [(5000, 0, 3), (None, None, 3)]


def test_rules_with_a_memory_see_what_was_observed(database_url: str) -> None:
    """`history.*` counts them, by workload and by namespace."""
    imported(database_url, *files("kubelet-grace"))
    needs = [("namespacePreemptedCount", 3600), ("namespacePreemptions", 3600)]
    with Store.open(database_url) as store:
        (row,) = store.read.observations("real")
        figures = store.read.history("real", needs, now_ms=row.now_ms)
        long_ago = store.read.history("real", needs, now_ms=row.now_ms - 1)
    assert figures == {
        "namespacePreemptedCount/3600": {"default": 1, "prod": 2},
        "namespacePreemptions/3600": {"team-a": 1},
    }
    assert list(long_ago.values()) == [{}, {}]


def test_a_dump_alone_shows_what_happened_before_it(database_url: str, tmp_path: Path) -> None:
    """Events name both; what was before is not kept, so that it cannot be decided again."""
    objects = [
        line["object"]
        for line in recorded("kubelet-grace")
        if line["watch"] in ("Event(v1)", "Pod") and line["type"] != "DELETED"
    ]
    last = {(o["kind"], o["metadata"]["uid"]): o for o in objects}
    dump = tmp_path / "dump.json"
    dump.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [*last.values()]}))
    imported(database_url, files("kubelet-grace")[0], str(dump))
    with Store.open(database_url) as store:
        (row,) = store.read.observations("real")
    assert (row.confidence, row.verdict, row.reason, len(row.victims)) == (
        "certain",
        "unknown",
        "no state before it is kept",
        3,
    )


def test_a_watch_with_a_removal_alone_removes(database_url: str, tmp_path: Path) -> None:
    """Nothing but a DELETED: the pod is gone afterwards."""
    imported(database_url, files("kubelet-grace")[0])
    (first, *_) = [line for line in recorded("kubelet-grace") if line["type"] == "DELETED"]
    watch = tmp_path / "watch.jsonl"
    watch.write_text(json.dumps({"type": "DELETED", "object": first["object"]}))
    key = "{namespace}/{name}".format(**first["object"]["metadata"])
    with Store.open(database_url) as store:
        there = store.state.objects_at("real", "Pod", at=1, key=key)
    imported(database_url, str(watch))
    with Store.open(database_url) as store:
        gone = store.state.objects_at("real", "Pod", at=2, key=key)
    assert (len(there), gone) == (1, [])
