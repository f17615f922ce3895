"""Alerts of a follower: as JSON for a program, or posted to a URL."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from policy.cli.exits import Exit
from policy.live import alerts
from policy.live.alerts import Sender, Thresholds, alerts_of
from policy.live.figures import Occasion
from policy.rules import RuleSet
from policy.store import Store
from policy.store.record.following import Gap
from tests.acceptance.commands import Policy
from tests.support.api_server import kubeconfig, serving
from tests.support.live import CLUSTER, following, initial, play, settled, until

NAME = "kubelet-grace"
PROTECT = """
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: ours}
extends: kube-1.35
spec:
  victims:
    eligible:
      insert:
        - at: start
          rule:
            id: keep-prod
            when: victim.namespace == 'prod'
            verdict: deny
            reason: prod stays
"""


def observed(url: str, folder: Path) -> list[Occasion]:
    """What a follower told of a recording."""
    with serving(initial(NAME)) as server, following(url, server, folder) as found:
        until(lambda: found.follower.figures.synced, what="the first lists")
        play(server, NAME)
        until(lambda: settled(url, NAME), what="the end of the recording")
    return found.occasions


def test_what_is_worth_an_alert(database_url: str, tmp_path: Path) -> None:
    """Workloads that were hit so often, and victims that the active rules protect."""
    occasions = observed(database_url, tmp_path)
    rules = RuleSet.load(PROTECT)
    with Store.open(database_url) as store:
        alerts = [
            alert
            for occasion in occasions
            for alert in alerts_of(
                store, CLUSTER, occasion, rules=rules, thresholds=Thresholds(hits=1, seconds=60)
            )
        ]
        quiet = [
            alert
            for occasion in occasions
            for alert in alerts_of(
                store, CLUSTER, occasion, rules=None, thresholds=Thresholds(hits=2, seconds=60)
            )
        ]
    told = sorted((a["alert"], a.get("workload") or a["pod"]) for a in alerts)
    protected = next(a for a in alerts if a["alert"] == "protected-victim")
    assert (told, quiet) == (
        [
            ("protected-victim", "prod/c14-p15"),
            ("protected-victim", "prod/c14-p9"),
            ("workload-hit-again", "default/ReplicaSet/rs-cache"),
            ("workload-hit-again", "prod/Pod/c14-p15"),
            ("workload-hit-again", "prod/ReplicaSet/rs-cache"),
        ],
        [],
    )
    assert (protected["rule"], protected["reason"]) == ("keep-prod", "prod stays")


def test_a_gap(database_url: str) -> None:
    """What was not seen, and why."""
    gap = Gap(
        kind="Pod",
        reason="expired",
        since_ms=None,
        until_ms=1_790_000_000_000,
        since_version=1,
        until_version=9,
    )
    with Store.open(database_url) as store:
        occasion = Occasion(gap=gap)
        alerts = list(alerts_of(store, CLUSTER, occasion, rules=None, thresholds=Thresholds()))
    assert alerts == [
        {
            "alert": "gap",
            "cluster": CLUSTER,
            "kind": "Pod",
            "reason": "expired",
            "since": None,
            "until": "2026-09-21T14:13:20Z",
        }
    ]


def test_a_program_gets_it_on_standard_input(tmp_path: Path) -> None:
    """One JSON object a call; a program that fails is reported with its words."""
    program = tmp_path / "hook"
    program.write_text(f"#!/bin/sh\ncat >> {tmp_path}/got\n")
    program.chmod(0o755)
    failing = tmp_path / "fails"
    failing.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    failing.chmod(0o755)
    reports: list[str] = []
    for target in (program, failing):
        sender = Sender(str(target), reports.append)
        sender.send({"alert": "gap", "kind": "Pod"})
        sender.close()
    assert json.loads((tmp_path / "got").read_text()) == {"alert": "gap", "kind": "Pod"}
    assert reports == ["alert `gap` was not delivered: exit status 3: no room"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("./absent", "`./absent` is no program that can be run, and no URL"),
        ("ftp://example.org/x", "`ftp://example.org/x` is no URL of http or https"),
        ("http://", "`http://` is no URL of http or https"),
    ],
)
def test_a_target_that_is_none(target: str, message: str, policy: Policy, tmp_path: Path) -> None:
    """It is refused at the start, not at the first alert."""
    with serving(initial("single")) as server:
        config = kubeconfig(tmp_path, server.url)
        options = ("--kubeconfig", config, "--db", str(tmp_path / "policy.db"))
        done = policy("follow", *options, "--on-event", target)
    assert (done.status, f"--on-event: {message}" in done.err) == (Exit.USAGE, True)


@contextmanager
def receiver(statuses: list[int]) -> Iterator[tuple[str, list[Any]]]:
    """statuses: of its answers in turn; 0 for one that comes late."""
    got: list[Any] = []
    slow = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            status = statuses.pop(0)
            slow.wait(0.0 if status else 30.0)
            self.send_response(status or 204)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/hook", got
    finally:
        slow.set()
        server.shutdown()
        server.server_close()


def test_a_url_gets_it_posted() -> None:
    """Tried again where it failed; reported where it fails for good."""
    reports: list[str] = []
    with receiver([500, 204, 500, 500, 500]) as (url, got):
        sender = Sender(url, reports.append)
        sender.send({"alert": "gap", "number": 1})
        sender.send({"alert": "gap", "number": 2})
        sender.close()
    assert [one["number"] for one in got] == [1, 1, 2, 2, 2]
    assert reports == ["alert `gap` was not delivered: status 500"]


def test_a_url_that_has_moved() -> None:
    """Redirects are not followed: where alerts go is what was named, and it is said where."""
    reports: list[str] = []
    with receiver([302, 302, 302]) as (url, got):
        sender = Sender(url, reports.append)
        sender.send({"alert": "gap"})
        sender.close()
    assert len(got) == 3
    assert reports == [
        "alert `gap` was not delivered: status 302 to /elsewhere, and redirects are not followed"
    ]


def test_a_receiver_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who sends never waits; what is dropped or left at the end is said."""
    monkeypatch.setattr(alerts, "_MOST_WAITING", 2)
    monkeypatch.setattr(alerts, "_SECONDS", 2.0)
    reports: list[str] = []
    with receiver([0, 0, 0, 0]) as (url, got):
        sender = Sender(url, reports.append)
        sender.send({"alert": "gap", "number": 1})
        until(lambda: bool(got), what="the first one")
        for number in (2, 3, 4):
            sender.send({"alert": "gap", "number": number})
        assert reports == ["alert `gap` is dropped: 2 wait already"]
        sender.close()
    until(lambda: "alerts" not in {one.name for one in threading.enumerate()}, what="its thread")
    assert reports == [
        "alert `gap` is dropped: 2 wait already",
        "3 alerts were not delivered before the end",
    ]
