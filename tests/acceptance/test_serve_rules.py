"""Rules, environments and comparisons in the service: everything that the commands accept."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import httpx
import pytest
from playwright.sync_api import Browser

from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.server.security.tokens import Role, TokenFile
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.acceptance.commands import Policy
from tests.support import serving
from tests.support.builders import a_node, a_pod, objects
from tests.support.page_text import plain, words
from tests.support.serving import Serving
from tests.support.signing_in import sign_in

OWN = RuleSet.load(
    {
        "apiVersion": "policy/v1",
        "kind": "PreemptionRules",
        "metadata": {"name": "own"},
        "extends": "kube-1.36",
        "spec": {"victims": {"maxVictims": 3}},
    }
)


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`admin` may do everything, `limited` sees namespace team-a only; `file`."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    return {
        "admin": file.create("ann", Role.ADMIN, namespaces=None, now_ms=1),
        "limited": file.create("limited", Role.VIEWER, namespaces=["team-a"], now_ms=1),
        "file": str(path),
    }


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> str:
    """One preemption of a pod that `protected` keeps, decided by kube-1.36, and one pod more.

    Environments: prod, in which kube-1.36 is active after rules of one's own; team/blue and
    by-digest, in which nothing is; batch, which holds rules of sessions.
    """
    path = str(tmp_path_factory.mktemp("rules") / "policy.db")
    shutil.copy(sqlite_template, path)
    cluster = objects(
        a_node("n0").cpu(4).running(a_pod("kept").priority(1).cpu(4).labelled(preemption="never")),
        a_node("n1").cpu(4).running(a_pod("other").priority(2).cpu(4)),
        a_pod("high").priority(9).cpu(4),
        a_pod("huge").in_namespace("quiet").priority(9).cpu(8),
    )
    with Store.open(path) as store:
        store.record.import_objects("default", cluster, at_ms=serving.NOW_MS, source="test")
        for name in ("prod", "team/blue", "batch", "by-digest"):
            store.record.create_environment(name, "default", at_ms=serving.NOW_MS, actor="test")
        store.record.activate(
            "prod", rules=OWN, reason="own", source="own.yaml", at_ms=serving.NOW_MS, actor="test"
        )
        serving.activate(store, "kube-1.36")
        journal = StoreJournal(store, "default", actor="ann", clock=lambda: serving.NOW_MS)
        rules = RuleSet.load("kube-1.36")
        scheduler = Scheduler(journal, rules, clock=lambda: serving.NOW_MS, seed=0)
        for pod in ("default/high", "quiet/huge"):
            scheduler.decide(pod)
    return path


@pytest.fixture(scope="module")
def service(
    db: str, tmp_path_factory: pytest.TempPathFactory, tokens: dict[str, str]
) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("served")
    started = serving.serve(db, folder, "--tokens", tokens["file"])
    started.ready()
    started.client.headers["Authorization"] = f"Bearer {tokens['admin']}"
    yield started
    assert started.stop() == 0


def api(service: Serving, path: str) -> Any:
    answer = service.get(f"/api/v1{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def post(service: Serving, path: str, body: dict[str, Any]) -> httpx.Response:
    return service.client.post(f"{service.url}/api/v1{path}", json=body)


def page(service: Serving, path: str) -> tuple[int, str]:
    """Status and text of a page."""
    answer = service.get(path)
    return answer.status_code, words(answer)


def test_what_the_command_lists_is_listed(service: Serving, policy: Policy) -> None:
    """Every shipped rule set with kind and digest; then the activated ones that are not shipped."""
    shipped = json.loads(policy("rules", "list", "-o", "json").out)
    found = api(service, "/rule-sets")["rule_sets"]
    assert [{name: one[name] for name in shipped[0]} for one in found if one["shipped"]] == shipped
    assert [one for one in found if not one["shipped"]] == [
        {
            "name": "own",
            "kind": "rule set",
            "description": "",
            "digest": OWN.digest,
            "shipped": False,
            "active_in": [],
        }
    ]
    links = re.findall(r'href="/rules/([^"]+)"', service.get("/rules").text)
    assert links == [*(one["name"] for one in shipped), OWN.digest.replace(":", "%3A")]


def test_what_is_listed_is_found_by_its_digest(service: Serving) -> None:
    """Shipped rule sets, too, that no environment and no decision of the database has."""
    listed = api(service, "/rule-sets")["rule_sets"]
    found = [api(service, f"/rule-sets/{one['digest']}") for one in listed]
    assert [(one["name"], one["digest"]) for one in found] == [
        (one["name"].rpartition("/")[2], one["digest"]) for one in listed
    ]
    digest = RuleSet.load("kube-1.14").digest
    assert api(service, f"/rule-sets/{digest[:17]}/uses") == {
        "digest": digest,
        "days": [7, 90, None],
        "decisions": [0, 0, 0],
        "rules": [],
    }
    change = {"rules": digest, "reason": "for a test"}
    made = post(service, "/environments/by-digest/activations", change)
    assert (made.status_code, made.json()["rule_set"]) == (201, "kube-1.14")


def test_names_may_hold_a_slash(service: Serving) -> None:
    """Written out or quoted, also where something follows the name."""
    digest = RuleSet.load("environments/prod").digest
    for name in ("environments/prod", "environments%2Fprod"):
        assert api(service, f"/rule-sets/{name}")["digest"] == digest
        assert api(service, f"/rule-sets/{name}/uses")["digest"] == digest
        assert api(service, f"/rule-sets/{name}/diff/{name}") == {"changes": []}
        assert page(service, f"/rules/{name}")[0] == 200
    changes = api(service, "/rule-sets/kube-1.36/diff/environments/prod")["changes"]
    assert "victims.maxVictims" in [one["section"] for one in changes]


def test_clusters_with_a_slash_are_reached(service: Serving, db: str) -> None:
    """With the slash as it is or escaped, for each address below the cluster."""
    with Store.open(db) as store:
        parts = objects(a_node("n0"))
        store.record.import_objects("eu/west", parts, at_ms=serving.NOW_MS, source="test")
    for name in ("eu/west", "eu%2Fwest"):
        assert [
            len(api(service, f"/clusters/{name}/state?kind=nodes")["nodes"]),
            len(api(service, f"/clusters/{name}/revisions")["revisions"]),
            api(service, f"/clusters/{name}/verify")["cluster"],
        ] == [1, 1, "eu/west"]


def test_environments_with_a_slash_are_reached(service: Serving) -> None:
    """Read, activated and called by a scheduler, in either writing of the name."""
    offered = next(
        one["request"]
        for one in serving.recorded_calls()["b"]["exchanges"]
        if one["verb"] == "filter"
    )
    for number, name in enumerate(("team/blue", "team%2Fblue")):
        rules = ("kube-1.35", "kube-1.36")[number]
        made = post(
            service, f"/environments/{name}/activations", {"rules": rules, "reason": "for a test"}
        )
        assert (made.status_code, made.json()["environment"]) == (201, "team/blue")
        assert api(service, f"/environments/{name}")["active"]["rule_set"] == rules
        # Nothing of these is recorded: the body of the second is wrong.
        assert service.post(f"/extender/{name}/filter", offered).status_code == 200
        assert service.post(f"/extender/{name}/preempt", "{").status_code == 400
    back = post(service, "/environments/team%2Fblue/rollback", {"reason": "for a test"})
    assert (back.status_code, back.json()["rule_set"]) == (201, "kube-1.35")
    unknown = service.post("/extender/team%2Fred/preempt", "{")
    assert (unknown.status_code, unknown.json()["detail"]) == (
        404,
        "there is no environment `team/red`",
    )


def test_environments_that_end_like_a_change_are_reached(service: Serving, db: str) -> None:
    """By `%2F`, which is a slash of the name: of both, and not of the one without that end."""
    ends = ("activations", "rollback")
    with Store.open(db) as store:
        for end in ends:
            name = f"team/green/{end}"
            store.record.create_environment(name, "default", at_ms=serving.NOW_MS, actor="test")
            serving.activate(store, "kube-1.34", environment=name)
    paths = [f"/api/v1/environments/team%2Fgreen%2F{end}" for end in ends]
    read = [service.get(path).json()["environment"] for path in paths]
    not_changed = [service.post(path, {"reason": "for a test"}) for path in paths]
    changed = [
        post(service, f"/environments/team%2Fgreen%2F{end}/activations", body)
        for end in ends
        for body in [{"rules": "kube-1.36", "reason": "for a test"}]
    ]
    back = [
        post(service, f"/environments/team%2Fgreen%2F{end}/rollback", {"reason": "for a test"})
        for end in ends
    ]
    names = [f"team/green/{end}" for end in ends]
    assert [
        read,
        [(one.status_code, sorted(one.headers["allow"].split(", "))) for one in not_changed],
        [(one.status_code, one.json()["environment"]) for one in changed],
        [(one.status_code, one.json()["rule_set"]) for one in back],
    ] == [
        names,
        [(405, ["GET", "HEAD"])] * 2,
        [(201, name) for name in names],
        [(201, "kube-1.34")] * 2,
    ]


def test_a_key_is_of_one_environment(service: Serving, db: str) -> None:
    """Also where names differ by a line end alone, which parsers of addresses leave out."""
    names = ("team/gray", "team/\ngray")
    with Store.open(db) as store:
        for name in names:
            store.record.create_environment(name, "default", at_ms=serving.NOW_MS, actor="test")
    made = [
        service.client.post(
            f"{service.url}/api/v1/environments/{quote(name, safe='')}/activations",
            json={"rules": "kube-1.36", "reason": "for a test"},
            headers={"Idempotency-Key": "one"},
        )
        for name in names
    ]
    found = [(one.status_code, one.json()["environment"]) for one in made]
    assert found == [(201, name) for name in names]


def test_batch_rules_are_refused_in_the_words_of_the_command(
    service: Serving, policy: Policy, db: str
) -> None:
    """Where decisions are judged; a status of 400, and never 500."""
    said = policy("compare", "--db", db, "--rules", "volcano").err
    sentence = "these are rules of batch sessions, not of single decisions"
    assert sentence in said
    answer = post(service, "/compare", {"rules": "volcano", "newest": 1})
    assert (answer.status_code, answer.json()["detail"]) == (400, f"`volcano`: {sentence}")
    assert answer.json()["help"] in said
    for path in ("/compare?rules=volcano", "/environments/prod?candidate=volcano"):
        status, text = page(service, path)
        assert (status, sentence in text) == (400, True)
    mixed = "a rule set and batch rules have nothing in common to compare"
    answer = service.get("/api/v1/rule-sets/kube-1.35/diff/volcano")
    assert (answer.status_code, answer.json()["detail"]) == (400, mixed)
    status, text = page(service, "/rules/kube-1.35?diff=volcano")
    assert (status, mixed in text) == (400, True)


def test_batch_rules_are_shown_and_activated(service: Serving) -> None:
    """In an environment of their own, as by the command; one of the other kind refuses them."""
    found = api(service, "/rule-sets/volcano")
    assert (found["name"], found["kind"], found["rules"]) == ("volcano", "BatchRules", [])
    status, text = page(service, "/rules/volcano?diff=volcano-capacity")
    assert status == 200
    assert "1 gang `enablePreemptable`" in text
    assert "actions `enqueue, allocate, backfill, reclaim` `enqueue, allocate, backfill`" in text
    body = {"rules": "volcano", "reason": "sessions"}
    made = post(service, "/environments/batch/activations", body)
    assert (made.status_code, made.json()["rule_set"]) == (201, "volcano")
    refused = post(service, "/environments/prod/activations", body)
    assert (refused.status_code, refused.json()["detail"]) == (
        409,
        "environment `prod` holds rule sets for single pods, and not rules of batch sessions such"
        " as `volcano`",
    )
    assert page(service, f"/rules/{made.json()['digest']}")[0] == 200
    stored = post(service, "/compare", {"rules": made.json()["digest"], "newest": 1})
    assert "rules of batch sessions" in stored.json()["detail"]


def test_an_activation_needs_a_name(service: Serving) -> None:
    refused = post(service, "/environments/prod/activations", {"rules": " ", "reason": "x"})
    assert (refused.status_code, refused.json()["detail"]) == (400, "no rule set is named")
    unknown = post(service, "/environments/prod/activations", {"rules": "kube-1.3x", "reason": "x"})
    assert (unknown.status_code, unknown.json()["detail"], unknown.json()["help"]) == (
        404,
        "there is no shipped rule set `kube-1.3x`",
        "did you mean `kube-1.36`?",
    )


def test_how_often_rules_decided(service: Serving) -> None:
    """The decisions are of days ago, so only the sum over all has them."""
    digest = RuleSet.load("kube-1.36").digest
    found = api(service, "/rule-sets/kube-1.36/uses")
    counts = {(one["section"], one["rule"]): one["decisions"][2] for one in found["rules"]}
    assert (found["digest"], found["days"], found["decisions"][2], counts) == (
        digest,
        [7, 90, None],
        2,
        {
            ("eligibility", "otherwise"): 2,
            ("ranking", "lowest-top-priority"): 1,
            ("victims.eligible", "lower-priority"): 1,
        },
    )
    text = page(service, "/rules/kube-1.36")[1]
    assert re.search(r"4 otherwise allow always every other pod may preempt \d+ \d+ 2 ", text)


def test_a_count_of_decisions_leads_to_them(service: Serving, policy: Policy, db: str) -> None:
    """To as many, under these rules alone: on the page, by the API, the export and the command."""
    text = service.get("/rules/kube-1.36").text
    digest = RuleSet.load("kube-1.36").digest
    counted = re.findall(r'<a href="/decisions\?([^"]*)" aria-label="(\d+) decisions by', text)
    found = {}
    for query, count in counted:
        given = dict(parse_qsl(unescape(query)))
        listed = api(service, f"/decisions?{unescape(query)}")["decisions"]
        lines = service.get(f"/api/v1/export/decisions?{unescape(query)}").text.splitlines()
        shown = re.findall(
            r'<td class="number"><a href="/decisions/(\d+)"',
            service.get(f"/decisions?{unescape(query)}").text,
        )
        wanted = ("--rules", given["rules"], "--rule", given["rule"], "-o", "json")
        said = json.loads(policy("decisions", "--db", db, *wanted).out)
        ids = [one["id"] for one in listed]
        assert [json.loads(line)["id"] for line in lines] == ids
        assert [int(one) for one in shown] == ids
        assert [one["id"] for one in said] == ids
        found[given["rule"]] = (given["rules"], int(count), ids)
    assert found == {
        "eligibility/otherwise": (digest, 2, [2, 1]),
        "ranking/lowest-top-priority": (digest, 1, [1]),
        "victims.eligible/lower-priority": (digest, 1, [1]),
    }
    assert 'href="/decisions?rule=ranking/lowest-top-priority"' in service.get("/decisions").text
    assert api(service, "/decisions?rule=otherwise&rules=own")["decisions"] == []


def test_rules_of_which_nothing_is_recorded_are_refused(
    service: Serving, policy: Policy, db: str
) -> None:
    """In the same words on the page, by the API and by the command."""
    sentence = "`filters/resources`: of section `filters` it is not recorded which rule decided"
    answer = service.get("/api/v1/decisions?rule=filters/resources")
    status, text = page(service, "/decisions?rule=filters/resources")
    said = policy("decisions", "--db", db, "--rule", "filters/resources")
    assert (answer.status_code, answer.json()["detail"], status, said.status) == (
        400,
        f"query: `rule`: {sentence}",
        400,
        1,
    )
    assert f"`rule`: {sentence}" in text
    assert "`SECTION/ID`, where SECTION is one of eligibility, ranking," in text
    assert said.err.startswith(f"{sentence}\n  help: `SECTION/ID`, where SECTION is one of ")


def test_rules_link_to_their_lines(service: Serving) -> None:
    """Of a file to its own lines or to another file's page; stored ones to their canonical text."""
    shipped = service.get("/rules/environments/prod").text
    assert '<a href="/rules/kube-1.35#L26">kube-1.35.yaml:26</a>' in shipped
    base = service.get("/rules/kube-1.35").text
    assert '<a href="#L26">26</a>' in base
    (line,) = re.findall(r'<span id="L26">.*?</a>  (.*)', base)
    assert line.strip() == "- id: otherwise"
    own = service.get(f"/rules/{OWN.digest}").text
    (number,) = re.findall(r'victims\.maxVictims</td>.*?href="#L(\d+)"', own)
    (line,) = re.findall(rf'<span id="L{number}">.*?</a>  (.*)', own)
    assert unescape(line).strip() == '"maxVictims": 3,'


