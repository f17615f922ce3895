"""What is hidden from a viewer who is limited to namespaces looks as if it were not there."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from tests.acceptance.test_serve_sessions import hold
from tests.support import serving
from tests.support.live import LIVE
from tests.support.serving import Serving, preempts

PREFIX = "0077"
DIGESTS = (f"{PREFIX}1{0:059}", f"{PREFIX}2{0:059}")
"""Of the first decisions."""
"""With it begins the digest of every decision here. No decision has that number."""


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """`all` sees everything; `own` namespace team-b; `none` a namespace without pods."""
    path = tmp_path_factory.mktemp("tokens") / "tokens.json"
    file = TokenFile(path)
    made = {
        name: file.create(name, Role.VIEWER, namespaces=seen, now_ms=1)
        for name, seen in (("all", None), ("own", ["team-b"]), ("none", ["empty"]))
    }
    made["scheduler"] = file.create("scheduler", Role.EXTENDER, namespaces=None, now_ms=1)
    return {**made, "file": str(path)}


@pytest.fixture(scope="module")
def service(
    tokens: dict[str, str], tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path
) -> Iterator[Serving]:
    """Decision 1 concerns team-a alone, 2 team-b, too; observations are of cluster `real`.

    Batch sessions are of cluster `gangs`, and concern other namespaces.
    """
    folder = tmp_path_factory.mktemp("hidden")
    db = str(folder / "policy.db")
    shutil.copy(sqlite_template, db)
    serving.filled(db)
    files = [str(LIVE / f"wave-kubelet.{end}.gz") for end in ("initial.json", "jsonl")]
    command = [sys.executable, "-m", "policy", "import", "--db", db, "--cluster", "real"]
    subprocess.run([*command, *files], check=True, capture_output=True)
    hold(db, folder)
    started = serving.serve(db, folder, "--tokens", tokens["file"])
    started.ready()
    for call in (preempts("b")[0]["request"], preempts("b")[4]["request"]):
        headers = {"Authorization": f"Bearer {tokens['scheduler']}"}
        assert started.post("/extender/preempt", call, headers=headers).status_code == 200
    with closing(sqlite3.connect(db)) as tampered, tampered:
        # Two whose digests begin alike cannot be made in another way.
        for number, digest in enumerate(DIGESTS, start=1):
            given = (f"sha256:{digest}", number)
            tampered.execute("UPDATE decisions SET digest = ? WHERE id = ?", given)
    yield started
    assert started.stop() == 0


def told(service: Serving, token: str, path: str, wanted: str) -> tuple[int, dict[str, str], str]:
    """Status, head and body of the answer, without what was asked for."""
    answer = service.get(path + wanted, headers={"Authorization": f"Bearer {token}"})
    headers = {k: v for k, v in answer.headers.items() if k not in ("date", "content-length")}
    body = answer.text
    for echo in (
        "`{}`",
        "<code>{}</code>",
        '"{}"',
        "preemption {}",
        "session {}",
        "cluster={}",
        "cluster {}",
    ):
        body = body.replace(echo.format(wanted), echo.format("X"))
    return answer.status_code, headers, body


NUMBERS = {
    "/api/v1/decisions/": Numbered.DECISION,
    "/decisions/": Numbered.DECISION,
    "/api/v1/observations/": Numbered.OBSERVATION,
    "/observed/": Numbered.OBSERVATION,
    "/api/v1/sessions/": Numbered.SESSION,
    "/sessions/": Numbered.SESSION,
}


@pytest.mark.parametrize("path", NUMBERS)
def test_hidden_is_as_absent_by_number(service: Serving, tokens: dict[str, str], path: str) -> None:
    """To the byte, by the number of the record and by what others are shown in its place."""
    shown = [serving.shown(tokens["file"], NUMBERS[path], number) for number in (1, 99_999)]
    answers = [
        told(service, tokens["none"], path, str(number))
        for number in (1, 99_999, *shown, shown[0] + 1)
    ]
    assert answers == [answers[0]] * len(answers)
    assert "default" not in answers[0][2]
    for hidden, absent in ((1, 99_999), shown):
        whole = told(service, tokens["all"], path, str(hidden))
        assert whole != told(service, tokens["all"], path, str(absent))


@pytest.mark.parametrize(
    ("path", "hidden", "absent"),
    [
        ("/api/v1/decisions/", f"{PREFIX}1000", "bbbb1000"),
        ("/api/v1/decisions/", PREFIX, "bbbb"),  # the beginning of two, both hidden
        ("/decisions/", PREFIX, "bbbb"),
        ("/decisions/", DIGESTS[0], "b" * 64),
        ("/?cluster=", "default", "nope"),
        ("/api/v1/decisions?cluster=", "default", "nope"),
        ("/decisions?cluster=", "default", "nope"),
        ("/api/v1/export/decisions?cluster=", "default", "nope"),
        ("/api/v1/observations?cluster=", "real", "nope"),
        ("/api/v1/groups?cluster=", "real", "nope"),
        ("/api/v1/sessions?cluster=", "gangs", "nope"),
        ("/sessions?cluster=", "gangs", "nope"),
    ],
)
def test_hidden_is_as_absent(
    service: Serving, tokens: dict[str, str], path: str, hidden: str, absent: str
) -> None:
    """To the byte; and it is there, for those who may see it."""
    found = told(service, tokens["none"], path, hidden)
    assert found == told(service, tokens["none"], path, absent)
    assert "default" not in found[2]
    whole = told(service, tokens["all"], path, hidden)
    assert whole != told(service, tokens["all"], path, absent)


@pytest.mark.parametrize("space", [" ", "%20", "%09", "%C2%A0", "%E2%80%83"])
@pytest.mark.parametrize("path", NUMBERS)
def test_a_number_is_nothing_but_its_digits(
    service: Serving, tokens: dict[str, str], path: str, space: str
) -> None:
    """One of the record, in any disguise, is found neither among one's own nor among all."""
    for who in ("own", "none", "all"):
        for wanted in (f"{space}1", f"{space}2", f"2{space}", f"+{space}2", f"0{space}2"):
            assert told(service, tokens[who], path, wanted)[0] == 404


