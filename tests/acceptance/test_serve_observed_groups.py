"""The pages of what a pod group preempted for as one, for those who see all, and for others."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from policy.cli.app import run
from policy.cluster.times import LATEST_NOW
from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from tests.acceptance.commands import Done, Policy
from tests.contract.test_observed_groups import stream
from tests.support import serving
from tests.support.serving import Serving

GROUP = "team-b/train"
VICTIMS = ("team-a/web", "team-b/beta")


def _node(name: str) -> dict[str, Any]:
    room = {"cpu": "4", "memory": "8Gi", "pods": "10"}
    return {"kind": "Node", "apiVersion": "v1", "metadata": {"name": name}} | {
        "status": {"allocatable": room, "capacity": room}
    }


def _pod(key: str, priority: int, *, node: str = "", group: str = "") -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    container = {"name": "main", "resources": {"requests": {"cpu": "4"}}}
    spec: dict[str, Any] = {"containers": [container], "priority": priority}
    status = {"phase": "Running", "startTime": "2026-11-21T07:00:00Z"} if node else {}
    if node:
        spec["nodeName"] = node
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
        "status": status or {"phase": "Pending"},
    }


def recording() -> dict[str, Any]:
    """A group of team-b that takes two nodes, from a pod of team-a and one of its own namespace."""
    group = {
        "kind": "PodGroup",
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "metadata": {"name": "train", "namespace": "team-b"},
        "spec": {"priority": 100, "schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    items = [
        *(_node(name) for name in ("n1", "n2")),
        group,
        _pod(VICTIMS[0], 1, node="n1"),
        _pod(VICTIMS[1], 2, node="n2"),
        *(_pod(f"team-b/train-{i}", 50, group="train") for i in (0, 1)),
    ]
    cluster = {"kind": "List", "apiVersion": "v1", "items": items}
    return {"cluster": cluster, "group": GROUP, "expect": {"deleted": list(VICTIMS)}}


def observed(url: str, folder: Path) -> None:
    """Its preemption, as events tell it; afterwards one member runs, and the other one is gone."""
    record = recording()
    dump, lines = stream(record)
    members = {i["metadata"]["name"]: i for i in dump["items"] if i["kind"] == "Pod"}
    bound = json.loads(json.dumps(members["train-0"]))
    bound["spec"]["nodeName"] = "n1"
    bound["metadata"]["resourceVersion"] = "900"
    gone = json.loads(json.dumps(members["train-1"]))
    gone["metadata"]["resourceVersion"] = "901"
    lines += [{"type": "MODIFIED", "object": bound}, {"type": "DELETED", "object": gone}]
    (folder / "dump.json").write_text(json.dumps(dump))
    (folder / "watch.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = [str(folder / name) for name in ("dump.json", "watch.jsonl")]
    assert run(["import", "--db", url, "--as-is", *files]) == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("groups")
    observed(str(made / "policy.db"), made)
    return made


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, str]:
    """`all` sees everything, `preemptors` the group's namespace, `victims` that of one victim."""
    file = TokenFile(folder / "tokens.json")
    seen = {"all": None, "preemptors": ["team-b"], "victims": ["team-a"], "none": ["empty"]}
    return {
        name: file.create(name, Role.VIEWER, namespaces=spaces, now_ms=1)
        for name, spaces in seen.items()
    }


@pytest.fixture(scope="module")
def service(folder: Path, tokens: dict[str, str]) -> Iterator[Serving]:
    options = ("--tokens", str(folder / "tokens.json"))
    started = serving.serve(str(folder / "policy.db"), folder, *options, environment="")
    started.ready()
    yield started
    assert started.stop() == 0


@pytest.fixture(scope="module")
def own(folder: Path, tokens: dict[str, str]) -> str:
    """The page of the observation for tokens that are limited to namespaces."""
    return f"/observed/{serving.shown(folder / 'tokens.json', Numbered.OBSERVATION, 1)}"


def page(service: Serving, token: str, path: str) -> str:
    """What is between the navigation and the end."""
    answer = service.get(path, headers={"Authorization": f"Bearer {token}"})
    assert answer.status_code == 200, answer.text
    return unescape(answer.text.partition("<main")[2])


def told(service: Serving, token: str, path: str) -> str:
    """All of the page but the role that scroll frames have, which is called `group`."""
    return page(service, token, path).replace('role="group"', "")


