"""The cases beside batch-safe, under the safe rules and under those of the original."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from policy.batch import BatchRules, run_session
from policy.batch.settings import BatchOptions
from policy.cases.sessions import BatchCase, read_cases, run_case
from policy.cli.app import cli
from policy.rules.problems import RulesError
from tests.support.batch import a_class, a_gang, a_node, a_queue, cluster

FILE = Path(__file__).parents[2] / "rules" / "batch-safe.cases.yaml"
CASES = read_cases(FILE.read_text(), "rules/batch-safe.cases.yaml")


@pytest.mark.parametrize("name", ["kube-batch-sample", "batch-safe"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.note)
def test_a_case_is_decided_as_it_says(case: BatchCase, name: str) -> None:
    """Every case tells what each of the two rule sets decides, and they do."""
    assert run_case(case, BatchRules.load(name)) == ()


OPTIONS = ("keep_gangs", "fit_first", "roll_back", "count_room")


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_has_a_case_that_fails_without_it(option: str) -> None:
    """None of the four options is idle: switched off, some case ends otherwise."""
    safe = BatchRules.load("batch-safe")
    without = replace(safe, options=replace(safe.options, **{option: False}))
    if option == "fit_first":
        # With room counted a task that fits is promised its room; only then is it not sent.
        without = replace(without, actions=("reclaim", "allocate"))
        assert any(run_case(case, without) for case in CASES if "fits" in case.note)
    else:
        assert any(run_case(case, without) for case in CASES)


def preempting(**options: bool) -> BatchRules:
    tiers = [{"plugins": [{"name": "priority"}, {"name": "gang"}, {"name": "proportion"}]}]
    rules = BatchRules.load({"actions": "preempt", "tiers": tiers})
    return replace(rules, options=BatchOptions(**options))


def test_preempt_evicts_for_a_task_that_fits_unless_told_to_look_first() -> None:
    """The original does not look at idle room; `fitFirst` places the task there and sends it."""
    snapshot = cluster(
        a_node("n1", cpu=4),
        a_queue("default"),
        a_class("low", 1),
        a_class("high", 9),
        a_gang("low", klass="low", on=["n1"], cpu=1, memory="1Gi"),
        a_gang("high", klass="high", waiting=1, cpu=1, memory="1Gi"),
    )
    plain = run_session(snapshot, preempting())
    first = run_session(snapshot, preempting(fit_first=True))
    assert (plain.evicts, dict(plain.binds)) == (("default/low-0",), {})
    assert (first.evicts, dict(first.binds)) == ((), {"default/high-0": "n1"})


def test_a_queue_that_has_its_part_may_not_grow_into_idle_room() -> None:
    """A task of an overused queue still has to take the place of others of its queue."""
    snapshot = cluster(
        a_node("n1", cpu=4, memory="4Gi"),
        a_queue("default"),
        a_queue("other"),
        a_class("low", 1),
        a_class("high", 9),
        a_gang("low", klass="low", on=["n1", "n1"], cpu=1, memory="1Gi"),
        a_gang("high", klass="high", waiting=1, cpu=1, memory="1Gi"),
        a_gang("theirs", queue="other", waiting=4, cpu=1, memory="1Gi"),
    )
    result = run_session(snapshot, preempting(fit_first=True, count_room=True))
    assert result.evicts == ("default/low-1",)
    assert "default/high-0" not in result.binds
    assert result.pipelined == {"default/high-0": "n1"}


def test_a_task_taken_back_may_go_to_any_node() -> None:
    """The original leaves a withdrawn task its node, so that no other takes it; `rollBack` not."""
    snapshot = cluster(
        a_node("n1", cpu=1),
        a_node("n2", cpu=3),
        a_queue("default"),
        a_class("low", 1),
        a_class("high", 9),
        a_gang("low", minimum=0, klass="low", on=["n1"], cpu=1),
        a_gang("high", minimum=3, klass="high", waiting=3, cpu=1),
    )
    rules = replace(preempting(), actions=("preempt", "allocate"))
    plain = run_session(snapshot, rules)
    safe = run_session(snapshot, replace(rules, options=BatchOptions(roll_back=True)))
    assert dict(plain.binds) == {}
    assert dict(safe.binds) == {f"default/high-{i}": "n2" for i in range(3)}


def test_an_unusable_case_is_refused_with_its_place() -> None:
    """A misspelled key of a case is an error with its line, like one of a rule file."""
    text = "- note: x\n  nodes: {n1: {cpus: 4}}\n  want: {kube-batch: {evict: []}}\n"
    with pytest.raises(RulesError) as caught:
        read_cases(text, "cases.yaml")
    assert [(p.line, p.message.split(" in ")[0]) for p in caught.value.problems] == [
        (2, "unknown key `cpus`"),
        (3, "unknown key `evict`"),
    ]


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    result = CliRunner().invoke(cli, list(arguments), standalone_mode=False)
    status = result.return_value if result.exception is None else 1
    return status, result.stdout, str(result.exception or result.stderr)


def test_rules_test_runs_them_with_the_others() -> None:
    """Without a name all shipped cases run, those of sessions under both of their rule sets."""
    status, out, _ = invoke("rules", "test", "--output", "json")
    ran = {row["rules"] for row in json.loads(out)}
    assert (status, ran >= {"batch-safe", "kube-batch-sample", "cooldown"}) == (0, True)


def test_a_case_that_fails_is_told(tmp_path: Path) -> None:
    """The cases beside a file of one's own: what was wanted, and whether anything was."""
    (tmp_path / "mine.yaml").write_text(
        "apiVersion: policy/v1\nkind: BatchRules\nmetadata: {name: mine}\nextends: kube-batch\n"
    )
    cases = tmp_path / "mine.cases.yaml"
    cases.write_text(
        "- note: it fits\n"
        "  nodes: {n1: {cpu: 4}}\n"
        "  queues: {default: 1}\n"
        "  gangs: {g: {cpu: 1, waiting: 1}}\n"
        "  want: {mine: {binds: {g-0: n2}}}\n"
        "- note: nothing of mine\n"
        "  want: {kube-batch: {evicts: []}}\n"
    )
    assert invoke("rules", "test", str(tmp_path / "mine.yaml")) == (
        1,
        f"{cases}:1: `mine` fails: it fits\n"
        "      binds: wanted {'default/g-0': 'n2'}, got {'default/g-0': 'n1'}\n"
        f"{cases}:6: `mine` fails: nothing of mine\n"
        "      nothing is wanted of `mine`\n",
        "3 cases, 2 fail\n",
    )


@pytest.mark.parametrize("command", ["explain"])
def test_questions_about_single_decisions_are_refused(command: str) -> None:
    """Whoever asks for what batch rules do not have is told what they are."""
    status, out, err = invoke("rules", command, "kube-batch")
    assert (status, out) == (1, "")
    assert err.splitlines()[0] == (
        "rules/kube-batch.yaml:3:7: these are rules of batch sessions, not of single decisions"
    )