def test_a_stored_rule_set_that_is_shipped_has_its_reasons(service: Serving) -> None:
    digest = RuleSet.load("kube-1.36").digest
    text = page(service, f"/rules/{digest}")[1]
    assert "The shipped rule set kube-1.36" in text
    assert "every other pod may preempt" in text


def test_what_changes_is_shown_by_section(service: Serving) -> None:
    status, text = page(service, f"/rules/kube-1.36?diff={OWN.digest}")
    expected = (
        "What changes from own to kube-1.36 Rule own (from) kube-1.36 (to) Meaning"
        " victims maxVictims `3` none any number of victims on a node"
    )
    assert (status, expected in text) == (200, True)


@pytest.mark.parametrize(
    ("other", "status", "said"),
    [
        ("nope", 404, "there is no shipped rule set `nope`"),
        ("sha256:1", 400, "`sha256:1` is too short for the beginning of a digest"),
        ("volcano", 400, "a rule set and batch rules have nothing in common to compare"),
    ],
)
def test_rules_that_cannot_be_compared_with_are_said_on_the_page(
    service: Serving, other: str, status: int, said: str
) -> None:
    """In the place of the differences; the rules are shown, and what was typed is in its field."""
    answer = service.get(f"/rules/environments/prod?diff={other}")
    alone = service.get("/rules/environments/prod")
    assert (answer.status_code, alone.status_code) == (status, 200)
    found = re.sub(r'<p id="refused".*?</p>\n<p>.*?</p>\n', "", answer.text, flags=re.S)
    marked = ' aria-invalid="true" aria-describedby="refused"'
    assert found.replace(f'value="{other}"', 'value=""').replace(marked, "") == alone.text
    (refused,) = re.findall(r'<p id="refused".*?</p>\n<p>.*?</p>', answer.text, flags=re.S)
    told = plain(refused)
    assert told.startswith(said)
    assert told.endswith("Change the fields above, or show these rules alone .")
    assert f'value="{other}"' in answer.text
    (back,) = re.findall('<a href="([^"]*)"', refused)
    assert service.get(back).text == alone.text


