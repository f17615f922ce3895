"""`policy tune`: what it finds, writes and refuses, and that it goes on where it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.acceptance.commands import Policy

ROOT = Path(__file__).parents[2]
WORKLOAD = """
apiVersion: policy/v1
kind: Workload
metadata: {name: NAME}
length: 2h
nodes:
  - {name: worker, count: 3, allocatable: {cpu: 8, memory: 64Gi, pods: 110}}
pods:
  - name: web
    priority: 1000
    arrivals: {every: EVERY}
    requests: {cpu: 2}
    duration: {lognormal: {median: 40m, sigma: 0.5}}
  - name: report
    priority: 10
    arrivals: {every: 5m}
    together: [1, 4]
    requests: {cpu: {choice: {'1': 3, '2': 1}}}
    duration: {exponential: 30m}
"""
SPEC = """
apiVersion: policy/v1
kind: Tuning
metadata: {name: small}
base: kube-1.36
vary:
  include: [cooldown]
  numbers:
    - {name: rest, rule: cooldown, text: 15m, from: 5m, to: 2h, step: 5m}
  ranking: [lowest-priority-sum, latest-start]
training:
  - {workload: training.yaml}
judging:
  - {workload: judging.yaml}
minimise: [lost work, waiting]
limits:
  - {figure: wait p95, priority: 1000, most: 2h}
