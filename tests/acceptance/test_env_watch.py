"""Processes that keep deciding while rule files are activated, broken and rolled back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from policy.cli.app import cli
from policy.rules import RuleSet
from policy.store import Cause, Store
from tests.contract.builders import NOW, a_node, a_pod

ROUNDS = 200
ROOT = Path(__file__).parents[2]
RULES = """\
apiVersion: policy/v1
kind: PreemptionRules
metadata: {{name: changing}}
extends: kube-1.35
spec:
  victims:
    maxVictims: {limit}
"""


def command(*arguments: str) -> int:
    """One command line; the exit status."""
    result = CliRunner().invoke(cli, list(arguments), standalone_mode=False)
    return 1 if result.exception is not None else int(result.return_value)


@dataclass(frozen=True)
class Watching:
    """A process that keeps deciding, and the file of what it prints."""

    process: subprocess.Popen[bytes]
    out: Path

    def told_to_stop(self) -> tuple[int, str, str]:
        """Its exit status, and what it printed."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(timeout=60)
        return status, self.out.read_text(), self.out.with_suffix(".err").read_text()


@pytest.fixture
def watcher(database_url: str, tmp_path: Path):
    """Starts `policy run --watch` in a process of its own; ends all of them after the test."""
    started: list[Watching] = []

    def start(*arguments: str) -> Watching:
        line = [sys.executable, "-m", "policy", "run", "--watch", "--interval", "0.02"]
        # Files, because nobody reads a pipe while the process runs.
        out = tmp_path / f"{len(started)}.out"
        with out.open("w") as stdout, out.with_suffix(".err").open("w") as stderr:
            process = subprocess.Popen(
                [*line, "--db", database_url, "--output", "jsonl", *arguments],
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stdout=stdout,
                stderr=stderr,
            )
        started.append(Watching(process, out))
        return started[-1]

    yield start
    for watching in started:
        if watching.process.poll() is None:
            watching.process.kill()
            watching.process.wait()


def add(store: Store, *objects) -> None:
    changes = [(type(o).__name__, f"{o.metadata.namespace}/{o.metadata.name}", o) for o in objects]
    store.record.change("default", changes, at_ms=NOW, source="test", cause=Cause.LIVE)


def wait_for(store: Store, decisions: int, *, of: str = "id") -> None:
    """Until so many decisions are recorded, or decisions of so many pods."""
    deadline = time.monotonic() + 60
    found = 0
    while found < decisions:
        with store.sql(
            f"SELECT count(DISTINCT {of}) FROM decisions", trust_connection=True
        ) as rows:
            found = next(iter(rows))[0]
        assert time.monotonic() < deadline, found
        time.sleep(0.01)


def test_every_decision_was_made_by_what_was_active(database_url, watcher, tmp_path):
    """Two processes share the work; 200 times rules are activated, broken and rolled back.

    In the order of the ledger, each decision has the digest of the last activation before it, and
    every pod is decided.
    """
    file = tmp_path / "rules.yaml"
    env = ("--db", database_url)
    with Store.open(database_url) as store:
        nodes = [a_node(f"n{i}", cpu="1000") for i in range(20)]
        store.record.import_objects("default", nodes, at_ms=NOW, source="dump")
        assert command("env", "create", "prod", *env) == 0
        file.write_text(RULES.format(limit=1))
        assert command("env", "activate", "prod", str(file), "--reason", "first", *env) == 0
        processes = [watcher("--env", "prod") for _ in range(2)]
        statuses = Counter()
        for i in range(ROUNDS):
            add(store, a_pod(f"shop/pod-{i:03d}"))
            wait_for(store, i - 2, of="preemptor")  # neither side runs away from the other
            if i % 3 == 0:
                file.write_text(RULES.format(limit=i + 2))
                line = ("activate", "prod", str(file))
            elif i % 3 == 1:
                file.write_text(RULES.format(limit=f"'{i}'"))
                line = ("activate", "prod", str(file))
            else:
                line = ("rollback", "prod")
            statuses[i % 3, command("env", *line, "--reason", f"round {i}", *env)] += 1
        wait_for(store, ROUNDS, of="preemptor")
        results = [process.told_to_stop() for process in processes]
        decided = store.read.decisions("default")
        query = """
            SELECT l.kind, l.subject_digest, r.digest
            FROM ledger l
            LEFT JOIN decisions d ON d.id = l.decision_id
            LEFT JOIN rule_sets r ON r.id = d.rule_set_id
            WHERE l.kind IN ('activation', 'decision') ORDER BY l.sequence
        """
        with store.sql(query, trust_connection=True) as rows:
            entries = list(rows)
        verified = store.ledger.verify()
    assert statuses == {(0, 0): 67, (1, 1): 67, (2, 0): 66}
    active, wrong = None, []
    for kind, subject, digest in entries:
        if kind == "activation":
            active = subject
        elif digest != active:
            wrong.append((digest, active))
    assert wrong == []
    # How many depends on how the processes take turns; one alone would prove nothing.
    assert len({row.rule_set_digest for row in decided}) > 3
    assert {row.environment for row in decided} == {"prod"}
    assert {row.preemptor for row in decided} == {f"shop/pod-{i:03d}" for i in range(ROUNDS)}
    assert [(status, "Traceback" in err) for status, _, err in results] == [(0, False)] * 2
    assert sum(out.count("\n") for _, out, _ in results) == len(decided)
    assert verified.ok


def test_a_pod_that_failed_is_tried_again_when_something_changes(database_url, watcher):
    """A pod waits without being decided over and over; a new node, and it is placed."""
    with Store.open(database_url) as store:
        objects = [a_node("n1", cpu="1"), a_pod("shop/big", cpu="4")]
        store.record.import_objects("default", objects, at_ms=NOW, source="dump")
        process = watcher()
        wait_for(store, 1)
        add(store, a_pod("shop/small", cpu="500m"))
        wait_for(store, 2)
        time.sleep(0.3)
        tried = [(row.preemptor, row.outcome) for row in store.read.decisions()]
        store.record.import_objects("default", [a_node("n2", cpu="8")], at_ms=NOW, source="dump")
        wait_for(store, 3)
        status, _, _ = process.told_to_stop()
        found = [(row.preemptor, row.outcome) for row in store.read.decisions()]
    assert tried == [("shop/small", "bind"), ("shop/big", "no-candidate")]
    assert (status, found) == (0, [("shop/big", "bind"), *tried])


def test_an_activation_is_a_reason_to_try_again(database_url, watcher):
    """Under rules that spare everybody a pod waits; rolled back, it preempts at once."""
    with Store.open(database_url) as store:
        low = a_pod("shop/low", node="n1", cpu="8")
        objects = [a_node("n1"), low, a_pod("shop/high", priority=9, cpu="8")]
        store.record.import_objects("default", objects, at_ms=NOW, source="dump")
        store.record.create_environment("prod", "default", at_ms=NOW, actor="ann")
        for spec in ({}, {"victims": {"eligible": [{"id": "nobody", "verdict": "deny"}]}}):
            rules = RuleSet.load("kube-1.35", overrides=spec)
            store.record.activate(
                "prod",
                rules=rules,
                reason="test",
                source="test",
                at_ms=NOW,
                actor="ann",
            )
        process = watcher("--env", "prod")
        wait_for(store, 1)
        store.record.roll_back("prod", reason="nobody is placed", at_ms=NOW, actor="ann")
        wait_for(store, 2)
        status, _, _ = process.told_to_stop()
        found = [row.outcome for row in store.read.decisions()]
    assert (status, found) == (0, ["preempt", "no-candidate"])