def test_a_comparison_is_the_one_of_the_command(service: Serving, policy: Policy, db: str) -> None:
    """Sums and changes, from the API and from the command."""
    said = json.loads(policy("compare", "--db", db, "--rules", "protected", "-o", "json").out)
    found = post(service, "/compare", {"rules": "protected", "newest": 10}).json()
    names = ("total", "changes", "by_namespace", "by_victim_priority")
    assert {name: found[name] for name in names} == {name: said[name] for name in names}
    assert found["decisions"] == said["changed"]
    newest = ("--rules", "protected", "--newest", 1, "-o", "json")
    said = json.loads(policy("compare", "--db", db, *newest).out)
    one = post(service, "/compare", {"rules": "protected", "newest": 1}).json()
    assert said["total"] == one["total"]
    assert said["total"]["decisions"] == 1
    assert [(one["id"], one["change"]) for one in found["decisions"]] == [(1, "other-node")]
    text = page(service, "/compare?rules=protected")[1]
    for sentence in (
        "1 of 2 would have been decided otherwise.",
        "The newest 2 decisions, each on the state that it was made on; decided by kube-1.36.",
        "1 same node, same victims",
        "1 another node",
        "1 default/high 9 another node preempt n0 preempt n1 1 side by side",
    ):
        assert sentence in text


