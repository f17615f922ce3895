"""`policy db prune`: says beforehand what goes, and leaves a record that can be verified."""

from __future__ import annotations

import json

from click.testing import CliRunner

from policy.cli.app import cli
from policy.rules import RuleSet
from policy.scheduling.cycle import Scheduler
from policy.store import Store
from policy.store.journal import StoreJournal
from tests.support.builders import NOW_MS, a_node, a_pod, objects

DAY_MS = 86_400_000


def run(*arguments: str) -> str:
    """Standard output of a command line that ends well."""
    result = CliRunner().invoke(cli, list(arguments), standalone_mode=False)
    assert result.exception is None, result.exception
    assert not result.return_value
    return result.stdout


def filled(url: str) -> None:
    """Two decisions of a year ago and one of last month."""
    times = (NOW_MS - 365 * DAY_MS, NOW_MS - 364 * DAY_MS, NOW_MS - 30 * DAY_MS)
    with Store.open(url) as store:
        store.record.import_objects(
            "default",
            objects(a_node("n1").cpu(8), *(a_pod(f"p{i}").cpu(1) for i in range(3))),
            at_ms=times[0],
            source="test",
        )
        for i, at in enumerate(times):
            journal = StoreJournal(store, "default", actor="ann", clock=lambda at=at: at)
            rules = RuleSet.load("kube-1.35")
            Scheduler(journal, rules, clock=lambda at=at: at, seed=0).decide(f"default/p{i}")


def kept(url: str) -> list[int]:
    with Store.open(url) as store:
        return sorted(row.id for row in store.read.decisions("default"))


def test_without_yes_it_only_says_what_would_go(database_url: str) -> None:
    """The plan names the decisions, and nothing is taken out."""
    filled(database_url)
    before = "2026-06-01T00:00:00Z"
    told = json.loads(
        run("db", "prune", "--older-than", before, "--db", database_url, "--output", "json")
    )
    assert ([(p["first_decision"], p["last_decision"]) for p in told], kept(database_url)) == (
        [(1, 2)],
        [1, 2, 3],
    )


def test_what_stays_is_verified(database_url: str) -> None:
    """Old decisions are gone, the others stay, and the chain holds."""
    filled(database_url)
    before = "2026-06-01T00:00:00Z"
    run("db", "prune", "--older-than", before, "--yes", "--db", database_url)
    run("audit", "verify", "--db", database_url)
    assert kept(database_url) == [3]
