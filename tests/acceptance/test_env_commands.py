"""`policy env` for people: what is refused changes nothing, and says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from policy.cli.app import cli
from policy.proving.solver import version
from policy.rules import RuleSet
from policy.store import Store
from policy.store.record.environments import RuleSetChanged
from tests.contract.builders import NOW, a_cluster

RULES = """\
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: mine}
extends: kube-1.35
"""
CASES = """\
- note: nobody is taken
  nodes: {n1: {cpu: 1}}
  pods: {low: {node: n1, cpu: 1}, high: {priority: 1, cpu: 1}}
  want: {node: null}
"""


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster with environment `prod`, in which kube-1.28 is active."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("POLICY_ENV", raising=False)
    with Store.open("policy.db") as store:
        store.record.import_objects("default", a_cluster(), at_ms=NOW, source="dump")
    assert policy("env", "create", "prod").exit_code == 0
    assert policy("env", "activate", "prod", "kube-1.28", "--reason", "first").exit_code == 0
    return tmp_path / "policy.db"


def policy(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False)


def active() -> tuple[str, int]:
    """The active rule set of `prod`, and how often something was activated."""
    shown = json.loads(policy("env", "show", "prod", "--output", "json").stdout)
    return shown["rule_set"], len(shown["activations"])


def test_a_file_that_does_not_load_changes_nothing(database: Path) -> None:
    """Its errors are told as everywhere; what was active stays so."""
    Path("mine.yaml").write_text(RULES + "spec: {victims: {maxVictims: none}}\n")
    done = policy("env", "activate", "prod", "mine.yaml", "--reason", "new")
    assert "mine.yaml:5:30: `maxVictims` must be a whole number" in str(done.exception)
    assert active() == ("kube-1.28", 1)


def test_rules_whose_cases_fail_are_not_activated(database: Path) -> None:
    """The cases beside the file run first; with the case corrected, the file is activated."""
    Path("mine.yaml").write_text(RULES)
    Path("mine.cases.yaml").write_text(CASES)
    done = policy("env", "activate", "prod", "mine.yaml", "--reason", "new")
    assert (done.return_value, done.stderr) == (
        1,
        "mine.cases.yaml:1: `mine` fails: nobody is taken\n"
        "      node: wanted none, got `n1`\n"
        "1 failing case; nothing was activated\n",
    )
    assert active() == ("kube-1.28", 1)
    Path("mine.cases.yaml").write_text(CASES.replace("node: null", "node: n1"))
    assert policy("env", "activate", "prod", "mine.yaml", "--reason", "new").return_value == 0
    assert active() == ("mine", 2)


def test_what_is_active_already_is_left_as_it_is(database: Path) -> None:
    """The same rules again are no activation."""
    done = policy("env", "activate", "prod", "kube-1.28", "--reason", "again")
    assert done.stderr == "`kube-1.28` is active in `prod` already; nothing was changed\n"
    assert active() == ("kube-1.28", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["env", "activate", "prod", "kube-1.35", "--reason", " "], "`--reason` is empty"),
        (["env", "activate", "prod", "kube-1.35"], "Missing parameter: reason"),
        (["env", "rollback", "prod", "--reason", "x"], "no earlier rule set to go back to"),
        (["env", "create", "prod"], "there is an environment `prod` already"),
        (["env", "create", "test", "--cluster", "tset"], "there is no cluster `tset`"),
        (["env", "use", "test"], "there is no environment `test`"),
        (["run", "--env", "prod", "--rules", "kube-1.35"], "`--rules` cannot be given as well"),
        (["preempt", "a/b", "--env", "prod", "--cluster", "x"], "`--cluster` cannot be given"),
        (["run", "--env", "test"], "there is no environment `test`"),
        (["run", "--watch", "--settle"], "records its decisions as they come, on the real clock"),
    ],
)
def test_what_cannot_be_is_refused(database: Path, arguments: list[str], message: str) -> None:
    """Each with its message; nothing is activated, and nothing is decided."""
    done = policy(*arguments)
    assert message in f"{done.exception}{done.stderr}"
    assert active() == ("kube-1.28", 1)
    with Store.open(str(database)) as store:
        assert store.read.decisions() == []


def test_the_environment_of_the_shell_decides(
    database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `env use` prints makes later commands decide in the environment."""
    line = policy("env", "use", "prod").stdout.strip()
    assert line == "export POLICY_ENV=prod"
    monkeypatch.setenv("POLICY_ENV", "prod")
    assert policy("preempt", "team/urgent").return_value == 0
    with Store.open(str(database)) as store:
        (row,) = store.read.decisions()
    assert (row.environment, row.rule_set) == ("prod", "kube-1.28")
    refused = policy("compare", "--rules", "kube-1.20")
    assert str(refused.exception) == (
        "`POLICY_ENV=prod` picks cluster and rule set, so `--rules` cannot be given as well"
    )