def test_tables_of_a_comparison_are_those_of_the_command(
    service: Serving, policy: Policy, db: str
) -> None:
    """The same columns and figures, and what of the decisions is in no line."""
    answer = service.get("/compare?rules=protected")
    said = policy("compare", "--db", db, "--rules", "protected").out
    shown = []
    for part in ("by namespace of the preemptor", "by priority of the victims"):
        markup = answer.text.partition(f'aria-label="{part}"')[2].partition("</table>")
        heads, *rows = re.findall(r"<tr>(.*?)</tr>", markup[0], flags=re.S)
        names = [plain(cell).lower() for cell in heads.split("</th>")[1:-1]]
        note = re.match(r"</div><p class=\"faint\">(.*?)\.</p>", markup[2])
        told = [note[1].lower()] if note else []
        cells = [
            [plain(cell).replace("→", "->") for cell in row.split("</td>")[:-1]] for row in rows
        ]
        shown.append([part, ["group", *names], *cells, *told])
    printed = []
    for part in said.split("\n\n"):
        title, heads, _, *lines = part.splitlines()
        found = [re.split(" {2,}", line.strip()) for line in lines]
        told = [line for line in lines if line.startswith("not listed")]
        rows = found[: len(found) - len(told)]
        printed.append([title, re.split(" {2,}", heads), *rows, *told])
    assert [one for one in printed if one[0] in [part[0] for part in shown]] == shown
    assert "not listed: 1 decision of 1 namespace in which nothing differs and" in said