def rows(shown: str, table: str) -> list[list[str]]:
    """The cells of a table's rows, as text."""
    body = shown.partition(f'aria-label="{table}"')[2].partition("</table>")[0]
    return [
        [" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in re.findall("<td.*?</td>", row)]
        for row in re.findall(r"<tr[^>]*>(<td.*?)</tr>", body, re.DOTALL)
    ]


def words(shown: str) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", shown).split())


def test_a_group_has_what_a_pod_has(service: Serving, tokens: dict[str, str], own: str) -> None:
    """Who it was, its members and where they are, whom it took room from, where; and links."""
    shown = page(service, tokens["all"], "/observed/1")
    assert "Pod group team-b/train (priority 100) took room on 2 nodes from 2 pods" in words(shown)
    assert "Group policy gang, minCount 2; 2 members then Nodes n1 , n2" in words(shown)
    assert "Verdict same : the rules decide the same victims" in words(shown)
    assert rows(shown, "Members of the group") == [
        ["team-b/train-0", "50", "waiting", "on n1"],
        ["team-b/train-1", "50", "waiting", "gone"],
    ]
    assert [row[:3] for row in rows(shown, "Evicted")] == [
        ["team-a/web", "n1", "1"],
        ["team-b/beta", "n2", "2"],
    ]
    assert set(re.findall(r'href="(/(?:groups|nodes|workloads|observed)[^"#]*)"', shown)) == {
        *("/groups?cluster=default", "/observed?preemptor=team-b/train", own),
        *("/observed?cluster=default", "/observed?verdict=same", "/nodes/n1", "/nodes/n2"),
        *(f"/workloads/{pod}" for pod in (*VICTIMS, "team-b/train-0", "team-b/train-1")),
    }


def test_the_cycle_is_decided_again_on_request(service: Serving, tokens: dict[str, str]) -> None:
    """With members, units and victims, as the page of a cycle of ours has them."""
    shown = page(service, tokens["all"], "/observed/1?again=1")
    assert "team-b/train preempts 2 pods" in words(shown)
    assert [row[:4] for row in rows(shown, "Members")] == [
        ["team-b/train-0", "50", "", "pending"],
        ["team-b/train-1", "50", "", "pending"],
    ]
    assert [row[:5] for row in rows(shown, "Units")] == [
        ["team-b/beta", "2", "", "no", "leaves"],
        ["team-a/web", "1", "", "no", "leaves"],
    ]
    assert [row[:2] for row in rows(shown, "Victims")] == [
        ["team-b/beta", "n2"],
        ["team-a/web", "n1"],
    ]
    ids = re.findall(r'\bid="([^"]+)"', shown)
    assert sorted(ids) == sorted(set(ids))


def test_the_list_names_the_group_and_its_nodes(service: Serving, tokens: dict[str, str]) -> None:
    """`cluster`, which the events say, is no node; the filter finds the nodes of victims."""

    def listed(who: str, query: str = "") -> list[list[str]]:
        return rows(page(service, tokens[who], f"/observed{query}"), "Observed preemptions")

    assert listed("all")[0][3:6] == [
        "pod group team-b/train",
        "n1 , n2",
        "team-a/web , team-b/beta",
    ]
    found = {
        (who, node): len(listed(who, f"?node={node}"))
        for who in ("all", "victims")
        for node in ("n1", "n2", "n3")
    }
    assert found == {
        ("all", "n1"): 1,
        ("all", "n2"): 1,
        ("all", "n3"): 0,
        # Where the victim of another namespace was is not to be found out.
        ("victims", "n1"): 1,
        ("victims", "n2"): 0,
        ("victims", "n3"): 0,
    }


def test_a_limited_viewer_sees_their_part(
    service: Serving, tokens: dict[str, str], own: str
) -> None:
    """Their group or their victim, and nothing of the others: no name, member, node or count."""
    shown = {name: page(service, tokens[name], own) for name in ("preemptors", "victims")}
    assert [row[:3] for row in rows(shown["preemptors"], "Evicted")] == [["team-b/beta", "n2", "2"]]
    assert [row[:3] for row in rows(shown["victims"], "Evicted")] == [["team-a/web", "n1", "1"]]
    assert "Pod group team-b/train took room on n2" in words(shown["preemptors"])
    assert "A preemptor of another namespace took n1" not in words(shown["victims"])
    assert "A preemptor of another namespace took room on n1" in words(shown["victims"])
    hidden = {
        "preemptors": ("team-a", "web", "n1", "2 pods", "Members of the group", "/nodes/"),
        "victims": ("team-b", "train", "beta", "n2", "group", "2 pods", "/nodes/"),
    }
    assert {
        who: [word for word in some if word in told(service, tokens[who], path)]
        for who, some in hidden.items()
        for path in (own, "/observed")
    } == {"preemptors": [], "victims": []}
    bearer = {"Authorization": f"Bearer {tokens['none']}"}
    assert service.get(own, headers=bearer).status_code == 404


def test_without_the_state_before_members_are_not_known(
    service: Serving, tokens: dict[str, str], folder: Path
) -> None:
    """Pruned: the page says so, and shows the rest."""
    with Store.open(str(folder / "policy.db")) as store:
        store.ledger.prune(LATEST_NOW, actor="ann", at_ms=serving.NOW_MS)
    shown = page(service, tokens["all"], "/observed/1")
    assert "the state before the preemption is not kept" in words(shown)
    assert [row[:2] for row in rows(shown, "Evicted")] == [
        ["team-a/web", "n1"],
        ["team-b/beta", "n2"],
    ]


def test_explain_names_the_group_and_the_nodes(
    policy: Policy, database_url: str, tmp_path: Path
) -> None:
    observed(database_url, tmp_path)
    done: Done = policy("explain", "observed:1", "--db", database_url)
    head, lines = done.out.splitlines()[0], [line.split() for line in done.out.splitlines()]
    assert head == "observed preemption 1: pod group team-b/train took room on 2 nodes from 2 pods"
    assert [line for line in lines if line[:1] in (["node"], ["team-a/web"])][:2] == [
        ["node", "n1,", "n2"],
        next(line for line in lines if line[:2] == ["team-a/web", "n1"]),
    ]
