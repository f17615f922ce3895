"""What is not shown to a viewer who is limited to namespaces is not read for them either."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from policy.server.app import build
from policy.server.config import Config
from policy.server.security.access import Access
from policy.server.security.numbers import Numbered
from policy.server.security.tokens import Role, TokenFile
from policy.server.service import PolicyService
from policy.store import Store
from tests.acceptance.test_serve_sessions import hold
from tests.contract.builders import BY_HAND, NOW, a_cluster, a_decision, made_on, the_changes
from tests.contract.filled import observe
from tests.contract.plans import statements
from tests.support import serving

OWN = {
    "/decisions/1": Numbered.DECISION,
    "/sessions/1": Numbered.SESSION,
    "/api/v1/sessions/1": Numbered.SESSION,
}
"""Addresses that end in a number, of which a limited viewer is shown another one."""

HIDDEN = {
    # Revisions and totals tell for everyone which clusters hold kept simulations.
    "/": {
        *("activations", "environments", "hour_totals", "ledger"),
        *("nominations", "v_nominations", "v_pdb_violations", "pods", "simulations"),
    },
    "/decisions": {"decision_totals", "hour_totals", "revisions"},
    "/decisions/1": {"nodes", "pods", "nominations", "nomination_ends", "revisions"},
    "/workloads/shop/web": {"activations", "environments"},
    "/workloads/lab/hit": {
        *("activations", "environments", "namespaces", "nodes"),
        *("pod_disruption_budgets", "priority_classes"),
    },
    "/observed": {"gaps"},
    "/sessions": set(),
    "/sessions/1": set(),
}
"""By page, what is read for sections that only those who see all namespaces are shown."""


@pytest.fixture(scope="module")
def tokens(folder: Path) -> dict[str, str]:
    """`all` sees everything, `own` the namespaces of all victims, and no others."""
    file = TokenFile(folder / "tokens.json")
    seen = {"all": None, "own": ["shop", "lab"]}
    return {
        name: file.create(name, Role.VIEWER, namespaces=spaces, now_ms=1)
        for name, spaces in seen.items()
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sqlite_template: Path) -> Path:
    """A decision, an observed preemption and a batch session, each with victims."""
    made = tmp_path_factory.mktemp("unseen")
    db = made / "policy.db"
    db.write_bytes(sqlite_template.read_bytes())
    with Store.open(str(db)) as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW - 60_000, source="test")
        store.record.create_environment("prod", "default", at_ms=NOW, actor="test")
        serving.activate(store, "kube-1.36")
        store.record.decision(
            "default",
            made_on(store, a_decision()),
            the_changes(),
            expected_revision=1,
            rules=BY_HAND,
            actor="ann",
            at_ms=NOW,
        )
        observe(store, "default")
    hold(str(db), made)
    return made


def sent(folder: Path, token: str, path: str, *, status: int = 200) -> str:
    """The statements that are sent to the database while the page is made."""
    config = Config(
        db=str(folder / "policy.db"), tokens=folder / "tokens.json", spool=folder / "spool"
    )

    async def got() -> list[str]:
        service = PolicyService(config)
        service.open()
        app = build(service, Access(config, clock=service.clock))
        transport = httpx.ASGITransport(app=app)
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/html"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            with statements(service.store) as found:
                answer = await client.get(path, headers=headers)
        await service.close()
        assert answer.status_code == status, answer.text
        return [statement for statement, _ in found]

    return " ".join(asyncio.run(got()))


def own(folder: Path, path: str) -> str:
    """The address of the same for a limited viewer."""
    before, _, number = path.rpartition("/")
    if path not in OWN:
        return path
    return f"{before}/{serving.shown(folder / 'tokens.json', OWN[path], int(number))}"


def tables(folder: Path, token: str, path: str, *, status: int = 200) -> set[str]:
    """The tables and views that these statements name."""
    statements = sent(folder, token, path, status=status)
    named = set(re.findall(r"\b(?:FROM|JOIN)\s+(\w+)", statements))
    with closing(sqlite3.connect(folder / "policy.db")) as connection:
        known = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    return named & known  # without the names that statements give to parts of theirs


@pytest.mark.parametrize("path", HIDDEN)
def test_hidden_sections_are_not_computed(folder: Path, tokens: dict[str, str], path: str) -> None:
    """Tables that only the page of a viewer of everything reads."""
    found = tables(folder, tokens["all"], path) - tables(folder, tokens["own"], own(folder, path))
    assert found == HIDDEN[path]


def test_questions_of_a_limited_viewer_are_not_answered(
    folder: Path, tokens: dict[str, str]
) -> None:
    """A decision is not made again, nor by other rules: that is refused before anything is read."""
    asked = ("show=spared", "replay=1", "rules=max-victims", "why_not=n2")
    its = own(folder, "/decisions/1")
    refused = [tables(folder, tokens["own"], f"{its}?{one}", status=403) for one in asked]
    assert refused == [set()] * len(asked)
    everything = tables(folder, tokens["all"], f"/decisions/1?{'&'.join(asked)}")
    assert everything >= {"namespaces", "pod_disruption_budgets", "priority_classes"}


@pytest.mark.parametrize("path", ["/sessions/1", "/api/v1/sessions/1"])
def test_what_others_tried_in_a_session_is_not_read(
    folder: Path, tokens: dict[str, str], path: str
) -> None:
    """Queues, jobs and reasons are in its document, and in the details of its steps."""
    columns = ("sessions.document", "session_steps.detail")
    paths = {"all": path, "own": own(folder, path)}
    found = {
        name: [column in sent(folder, tokens[name], at) for column in columns]
        for name, at in paths.items()
    }
    assert found == {"all": [True, True], "own": [False, False]}
