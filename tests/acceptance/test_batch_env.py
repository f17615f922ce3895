"""Batch rules that are active in an environment, or named by digest, as in every other command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.acceptance.commands import Policy
from tests.acceptance.test_volcano_cli import CLUSTER


@pytest.fixture
def database(tmp_path: Path, policy: Policy, database_url: str) -> str:
    """A cluster with two environments: `gangs` for sessions, `pods` for single decisions."""
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER)
    assert policy("import", file, "--db", database_url).status == 0
    for name, rules in (("gangs", "volcano"), ("pods", "kube-1.36")):
        assert policy("env", "create", name, "--db", database_url).status == 0
        activate = ("env", "activate", name, rules, "--reason", "as in the cluster")
        assert policy(*activate, "--db", database_url).status == 0
    return database_url


def test_sessions_take_what_is_active(
    policy: Policy, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The session is kept with its environment, and replays; a later activation decides next."""
    at = ("--db", database)
    assert policy("batch", "run", "--env", "gangs", *at).status == 0
    activate = ("env", "activate", "gangs", "volcano-capacity", "--reason", "queues in a tree")
    assert policy(*activate, *at).status == 0
    monkeypatch.setenv("POLICY_ENV", "gangs")
    assert policy("batch", "run", *at).status == 0
    monkeypatch.delenv("POLICY_ENV")
    listed = json.loads(policy("batch", "sessions", *at, "-o", "json").out)
    assert [(row["environment"], row["rule_set"]) for row in listed] == [
        ("gangs", "volcano-capacity"),
        ("gangs", "volcano"),
    ]
    assert policy("batch", "replay", "--all", *at).status == 0
    back = policy("env", "rollback", "gangs", "--reason", "too early", *at)
    assert (back.status, "volcano" in back.out) == (0, True)


def test_comparisons_take_what_is_active_or_a_digest(policy: Policy, database: str) -> None:
    """`--env` and `sha256:` name the same rules in `compare` and `what-if`."""
    at = ("--db", database)
    assert policy("batch", "run", "--rules", "kube-batch", *at).status == 0
    digest = policy("rules", "show", "--env", "gangs", *at).err.strip()
    assert digest.startswith("sha256:")
    for command in (("compare", "1"), ("what-if", "--remove-node", "n1")):
        by_env = policy("batch", *command, "--env", "gangs", *at, "-o", "json")
        by_digest = policy("batch", *command, "--rules", digest, *at, "-o", "json")
        assert by_env == by_digest
        assert json.loads(by_env.out)
    neither = policy("batch", "compare", "1", *at)
    assert (neither.status, "`--rules` or `--env`" in neither.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("batch", "run", "--env", "pods"), "environment `pods` holds rule sets for single pods"),
        (("run", "--env", "gangs"), "environment `gangs` holds rules of batch sessions"),
        (("batch", "run", "--env", "gangs", "--rules", "volcano"), "`--env` picks cluster"),
        (
            ("env", "activate", "pods", "volcano", "--reason", "x"),
            "environment `pods` holds rule sets for single pods, and not rules of batch sessions"
            " such as `volcano`",
        ),
        (
            ("env", "activate", "gangs", "kube-1.36", "--reason", "x"),
            "environment `gangs` holds rules of batch sessions, and not rule sets for single pods"
            " such as `kube-1.36`",
        ),
    ],
)
def test_an_environment_holds_one_kind_of_rules(
    policy: Policy, database: str, arguments: tuple[str, ...], message: str
) -> None:
    """What single pods are decided by holds no sessions, nor the other way round."""
    refused = policy(*arguments, "--db", database)
    assert (refused.status != 0, message in refused.err) == (True, True), refused.err


def test_cases_beside_batch_rules_have_to_pass(
    policy: Policy, database: str, tmp_path: Path
) -> None:
    """As for other rules: where a case beside them fails, nothing is activated."""
    file = tmp_path / "mine.yaml"
    file.write_text(
        "apiVersion: policy/v1\nkind: BatchRules\nmetadata: {name: mine}\nextends: volcano\n"
    )
    cases = tmp_path / "mine.cases.yaml"
    cases.write_text(
        "- note: nothing is placed\n  nodes: {n1: {cpu: 2}}\n  queues: {default: 1}\n"
        "  gangs: {a: {cpu: 1, waiting: 1}}\n  want: {mine: {binds: {}}}\n"
    )
    refused = policy("env", "activate", "gangs", file, "--reason", "x", "--db", database)
    assert (refused.status, "nothing was activated" in refused.err) == (1, True)
    cases.write_text(cases.read_text().replace("binds: {}", "binds: {a-0: n1}"))
    done = policy("env", "activate", "gangs", file, "--reason", "x", "--db", database)
    assert done.status == 0, done.err
