"""Server-sent events: none is left out, whatever order the transactions of clusters end in."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from policy import RuleSet
from policy.cluster.snapshot import Snapshot
from policy.decision.record import record_of
from policy.preemption.decide import decide
from policy.store import Store
from policy.store.record.decisions import DecidedPod
from policy.store.record.groups import KIND as CYCLE
from policy.store.record.sessions import KIND as BATCH
from tests.contract.builders import BY_HAND, made_on
from tests.contract.filled import a_session
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
from tests.support.serving import Serving

RULES = RuleSet.load("kube-1.36")
CLUSTERS = ("default", "eu/west 1")


@pytest.fixture
def url(make_postgres: Callable[[str], str], postgres_template: str) -> str:
    """Postgres with two clusters of a node and a pod that waits."""
    made = make_postgres(postgres_template)
    with Store.open(made) as store:
        for cluster in CLUSTERS:
            parts = objects(a_node("n1").cpu(4), a_pod("web").priority(1).cpu(1))
            store.record.import_objects(cluster, parts, at_ms=serving.NOW_MS, source="test")
    record(made, CLUSTERS[0])  # whoever is first writes the rule set, and others wait for that
    return made


@pytest.fixture
def service(url: str, tmp_path: Path) -> Iterator[Serving]:
    started = serving.serve(url, tmp_path, environment="")
    yield started
    assert started.stop() == 0


def record(url: str, cluster: str, *, last: Callable[[], None] | None = None) -> None:
    """Keep a decision by a connection of its own. last: is called before it is committed."""
    with Store.open(url) as store:
        state = store.state.load(cluster)
        snapshot = Snapshot.from_objects(
            state.objects, now_ms=serving.NOW_MS, state_digest=state.state_digest
        )
        made = record_of(decide(snapshot, RULES, "default/web"))
        store.record.decision_group(
            cluster,
            [DecidedPod(record=made, changes=[], at_ms=serving.NOW_MS)],
            expected_revision=state.revision,
            rules=RULES,
            actor="test",
            claim=None if last is None else lambda: last,
        )


@contextmanager
def stream(service: Serving, after: str = "") -> Iterator[Iterator[tuple[str, str, int]]]:
    """New events as (id, cluster, number of the decision)."""
    headers = {"Last-Event-ID": after} if after else {}

    def events(lines: Iterator[str]) -> Iterator[tuple[str, str, int]]:
        event_id = ""
        for line in lines:
            name, _, value = line.partition(": ")
            if name == "id":
                event_id = value
            elif name == "data":
                told = json.loads(value)
                yield event_id, told["cluster"], told["id"]

    with service.client.stream("GET", f"{service.url}/api/v1/events", headers=headers) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines).startswith(":")
        yield events(lines)


def test_a_smaller_number_that_is_committed_later_is_an_event(service: Serving, url: str) -> None:
    """Of two clusters, the one whose decision came first commits last: both are events.

    So they are for whoever comes back with the id of an event, or with one of an older version.
    """
    held, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        held.set()
        assert go_on.wait(60)

    slow = threading.Thread(target=record, args=(url, CLUSTERS[0]), kwargs={"last": wait})
    with stream(service) as found:
        slow.start()
        assert held.wait(60)
        record(url, CLUSTERS[1])
        first = next(found)
        go_on.set()
        slow.join(60)
        second = next(found)
    assert [first, second] == [
        ("0-0,default:1-0,eu%2Fwest%201:3-0", CLUSTERS[1], 3),
        ("0-0,default:2-0,eu%2Fwest%201:3-0", CLUSTERS[0], 2),
    ]
    with stream(service, first[0]) as again:
        assert next(again) == second
    record(url, CLUSTERS[1])
    with stream(service, second[0]) as again:
        assert next(again)[1:] == (CLUSTERS[1], 4)
    with stream(service, "2-0") as again:
        assert [next(again), next(again)] == [
            ("2-0,eu%2Fwest%201:3-0", CLUSTERS[1], 3),
            ("2-0,eu%2Fwest%201:4-0", CLUSTERS[1], 4),
        ]


def test_an_id_of_a_long_name_is_taken_again(service: Serving, url: str) -> None:
    """Each character of it may take twelve of the id."""
    name = "\N{SLICE OF PIZZA}" * 250
    with Store.open(url) as store:
        parts = objects(a_node("n1").cpu(4), a_pod("web").priority(1).cpu(1))
        store.record.import_objects(name, parts, at_ms=serving.NOW_MS, source="test")
    for _ in range(2):
        record(url, name)
    with stream(service, "1-0") as found:
        first, second = next(found), next(found)
    assert [(cluster, number) for _, cluster, number in (first, second)] == [(name, 2), (name, 3)]
    with stream(service, first[0]) as again:
        assert next(again) == second


def test_head_leaves_the_connection_free(service: Serving) -> None:
    """Its answer is the head alone, and ends."""
    connection = HTTPConnection("127.0.0.1", urlsplit(service.url).port, timeout=30)
    found = []
    for method, path in (("HEAD", "/api/v1/events"), ("GET", "/api/v1/queries")):
        connection.request(method, path)
        answer = connection.getresponse()
        found.append((answer.status, answer.getheader("content-type"), answer.read() == b""))
    connection.close()
    assert found == [
        (200, "text/event-stream; charset=utf-8", True),
        (200, "application/json", False),
    ]


def test_more_events_than_are_read_at_once(service: Serving, url: str) -> None:
    """All of them, in their order."""
    count = 205
    with Store.open(url) as store:
        state = store.state.load("default")
        snapshot = Snapshot.from_objects(
            state.objects, now_ms=serving.NOW_MS, state_digest=state.state_digest
        )
        made = decide(snapshot, RULES, "default/web")
        for _ in range(count):
            store.record.decision(
                "default",
                made,
                [],
                expected_revision=state.revision,
                rules=RULES,
                actor="test",
                at_ms=serving.NOW_MS,
            )
    with stream(service, "1-0") as found:
        assert [next(found)[2] for _ in range(count)] == list(range(2, count + 2))


def test_events_that_are_read_together_are_one_part(service: Serving, url: str) -> None:
    """Each part that is sent to a client which has just left may be a line of the log."""
    count = 10
    for _ in range(count):
        record(url, CLUSTERS[0])
    connection = HTTPConnection("127.0.0.1", urlsplit(service.url).port, timeout=60)
    connection.request("GET", "/api/v1/events", headers={"Last-Event-ID": "1-0"})
    sent = b""
    while sent.count(b"\ndata: ") < count:
        sent += connection.sock.recv(1 << 16)
    connection.close()
    assert len(re.findall(rb"^[0-9a-f]+\r\n", sent, flags=re.M)) == 2


def test_two_kinds_that_are_numbered_together(service: Serving, url: str) -> None:
    """Batch sessions and cycles of pod groups, of which far more are of one kind: in order."""
    count, seldom = 205, range(150, 206, 50)
    with Store.open(url) as store:
        for number in range(1, count + 1):
            kind = CYCLE if number in seldom else BATCH
            store.record.session(
                "default",
                made_on(store, replace(a_session(1), kind=kind, subject="a/g"), "default"),
                [],
                expected_revision=1,
                rules=BY_HAND,
                actor="test",
                at_ms=serving.NOW_MS,
            )
    with stream(service, "1-0") as found:
        events = [next(found) for _ in range(count)]
    assert [number for _, _, number in events] == list(range(1, count + 1))
    assert [event_id for event_id, _, _ in events[148:151]] == [
        f"1-0,default:1-{number}" for number in (149, 150, 151)
    ]


def test_proxies_are_told_to_send_events_on_at_once(service: Serving) -> None:
    """nginx keeps what a service answers until there are some KiB of it, if nothing says so."""
    told = service.client.head(f"{service.url}/api/v1/events").headers
    assert (told["content-type"], told["x-accel-buffering"]) == (
        "text/event-stream; charset=utf-8",
        "no",
    )


def test_a_stream_outlives_a_database_that_is_away(tmp_path: Path) -> None:
    """What is recorded once it is back is an event; the log has no traceback."""
    file, away = tmp_path / "policy.db", tmp_path / "away.db"
    with Store.open(str(file)) as store:
        parts = objects(a_node("n1").cpu(4), a_pod("web").priority(1).cpu(1))
        store.record.import_objects("default", parts, at_ms=serving.NOW_MS, source="test")
    service = serving.serve(str(file), tmp_path, environment="")
    with service.client.stream("GET", f"{service.url}/api/v1/events") as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith(": decisions")
        time.sleep(1.5)  # it looks once a second
        file.rename(away)
        time.sleep(3)
        away.rename(file)
        record(str(file), "default")
        assert next(line for line in lines if line.startswith("event")) == "event: decision"
    assert "Traceback" not in service.log.read_text()
    assert service.stop() == 0
