"""Cycles of pod groups for viewers that may see some namespaces only; exports and events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from policy import RuleSet
from policy.cluster.snapshot import Snapshot
from policy.groups.decide import decide_group
from policy.scheduling.cycle import Scheduler
from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.store import HypotheticalDecision, Store
from policy.store.journal import StoreJournal
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
from tests.support.groups import a_group, of_group
from tests.support.serving import Serving

RULES = RuleSet.load("kube-1.36-groups")
OTHERS = ("team-b", "train", "beta")
"""What stands in names, labels and owners of namespace team-b only."""


def decided(store: Store, group: str) -> None:
    journal = StoreJournal(store, "default", actor="ann", clock=lambda: serving.NOW_MS)
    Scheduler(journal, RULES, clock=lambda: serving.NOW_MS, seed=0).decide_group(group)


def fill(url: str) -> None:
    """Three cycles: team-b's takes room from both teams, team-a's and team-b's wait for members.

    And a fourth that was only supposed.
    """
    parts = objects(
        a_node("n1")
        .cpu(4)
        .running(a_pod("web").in_namespace("team-a").priority(1).cpu(4).started(60)),
        a_node("n2")
        .cpu(4)
        .running(
            a_pod("beta")
            .in_namespace("team-b")
            .priority(2)
            .cpu(4)
            .started(60)
            .owned_by("ReplicaSet", "beta")
        ),
        *(
            of_group(a_pod(f"train-{i}").in_namespace("team-b").priority(50).cpu(4), "train")
            for i in (0, 1)
        ),
        a_group("train", priority=100, least=2, namespace="team-b"),
        of_group(a_pod("own-0").in_namespace("team-a").priority(50).cpu(4), "own"),
        a_group("own", priority=100, least=2, namespace="team-a"),
        of_group(a_pod("few-0").in_namespace("team-b").priority(50).cpu(4), "few-of-beta"),
        a_group("few-of-beta", priority=100, least=2, namespace="team-b"),
    )
    with Store.open(url) as store:
        store.record.import_objects("default", parts, at_ms=serving.NOW_MS, source="test")
        store.record.create_environment("prod", "default", at_ms=serving.NOW_MS, actor="test")
        serving.activate(store, "kube-1.36")
        for group in ("team-b/train", "team-a/own", "team-b/few-of-beta"):
            decided(store, group)
        state = store.state.load("default")
        snapshot = Snapshot.from_objects(
            state.objects, now_ms=serving.NOW_MS, state_digest=state.state_digest
        )
        supposed = HypotheticalDecision(decision=decide_group(snapshot, RULES, "team-a/own"))
        store.record.hypothetical(
            "default",
            [supposed],
            revision=state.revision,
            rules=RULES,
            actor="ann",
            at_ms=serving.NOW_MS,
        )


@pytest.fixture
def tokens(tmp_path: Path) -> dict[str, str]:
    """`viewer` sees all, `limited` namespace team-a only; `file`."""
    path = tmp_path / "tokens.json"
    file = TokenFile(path)
    return {
        "viewer": file.create("viewer", Role.VIEWER, namespaces=None, now_ms=1),
        "limited": file.create("limited", Role.VIEWER, namespaces=["team-a"], now_ms=1),
        "file": str(path),
    }


@pytest.fixture
def service(database_url: str, tmp_path: Path, tokens: dict[str, str]) -> Iterator[Serving]:
    fill(database_url)
    started = serving.serve(database_url, tmp_path, "--tokens", tokens["file"])
    started.ready()
    yield started
    assert started.stop() == 0


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def events(service: Serving, token: str, after: str, count: int) -> list[tuple[str, str, Any]]:
    """The first events of a stream as (id, event, data)."""
    found: list[tuple[str, str, Any]] = []
    headers = {**bearer(token), "Last-Event-ID": after}
    url = f"{service.url}/api/v1/events"
    with service.client.stream("GET", url, headers=headers) as answer:
        assert answer.status_code == 200
        parts: dict[str, str] = {}
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                parts[name] = value
            elif "data" in parts:
                found.append((parts["id"], parts["event"], json.loads(parts["data"])))
                parts = {}
            if len(found) == count:
                break
    return found


def own_number(tokens: dict[str, str], number: int, of: Numbered = Numbered.SESSION) -> int:
    """A number as the limited viewer sees it."""
    return serving.shown(tokens["file"], of, number)


OWN = {
    "now": "2026-09-21T14:13:20Z",
    "outcome": "not-tried",
    "rule_set": "kube-1.36-groups",
    "cluster": "default",
    "group": "team-a/own",
    "bound": 0,
    "evicted": 0,
}
HIT = {**OWN, "outcome": "preempting", "group": None, "bound": None, "evicted": 1}
"""The cycle of another namespace: one of the viewer's pods is among its victims."""


