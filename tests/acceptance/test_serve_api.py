"""The API beside what the attacks and the pages use of it: what it says is what the CLI says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin

import httpx
import pytest

from policy.manifests import from_dicts
from policy.store import Store
from tests.support import serving
from tests.support.live import LIVE
from tests.support.serving import Serving


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """Two full nodes with a pod each, one pod that waits, and an environment.

    And a node with a pod without an owner, which is never a victim.
    """
    path = str(tmp_path_factory.mktemp("api") / "policy.db")
    shutil.copy(sqlite_template, path)
    objects = [a_node("n0"), a_node("n1"), a_pod("low-0", node="n0"), a_pod("low-1", node="n1")]
    bare = a_pod("bare", node="n2", priority=99)
    del bare["metadata"]["ownerReferences"]
    objects += [a_node("n2"), bare]
    with Store.open(path) as store:
        found = from_dicts([*objects, a_pod("high", priority=9)])
        store.record.import_objects("default", found, at_ms=serving.NOW_MS, source="test")
        store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.36")
    recorded = [str(LIVE / f"wave-kubelet.{end}.gz") for end in ("initial.json", "jsonl")]
    command = [sys.executable, "-m", "policy", "import", "--db", path, "--cluster", "real"]
    subprocess.run([*command, *recorded], check=True, capture_output=True)
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
        ({"removed_nodes": ["n9"]}, 409, "no node `n9` in cluster `default`"),
        ({"pods": ["shop/none"]}, 409, "shop/none"),
        (
            {"manifests": [{"kind": "Node", "metadata": {"name": "x"}}]},
            400,
            "body: `manifests[0]`: not that of a pod: it holds an object of kind `Node`",
        ),
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


def a_list(*items: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


def test_pods_of_a_list_wait_as_well(service: Serving) -> None:
    """`kubectl get pods -o json` gives a List."""
    found = what_if(
        service, manifests=[a_list(a_pod("a", priority=5), a_pod("b", priority=5))], depth=1
    ).json()
    assert [s["pod"] for s in found["steps"] if s["depth"] == 1] == ["shop/a", "shop/b"]


def test_pods_that_do_not_come_back_are_named(service: Serving) -> None:
    """What a removed node takes with it is said, also where nothing has to be decided for it."""
    found = what_if(service, removed_nodes=["n2"]).json()
    assert (found["steps"], found["lost"]) == ([], ["shop/bare"])


NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "x"}}
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}
BROKEN = {"metadata": {"name": "x"}, "spec": {"priority": "high"}}


@pytest.mark.parametrize(
    ("manifests", "detail"),
    [
        (
            [a_list(a_pod("a", priority=5), NODE)],
            "body: `manifests[0]`: not that of a pod: it holds an object of kind `Node`",
        ),
        (
            [a_pod("a", priority=5), a_list(a_pod("b", priority=5), DEPLOYMENT)],
            "body: `manifests[1]`: not that of a pod: it holds an object of kind `Deployment`",
        ),
        ([a_list()], "body: `manifests[0]`: not that of a pod: it holds nothing"),
        (
            [a_pod("a", priority=5), a_list(a_pod("a", priority=5))],
            "body: `manifests[1]`: pod `shop/a` is given twice",
        ),
        (
            [a_pod("a", priority=5), BROKEN],
            "body: `manifests[1]`: Pod x: spec.priority: expected a whole number, got the"
            " string `high`",
        ),
    ],
)
def test_a_manifest_that_holds_more_than_pods_is_refused(
    service: Serving, manifests: list[dict[str, Any]], detail: str
) -> None:
    """Nothing of a manifest is left out of the answer silently."""
    found = what_if(service, manifests=manifests)
    assert (found.status_code, found.json()["detail"]) == (400, detail)


def decided(service: Serving, **body: Any) -> httpx.Response:
    return service.client.post(f"{service.url}/api/v1/decide", json={"environment": "prod", **body})


def test_the_pod_of_a_list_is_decided(service: Serving) -> None:
    one, alone = (
        decided(service, manifest=m).json()
        for m in (a_list(a_pod("a", priority=5)), a_pod("a", priority=5))
    )
    assert (
        (one["preemptor"], one["node"]) == (alone["preemptor"], alone["node"]) == ("shop/a", "n0")
    )


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        (
            {"manifest": a_list(a_pod("a", priority=5), a_pod("b", priority=5))},
            400,
            "body: `manifest`: it holds 2 pods, and one is decided",
        ),
        ({"manifest": a_pod("high", priority=5)}, 409, "the cluster has a pod `shop/high`"),
        ({"pod": "none"}, 409, "no pod `default/none` in cluster `default`"),
        (
            {"manifest": BROKEN},
            400,
            "body: `manifest`: Pod x: spec.priority: expected a whole number, got the"
            " string `high`",
        ),
    ],
)
def test_decide_says_what_is_wrong(
    service: Serving, body: dict[str, Any], status: int, detail: str
) -> None:
    found = decided(service, **body)
    assert (found.status_code, found.json()["detail"]) == (status, detail)


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


def test_a_write_with_no_key_where_one_is_named_is_not_done(service: Serving) -> None:
    """An empty one is a variable that was never set; of several none is the one that counts."""
    path = f"{service.url}/api/v1/environments/prod/rollback"
    before = service.get("/api/v1/environments/prod").json()
    wanted = "`Idempotency-Key` has 1 to 255 printable characters"
    for keys, told in (
        ([""], wanted),
        (["x" * 256], wanted),
        (["one", "two"], "`Idempotency-Key` is there 2 times"),
    ):
        headers = [("Idempotency-Key", key) for key in keys]
        answer = service.client.post(path, json={"reason": "back"}, headers=headers)
        assert (answer.status_code, answer.json()["detail"]) == (400, told)
    assert service.get("/api/v1/environments/prod").json() == before


def test_a_write_that_failed_may_be_sent_again(service: Serving) -> None:
    """A refusal is not kept under its key."""
    wrong = activated(service, "three", rules="none", reason="x")
    right = activated(service, "three", rules="kube-1.27", reason="x")
    assert [wrong.status_code, right.status_code] == [404, 201]
    path = f"{service.url}/api/v1/environments/prod/rollback"
    assert service.client.post(path, json={"reason": "back"}).status_code == 201


def conditional(
    service: Serving, form: str, body: dict[str, str], *tags: str, **headers: str
) -> httpx.Response:
    """A change of prod with `If-Match`, once for each of the tags."""
    return service.client.post(
        f"{service.url}/api/v1/environments/prod/{form}",
        json=body,
        headers=[*(("If-Match", tag) for tag in tags), *headers.items()],
    )


@pytest.mark.parametrize(
    ("form", "body"),
    [
        ("activations", {"rules": "kube-1.27", "reason": "x"}),
        ("rollback", {"reason": "x"}),
    ],
)
def test_a_change_of_what_was_read_is_refused_if_that_has_changed(
    service: Serving, form: str, body: dict[str, str]
) -> None:
    """By any tag but that of the environment as it is; the answer says what is active by now."""
    path = "/api/v1/environments/prod"
    old = service.get(path).headers["etag"]
    assert activated(service, f"before {form}", rules="kube-1.30", reason="x").status_code == 201
    now = service.get(path)
    newest = now.json()["activations"][0]
    for tags in ((old,), ("",), ("x",), (f"W/{now.headers['etag']}",), (old, '"other"')):
        refused = conditional(service, form, body, *tags)
        assert (refused.status_code, refused.json()) == (
            412,
            {
                "type": "/api/v1/problems/changed",
                "title": "What the request is about has changed since it was read",
                "status": 412,
                "detail": "`If-Match`: environment `prod` has changed: `kube-1.30` is active since"
                f" {newest['at']}, activated by `loopback`",
                "help": "nothing was activated; look at the environment as it is now before you"
                " try again",
            },
        )
    assert service.get(path).json() == now.json()
    done = conditional(service, form, body, f"{old}, {now.headers['etag']}")
    assert (done.status_code, done.json()["before"]) == (201, newest["digest"])


def test_a_condition_that_held_once_holds_for_its_key(service: Serving) -> None:
    """The same request with the same key is answered alike, though the `ETag` is an older one."""
    tag = service.get("/api/v1/environments/prod").headers["etag"]
    body = {"rules": "kube-1.33", "reason": "x"}
    key = {"Idempotency-Key": "with a condition"}
    first, again = (conditional(service, "activations", body, tag, **key) for _ in range(2))
    assert [first.status_code, again.status_code] == [201, 201]
    assert first.json() == again.json()
    other = {"Idempotency-Key": "with another condition"}
    refused = conditional(service, "rollback", {"reason": "x"}, tag, **other)
    # It did nothing, so its key is free.
    done = conditional(service, "rollback", {"reason": "x"}, "*", **other)
    assert [refused.status_code, done.status_code] == [412, 201]


def test_a_key_has_a_length(service: Serving) -> None:
    assert activated(service, "x" * 256, rules="kube-1.27", reason="x").status_code == 400


def test_an_export_of_what_is_not_there_is_an_error(service: Serving) -> None:
    """And no answer that ends early."""
    answer = service.get("/api/v1/export/decisions", params={"cluster": "nowhere"})
    assert (answer.status_code, answer.json()["status"]) == (404, 404)


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


def test_sql_answers_what_json_has_no_word_for(service: Serving) -> None:
    """Numbers without end and bytes, as the command line writes them."""
    body = {"sql": "SELECT 1e999 AS a, -1e999 AS b, x'41ff' AS c, 1.5 AS d, NULL AS e"}
    answer = service.client.post(f"{service.url}/api/v1/sql", json=body).json()
    assert answer["rows"] == [["Infinity", "-Infinity", "A\\xff", 1.5, None]]


def test_a_recorded_simulation_has_a_page(service: Serving, db: str) -> None:
    """As the command writes it, with the menu of all pages round it."""
    trace = Path(__file__).parents[2] / "examples" / "simulation" / "trace"
    command = [sys.executable, "-m", "policy", "simulate", str(trace), "--rules", "kube-1.36"]
    written = subprocess.run(
        [*command, "--db", db, "--output", "html"], capture_output=True, text=True, check=True
    ).stdout
    listed = service.get("/simulations").text
    assert '<td><a href="/simulations">simulated</a></td>' in service.get("/").text
    number = listed.partition('<a href="/simulations/')[2].partition('"')[0]
    page = service.get(f"/simulations/{number}")
    shown = page.text.partition('<div class="simulation">')[2].rpartition("</div>")[0]
    report = written.partition("<main>")[2].partition("</main>")[0]
    assert (page.status_code, shown.strip()) == (200, report.strip())
    assert page.text.partition("<main")[0] == (
        service.get("/simulations")
        .text.partition("<main")[0]
        .replace("<title>Simulations", f"<title>Simulation {number}")
    )
    ways = re.findall(r'href="([^"#]+)"', page.text.partition("<main")[2])
    assert (ways[0], len(ways)) == ("/simulations", 2)
    assert [service.get(link).status_code for link in ways] == [200, 200]
    assert page.text.count('<time datetime="2000-01-01T00:00:00Z"') == 1
    assert service.get("/simulations/999999999999999999999999").status_code == 404


@pytest.mark.parametrize("path", ["/extender/bind", "/extender/prod/Preempt", "/extender//preempt"])
def test_a_verb_that_is_unknown_is_explained(service: Serving, path: str) -> None:
    """The text is what a pod's condition shows."""
    answer = service.post(path, "{}")
    assert (answer.status_code, "the verbs `filter`" in answer.json()["help"]) == (404, True)