@pytest.mark.parametrize("more", ["", "&n=2"])
def test_a_change_opens_side_by_side(service: Serving, more: str) -> None:
    """By an address of its own, with the list where the number of decisions is in it."""
    status, text = page(service, f"/compare?rules=protected&open=1{more}")
    expected = (
        "default/high (priority 9): another node. Decision kube-1.36 , as recorded protected"
        " Outcome preempt preempt Node n0 n1 Decided by lowest-top-priority"
    )
    assert (status, expected in text) == (200, True)
    assert re.search(r"Victims 1 1 default/kept priority 1, .* lost stays", text)
    assert ("would have been decided otherwise" in text) == bool(more)


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("rules=nope", 404, "there is no shipped rule set `nope`"),
        ("rules=protected&n=501", 400, "`n` is a number from 1 to 500"),
        ("rules=protected&n=x", 400, "`n` is a number from 1 to 500"),
        ("rules=protected&open=x", 400, "`open` is the number of a decision, or group:NUMBER"),
        ("rules=protected&open=99", 404, "there is no decision 99"),
        ("rules=protected&open=group:99", 404, "there is no cycle 99 of a pod group"),
        ("rules=protected&cluster=none", 404, "there is no cluster `none`"),
    ],
)
def test_what_cannot_be_compared_is_said(
    service: Serving, query: str, status: int, said: str
) -> None:
    """In place of the report; what was typed is in the form."""
    found, text = page(service, f"/compare?{query}")
    assert (found, said in text) == (status, True), text
    markup = service.get(f"/compare?{query}").text
    typed = {"rules": "", "n": "200", "cluster": "", **dict(parse_qsl(query))}
    fields = dict(re.findall(r'<input name="(\w+)" [^>]*value="([^"]*)"', markup))
    assert fields == {name: typed[name] for name in ("rules", "n", "cluster")}


