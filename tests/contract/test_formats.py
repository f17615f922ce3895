"""Databases of released formats: upgraded, verified and replayed as on the day they were made."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from policy.audit.group_replay import GroupReplayer
from policy.audit.replay import MissingInput, ReplayVerdict, replay_all
from policy.audit.session_replay import SessionReplayer
from policy.batch import BatchRules
from policy.batch.result import ENGINE_VERSION as BATCH_ENGINE_VERSION
from policy.decision.model import ENGINE_VERSION
from policy.rules import RuleSet
from policy.store import KeptHead, Store, check, current, downgrade, upgrade
from policy.store.tables.base import LEDGER_FORMAT
from tests.contract.stranger import verify
from tests.support.format_database import FOLDER, GOLDEN, restore_postgres, restore_sqlite
from tests.support.tried import Kind, Tried

FORMATS = sorted(path.parent.name for path in FOLDER.glob(f"*/{GOLDEN}"))


def golden_of(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name / GOLDEN).read_text())


@dataclass(frozen=True)
class Released:
    """The database of a format, as it was released, and what must be found in it."""

    url: str
    kind: str
    golden: dict[str, Any]

    @property
    def heads(self) -> dict[str, Any]:
        return self.golden["heads"][self.kind]


@pytest.fixture(params=FORMATS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=["sqlite", "postgres"])
def released(
    request: pytest.FixtureRequest, name: str, tmp_path: Path, make_postgres: Callable[..., str]
) -> Released:
    if request.param == "sqlite":
        url = str(tmp_path / "policy.db")
        restore_sqlite(name, Path(url))
    else:
        url = make_postgres(None)
        restore_postgres(name, url)
    return Released(url=url, kind=request.param, golden=golden_of(name))


@pytest.fixture
def upgraded(released: Released) -> Released:
    upgrade(released.url)
    return released


def replayed(
    engine: str, made_by: str, *, hypothetical: bool = False
) -> tuple[ReplayVerdict, tuple[MissingInput, ...]]:
    """What a replay gives.

    A decision of an older engine, or on a state that never was, is reported and not made again.
    """
    if made_by != engine:
        return ReplayVerdict.INCOMPLETE, (MissingInput.ENGINE,)
    if hypothetical:
        return ReplayVerdict.INCOMPLETE, (MissingInput.HYPOTHETICAL,)
    return ReplayVerdict.EQUAL, ()


def verdicts(store: Store, golden: dict[str, Any]) -> list[Any]:
    ids = [row["id"] for row in golden["decisions"]]
    batch, groups = (
        sorted(store.read.sessions(kind=kind, hypothetical=None), key=lambda row: row.id)
        for kind in ("batch", "group")
    )
    found = [
        *replay_all(store, ids),
        *SessionReplayer(store).replay_all(batch),
        *GroupReplayer(store).replay_all(groups),
    ]
    return [(r.row.digest, r.verdict, r.missing) for r in found]


def test_it_is_upgraded_to_the_newest_schema(released: Released) -> None:
    """From the schema it was made with; nothing is wrong with it then."""
    assert current(released.url).revision == released.golden["schema"]
    assert upgrade(released.url).up_to_date
    assert check(released.url).problems == ()


def test_its_ledger_has_the_kept_heads(upgraded: Released) -> None:
    """Every entry is computed again; the newest of each cluster are the ones that were kept."""
    kept = [
        KeptHead(hash=head["hash"], cluster=cluster, sequence=head["sequence"])
        for cluster, head in upgraded.heads.items()
    ]
    with Store.open(upgraded.url) as store:
        result = store.ledger.verify(kept=kept)
        found = {h.cluster: {"sequence": h.sequence, "hash": h.hash} for h in result.heads}
        formats = store.sql("SELECT DISTINCT format FROM ledger", trust_connection=True)
        with formats:
            assert list(formats) == [(upgraded.golden["ledger_format"],)]
    assert (result.findings, found) == ((), upgraded.heads)
    assert [p.decisions for p in result.prunings] == [2]


def test_its_decisions_are_what_they_were(upgraded: Released) -> None:
    """Numbers, outcomes and digests, of decisions, sessions and the rule sets they name."""
    golden = upgraded.golden
    with Store.open(upgraded.url) as store:
        rows = sorted(store.read.decisions(hypothetical=None), key=lambda row: row.id)
        decisions = [
            {
                "id": row.id,
                "cluster": row.cluster,
                "preemptor": row.preemptor,
                "outcome": row.outcome,
                "rules": row.rule_set,
                "hypothetical": row.hypothetical,
                "digest": row.digest,
            }
            for row in rows
        ]
        held = sorted(store.read.sessions(hypothetical=None), key=lambda row: row.id)
        sessions = [
            {
                "id": row.id,
                "kind": row.kind,
                "hypothetical": row.hypothetical,
                "digest": row.digest,
            }
            for row in held
        ]
        used = {row.rule_set_digest for row in (*rows, *held)}
    assert (decisions, sessions, sorted(used)) == (
        golden["decisions"],
        golden["sessions"],
        golden["rule_sets"],
    )


def test_its_decisions_are_made_again(upgraded: Released, tried: Tried) -> None:
    """Every replay is equal: not a key of what is hashed was renamed."""
    golden = upgraded.golden
    real = [d for d in (*golden["decisions"], *golden["sessions"]) if not d["hypothetical"]]
    tried(Kind.OLD_FORMAT, len(real))
    made_by = {
        "batch": (BATCH_ENGINE_VERSION, golden["batch_engine"]),
        "group": (ENGINE_VERSION, golden["engine"]),
    }
    with Store.open(upgraded.url) as store:
        found = verdicts(store, golden)
    assert found == [
        *(
            (
                d["digest"],
                *replayed(ENGINE_VERSION, golden["engine"], hypothetical=d["hypothetical"]),
            )
            for d in golden["decisions"]
        ),
        *(
            (s["digest"], *replayed(*made_by[s["kind"]], hypothetical=s["hypothetical"]))
            for kind in made_by
            for s in golden["sessions"]
            if s["kind"] == kind
        ),
    ]


def test_its_rule_sets_are_read_as_they_were(upgraded: Released) -> None:
    """A stored text keeps its digest, and so does what this program reads of it."""
    with Store.open(upgraded.url) as store:
        texts = {digest: store.read.rule_set(digest) for digest in upgraded.golden["rule_sets"]}
    hashed = {
        digest: f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
        for digest, text in texts.items()
    }
    read = {
        digest: (BatchRules if '"kind":"BatchRules"' in text else RuleSet)
        .from_canonical(text)
        .digest
        for digest, text in texts.items()
    }
    same = {digest: digest for digest in texts}
    assert (hashed, read) == (same, same)


def test_it_goes_back_to_its_schema_and_forth(upgraded: Released) -> None:
    """A downgrade to the format's schema and an upgrade lose nothing."""
    golden = upgraded.golden
    assert downgrade(upgraded.url, golden["schema"]).revision == golden["schema"]
    assert upgrade(upgraded.url).up_to_date
    assert check(upgraded.url).problems == ()
    with Store.open(upgraded.url) as store:
        assert store.ledger.verify(kept=[h["hash"] for h in upgraded.heads.values()]).ok
        assert {verdict for _, verdict, _ in verdicts(store, golden)} <= {
            ReplayVerdict.EQUAL,
            ReplayVerdict.INCOMPLETE,
        }