def test_the_list_shows_what_is_active_and_why(database: Path) -> None:
    """One line per environment: cluster, rule set, since when, by whom, for what reason."""
    (row,) = json.loads(policy("env", "list", "--output", "json").stdout)
    shown = {name: row[name] for name in ("environment", "cluster", "rule_set", "reason")}
    assert shown == {
        "environment": "prod",
        "cluster": "default",
        "rule_set": "kube-1.28",
        "reason": "first",
    }


def test_a_file_without_cases_is_activated_with_a_warning(database: Path) -> None:
    """That nothing shows what the rules decide is said, and not refused."""
    Path("mine.yaml").write_text(RULES)
    done = policy("env", "activate", "prod", "mine.yaml", "--reason", "new")
    assert (done.return_value, done.stderr, active()) == (
        0,
        "warning: there are no cases beside `mine.yaml`: what it decides is not tested\n",
        ("mine", 2),
    )


def shown() -> dict[str, Any]:
    """The newest activation of `prod`, as `env show` has it."""
    whole: dict[str, Any] = json.loads(policy("env", "show", "prod", "--output", "json").stdout)
    newest: dict[str, Any] = whole["activations"][0]
    return newest


PROTECTS = "spec: {victims: {forbid: [{id: mine, when: victim.namespace == 'mine'}]}}\n"


def test_an_activation_keeps_what_was_proved(database: Path) -> None:
    """Claims, the digest compared with and the solver stand in the row, which the ledger covers."""
    Path("mine.yaml").write_text(RULES.replace("kube-1.35", "kube-1.28") + PROTECTS)
    never = "never:victim.namespace == 'mine'"
    required = ["--require-proof", never, "--require-proof", "at-least:active"]
    before = shown()["digest"]
    done = policy("env", "activate", "prod", "mine.yaml", "--reason", "new", *required)
    assert done.return_value == 0
    claims = [
        {"claim": claim, "verdict": "proved", "against": against}
        for claim, against in (
            ("no victim of equal or higher priority", ""),
            ("never: victim.namespace == 'mine'", ""),
            ("at least as protective as `kube-1.28`, which is active", before),
        )
    ]
    assert shown()["proofs"] == {"claims": claims, "solver": version()}
    assert policy("audit", "verify").return_value == 0


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ("never:victim.namespace == 'mine'", "refuted: never: victim.namespace == 'mine'"),
        ("at-least:active", "refuted: at least as protective as `strict`, which is active"),
    ],
)
def test_what_is_refuted_changes_nothing(database: Path, claim: str, said: str) -> None:
    """The counterexample is shown, and the exit status is that of `rules prove`."""
    Path("strict.yaml").write_text(RULES.replace("mine", "strict") + PROTECTS)
    assert policy("env", "activate", "prod", "strict.yaml", "--reason", "s").return_value == 0
    done = policy(
        "env", "activate", "prod", "kube-1.35", "--reason", "new", "--require-proof", claim
    )
    assert (done.return_value, active()) == (5, ("strict", 2))
    assert said in done.stderr
    assert done.stderr.endswith("not everything is proved; nothing was activated\n")


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ("always:true", "`always:true` is nothing that can be proved"),
        ("never:", "`never:` is nothing that can be proved"),
        ("never:victim.nmae == 'x'", "`victim.nmae == 'x'`: unknown variable `victim.nmae`"),
    ],
)
def test_a_claim_that_is_none_is_refused(database: Path, claim: str, message: str) -> None:
    done = policy("env", "activate", "prod", "kube-1.35", "--reason", "n", "--require-proof", claim)
    assert (message in str(done.exception), active()) == (True, ("kube-1.28", 1))


