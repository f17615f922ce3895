"""What several processes on one database share, and the role that runs the SQL of users."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from policy.store import Store
from policy.store.readers import drop_reader
from tests.support import serving
from tests.support.page_text import words
from tests.support.serving import Serving

Start = Callable[..., Serving]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts services that are ready, and ends them after the test."""
    running: list[Serving] = []

    def begin(db: str, *options: object) -> Serving:
        running.append(serving.serve(db, tmp_path, *options))
        running[-1].ready()
        return running[-1]

    yield begin
    for one in running:
        one.stop()


def activated(service: Serving, rules: str, *, key: str) -> httpx.Response:
    return service.client.post(
        f"{service.url}/api/v1/environments/prod/activations",
        json={"rules": rules, "reason": "for a test"},
        headers={"Idempotency-Key": key},
    )


def test_a_key_is_known_to_every_process(database_url: str, start: Start) -> None:
    """Sent to two processes at once it is done once; later each gives the answer of the first."""
    serving.filled(database_url)
    services = [start(database_url) for _ in "12"]
    with ThreadPoolExecutor(6) as pool:
        sent = [pool.submit(activated, services[i % 2], "kube-1.20", key="one") for i in range(6)]
        answers = [one.result() for one in sent]
    # Who comes while the first one is answered hears so.
    assert {a.status_code for a in answers} <= {201, 409}
    (first,) = {a.text for a in answers if a.status_code == 201}
    services.append(start(database_url))
    for service in services:
        again = activated(service, "kube-1.20", key="one")
        assert (again.status_code, again.text) == (201, first)
        assert activated(service, "kube-1.27", key="one").status_code == 422
    # What failed was not done: its key is free again, in every process.
    assert activated(services[0], "none", key="two").status_code == 404
    assert activated(services[1], "kube-1.27", key="two").status_code == 201
    with Store.open(database_url) as store:
        activations = store.read.activations("prod")
        assert [one.rule_set for one in activations] == ["kube-1.27", "kube-1.20", "kube-1.35"]
        assert store.ledger.verify().ok


def test_a_write_whose_process_ended_is_not_done_again(database_url: str, start: Start) -> None:
    """Whether it was done is not known: the answer says so. After a day the key is free."""
    serving.filled(database_url)
    service = start(database_url)
    first = activated(service, "kube-1.20", key="one")
    _execute(database_url, "UPDATE idempotency_keys SET status = NULL, answer = ''")
    again = activated(service, "kube-1.20", key="one")
    assert (first.status_code, again.status_code) == (201, 409)
    assert "has no answer yet" in again.json()["detail"]
    _execute(database_url, "UPDATE idempotency_keys SET at_ms = at_ms - 86400000")
    assert activated(service, "kube-1.27", key="one").status_code == 201


def test_an_environment_is_told_as_it_is_at_one_instant(database_url: str, start: Start) -> None:
    """Its `ETag` is of a state that there was: the active one is the newest of the activations."""
    serving.filled(database_url)
    service = start(database_url)
    read = set[tuple[int, int]]()
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(
            lambda: [
                activated(service, f"kube-1.{27 + i % 2}", key=str(i)).status_code
                for i in range(150)
            ]
        )
        while not writing.done():
            found = service.get("/api/v1/environments/prod").json()
            read.add((found["active"]["id"], found["activations"][0]["id"]))
    assert set(writing.result()) == {201}
    assert len(read) > 1
    assert [pair for pair in read if pair[0] != pair[1]] == []


def _execute(url: str, statement: str) -> None:
    from sqlalchemy import text

    from policy.store.connection import Database, parse_url

    database = Database(parse_url(url))
    with database.writing() as connection:
        connection.execute(text(statement))
    database.close()


def test_sql_of_users_runs_as_the_role_that_only_reads(
    make_postgres: Callable[[str | None], str], postgres_template: str, start: Start
) -> None:
    """`--reader-url` is the connection of a role that `policy db reader create` made."""
    url = serving.filled(make_postgres(postgres_template))
    name = f"reader_{uuid.uuid4().hex[:12]}"
    command = [sys.executable, "-m", "policy", "db", "reader", "create", name, "--db", url]
    made = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        service = start(url, "--reader-url", made)

        def run(sql: str) -> httpx.Response:
            return service.client.post(service.url + "/api/v1/sql", json={"sql": sql})

        found = run("SELECT current_user, (SELECT count(*) FROM pods) > 0")
        assert (found.status_code, found.json()["rows"]) == (200, [[name, True]])
        for statement in (
            "DELETE FROM pods",
            "WITH gone AS (DELETE FROM pods RETURNING 1) SELECT * FROM gone",
            "SELECT pg_read_file('/etc/passwd')",
            "SELECT lo_import('/etc/passwd')",
        ):
            assert run(statement).status_code == 400
        page = service.get("/sql", params={"q": "SELECT current_user"})
        assert (page.status_code, name in page.text) == (200, True)
        on = "On the views of the record, and on its tables where the role of `--reader-url` may"
        assert on in words(page)
        # The service itself may write.
        assert activated(service, "kube-1.20", key="one").status_code == 201
        service.stop()
        unguarded = start(url)
        refused = unguarded.client.post(
            unguarded.url + "/api/v1/sql", json={"sql": "SELECT current_user"}
        )
        # Nothing is wrong with the request, and trying again does not help.
        assert (refused.status_code, refused.json(), "retry-after" in refused.headers) == (
            501,
            {
                "type": "/api/v1/problems/not-offered",
                "title": "The service as it was started does not offer this",
                "status": 501,
                "detail": "this connection may do more than read: `postgres` is a superuser",
                "help": "`policy db reader create` makes a role that can only read; name its"
                " connection with --reader-url or POLICY_READER_DB",
            },
            False,
        )
        asked = unguarded.client.get(unguarded.url + "/sql?q=SELECT+1&format=json")
        page = unguarded.get("/sql", params={"q": "SELECT 1"})
        assert (asked.status_code, page.status_code) == (501, 501)
        assert "this connection may do more than read" in page.text
        known = unguarded.client.get(unguarded.url + "/api/v1/problems/not-offered")
        assert known.status_code == 200
        unguarded.stop()
    finally:
        drop_reader(url, name)


@pytest.mark.parametrize("behind", [b"{}", b"x"])
def test_a_body_ends_behind_its_object(database_url: str, start: Start, behind: bytes) -> None:
    """What follows the first JSON value is no part of a call, and so the call is none."""
    serving.filled(database_url)
    service = start(database_url, "--extender-mode", "enforce")
    (exchange, *_) = serving.preempts("b")
    body = exchange["request"].encode()
    answer = service.post("/extender/preempt", body + behind)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/problem+json"
    assert service.post("/extender/preempt", body + b"\r\n").status_code == 200
    service.stop()
    with Store.open(database_url) as store:
        assert len(store.read.decisions("default")) == 1
