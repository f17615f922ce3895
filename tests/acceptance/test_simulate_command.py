"""`policy simulate`: what it prints, and what it refuses."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.acceptance.commands import Policy

pytestmark = pytest.mark.usefixtures("own_database")
TRACE = Path(__file__).parents[2] / "examples" / "simulation" / "trace"


@pytest.fixture
def own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLICY_DB", str(tmp_path / "own.db"))


def test_the_table_shows_every_priority_and_no_difference_where_there_is_none(
    policy: Policy,
) -> None:
    """Two generations of the scheduler do the same on the trace of the documentation."""
    done = policy("simulate", TRACE, "--rules", "kube-1.36", "--rules", "kube-1.20", "--for", 200)
    assert done.status == 0
    lines = [" ".join(line.split()) for line in done.out.splitlines()]
    assert "kube-1.36 1 2 2 0 0.005 s 20 s 20 s 50 s 1 0 0 9.995 s 0.01 cpu h" in lines
    assert "kube-1.20 9 1 1 0 30 s 30 s 30 s 1 min 0 0 0 0 s 0 cpu h" in lines
    assert "kube-1.36 7 1 0 0.4 3 cpu 67.5 %" in lines
    assert lines[-1] == "no figure differs between the rule sets"


def test_rule_sets_are_compared_seed_by_seed(policy: Policy, tmp_path: Path) -> None:
    """A rule that forbids every preemption: nothing is lost, and the important pod waits."""
    rules = tmp_path / "never.yaml"
    rules.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: never}\n"
        "extends: kube-1.36\nspec:\n  eligibility:\n    insert:\n"
        "      - at: start\n        rule: {id: never, when: 'true', verdict: deny,"
        " reason: nothing is preempted here, why: to see what preemption is worth}\n"
    )
    done = policy(
        *("simulate", TRACE, "--rules", "kube-1.36", "--rules", rules, "--for", 200),
        *("--seeds", 2, "--output", "json"),
    )
    told = json.loads(done.out)
    found = {
        d["figure"]: (d["mean"], d["low"], d["high"], d["seeds"])
        for d in told["differences"]
        if d["priority"] == 9
    }
    # web-1 comes at 10 s and starts at 100.010 s, when batch-1 is done, not at 40.005 s.
    assert (done.status, [s["seed"] for s in told["simulations"]], found["wait p50"]) == (
        0,
        [0, 0, 1, 1],
        (60_005, 60_005, 60_005, 2),
    )
    assert [s["everyone"]["lost_ms"] for s in told["simulations"]] == [9_995, 0, 9_995, 0]


def test_what_rules_do_not_know_of_the_past_is_said(policy: Policy, tmp_path: Path) -> None:
    """The history that they read begins empty, and the options of the result say so."""
    rules = tmp_path / "cool.yaml"
    rules.write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: cool}\n"
        "extends: kube-1.36\ninclude: [cooldown]\n"
    )
    without, done = (
        policy("simulate", TRACE, "--rules", name, "--output", "json")
        for name in ("kube-1.36", rules)
    )
    (told,) = json.loads(done.out)["simulations"]
    said = "`history.*` knows nothing of the time before the start"
    assert (said in without.err, said in done.err, told["options"]["history"]) == (
        False,
        True,
        "empty",
    )


def test_processes_change_nothing(policy: Policy) -> None:
    """The output is the same byte for byte, however many do the work."""
    arguments = ["simulate", TRACE, "--rules", "kube-1.36", "--seeds", 2, "--output", "json"]
    alone, together = policy(*arguments), policy(*arguments, "--jobs", 2)
    assert (alone.status, alone.out) == (together.status, together.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing", "--rules", "kube-1.36"], "missing: no folder"),
        ([".", "--rules", "kube-1.36"], ".: no `cluster.json` or `cluster.json.gz`"),
        (
            [".", "--rules", "kube-1.36", "--rules", "kube-1.36"],
            "two of the rule sets are named `kube-1.36`",
        ),
        (
            [".", "--rules", "kube-1.36", "--bare-come-back", "soon"],
            "`soon` is neither a number of seconds nor `never`",
        ),
        (
            ["--workload", "w.yaml", "--rules", "kube-1.36", "--durations", "siblings"],
            "`--durations` means nothing beside `--workload`",
        ),
    ],
)
def test_what_cannot_be_simulated_is_said(
    policy: Policy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    """The message says what is missing or wrong."""
    monkeypatch.chdir(tmp_path)
    done = policy("simulate", *arguments)
    assert done.status != 0
    assert message in done.err


def test_a_damaged_gzip_file_is_said(policy: Policy, tmp_path: Path) -> None:
    """Nothing is simulated on half a trace."""
    shutil.copy(TRACE / "cluster.json", tmp_path)
    (tmp_path / "events.jsonl.gz").write_bytes(b"\x1f\x8b\x08nonsense")
    done = policy("simulate", tmp_path, "--rules", "kube-1.36")
    assert (done.status, "events.jsonl.gz: not a whole gzip file" in done.err) == (1, True)


def test_a_simulation_is_a_row_and_its_decisions_can_be_kept(
    policy: Policy, database_url: str
) -> None:
    """The rows are in the ledger, the decisions are of origin `simulated`, and replay."""
    db = ("--db", database_url)
    arguments = ["simulate", TRACE, "--rules", "kube-1.36", "--for", 200, *db, "-o", "json"]
    plain, kept = policy(*arguments), policy(*arguments, "--keep", "case")
    assert (plain.status, kept.status) == (0, 0)
    # Nothing depends on whether it is kept: not the events, and not the figures.
    assert plain.out == kept.out
    rows = json.loads(
        policy(
            *("sql", "SELECT digest, kept_in, seed FROM simulations ORDER BY id", *db),
            *("-o", "json", "--trust-connection"),
        ).out
    )
    assert [(row["kept_in"], row["seed"]) for row in rows] == [("", 0), ("case-kube-1.36-0", 0)]
    assert rows[0]["digest"] == rows[1]["digest"]
    told = json.loads(
        policy("decisions", "--cluster", "case-kube-1.36-0", *db, "--output", "json").out
    )
    decisions = [(d["preemptor"], d["outcome"]) for d in reversed(told)]
    assert decisions == [
        ("default/batch-1", "bind"),
        ("default/web-1", "preempt"),
        ("default/batch-2", "no-candidate"),
        ("default/web-1", "bind"),
        ("default/batch-2", "bind"),
        ("default/batch-1", "no-candidate"),
        ("default/batch-1", "bind"),
    ]
    assert policy("decisions", "--origin", "simulated", *db).out.count("default/batch-1") == 3
    assert policy("replay", "--all", "--cluster", "case-kube-1.36-0", *db).status == 0
    assert policy("audit", "verify", *db).status == 0
    told = json.loads(policy("report", "health", *db, "--output", "json").out)["clusters"]
    assert [(one["simulated"], one["state_age_seconds"]) for one in told] == [(True, None)] * 2
    again = policy(*arguments, "--keep", "case")
    assert (again.status, "there is a cluster `case-kube-1.36-0` already" in again.err) == (1, True)


def test_a_kept_simulation_is_a_record_to_simulate_from(policy: Policy, tmp_path: Path) -> None:
    """All of it is in virtual time, the start too: the same trace again, and the same waits.

    `--since 7d` is by the clock, long after everything that was simulated: that is said.
    """
    arguments = ["simulate", TRACE, "--rules", "kube-1.36", "--for", 200, "--keep", "k"]
    kept = json.loads(policy(*arguments, "-o", "json").out)["simulations"][0]
    again = ["simulate", "--from-record", "--cluster", "k-kube-1.36-0", "--rules", "kube-1.36"]
    found = json.loads(policy(*again, "--dry-run", "-o", "json").out)["simulations"][0]
    same = ("pods", "started", "wait", "evictions", "lost_ms", "lost_cpu_ms")
    assert [found["everyone"][k] for k in same] == [kept["everyone"][k] for k in same]
    late = policy(*again, "--since", "7d")
    assert (late.status, late.out) == (1, "")
    assert "its last change was at 2000-01-01T00:02:50.010Z\n  help: give an earlier" in late.err


def test_a_changed_result_is_found(policy: Policy, tmp_path: Path) -> None:
    """The ledger covers every column of the row."""
    db = tmp_path / "policy.db"
    assert policy("simulate", TRACE, "--rules", "kube-1.36", "--db", db).status == 0
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE simulations SET result = '{}'")
    done = policy("audit", "verify", "--db", db)
    assert (done.status, "simulation 1" in done.out + done.err) == (6, True)


def test_what_really_happened_stands_beside_the_simulations(policy: Policy) -> None:
    """On the hundredth of a Borg cell: the real scheduler's waits and evictions, counted alike."""
    mini = TRACE.parents[1] / "google2011-mini"
    done = policy(
        *("simulate", mini, "--rules", "kube-1.36", "--for", 300, "--truth", "-o", "json"),
        "--dry-run",
    )
    simulated, real = json.loads(done.out)["simulations"]
    assert (simulated["rules"], real["rules"], real["cycles"]) == ("kube-1.36", "what happened", 0)
    assert real["everyone"]["pods"] == simulated["everyone"]["pods"]
    assert real["everyone"]["evictions"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give one of a trace folder, `--workload` and `--from-record`"),
        ([TRACE, "--from-record"], "give one of a trace folder"),
        (["--workload", "missing.yaml"], "missing.yaml: "),
        (["--workload", "missing.yaml", "--truth"], "`--truth` goes with a trace folder"),
        ([TRACE, "--truth"], "no `truth.jsonl`"),
        ([TRACE, "--since", "7d"], "means nothing without `--from-record`"),
        ([TRACE, "--keep", "x", "--dry-run"], "means nothing beside `--dry-run`"),
    ],
)
def test_sources_do_not_mix(policy: Policy, arguments: list[object], message: str) -> None:
    """Each mistake is said before anything is simulated."""
    done = policy("simulate", *arguments, "--rules", "kube-1.36")
    assert done.status != 0
    assert message in done.err


def test_who_evicted_a_pod_was_no_simulation(policy: Policy, tmp_path: Path) -> None:
    """Unless its cluster is named: each eviction says then that it was simulated, and where."""
    db = ("--db", str(tmp_path / "policy.db"))
    kept = ("--keep", "case", "--for", "200")
    assert policy("simulate", TRACE, "--rules", "kube-1.36", *kept, *db).status == 0
    left_out = "kept simulations are left out: cluster case-kube-1.36-0; `--cluster` names one"
    done = policy("who", "default/batch-1", *db)
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("no eviction of `default/batch-1` is recorded\n" + left_out)
    named = ("who", "default/batch-1", "--cluster", "case-kube-1.36-0", *db)
    done = policy(*named)
    assert (done.status, left_out in done.err) == (0, False)
    assert "1 simulated eviction of pod default/batch-1\n" in done.err
    first, second = done.out.splitlines()[:2]
    assert first.endswith("left n1 for default/web-1 (priority 9) in a simulation")
    assert second.startswith("  decision 2 in cluster case-kube-1.36-0, recorded ")
    (one,) = json.loads(policy(*named, "-o", "json").out)
    assert (one["origin"], one["simulated"]) == ("simulated", True)
