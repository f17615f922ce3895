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
        for number in (1, 2):
            digest = f"sha256:{PREFIX}{number:060}"
            tampered.execute("UPDATE decisions SET digest = ? WHERE id = ?", (digest, number))
    yield started
    assert started.stop() == 0


def told(service: Serving, token: str, path: str, wanted: str) -> tuple[int, dict[str, str], str]:
    """Status, head and body of the answer, without what was asked for."""
    answer = service.get(path + wanted, headers={"Authorization": f"Bearer {token}"})
    headers = {k: v for k, v in answer.headers.items() if k not in ("date", "content-length")}
    body = answer.text
    for echo in ("`{}`", '"{}"', "preemption {}", "session {}", "cluster={}", "cluster {}"):
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
        ("/api/v1/decisions/", f"{PREFIX}0000", "bbbb0000"),
        ("/api/v1/decisions/", PREFIX, "bbbb"),  # the beginning of two, both hidden
        ("/decisions/", PREFIX, "bbbb"),
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


def test_a_beginning_is_that_of_ones_own(service: Serving, tokens: dict[str, str]) -> None:
    """Decisions that the viewer does not see make it none of more than one."""
    whole = service.get(
        f"/api/v1/decisions/{PREFIX}", headers={"Authorization": f"Bearer {tokens['all']}"}
    )
    number = serving.shown(tokens["file"], Numbered.DECISION, 2)
    own = told(service, tokens["own"], "/api/v1/decisions/", str(number))
    found = told(service, tokens["own"], "/api/v1/decisions/", PREFIX)
    assert (whole.status_code != 200, "more than one" in whole.text) == (True, True)
    seen = service.get("/api/v1/decisions", headers={"Authorization": f"Bearer {tokens['own']}"})
    assert [one["id"] for one in seen.json()["decisions"]] == [number]
    assert (found[0], found[2]) == (200, own[2])
