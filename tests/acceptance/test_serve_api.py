"""The API beside what the attacks and the pages use of it: what it says is what the CLI says."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from policy.manifests import from_dicts
from policy.store import Store
from tests.support import serving
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """Two full nodes with a pod each, one pod that waits, and an environment."""
    path = str(tmp_path_factory.mktemp("api") / "policy.db")
    shutil.copy(sqlite_template, path)
    objects = [a_node("n0"), a_node("n1"), a_pod("low-0", node="n0"), a_pod("low-1", node="n1")]
    with Store.open(path) as store:
        found = from_dicts([*objects, a_pod("high", priority=9)])
        store.record.import_objects("default", found, at_ms=serving.NOW_MS, source="test")
        store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.36")
    return path


@pytest.fixture(scope="module")
def service(db: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    started = serving.serve(db, tmp_path_factory.mktemp("served"))
    started.ready()
    yield started
    assert started.stop() == 0


def a_node(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": {"cpu": "1", "memory": "1Gi", "pods": "10"}},
    }


def a_pod(name: str, *, node: str = "", priority: int = 0) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
            ],
        },
        "spec": {
            "priority": priority,
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def what_if(service: Serving, **body: Any) -> httpx.Response:
    return service.client.post(
        f"{service.url}/api/v1/what-if", json={"environment": "prod", **body}
    )


def by_cli(db: str, *options: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "policy",
            "what-if",
            *options,
            "--db",
            db,
            "--env",
            "prod",
            "--output",
            "json",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def plain(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the digest, which is of the instant as well."""
    return [{k: v for k, v in step.items() if k != "digest"} for step in steps]


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({}, []),
        ({"pods": ["shop/high"], "depth": 1}, ["shop/high", "--depth", "1"]),
        ({"removed_nodes": ["n0"]}, ["--remove-node", "n0"]),
        ({"priority_classes": {"gold": 100}}, ["--priority-class", "gold=100"]),
    ],
)
def test_what_if_is_what_the_command_shows(
    service: Serving, db: str, body: dict[str, Any], options: list[str]
) -> None:
    found = what_if(service, **body)
    assert found.status_code == 200, found.text
    assert plain(found.json()["steps"]) == plain(by_cli(db, *options))


def test_what_if_records_nothing(service: Serving, db: str) -> None:
    """A pod of a manifest is decided with those that wait; the record stays as it was."""
    supposed = {k: v for k, v in a_pod("other", priority=5).items() if k != "kind"}
    found = what_if(service, manifests=[supposed]).json()
    assert next((s["pod"], s["outcome"], s["node"], s["depth"]) for s in found["steps"]) == (
        "shop/other",
        "preempt",
        "n0",
        1,
    )
    with Store.open(db) as store:
        assert store.read.decisions("default") == []


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"removed_nodes": ["n9"]}, 409, "there is no node `n9` in the cluster"),
        ({"pods": ["shop/none"]}, 409, "shop/none"),
        ({"manifests": [{"kind": "Node", "metadata": {"name": "x"}}]}, 400, "not that of a pod"),
        ({"depth": 0}, 400, "depth"),
        ({"environment": "none"}, 404, "none"),
    ],
)
def test_what_if_says_what_is_wrong(
    service: Serving, body: dict[str, Any], status: int, detail: str
) -> None:
    found = what_if(service, **body)
    assert (found.status_code, found.headers["content-type"]) == (
        status,
        "application/problem+json",
    )
    assert detail in found.json()["detail"]


def activated(service: Serving, key: str, **body: str) -> httpx.Response:
    return service.client.post(
        f"{service.url}/api/v1/environments/prod/activations",
        json=body,
        headers={"Idempotency-Key": key},
    )


def test_a_write_with_a_key_is_done_once(service: Serving) -> None:
    """The same key gives the first answer; with another body it is refused."""
    change = {"rules": "kube-1.20", "reason": "for a test"}
    first, again = activated(service, "one", **change), activated(service, "one", **change)
    other = activated(service, "one", **{**change, "reason": "another"})
    # Without a key, or with a new one, it is a second activation of the same rules.
    second = activated(service, "two", **change)
    assert [r.status_code for r in (first, again, other, second)] == [201, 201, 422, 409]
    assert again.json() == first.json()
    path = f"{service.url}/api/v1/environments/prod/rollback"
    back, once_more = (
        service.client.post(path, json={"reason": "back"}, headers={"Idempotency-Key": "one"})
        for _ in range(2)
    )
    assert [r.status_code for r in (back, once_more)] == [201, 201]
    found = service.get("/api/v1/environments/prod").json()["activations"]
    assert [a["rule_set"] for a in found] == ["kube-1.36", "kube-1.20", "kube-1.36"]


def test_a_write_that_failed_may_be_sent_again(service: Serving) -> None:
    """A refusal is not kept under its key."""
    wrong = activated(service, "three", rules="none", reason="x")
    right = activated(service, "three", rules="kube-1.27", reason="x")
    assert [wrong.status_code, right.status_code] == [404, 201]
    path = f"{service.url}/api/v1/environments/prod/rollback"
    assert service.client.post(path, json={"reason": "back"}).status_code == 201


def test_a_key_has_a_length(service: Serving) -> None:
    assert activated(service, "x" * 256, rules="kube-1.27", reason="x").status_code == 400


def test_the_document_names_exports_and_events(service: Serving) -> None:
    """What answers in parts is described like the rest, and answers as described."""
    paths = service.get("/api/v1/openapi.json").json()["paths"]
    told = {
        path: list(paths[path]["get"]["responses"]["200"]["content"])
        for path in ("/api/v1/export/decisions", "/api/v1/events")
    }
    found: dict[str, list[str]] = {"/api/v1/export/decisions": [], "/api/v1/events": []}
    for path, kinds in found.items():
        with service.client.stream("GET", service.url + path) as answer:
            kinds.append(answer.headers["content-type"].partition(";")[0])
    assert found == told
    write = paths["/api/v1/environments/{name}/rollback"]["post"]
    assert "Idempotency-Key" in [p["name"] for p in write["parameters"]]


def test_a_recorded_simulation_has_a_page(service: Serving, db: str) -> None:
    """It is the page that the command writes; its policy lets its own style sheet in."""
    trace = Path(__file__).parents[2] / "examples" / "simulation" / "trace"
    command = [sys.executable, "-m", "policy", "simulate", str(trace), "--rules", "kube-1.36"]
    written = subprocess.run(
        [*command, "--db", db, "--output", "html"], capture_output=True, text=True, check=True
    ).stdout
    listed = service.get("/simulations").text
    number = listed.partition('<a href="/simulations/')[2].partition('"')[0]
    page = service.get(f"/simulations/{number}")
    assert (page.status_code, page.text.strip()) == (200, written.strip())
    assert "style-src 'sha256-" in page.headers["content-security-policy"]
    assert service.get("/simulations/999999999999999999999999").status_code == 404


@pytest.mark.parametrize("path", ["/extender/bind", "/extender/prod/Preempt", "/extender//preempt"])
def test_a_verb_that_is_unknown_is_explained(service: Serving, path: str) -> None:
    """The text is what a pod's condition shows."""
    answer = service.post(path, "{}")
    assert (answer.status_code, "the verbs `filter`" in answer.json()["help"]) == (404, True)