def test_a_stranger_verifies_it(name: str, tmp_path: Path) -> None:
    """As it was committed, with docs/formats.md and Python alone, pruned past included."""
    file = tmp_path / "policy.db"
    restore_sqlite(name, file)
    heads = golden_of(name)["heads"]["sqlite"]
    assert verify(file) == {cluster: (head["sequence"], []) for cluster, head in heads.items()}
    with sqlite3.connect(file) as connection:
        query = "SELECT c.name, max(sequence), hash FROM ledger l JOIN clusters c"
        query += " ON c.id = l.cluster_id GROUP BY c.name"
        rows = connection.execute(query).fetchall()
    connection.close()
    assert {name: {"sequence": at, "hash": found} for name, at, found in rows} == heads


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE nodes SET cpu_milli = 5 WHERE valid_from = 1 AND key = 'n4'",
        "UPDATE activations SET reason = 'x' WHERE id = 1",
        "UPDATE revisions SET source = 'x' WHERE (cluster_id, number)"
        " IN (SELECT cluster_id, last_revision FROM prunings)",
        "UPDATE prunings SET decision_count = 1",
    ],
)
def test_a_stranger_notices_what_was_changed_before_the_pruning(
    name: str, tmp_path: Path, harm: str
) -> None:
    """What a pruning left is covered by its entry."""
    file = tmp_path / "policy.db"
    restore_sqlite(name, file)
    with sqlite3.connect(file) as connection:
        assert connection.execute(harm).rowcount > 0
        query = "SELECT sequence FROM ledger WHERE pruning_id IS NOT NULL"
        [(sequence,)] = connection.execute(query)
    connection.close()
    assert sequence in verify(file)["prod"][1]


def test_todays_versions_have_a_committed_database() -> None:
    """Whoever raises a version commits a database of the new format; see docs/formats.md."""
    made = {(g["engine"], g["batch_engine"], g["ledger_format"]) for g in map(golden_of, FORMATS)}
    assert (ENGINE_VERSION, BATCH_ENGINE_VERSION, LEDGER_FORMAT) in made
