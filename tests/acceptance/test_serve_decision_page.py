"""The page of a decision: why there, why these pods; and the same by the API."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from policy.manifests import from_dicts
from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from tests.contract.filled import fill
from tests.support import serving
from tests.support.serving import Serving

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n0"},
    "status": {"allocatable": {"cpu": "6", "pods": "10"}},
}


def a_pod(
    key: str, cpu: str, priority: int, *, node: str = "", label: str = "", nominated: str = ""
) -> dict[str, Any]:
    namespace, _, name = key.partition("/")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "labels": {"preemption": label},
            "ownerReferences": [
                {"kind": "ReplicaSet", "name": "web", "uid": "u", "controller": True}
            ],
        },
        "spec": {
            "priority": priority,
            "nodeName": node,
            "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
        },
        "status": {
            "phase": "Running" if node else "Pending",
            "nominatedNodeName": nominated,
            "startTime": "2026-09-21T00:00:00Z" if node else None,
        },
    }


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """Decision 1 clears a nomination and spares three pods; 2 is by rules that cannot be read."""
    path = str(tmp_path_factory.mktemp("decision") / "policy.db")
    shutil.copy(sqlite_template, path)
    pods = [
        a_pod("shop/peer", "1", 9, node="n0"),
        a_pod("shop/kept", "2", 0, node="n0", label="never"),
        a_pod("team-a/big", "2", 1, node="n0"),
        a_pod("shop/small", "1", 2, node="n0"),
        a_pod("shop/waits", "500m", 3, nominated="n0"),
        a_pod("shop/high", "2", 9),
        a_pod("shop/tiny", "0", 9),
    ]
    pods[2]["status"]["startTime"] = None  # of the victim
    with Store.open(path) as store:
        objects = from_dicts([NODE, *pods])
        store.record.import_objects("default", objects, at_ms=serving.NOW_MS, source="test")
    by_command(
        path, "preempt", "shop/high", "--rules", "protected", "--now", "2026-09-22T00:00:00Z"
    )
    with Store.open(path) as store:
        fill(store, "by-hand")
    return path


def by_command(db: str, *arguments: str) -> str:
    command = [sys.executable, "-m", "policy", *arguments, "--db", db]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    return {
        "viewer": file.create("viewer", Role.VIEWER, namespaces=None, now_ms=1),
        "limited": file.create("limited", Role.VIEWER, namespaces=["team-a"], now_ms=1),
        "file": str(path),
    }


@pytest.fixture(scope="module")
def service(
    db: str, tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("served")
    started = serving.serve(db, folder, "--tokens", tokens["file"], environment="")
    yield started
    assert started.stop() == 0


class Reading:
    """Pages and documents as the holder of a token gets them."""

    def __init__(self, service: Serving, secret: str) -> None:
        self._service = service
        self._headers = {"Authorization": f"Bearer {secret}"}

    def document(self, path: str, *, status: int = 200) -> Any:
        answer = self._service.get(f"/api/v1/decisions/{path}", headers=self._headers)
        assert answer.status_code == status, answer.text
        return answer.json()

    def page(self, path: str) -> str:
        answer = self._service.get(f"/decisions/{path}", headers=self._headers)
        assert answer.status_code == 200, answer.text
        return answer.text

    def section(self, path: str, name: str) -> str:
        """The text of a section, rows by lines, cells by bars, and code in backquotes."""
        page = self.page(path)
        (found,) = re.findall(rf'<section aria-labelledby="{name}">(.*?)</section>', page, re.S)
        found = re.sub(r"<svg.*?</svg>|\n", "", found, flags=re.S)
        found = re.sub(r"</(h2|p|tr|dd|form)>", "\n", found)
        found = re.sub(r"</(td|th|dt)>", " | ", found)
        found = re.sub(r"</?code>", "`", found)
        lines = html.unescape(re.sub(r"<[^>]*>", "", found)).splitlines()
        return "\n".join(re.sub(r" +", " ", line).strip(" |") for line in lines if line.strip())


@pytest.fixture(scope="module")
def viewer(service: Serving, tokens: dict[str, str]) -> Reading:
    return Reading(service, tokens["viewer"])


@pytest.fixture(scope="module")
def limited(service: Serving, tokens: dict[str, str]) -> Reading:
    return Reading(service, tokens["limited"])


def test_the_node_before_and_after_is_shown_at_once(viewer: Reading) -> None:
    """Nothing changed since: who stays, leaves, comes, and what is free by resource."""
    assert viewer.section("1", "node").splitlines() == [
        "Node n0, before and after",
        "The state of revision 1, and what the decision makes of it. In the bars, filled: stays;"
        " an outline: leaves; a dashed one: is being deleted already; green with an edge: comes;"
        " the empty rest: free.",
        "cpu before: 6 of 6 requested, 0 free",
        "after: 6 requested, 0 free",
        "pods before: 4 of 10 requested, 6 free",
        "after: 4 requested, 6 free",
        "Pod | In this decision | Priority | Owner | cpu | pods",
        "shop/peer | stays | 9 | ReplicaSet/web | 1 | 1",
        "shop/small | stays | 2 | ReplicaSet/web | 1 | 1",
        "shop/kept | stays | 0 | ReplicaSet/web | 2 | 1",
        "team-a/big | leaves | 1 | ReplicaSet/web | 2 | 1",
        "shop/high | comes | 9 | ReplicaSet/web | 2 | 1",
        "shop/waits | loses its nomination to the node | 3 | ReplicaSet/web | 0.5 | 1",
    ]
    page = viewer.page("1")
    assert re.findall(r'role="img" aria-label="(.*?)"', page)[:2] == [
        "cpu before: 6 of 6 requested, 0 free",
        "cpu after: 6 of 6 requested, 0 free",
    ]
    assert " style=" not in page


def test_who_was_spared_and_why(viewer: Reading) -> None:
    """The reprieved pod from the record; on request those that rules and priorities keep."""
    at_once = viewer.section("1", "spared").splitlines()
    assert at_once == [
        "Spared on n0",
        "Pod | Priority | Started (UTC) | Budgets | Why it may stay",
        "shop/small | 2 | 2026-09-21 00:00:00 | | tried before team-a/big by `victim.priority`",
        "Show the pods that could not be victims, with the rule that keeps each evaluates the"
        " rules again on the state of then: seconds on a large cluster",
    ]
    assert viewer.section("1?show=spared", "spared").splitlines() == [
        *at_once[:3],
        "Pods | Rule | Why they are no potential victims",
        "shop/kept | protected-label | by rule `protected-label`"
        " (the pod is labelled preemption=never)",
        "shop/peer | none | same priority (9)",
    ]


def test_a_victim_without_a_start_time_says_so(viewer: Reading) -> None:
    """As on the page of its node."""
    assert viewer.section("1", "victims").splitlines()[1:] == [
        "Pod | Priority | Owner | Started (UTC) | Evicted | Why it could not stay",
        "team-a/big | 1 | ReplicaSet/web | no start time | yes | resources: Insufficient cpu",
    ]


def test_what_it_did_to_the_cluster(viewer: Reading) -> None:
    """The nomination that it cleared is among it."""
    assert viewer.section("1", "effects").splitlines() == [
        "Effects",
        "Evicted | team-a/big",
        "Marked as disrupted | team-a/big",
        "Nominations cleared | shop/waits: of lower priority, nominated to n0",
        "Nominated | shop/high to n0",
    ]


def test_rules_that_fired_are_marked(viewer: Reading) -> None:
    """With a word, among all rules of the rule set."""
    lines = viewer.section("1", "fired").splitlines()
    fired = [line for line in lines if "| fired" in line]
    assert [line.partition(" | fired")[0] for line in fired] == [
        "eligibility | otherwise",
        "filters | resources",
        "victims.eligible | protected-label",
        "victims.eligible | lower-priority",
        "victims.eligible | (none)",
        "victims.importance | priority",
    ]
    assert "| fired: deny, 1 pod: the pod is labelled preemption=never |" in fired[2]
    assert "its owner says that an interruption costs more than waiting does" in fired[2]
    assert any(line.startswith("victims.eligible | protected-namespace |") for line in lines)


def test_it_is_made_again_on_request(viewer: Reading) -> None:
    """By a link; without it nothing is decided."""
    (link,) = re.findall(r'href="(\?replay=1)#replay"', viewer.page("1"))
    (told,) = re.findall(r'<span id="replay">(.*?)</span>', viewer.page(f"1{link}"))
    assert told == "equal: made again just now, it has the same digest"


@pytest.mark.parametrize(
    ("rules", "line"),
    [
        ("kube-1.36", "Under kube-1.36: same node, other victims."),
        ("protected", "Under protected: same node, same victims."),
        (
            "batch-safe",
            "`batch-safe`: these are rules of batch sessions, not of single decisions"
            " (`policy batch run --rules` takes them, `policy rules show` prints them with every"
            " default; `policy rules list` shows which is which).",
        ),
        (
            "none",
            "there is no shipped rule set `none` (give the name of a shipped rule set, or the"
            " digest of one).",
        ),
        ("kube-1.3x", "there is no shipped rule set `kube-1.3x` (did you mean `kube-1.36`?)."),
    ],
)
def test_other_rules_are_asked_by_a_form(viewer: Reading, rules: str, line: str) -> None:
    """The change in words; what both decided stands below."""
    assert viewer.section(f"1?rules={rules}", "other").splitlines()[2] == line


def test_what_is_not_known_any_more_is_said(viewer: Reading) -> None:
    """Rules that cannot be read: the page stands, and each part says what is missing."""
    page = viewer.page("2?show=spared&replay=1&rules=kube-1.36&why_not=n9")
    text = html.unescape(re.sub(r"<[^>]*>", "", page))
    for said in (
        "The rule set is not in the database any more, or cannot be read by this version",
        "cannot be made again: this version cannot read its rule set",
        "the rules of decision 2 cannot be evaluated again: this version cannot read its rule set",
        "this version cannot read the rule set of decision 2",
        "Requests are counted as kube-scheduler 1.36 counts them, because the rule set is gone.",
    ):
        assert said in text, said


@pytest.fixture(scope="module")
def own(tokens: dict[str, str]) -> int:
    """The number of decision 1, as tokens see it that are limited to namespaces."""
    return serving.shown(tokens["file"], Numbered.DECISION, 1)


def test_every_identifier_is_a_link(viewer: Reading, own: int) -> None:
    """Pods and owners to their workloads, nodes, rules, cluster; each of them is there."""
    found = set(re.findall(r'href="(/[^"#]*)', viewer.page("1").partition("<main")[2]))
    digest = viewer.document("1")["rule_set_digest"]
    assert found == {
        "/decisions?preemptor=shop/high",
        "/decisions?origin=decided",
        "/decisions?cluster=default",
        "/nodes/n0",
        f"/rules/{digest.replace(':', '%3A')}",
        "/workloads/shop/high",
        "/workloads/shop/kept",
        "/workloads/shop/peer",
        "/workloads/shop/small",
        "/workloads/shop/waits",
        "/workloads/shop/web",
        "/workloads/team-a/big",
        "/workloads/team-a/web",
        "/compare",
        "/api/v1/decisions/1",
        "/api/v1/decisions/1/node",
        "/api/v1/decisions/1/rules",
        f"/decisions/{own}",
    }


def test_the_api_and_the_command_give_the_same(viewer: Reading, db: str) -> None:
    """Ledger, node, spared pods, rules and replay; the node as `policy explain` shows it."""
    shown = json.loads(by_command(db, "explain", "1", "--on-node", "--output", "json"))
    whys = {pod["pod"]: pod.pop("why") for pod in shown["pods"]}
    assert viewer.document("1/node") == shown
    spared = viewer.document("1/spared")
    assert spared == {
        "reprieved": [
            {
                "pod": "shop/small",
                "priority": 2,
                "why": "tried before team-a/big by `victim.priority`",
                "ahead_of": "team-a/big",
                "budgets": [],
            }
        ],
        "protected": [
            {
                "pods": ["shop/kept"],
                "rule": "protected-label",
                "why": "by rule `protected-label` (the pod is labelled preemption=never)",
            },
            {"pods": ["shop/peer"], "rule": "", "why": "same priority (9)"},
        ],
    }
    assert whys == {
        "shop/peer": "same priority (9)",
        "shop/small": "tried before team-a/big by `victim.priority`",
        "shop/kept": "by rule `protected-label` (the pod is labelled preemption=never)",
        "team-a/big": "resources: Insufficient cpu",
        "shop/high": "",
        "shop/waits": "",
    }
    whole = viewer.document("1")
    assert whole["ledger"] == json.loads(by_command(db, "explain", "1", "-o", "json"))["ledger"]
    assert whole["ledger"]["sequence"] == 2
    assert whole["effects"]["clear_nominations"] == ["shop/waits"]
    replay = viewer.document("1/replay")
    assert (replay["verdict"], replay["replayed_digest"]) == ("equal", whole["digest"])
    fired = [one["rule"] for one in viewer.document("1/rules")["rules"] if one["did"]]
    assert fired[:2] == ["otherwise", "resources"]
    assert "cannot read its rule set" in viewer.document("2/spared", status=404)["detail"]


def test_a_limited_viewer_learns_nothing_of_it(limited: Reading, own: int) -> None:
    """Its own victim alone; no question about the rest is answered."""
    page = limited.page(str(own))
    assert re.findall(r'<section aria-labelledby="(.*?)"', page) == ["victims"]
    assert "shop" not in page.partition("<main")[2]
    assert "ledger" not in limited.document(str(own))
    for part in ("node", "spared", "rules", "replay", "why-not?node=n0"):
        limited.document(f"{own}/{part}", status=403)


def test_both_numbers_lead_whoever_sees_everything_to_it(
    viewer: Reading, limited: Reading, own: int
) -> None:
    """Links of limited viewers work for others; the number of the record is for these alone."""
    assert viewer.document(str(own)) == viewer.document("1")
    assert viewer.document(f"{own}/rules") == viewer.document("1/rules")
    assert viewer.page(str(own)) == viewer.page("1")
    (told,) = re.findall("For tokens that are limited to namespaces .*?</p>", viewer.page("1"))
    assert f'<a href="/decisions/{own}">{own}</a>' in told
    assert "For tokens that are limited" not in limited.page(str(own))
    for number in ("1", str(own + 1)):
        said = limited.document(number, status=404)["detail"]
        assert said == f"there is no decision `{number}`"
    said = viewer.document(str(own + 1), status=404)["detail"]
    assert said == f"there is no decision `{own + 1}`"


def test_nodes_that_pass_are_not_said_to_fail(viewer: Reading, db: str) -> None:
    """Where the pod fits, the filters let nodes pass."""
    made = json.loads(by_command(db, "preempt", "shop/tiny", "-o", "json"))
    assert viewer.section(str(made["id"]), "filters").splitlines() == [
        "What the filters said",
        "Phase filter: as the nodes are, before any pod leaves; candidates are among those that"
        " fail. Phase dry-run: nodes that preemption would not help.",
        "Nodes | Phase | Filter | Reasons",
        "1 | filter | | every filter passes",
    ]