def test_a_limited_viewer_sees_its_part_of_cycles(
    service: Serving, tokens: dict[str, str], database_url: str
) -> None:
    """Its own groups and its own victims; nothing of others, neither names nor counts."""
    limited, viewer = bearer(tokens["limited"]), bearer(tokens["viewer"])
    first, second, third, ninth = (own_number(tokens, n) for n in (1, 2, 3, 9))
    hit_line, own_line = {"id": first, **HIT}, {"id": second, **OWN}

    # The list, the export and the events are the same for one viewer.
    assert service.get("/api/v1/groups", headers=limited).json() == {"groups": [own_line, hit_line]}
    assert lines(service.get("/api/v1/export/groups", headers=limited).text) == [
        own_line,
        hit_line,
    ]
    page = service.get(f"/api/v1/groups?limit=1&after={second}", headers=limited).json()
    assert page == {"groups": [hit_line]}
    assert events(service, tokens["limited"], "0-0", 2) == [
        (f"0-0,default:0-{first}", "group", hit_line),
        (f"0-0,default:0-{second}", "group", own_line),
    ]
    assert events(service, tokens["limited"], f"0-{first}", 1) == [
        (f"0-{first},default:0-{second}", "group", own_line)
    ]
    for path in ("/api/v1/groups", "/api/v1/export/groups", "/groups"):
        answer = service.get(f"{path}?after=2", headers=limited)
        assert (answer.status_code, "no list ended with 2" in answer.text) == (400, True)
    all_of_it = service.get("/api/v1/groups", headers=viewer).json()["groups"]
    assert [(one["id"], one["group"], one["evicted"]) for one in all_of_it] == [
        (3, "team-b/few-of-beta", 0),
        (2, "team-a/own", 0),
        (1, "team-b/train", 2),
    ]
    assert lines(service.get("/api/v1/export/groups", headers=viewer).text) == all_of_it

    # One cycle.
    hit = service.get(f"/api/v1/groups/{first}", headers=limited).json()
    victim = {
        "pod": "team-a/web",
        "node": "n1",
        "priority": 1,
        "priority_class": "",
        "owner": "",
        "started": hit["victims"][0]["started"],
        "evicted": True,
    }
    assert hit == {**hit_line, "members": [], "victims": [victim]}
    own = service.get(f"/api/v1/groups/{second}", headers=limited).json()
    assert own == {**own_line, "members": [], "victims": []}
    absent = service.get("/api/v1/groups/9", headers=limited)
    for number in (3, third, ninth, 2):
        hidden = service.get(f"/api/v1/groups/{number}", headers=limited)
        said = absent.text.replace("cycle 9", f"cycle {number}")
        assert (hidden.status_code, hidden.text) == (404, said)
    for path in ("/api/v1/groups", "/api/v1/export/groups"):
        assert "default" not in service.get(f"{path}?cluster=nowhere", headers=limited).text
    assert service.get("/api/v1/groups/3", headers=viewer).status_code == 200
    supposed = service.get("/api/v1/groups/4", headers=viewer).json()
    assert (supposed["hypothetical"], supposed["group"]) == (True, "team-a/own")

    # Who asks for a group finds one of its own; of another there is nothing to be found.
    for path, none in (("/api/v1/groups", '{"groups":[]}'), ("/api/v1/export/groups", "")):
        for group in ("team-b/train", "team-b/few-of-beta", "team-b/none"):
            assert service.get(f"{path}?group={group}", headers=limited).text == none
    of_own = service.get("/api/v1/groups?group=team-a/own", headers=limited).json()
    of_other = service.get("/api/v1/groups?group=team-b/train", headers=viewer).json()
    assert (of_own["groups"], [one["id"] for one in of_other["groups"]]) == ([own_line], [1])
    preempting = service.get("/api/v1/groups?outcome=preempting", headers=limited).json()
    assert preempting == {"groups": [hit_line]}

    # SQL is on the same lines.
    def rows(query: str) -> list[list[Any]]:
        body = json.dumps({"sql": query})
        sent = {**limited, "Content-Type": "application/json"}
        found: list[list[Any]] = service.post("/api/v1/sql", body, headers=sent).json()["rows"]
        return found

    columns = ("id", "at", "outcome", "rule_set", "cluster", "pod_group", "bound", "evicted")
    keys = [{"at": "now", "pod_group": "group"}.get(name, name) for name in columns]
    assert rows(f"SELECT {', '.join(columns)} FROM group_cycles ORDER BY pod_group DESC") == [
        [one[key] for key in keys] for one in (own_line, hit_line)
    ]
    assert rows("SELECT * FROM group_victims") == [[first, "team-a", "team-a/web"]]

    # Not a word of the other namespace, also in pages.
    texts = [
        service.get(path, headers=limited).text
        for path in (
            *("/groups", *(f"/groups/{number}" for number in (first, second, third))),
            *("/api/v1/groups", "/api/v1/export/groups"),
            *(f"/api/v1/groups/{number}" for number in (first, second, third)),
        )
    ]
    assert [word for text in texts for word in OTHERS if word in text] == []
    assert ["team-a/web" in text for text in texts[:2]] == [False, True]
    refused = {"rules": "groups-safe", "groups": [1]}
    url = f"{service.url}/api/v1/compare"
    assert service.client.post(url, json=refused, headers=limited).status_code == 403


