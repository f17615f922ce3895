"""Markup that an import, a rule file or an operator brings in is text on every page."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import pytest
from playwright.sync_api import Browser

from policy.cli.app import run
from tests.support import serving
from tests.support.serving import Serving


def evil(mark: str) -> str:
    """What runs where it is taken for markup, or is a template of ours; the mark says whose."""
    runs = f"window.owned='{mark}'"
    return (
        f'<img src=x onerror="{runs}"><script>{runs}</script><svg onload={runs}>'
        f"'\"--></style></textarea></title>{{{{7*7}}}} at:{mark};"
    )


SHOWN = {"owner", "cluster", "environment", "reason", "activation"}
"""Whose text some page shows; the others are in manifests, which no page shows."""

ELEMENTS = """() => [...document.querySelectorAll('*')].filter(e =>
    ['IMG', 'IFRAME', 'OBJECT', 'EMBED', 'BASE'].includes(e.tagName)
    || (e.tagName === 'SCRIPT' && !e.src)
    || [...e.attributes].some(a => a.name.startsWith('on') || /^\\s*javascript:/i.test(a.value)))
    .map(e => e.outerHTML)"""


def a_pod(name: str, node: str, priority: int) -> dict[str, Any]:
    status = {"phase": "Running" if node else "Pending"}
    told = {"reason": evil("status"), "message": evil("status")}
    condition = {"type": "Ready", "status": "False", **told}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": evil("owner"), "uid": "u"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "labels": {"app": name},
            "annotations": {"note": evil("annotation")},
            "ownerReferences": [{**owner, "controller": True}],
        },
        "spec": {
            **({"nodeName": node} if node else {}),
            "priority": priority,
            "containers": [
                {
                    "name": "c",
                    "image": evil("image"),
                    "resources": {"requests": {"cpu": "3"}},
                }
            ],
        },
        "status": {**status, **told, "conditions": [condition]},
    }


def a_cluster() -> list[dict[str, Any]]:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1", "annotations": {"note": evil("annotation")}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }
    return [node, a_pod("low", "n1", 1), a_pod("high", "", 100), a_pod("higher", "", 1000)]


RULES = {
    "apiVersion": "policy/v1",
    "kind": "PreemptionRules",
    "metadata": {"name": "evil", "description": evil("description")},
    "extends": "kube-1.36",
    "spec": {
        "eligibility": {
            "insert": [
                {
                    "at": "start",
                    "rule": {
                        "id": "evil",
                        "when": "preemptor.priority > 500",
                        "verdict": "deny",
                        "reason": evil("reason"),
                        "why": evil("why"),
                    },
                }
            ]
        }
    },
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Path:
    """A database whose cluster, environment and rules have markup wherever it gets in."""
    made = tmp_path_factory.mktemp("markup")
    db = made / "policy.db"
    shutil.copy(sqlite_template, db)
    items = {"apiVersion": "v1", "kind": "List", "items": a_cluster()}
    (made / "cluster.json").write_text(json.dumps(items))
    (made / "evil.yaml").write_text(json.dumps(RULES))
    at = ["--db", str(db)]
    rules, cluster = str(made / "evil.yaml"), ["--cluster", evil("cluster")]
    for command in (
        ["import", *at, *cluster, str(made / "cluster.json")],
        ["env", "create", *at, *cluster, evil("environment")],
        ["env", "activate", *at, evil("environment"), rules, "--reason", evil("activation")],
        *(
            ["preempt", *at, *cluster, "--rules", rules, f"shop/{pod}"]
            for pod in ("high", "higher")
        ),
    ):
        assert run(command) == 0
    return made


@pytest.fixture(scope="module")
def service(folder: Path) -> Iterator[Serving]:
    """Without tokens: whoever asks on the loopback address may see everything."""
    started = serving.serve(str(folder / "policy.db"), folder, environment=evil("environment"))
    yield started
    assert started.stop() == 0


STARTS = (
    "/",
    f"/workloads/shop/{quote(evil('owner'), safe='')}",
    f"/decisions?{'&'.join(f'{name}={quote(evil(name))}' for name in ('node', 'preemptor'))}",
    f"/decisions?cluster={quote(evil('cluster'))}",
    f"/sql?q={quote('SELECT owner, 1 AS n FROM victims')}",
    f"/sql?q={quote(evil('query'))}",
    f"/sql?q={quote('SELECT manifest FROM pods')}",
    "/sql?saved=who-preempts-whom",
    f"/{quote(evil('path'), safe='')}",
    f"/login?next={quote(evil('next'))}",
    "/api",
)


def test_no_page_takes_it_for_markup(browser: Browser, service: Serving) -> None:
    """Every page that a link leads to, and some that are typed: nothing runs, nothing is added."""
    page = browser.new_context().new_page()
    troubles: list[str] = []
    page.on("pageerror", lambda error: troubles.append(f"{page.url}: {error}"))
    page.on("dialog", lambda dialog: troubles.append(f"{page.url}: {dialog.message}"))
    page.on(
        "console",
        lambda m: (
            troubles.append(f"{page.url}: {m.text}") if "Content Security" in m.text else None
        ),
    )
    queue = deque(urljoin(service.url, path) for path in STARTS)
    seen = set(queue)
    shapes: dict[str, int] = {}
    marks: set[str] = set()
    while queue:
        url = queue.popleft()
        page.goto(url)
        troubles += [f"{url}: {html}" for html in page.evaluate(ELEMENTS)]
        owned = page.evaluate("window.owned")
        if owned is not None:
            troubles.append(f"{url}: ran the script of {owned}")
        text = page.evaluate("document.documentElement.textContent")
        marks |= set(re.findall(r"\{\{7\*7\}\} at:(\w+);", text))
        for link in page.evaluate("[...document.links].map(a => a.href)"):
            plain = link.partition("#")[0]
            parts = urlsplit(plain)
            # A few of each kind: rule sets and saved queries are all alike.
            shape = "/".join(parts.path.split("/")[:2]) + "?" * bool(parts.query)
            if plain not in seen and plain.startswith(service.url) and shapes.get(shape, 0) < 6:
                if parts.path.startswith(("/api/", "/static/")) or "&format=" in parts.query:
                    continue  # a file, which is no page
                shapes[shape] = shapes.get(shape, 0) + 1
                seen.add(plain)
                queue.append(plain)
    assert troubles == []
    assert marks >= SHOWN, SHOWN - marks


def test_what_programs_are_given_is_no_page(service: Serving, folder: Path, capsys: Any) -> None:
    """JSON and lines of JSON say so, whatever is in them; CSV has the names as they are."""
    paths = (
        "decisions",
        "decisions/1",
        "decisions/2",
        "export/decisions",
        "environments",
        "rule-sets",
        "openapi.json",
    )
    texts = []
    for path in paths:
        answer = service.get(f"/api/v1/{path}")
        assert answer.status_code == 200, path
        kind = answer.headers["content-type"].partition(";")[0]
        assert kind in ("application/json", "application/x-ndjson"), path
        assert answer.headers["x-content-type-options"] == "nosniff", path
        texts.append(answer.text)
    first, *_ = (json.loads(line) for line in texts[3].splitlines())
    assert first["cluster"] == evil("cluster")
    capsys.readouterr()
    query = "SELECT DISTINCT owner FROM victims"
    assert run(["sql", query, "--db", str(folder / "policy.db"), "-o", "csv"]) == 0
    rows = list(csv.reader(capsys.readouterr().out.splitlines()))
    assert rows == [["owner"], [f"ReplicaSet/{evil('owner')}"]]


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("metadata.labels.app", lambda pod: pod["metadata"]["labels"].update(app=evil("x"))),
        ("metadata.name", lambda pod: pod["metadata"].update(name=evil("x"))),
        ("metadata.namespace", lambda pod: pod["metadata"].update(namespace=evil("x"))),
        (
            "spec.containers[0].name",
            lambda pod: pod["spec"]["containers"][0].update(name=evil("x")),
        ),
        ("spec.priorityClassName", lambda pod: pod["spec"].update(priorityClassName=evil("x"))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_has_a_syntax_is_refused(tmp_path: Path, capsys: Any, field: str, change: Any) -> None:
    """Names and labels, as an API server refuses them; the error names the field."""
    pod = a_pod("low", "", 1)
    change(pod)
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(pod))
    assert run(["import", "--db", str(tmp_path / "policy.db"), str(file)]) == 1
    assert f" {field}: `<img" in capsys.readouterr().err


def test_names_of_tokens_have_a_syntax(tmp_path: Path, capsys: Any) -> None:
    tokens = tmp_path / "tokens.json"
    assert run(["token", "create", evil("x"), "--role", "viewer", "--tokens", str(tokens)]) != 0
    assert "cannot be the name of a token" in capsys.readouterr().err
    assert not tokens.exists()
