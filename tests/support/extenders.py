"""An extender to talk to over HTTP, and the small clusters that are talked about."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from policy import Snapshot
from policy.decision.model import Decision
from policy.extenders.client import HttpExtenders
from policy.preemption.decide import decide
from policy.rules import RuleSet

NOW = datetime(2026, 11, 21, 7, 20, tzinfo=UTC)
Manifest = dict[str, Any]
Reply = tuple[int, bytes]
Behaviour = Callable[[Manifest], Reply]


def json_reply(value: Any, status: int = 200) -> Reply:
    return status, json.dumps(value).encode()


class Server:
    """An extender whose verbs are functions; it keeps what it was asked."""

    def __init__(self) -> None:
        self.verbs: dict[str, Behaviour] = {}
        self.asked: list[tuple[str, Manifest]] = []
        self.headers: list[dict[str, str]] = []
        self.release = threading.Event()  #: set when the test is over, for answers that hang
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                verb = self.path.rpartition("/")[2]
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request = json.loads(body)
                outer.asked.append((verb, request))
                outer.headers.append(dict(self.headers))
                status, reply = outer.verbs[verb](request)
                self.send_response(status)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *_: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # hung-up clients
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/scheduler"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.release.set()
        self._http.shutdown()
        self._http.server_close()

    @property
    def verbs_asked(self) -> list[str]:
        return [verb for verb, _ in self.asked]


def extender(server: Server, *verbs: str, **settings: Any) -> Manifest:
    """Configuration of an extender that is asked for these verbs."""
    return {
        "urlPrefix": f"{server.url}/",
        **{f"{verb}Verb": verb for verb in verbs},
        "httpTimeoutSeconds": 5,
        "nodeCacheCapable": True,
        **settings,
    }


def rules_with(*extenders: Manifest, base: str = "kube-1.35") -> RuleSet:
    return RuleSet.load(base, overrides={"extenders": list(extenders)})


def node(name: str, cpu: str = "4") -> Manifest:
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    }


def pod(name: str, *, on: str = "", cpu: str = "1", priority: int = 0, **requests: str) -> Manifest:
    wanted = {"cpu": cpu, **{k.replace("_", "/"): v for k, v in requests.items()}}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"},
        "spec": {
            "nodeName": on,
            "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": wanted}}],
        },
        "status": {
            "phase": "Running" if on else "Pending",
            "startTime": "2026-11-20T00:00:00Z" if on else None,
        },
    }


FULL = (
    node("n1"),
    node("n2"),
    pod("a", on="n1", cpu="4", priority=1),
    pod("b", on="n2", cpu="4", priority=2),
    pod("new", cpu="4", priority=10),
)
ROOMY = (node("n1"), node("n2"), node("n3"), pod("new"))


def decided(rules: RuleSet, *objects: Manifest) -> Decision:
    snapshot = Snapshot.from_manifests(objects, now=NOW)
    return decide(snapshot, rules, "shop/new", extenders=HttpExtenders())


def passing(*names: str, **failed: dict[str, str]) -> Behaviour:
    """A filter that leaves these nodes; failed: FailedNodes=..., FailedAndUnresolvableNodes=..."""
    return lambda _: json_reply({"NodeNames": list(names), **failed})


def keeping(**victims: list[str]) -> Behaviour:
    """A preempt verb that leaves these victims on these nodes."""
    return lambda _: json_reply(
        {
            "NodeNameToMetaVictims": {
                n: {"Pods": [{"UID": f"uid-{p}"} for p in pods], "NumPDBViolations": 0}
                for n, pods in victims.items()
            }
        }
    )


def broken(_: Manifest) -> Reply:
    return json_reply({"Error": "boom"}, 500)