def test_new_cycles_are_events(service: Serving, tokens: dict[str, str], database_url: str) -> None:
    """What another process records follows; ids name the newest of both, by cluster."""
    assert [(i, e) for i, e, _ in events(service, tokens["viewer"], "0-1", 2)] == [
        ("0-1,default:0-2", "group"),
        ("0-1,default:0-3", "group"),
    ]
    with Store.open(database_url) as store:
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: serving.NOW_MS)
        rules = RuleSet.load("kube-1.36")
        scheduler = Scheduler(journal, rules, clock=lambda: serving.NOW_MS, seed=0)
        scheduler.decide("team-a/own-0")
        decided(store, "team-a/own")
    found = events(service, tokens["viewer"], "0-3", 2)
    assert [(i, e) for i, e, _ in found] == [
        ("0-3,default:1-3", "decision"),
        ("0-3,default:1-5", "group"),
    ]
    assert (found[0][2]["preemptor"], found[1][2]["group"]) == ("team-a/own-0", "team-a/own")
    assert events(service, tokens["viewer"], found[0][0], 1) == [found[1]]
    for wrong in ("x", "1-", "-1", "1-2-3", "9" * 19, "1-2,a", "1-2,a:1"):
        headers = {**bearer(tokens["viewer"]), "Last-Event-ID": wrong}
        assert service.get("/api/v1/events", headers=headers).status_code == 400
    unknown = "/api/v1/export/groups?cluster=nowhere"
    assert service.get(unknown, headers=bearer(tokens["viewer"])).status_code == 404


def test_events_for_a_limited_viewer(
    service: Serving, tokens: dict[str, str], database_url: str
) -> None:
    """Decisions about other namespaces are not sent; of shared ones, only its own part is."""
    with Store.open(database_url) as store:
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: serving.NOW_MS)
        rules = RuleSet.load("kube-1.36")
        scheduler = Scheduler(journal, rules, clock=lambda: serving.NOW_MS, seed=0)
        for pod in ("team-b/few-0", "team-b/train-0", "team-a/own-0"):
            scheduler.decide(pod)
        outcomes = [row.outcome for row in reversed(store.read.decisions())]
    assert outcomes == ["preempt", "preempt", "no-candidate"]
    told = {
        "now": "2026-09-21T14:13:20Z",
        "rule_set": "kube-1.36",
        "origin": "decided",
        "answer": "",
        "cluster": "default",
        "pdb_violations": None,
        "decided_by": None,
    }
    first, third = (own_number(tokens, number, Numbered.DECISION) for number in (1, 3))
    cycle, hidden, absent = (own_number(tokens, number) for number in (2, 3, 99_999))
    hit = {
        "id": first,
        "outcome": "preempt",
        "node": "n1",
        "preemptor": None,
        "priority": None,
        "victims": 1,
        "victim_pods": ["team-a/web"],
    }
    own = {
        "id": third,
        "outcome": "no-candidate",
        "node": None,
        "preemptor": "team-a/own-0",
        "priority": 50,
        "victims": 0,
        "victim_pods": [],
    }
    assert events(service, tokens["limited"], f"0-{cycle}", 2) == [
        (f"0-{cycle},default:{first}-{cycle}", "decision", {**told, **hit}),
        (f"0-{cycle},default:{third}-{cycle}", "decision", {**told, **own}),
    ]
    # Behind one of others, as behind one that does not exist, everything comes once more.
    behind = [events(service, tokens["limited"], f"{first}-{n}", 3) for n in (hidden, absent)]
    assert behind[0] == behind[1]
    assert [event for _, event, _ in behind[0]] == ["decision", "group", "group"]
    headers = {**bearer(tokens["limited"]), "Last-Event-ID": "0-3"}
    assert service.get("/api/v1/events", headers=headers).status_code == 400


def test_streams_that_read_together_show_each_viewer_their_own(
    service: Serving, tokens: dict[str, str]
) -> None:
    """Both begin at the same place, with the same look at the record."""
    groups = {
        "viewer": ["team-b/train", "team-a/own", "team-b/few-of-beta"],
        "limited": [None, "team-a/own"],
    }
    with ThreadPoolExecutor(4) as pool:
        both = [
            (name, pool.submit(events, service, tokens[name], "0-0", len(of_name)))
            for _ in range(2)
            for name, of_name in groups.items()
        ]
    for name, found in both:
        assert [event["group"] for _, _, event in found.result()] == groups[name]
