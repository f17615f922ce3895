"""A service in a process of its own, and schedulers that call it."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx

from policy.manifests import from_dicts
from policy.rules import RuleSet
from policy.server.security.numbers import Numbered, Numbers
from policy.server.security.tokens import TokenFile
from policy.store import Proofs, Store

_CALLS = Path(__file__).parents[1] / "data" / "extender" / "calls-1.35.json.gz"
NOW_MS = 1_790_000_000_000


@cache
def recorded_calls() -> dict[str, dict[str, Any]]:
    """By run: `state` (objects), `exchanges` (n, phase, verb, request), `nominated`."""
    found: dict[str, dict[str, Any]] = json.loads(gzip.decompress(_CALLS.read_bytes()))
    return found


def preempts(run: str) -> list[dict[str, Any]]:
    return [one for one in recorded_calls()[run]["exchanges"] if one["verb"] == "preempt"]


def filled(url: str, *, run: str = "b", rules: str = "kube-1.35") -> str:
    """A database with the cluster of a run, and environment `prod`."""
    with Store.open(url) as store:
        objects = from_dicts(recorded_calls()[run]["state"])
        store.record.import_objects("default", objects, at_ms=NOW_MS, source="recording")
        store.record.create_environment("prod", "default", at_ms=NOW_MS, actor="test")
        activate(store, rules)
    return url


def activate(
    store: Store,
    rules: str,
    *,
    environment: str = "prod",
    reason: str = "test",
    proofs: Proofs | None = None,
) -> None:
    written: dict[str, Any] = {"at_ms": NOW_MS, "actor": "test", "proofs": proofs}
    store.record.activate(
        environment, rules=RuleSet.load(rules), reason=reason, source=rules, **written
    )


def shown(tokens: str | Path, of: Numbered, number: int) -> int:
    """A number of the record, as tokens of that file see it that are limited to namespaces."""
    _, key = TokenFile(Path(tokens)).read()
    return Numbers(key).shown(of, number)


@dataclass
class Serving:
    """A running service; `stop` ends it by SIGTERM and gives its exit status."""

    process: subprocess.Popen[str]
    url: str
    log: Path
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=60))

    def post(self, path: str, body: str | bytes | dict[str, Any], **more: Any) -> httpx.Response:
        content = json.dumps(body) if isinstance(body, dict) else body
        return self.client.post(self.url + path, content=content, **more)

    def get(self, path: str, **more: Any) -> httpx.Response:
        return self.client.get(self.url + path, **more)

    def preempt(self, body: str | bytes | dict[str, Any]) -> dict[str, list[str]]:
        """The answer to a call: uids by node. The answer is checked to be of the exact form."""
        answer = self.post("/extender/preempt", body)
        assert answer.status_code == 200, answer.text
        document = answer.json()
        assert list(document) == ["NodeNameToMetaVictims"]
        found = {}
        for node, victims in document["NodeNameToMetaVictims"].items():
            assert sorted(victims) == ["NumPDBViolations", "Pods"]
            found[node] = [pod["UID"] for pod in victims["Pods"]]
        return found

    def ready(self) -> None:
        """Wait until it can decide."""
        for _ in range(600):
            if self.get("/readyz").status_code == 200:
                return
            time.sleep(0.1)
        raise AssertionError(self.log.read_text())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)

    def stop(self) -> int:
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


def children(pid: int) -> list[int]:
    """The processes that a process has started, and that have not ended."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it ends meanwhile
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
            if int(parent) == pid and state != "Z":
                found.append(int(stat.parent.name))
    return found


def serve(
    db: str,
    folder: Path,
    *options: object,
    environment: str = "prod",
    process_group: int | None = None,
) -> Serving:
    """Start `policy serve` on a free port, and wait until it listens.

    Calls have 30 s where no deadline is given: a machine that stands still for a second is no
    reason for another answer. process_group: 0 for one of its own, as a shell makes for a command.
    """
    log = folder / f"serve-{time.monotonic_ns()}.log"
    command = [sys.executable, "-m", "policy", "serve", "--db", db, "--port", "0"]
    if environment:
        command += ["--environment", environment]
    if "--deadline" not in options:
        command += ["--deadline", "30"]
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [*command, *map(str, options)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=stderr,
            stderr=stderr,
            text=True,
            process_group=process_group,
        )
    for _ in range(600):
        found = re.search(r"running on (https?)://[^ ]+:(\d+)", log.read_text())
        if found:
            return Serving(process, f"{found[1]}://127.0.0.1:{found[2]}", log)
        if process.poll() is not None:
            break
        time.sleep(0.1)
    raise AssertionError(log.read_text())