def listed(service: Serving, **wanted: str | int) -> list[dict[str, Any]]:
    """All pages of a list of observations."""
    found: list[dict[str, Any]] = []
    url = f"{service.url}/api/v1/observations?{urlencode(wanted)}"
    while url:
        answer = service.client.get(url)
        assert answer.status_code == 200, answer.text
        found += answer.json()["observations"]
        url = answer.links["next"]["url"] if "next" in answer.links else ""
        url = urljoin(service.url, url) if url else ""
    return found


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"verdict": "tie"},
        {"pod": "team-a/c15-p17"},
        {"preemptor": "team-b/c15-pre26"},
        {"victim": "team-a/c15-p17"},
        {"namespace": "default"},
        {"node": "c15-n004"},
        {"confidence": "likely"},
        {"since": "2026-11-22T00:00:00Z"},
        {"until": "2026-11-22T00:00:00Z"},
    ],
)
def test_observations_are_what_the_command_shows(
    wanted: dict[str, str], service: Serving, db: str
) -> None:
    """With the same filters; in pages of two as well."""
    options = [part for name, value in wanted.items() for part in (f"--{name}", value)]
    shown = observed_by_cli(db, *options)
    assert listed(service, **wanted) == listed(service, limit=2, **wanted) == shown


def observed_by_cli(db: str, *options: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "policy", "observed", "--db", db, "--output", "json"]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_one_observation(service: Serving) -> None:
    """With the decision made again: the same node and victims; unknown ones are not found."""
    row = next(one for one in listed(service) if one["verdict"] == "same")
    shown = service.get(f"/api/v1/observations/{row['id']}").json()
    again = shown["decided_again"]
    statuses = [
        service.get(f"/api/v1/observations/{number}").status_code
        for number in ("99", "x", "1" * 30)
    ]
    assert ({key: shown[key] for key in row}, statuses) == (row, [404, 404, 404])
    assert (again["node"], [victim["pod"] for victim in again["victims"]]) == (
        row["node"],
        [victim["victim"] for victim in row["victims"]],
    )


def test_the_first_page_counts_observations(service: Serving) -> None:
    """By verdict, each with a link to its list."""
    page = service.get("/").text
    assert [
        f'<a href="/observed?cluster=real&amp;verdict={name}">' in page
        for name in ("tie", "same", "other")
    ] == [
        True,
        True,
        False,
    ]


def test_the_page_of_a_node_shows_what_its_pods_hold(service: Serving) -> None:
    """A bar for each resource, in words as well; a node that is not there is said to be none."""
    page = service.get("/nodes/n0").text
    assert "cpu: 1 of 1 requested, 0 free" in page
    assert "memory: 0 GiB of 1 GiB requested, 1 GiB free" in page
    assert "pods: 1 of 10 requested, 9 free" in page
    assert "<title>shop/low-0: 1</title>" in page
    assert "has no node of this name" in service.get("/nodes/nowhere").text
