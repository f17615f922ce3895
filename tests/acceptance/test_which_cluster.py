"""The cluster that commands look at where `--cluster` does not name one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.commands import NOW, Policy

ASKED = (
    "Error: the database holds several clusters, and none is named `default`\n"
    "  help: name one with `--cluster`: `eu`, `us`\n"
)
LOOKING = [
    ["run", "--dry-run", "--now", NOW],
    ["preempt", "shop/high", "--dry-run", "--now", NOW],
    ["what-if", "shop/high", "--now", NOW],
    ["compare", "--rules", "kube-1.28"],
    ["replay", "--all"],
    ["report", "thrash", "--part", "workloads"],
    ["report", "cost"],
    ["rules", "coverage"],
    ["state", "show"],
    ["state", "revisions"],
    ["env", "create", "prod"],
    ["batch", "run", "--dry-run", "--now", NOW],
    ["batch", "what-if", "--remove-node", "n1", "--now", NOW],
    ["batch", "replay", "--all"],
    ["simulate", "--from-record", "--rules", "kube-1.28", "--dry-run"],
]
each = pytest.mark.parametrize("command", LOOKING, ids=" ".join)


@pytest.fixture
def eu(
    policy: Policy, dump: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    """A database whose only cluster is `eu`, where decision 1 was made."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POLICY_ENV", raising=False)
    monkeypatch.setenv("POLICY_DB", database_url)
    assert policy("import", dump, "--cluster", "eu").status == 0
    assert policy("preempt", "shop/high", "--cluster", "eu", "--now", NOW).status == 0


@each
def test_the_only_cluster_is_taken(policy: Policy, eu: None, command: list[str]) -> None:
    """What is printed is the same as where it is named."""
    taken = policy(*command)
    assert taken.status == 0
    if command[0] != "env":  # which cannot be created twice
        named = policy(*command, "--cluster", "eu")
        assert (named.status, named.out.split()) == (0, taken.out.split())


@each
def test_of_several_one_has_to_be_named(
    policy: Policy, eu: None, dump: Path, command: list[str]
) -> None:
    """Where none has the name `default`, the command asks and lists them; nothing is printed."""
    assert policy("import", dump, "--cluster", "us").status == 0
    done = policy(*command)
    assert (done.status, done.out, ASKED in done.err) == (2, "", True)


@each
def test_default_among_several_is_taken_and_said(
    policy: Policy, eu: None, dump: Path, command: list[str]
) -> None:
    """Figures of one cluster are not taken for those of all."""
    assert policy("import", dump).status == 0
    said = "cluster `default` is meant; `--cluster` names another one: `eu`\n"
    silent = policy(*command, "--cluster", "eu")
    assert [said in done.err for done in (policy(*command), silent)] == [True, False]


def test_a_decision_says_of_which_cluster_it_is(policy: Policy, eu: None, dump: Path) -> None:
    """Commands about one decision, or from one on, need no name, whatever clusters there are."""
    assert policy("import", dump).status == 0
    done = [
        policy("state", "show", "--at", "decision:1"),
        policy("what-if", "--at", "decision:1", "--rules", "kube-1.28"),
        policy("compare", "--show", "1", "--rules", "kube-1.28"),
        policy("replay", "1"),
    ]
    assert [(one.status, "--cluster" in one.err) for one in done] == [(0, False)] * 4
    assert done[0].err == "cluster eu at revision 1\n"


def test_kept_simulations_have_to_be_named(policy: Policy, eu: None) -> None:
    """Neither they nor the name under which simulations are recorded is one of several clusters."""
    simulated = policy("simulate", "--from-record", "--rules", "kube-1.28", "--keep", "kept")
    assert simulated.status == 0
    assert policy("state", "show").err == "cluster eu at revision 2\n"


def test_an_import_says_that_its_cluster_is_new_beside_others(
    policy: Policy, eu: None, dump: Path
) -> None:
    """Whoever forgets `--cluster` learns it; the next import of the cluster says nothing more."""
    first = policy("import", dump, "-o", "json")
    again = policy("import", dump, "-o", "json")
    assert json.loads(first.out)["cluster"] == "default"
    assert (first.err, again.err) == (
        "cluster default is at revision 1\n"
        "cluster `default` is new in this database, beside `eu`\n",
        "nothing changed: cluster default stays at revision 1\n",
    )


@pytest.mark.parametrize(
    "listed", ["decisions", "nominations", "groups", "batch sessions", "observed"]
)
def test_lists_for_programs_name_the_cluster(
    policy: Policy, eu: None, dump: Path, listed: str
) -> None:
    """CSV has the same columns whatever is listed; a table of one cluster does not repeat it."""
    command = listed.split()
    one, people = policy(*command, "-o", "csv"), policy(*command)
    assert policy("import", dump, "--cluster", "us").status == 0
    assert policy("preempt", "shop/high", "--cluster", "us", "--now", NOW).status == 0
    two, none = policy(*command, "-o", "csv"), policy(*command, "--since", "1d", "-o", "csv")
    if listed == "nominations":
        none = policy(*command, "--pod", "nothing/here", "-o", "csv")
    headings = {done.out.splitlines()[0] for done in (one, two, none)}
    assert ("cluster" in headings.pop().split(","), headings) == (True, set())
    assert "eu" not in people.out.split()