def test_a_list_does_not_begin_at_what_is_hidden(service: Serving, tokens: dict[str, str]) -> None:
    """Its place among one's own would tell when it was made: it is as one that does not exist."""
    hidden, own, absent = (
        serving.shown(tokens["file"], Numbered.DECISION, number) for number in (1, 2, 99_999)
    )
    for path in ("/api/v1/decisions", "/decisions", "/api/v1/export/decisions"):
        found = {
            number: told(service, tokens["own"], f"{path}?after=", str(number))
            for number in (hidden, own, absent)
        }
        assert [found[number][0] for number in (hidden, own, absent)] == [400, 200, 400]
        assert found[hidden][2].replace(str(hidden), str(absent)) == found[absent][2]


def test_which_rule_decided_is_not_found_by_trying(
    service: Serving, tokens: dict[str, str]
) -> None:
    """Rules read what else is in the cluster, so a limited viewer is not shown them either."""
    paths = ("/api/v1/decisions", "/decisions", "/api/v1/export/decisions")
    for path in (*paths, "/api/v1/export/decisions.csv"):
        found = [
            told(service, tokens["own"], f"{path}?rule=", rule)
            for rule in ("otherwise", "eligibility/otherwise", "unknown")
        ]
        assert [status for status, *_ in found] == [403, 403, 403]
        assert told(service, tokens["all"], f"{path}?rule=", "otherwise")[0] == 200
    own = {"Authorization": f"Bearer {tokens['own']}"}
    fields = service.get("/decisions", headers=own).text
    assert ('name="rules"' in fields, 'name="rule"' in fields) == (True, False)


def test_a_digest_is_found_whole_by_who_is_limited(
    service: Serving, tokens: dict[str, str]
) -> None:
    """By its beginnings it could be found out digit by digit, and is shown nowhere."""
    all_of_it = {"Authorization": f"Bearer {tokens['all']}"}
    whole = service.get(f"/api/v1/decisions/{PREFIX}", headers=all_of_it)
    beginning = service.get(f"/api/v1/decisions/{DIGESTS[1][:63]}", headers=all_of_it)
    number = serving.shown(tokens["file"], Numbered.DECISION, 2)
    own = told(service, tokens["own"], "/api/v1/decisions/", str(number))
    found = told(service, tokens["own"], "/api/v1/decisions/", DIGESTS[1])
    for beginnings in (PREFIX, DIGESTS[1][:63], f"sha256:{DIGESTS[1][:63]}"):
        assert told(service, tokens["own"], "/api/v1/decisions/", beginnings)[0] == 404
    assert (whole.status_code != 200, "more than one" in whole.text) == (True, True)
    assert beginning.status_code == 200
    seen = service.get("/api/v1/decisions", headers={"Authorization": f"Bearer {tokens['own']}"})
    assert [one["id"] for one in seen.json()["decisions"]] == [number]
    assert (found[0], found[2]) == (200, own[2])


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("/decisions/2?why_not=n1", "why_not"),
        ("/decisions/99999?rules=kube-1.36", "rules"),
        ("/observed?rules=kube-1.36", "rules"),
        ("/observed/1?again=1", "again"),
        ("/sessions/1?show=effects", "show"),
        ("/sql?saved=preemptions-by-hour", "saved"),
    ],
)
def test_what_is_not_for_everybody_is_refused_and_not_ignored(
    service: Serving, tokens: dict[str, str], address: str, name: str
) -> None:
    asked = {
        who: service.get(address, headers={"Authorization": f"Bearer {tokens[who]}"})
        for who in ("own", "all")
    }
    assert asked["own"].status_code == 403
    told = f"a token that is limited to namespaces may not ask for `{name}`"
    assert told in asked["own"].text.replace("<code>", "`").replace("</code>", "`")
    assert asked["all"].status_code in (200, 404)