def test_a_comparison_takes_numbers_or_the_newest(service: Serving) -> None:
    for body in ({}, {"newest": 2, "ids": [1]}, {"newest": 501}, {"ids": [1], "cluster": "x"}):
        assert post(service, "/compare", {"rules": "protected", **body}).status_code == 400


def test_a_candidate_is_tried_before_it_is_activated(service: Serving) -> None:
    """On the page of the environment, as many decisions as the reader says; nothing is changed."""
    before = api(service, "/environments/prod")
    status, text = page(service, "/environments/prod?candidate=protected&n=1")
    assert (status, "0 of 1 would have been decided otherwise." in text) == (200, True)
    status, text = page(service, "/environments/prod?candidate=protected")
    assert (status, "1 of 2 would have been decided otherwise." in text) == (200, True)
    target = "/compare?rules=protected&amp;n=100&amp;cluster=default&amp;open=1#both"
    shown = service.get("/environments/prod?candidate=protected").text
    assert (target in shown, 'name="rules" list="names" value="protected"' in shown) == (True, True)
    assert page(service, unescape(target).partition("#")[0])[0] == 200
    status, text = page(service, "/environments/prod?candidate=protected&n=0")
    assert (status, "`n` is a number from 1 to 500" in text) == (400, True)
    assert api(service, "/environments/prod") == before