trials: 9
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tuning file and its workloads, in which the command runs."""
    (tmp_path / "training.yaml").write_text(
        WORKLOAD.replace("NAME", "training").replace("EVERY", "6m")
    )
    (tmp_path / "judging.yaml").write_text(
        WORKLOAD.replace("NAME", "judging").replace("EVERY", "7m")
    )
    (tmp_path / "small.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("POLICY_DB", str(tmp_path / "own.db"))
    return tmp_path


def test_what_is_written_is_clean_and_differs_from_the_base_where_its_cases_say(
    policy: Policy, place: Path
) -> None:
    """Lint finds nothing, and the cases hold under the chosen rules.

    Under the base none does, but for those that show a rule that decides alike there.
    """
    done = policy("tune", "small.yaml", "--write", "better.yaml", "--output", "json")
    told = json.loads(done.out)
    base, chosen = (next(t for t in told["trials"] if t["trial"] == n) for n in (0, told["chosen"]))
    for part in ("training", "judging"):
        before, after = (t[part]["figures"] for t in (base, chosen))
        assert after["lost work"] < before["lost work"] or part == "judging"
    others = [f"trial-{n}.yaml" for n in sorted({*told["front"]} - {0, told["chosen"]})]
    for file in others:
        number = file.removeprefix("trial-").removesuffix(".yaml")
        policy("tune", "small.yaml", "--choose", number, "--write", file)
    for file in ("better.yaml", *others):
        lint = policy("rules", "lint", file)
        assert (lint.status, lint.out, lint.err) == (0, "", "0 findings\n"), file
        assert policy("rules", "test", file).status == 0
    (place / "base.yaml").write_text(
        "apiVersion: policy/v1\nkind: PreemptionRules\nmetadata: {name: base}\nextends: kube-1.36\n"
    )
    (place / "better.cases.yaml").rename(place / "base.cases.yaml")
    failed = policy("rules", "test", "base.yaml")
    cases = (place / "base.cases.yaml").read_text()
    differing = cases.count("- note:") - cases.count(", as under `kube-1.36`")
    assert differing >= 1
    assert (failed.status, failed.out.count("`base` fails")) == (1, differing)


def test_an_interrupted_search_goes_on_to_the_same_result(policy: Policy, place: Path) -> None:
    """Ctrl-C in the middle, then again with two processes: the trials of a search in one go."""
    command = [sys.executable, "-m", "policy", "tune", "small.yaml", "--db", "cut.db"]
    process = subprocess.Popen(
        command,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    given_up = time.monotonic() + 120
    while _simulated(place / "cut.db") < 3:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < given_up
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    before = _simulated(place / "cut.db")
    assert (process.returncode, err.strip().splitlines()[-1]) == (130, "interrupted")
    going_on = policy("tune", "small.yaml", "--db", "cut.db", "--jobs", 2, "--output", "json")
    at_once = policy("tune", "small.yaml", "--output", "json")
    assert going_on.out == at_once.out  # byte by byte
    assert 3 <= before < 9
    # Nine trials of training, and two of judging: none was simulated twice.
    assert _simulated(place / "cut.db") == 9 + len({0, json.loads(at_once.out)["chosen"]})


def _simulated(database: Path) -> int:
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
            return int(connection.execute("SELECT count(*) FROM simulations").fetchone()[0])
    except sqlite3.OperationalError:
        return 0


def test_the_page_shows_the_front(policy: Policy, place: Path) -> None:
    """One picture for two figures, the chosen trial, and what it gains on unseen traces."""
    (place / "small.yaml").write_text(SPEC.replace("trials: 9", "trials: 2"))
    page = policy("tune", "small.yaml", "--output", "html").out
    assert page.count("<svg") == 1
    assert "lost work against waiting" in page
    assert '<dt class="dim">unknown durations</dt><dd>observed</dd>' in page
    assert "On traces that the search has not seen" in page
    assert "http://" not in page
    assert "https://" not in page


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("lost work", "lost love", "unknown figure `lost love`"),
        ("text: 15m", "text: 16m", "`16m` does not stand in rule `cooldown`"),
        ("rule: cooldown", "rule: cooldwn", "no rule `cooldwn` in the base"),
        ("[lowest-priority-sum,", "[lowest,", "`lowest` is no criterion of `kube-1.36`"),
        ("to: 2h", "to: 1m", "`from` is below `to`"),
        ("workload: training.yaml", "trace: nowhere", "nowhere: no folder"),
        ("step: 5m", "step: 1500ms", "`numbers[0]`: times are whole seconds"),
        ("from: 5m, to: 2h, step: 5m", "from: 300, to: 7200", "small.yaml: number `rest`: `300` c"),
        ("name: rest", "name: ranking", "`vary`: no number is named `ranking`"),
        ("[cooldown]", "[cooldown, cooldown]", "`vary`: `cooldown` stands twice in `include`"),
        ("[cooldown]", "[./nowhere]", "small.yaml: include `./nowhere`: cannot include"),
        (", latest-start]", "]", "`ranking` names two criteria or more"),
        (", latest-start]", ", lowest-priority-sum]", "stands twice in `ranking`"),
        (", waiting]", ", lost work]", "small.yaml: `lost work` stands twice in `minimise`"),
        ("most: 2h", "most: 20", "small.yaml: `wait p95` is a time, and `most` is `20`"),
        ("wait p95, priority: 1000", "evictions", "`evictions` is a number, and `most` is `2h`"),
        ("trials: 9", "simulation: {durations: siblings}", "`durations` means nothing where all"),
    ],
)
def test_what_is_wrong_with_the_file_is_named(
    policy: Policy, place: Path, old: str, new: str, said: str
) -> None:
    """Before anything is simulated."""
    (place / "small.yaml").write_text(SPEC.replace(old, new))
    done = policy("tune", "small.yaml")
    assert (done.status != 0, said in done.err) == (True, True), done.err
    assert _simulated(place / "own.db") == 0


def test_a_file_that_is_there_stays(policy: Policy, place: Path) -> None:
    """Neither rules nor cases are overwritten, and no search is made for nothing."""
    (place / "better.cases.yaml").write_text("[]")
    done = policy("tune", "small.yaml", "--write", "better.yaml")
    assert (done.status, "`better.cases.yaml` is there already" in done.err) == (2, True)
    assert _simulated(place / "own.db") == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--write", "Tuned_Rules.yaml"], "`Tuned_Rules.yaml` would have the name of the file"),
        (["--choose", "9"], "there is no trial 9; the last one is 8"),
    ],
)
def test_what_would_fail_after_the_search_is_refused_before_it(
    policy: Policy, place: Path, arguments: list[str], said: str
) -> None:
    """A name that rules may not have, and a trial that will not be made."""
    done = policy("tune", "small.yaml", *arguments)
    assert (done.status, said in done.err) == (2, True), done.err
    assert _simulated(place / "own.db") == 0


def test_what_was_filled_in_and_a_trial_of_ones_own_choice_are_shown(
    policy: Policy, place: Path
) -> None:
    """Notes on the traces, as `policy simulate` has them; a chosen trial that exceeds a limit."""
    shutil.copytree(ROOT / "examples" / "simulation" / "trace", place / "trace")
    events = (place / "trace" / "events.jsonl").read_text().splitlines(keepends=True)
    (place / "trace" / "events.jsonl").write_text("".join(events[:-1]))
    (place / "small.yaml").write_text(
        SPEC.replace("workload: training.yaml", "trace: trace, until: 1h")
        .replace("most: 2h", "most: 1ms")
        .replace("priority: 1000", "priority: 9")
        .replace("judging:\n  - {workload: judging.yaml}", "")
        .replace("trials: 9", "trials: 1")
    )
    done = policy("tune", "small.yaml", "--choose", "0")
    assert done.err.splitlines() == [
        "training[0], trace: the end of 1 pod is not known; run time: until the simulation ends",
        "training[0], trace: the trace ends 50 s after its start, before `until`",
        "the base itself is chosen",
    ]
    line = next(line for line in done.out.splitlines() if line.startswith("0 base"))
    assert (done.status, line.split()[-4]) == (0, "exceeded")


def test_where_nothing_is_better_no_rules_are_written(policy: Policy, place: Path) -> None:
    """They would be those of the base under another name."""
    idle = SPEC.replace("include: [cooldown]", "include: [protected]").replace(
        "trials: 9", "trials: 2"
    )
    numbers = idle[idle.index("  numbers:") : idle.index("training:")]
    (place / "small.yaml").write_text(idle.replace(numbers, ""))
    done = policy("tune", "small.yaml", "--write", "better.yaml")
    assert (done.status, (place / "better.yaml").exists(), done.err.splitlines()[-1]) == (
        0,
        False,
        "no trial is better than the base in one figure and worse in none: nothing is written",
    )


def test_limits_that_nothing_keeps(policy: Policy, place: Path) -> None:
    """The exit status is 1, and no rules are written."""
    spec = SPEC.replace("most: 2h", "most: 1ms").replace("trials: 9", "trials: 2")
    (place / "small.yaml").write_text(spec)
    done = policy("tune", "small.yaml", "--write", "better.yaml")
    assert (done.status, (place / "better.yaml").exists()) == (1, False)
    assert "no trial keeps all limits" in done.err