def test_a_proof_against_rules_that_are_active_no_more_is_none(database: Path) -> None:
    """Another activation came first: the claim was about the rules before it."""
    with Store.open("policy.db") as store, pytest.raises(RuleSetChanged):
        store.record.activate(
            "prod",
            rules=RuleSet.load("kube-1.36"),
            reason="new",
            source="kube-1.36",
            at_ms=NOW,
            actor="ann",
            instead_of=RuleSet.load("kube-1.35").digest,
        )
    assert active() == ("kube-1.28", 1)


CONFIG = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 50}
- schedulerName: batch
  plugins: {filter: {disabled: [{name: NodePorts}]}}
"""


def scheduler(*options: str) -> list[dict[str, Any]]:
    done = policy("env", "scheduler", "prod", "--output", "json", *options)
    assert done.exit_code == 0, done.exception
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_what_the_scheduler_runs_is_said_profile_by_profile(database: Path) -> None:
    """Of the file that counts: what it has no more is detected again; the ledger covers it all."""
    assert scheduler() == []
    Path("scheduler.yaml").write_text(CONFIG)
    first = scheduler("--config", "scheduler.yaml", "--for", "1.35.6")
    assert scheduler("--config", "scheduler.yaml", "--for", "1.35.6") == []
    Path("scheduler.yaml").write_text(CONFIG.partition("- schedulerName: batch")[0])
    second = scheduler("--config", "scheduler.yaml", "--for", "1.35.6")
    shown = json.loads(policy("env", "show", "prod", "--output", "json").stdout)["scheduler"]
    third = scheduler("--detect")
    assert [
        [(one["profile"], one["rule_set"]) for one in lines]
        for lines in (first, second, shown, third, scheduler())
    ] == [
        [("batch", "batch"), ("default-scheduler", "default-scheduler")],
        [("batch", None)],
        [("default-scheduler", "default-scheduler")],
        [("default-scheduler", None)],
        [],
    ]
    with Store.open(str(database)) as store:
        rules = RuleSet.from_canonical(store.read.rule_set(first[1]["digest"]))
        assert store.ledger.verify().ok
    assert rules.candidates.min_percentage == 50
    assert first[1]["source"] == "scheduler.yaml"


def test_what_counts_already_is_left_as_it_is(database: Path) -> None:
    """It is said what counts: the server's version, or the configuration."""
    Path("scheduler.yaml").write_text(CONFIG)
    configured = ["--config", "scheduler.yaml", "--for", "1.35.6"]
    before = policy("env", "scheduler", "prod", "--detect")
    scheduler(*configured)
    after = policy("env", "scheduler", "prod", *configured)
    assert [done.stderr.splitlines()[-1] for done in (before, after)] == [
        "the server's version counts already; nothing was changed",
        "this configuration counts already; nothing was changed",
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--config", "none.yaml"], "none.yaml: no such file"),
        (
            ["--config", "rules.yaml"],
            "no KubeSchedulerConfiguration in this file\n  help: it holds",
        ),
        (["--for", "1.35"], "`--for` means nothing without `--config`"),
        (["--config", "scheduler.yaml", "--for", "9.9"], "no shipped rule set decides like `9.9`"),
        (["--config", "scheduler.yaml", "--detect"], "exclude each other"),
    ],
)
def test_a_configuration_that_cannot_be_read_changes_nothing(
    database: Path, options: list[str], message: str
) -> None:
    """Each with its message."""
    Path("scheduler.yaml").write_text(CONFIG)
    Path("rules.yaml").write_text(RULES)
    done = policy("env", "scheduler", "prod", *options)
    assert message in f"{done.exception}\n{done.stderr}"
    assert "\\n" not in done.stderr
    assert scheduler() == []