def test_a_form_that_is_refused_keeps_what_was_in_it(
    browser: Browser, service: Serving, tokens: dict[str, str]
) -> None:
    """An empty name, an unknown one; then the links of a table head, with JavaScript."""
    opened = browser.new_context().new_page()
    sign_in(opened, service, tokens["admin"], "/environments/prod")
    form = opened.locator("form[action$=activate]")
    form.locator("input[name=rules]").fill(" ")
    form.locator("input[name=reason]").fill("because")
    form.locator("button").click()
    assert "no rule set is named" in opened.locator("[role=alert]").inner_text()
    assert form.locator("input[name=reason]").input_value() == "because"
    form.locator("input[name=rules]").fill("kube-1.3x")
    form.locator("button").click()
    assert "did you mean kube-1.36?" in opened.locator("[role=alert]").inner_text()
    opened.goto(service.url + "/compare?rules=protected&n=2")
    opened.click("text=side by side")
    assert opened.url.endswith("open=1#both")
    assert opened.locator("table.both thead a").all_inner_texts() == ["kube-1.36", "protected"]


@pytest.mark.parametrize("form", ["activate", "rollback"])
@pytest.mark.parametrize("name", ["prod", "team%2Fblue"])
def test_the_address_of_a_form_leads_to_its_page(service: Serving, name: str, form: str) -> None:
    """Where a browser opens it again, after an error or a login."""
    answer = service.get(f"/environments/{name}/{form}")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/environments/{name}")


def test_what_is_no_form_is_no_environment(service: Serving) -> None:
    status, text = page(service, "/environments/prod/remove")
    assert (status, "there is no environment `prod/remove`" in text) == (404, True)


def test_a_limited_viewer_is_refused(service: Serving, tokens: dict[str, str]) -> None:
    headers = {"Authorization": f"Bearer {tokens['limited']}"}
    paths = (
        *("/rules", "/rules/environments/prod", "/environments", "/environments/prod"),
        *("/environments/prod?candidate=protected", "/compare?rules=protected&open=1"),
        *("/api/v1/rule-sets/kube-1.36/uses", "/api/v1/rule-sets/environments/prod"),
    )
    answers = [service.get(path, headers=headers) for path in paths]
    assert [answer.status_code for answer in answers] == [403] * len(paths)
