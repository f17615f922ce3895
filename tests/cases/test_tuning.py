"""Tuning: the rule file of every choice, parts of traces, and figures as numbers."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path

import pytest
from pydantic import ValidationError

from policy.cases.running import run_beside
from policy.cases.untested import untested
from policy.cluster import canonical
from policy.cluster.objects import Node, ObjectMeta
from policy.rules import RuleSet
from policy.simulation.options import Durations, Options, Restart
from policy.simulation.trace import Trace, TraceError, TraceEvent, TracePod
from policy.simulation.tuning.candidate import Space
from policy.simulation.tuning.cases import WrittenCases, written
from policy.simulation.tuning.figures import value
from policy.simulation.tuning.outcome import own_rules
from policy.simulation.tuning.spec import Study, Tuning, part, read_study
from tests.support.builders import a_pod

CRITERIA = ["lowest-top-priority", "lowest-priority-sum", "fewest-victims", "latest-start"]


def a_spec(base: str = "kube-1.36", **vary: object) -> dict[str, object]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Tuning",
        "metadata": {"name": "t"},
        "base": base,
        "vary": vary or {"include": ["cooldown"]},
        "training": [{"workload": "w"}],
        "minimise": ["lost work"],
    }


def a_space(folder: Path = Path(), base: str = "kube-1.36", **vary: object) -> Space:
    spec = Tuning.model_validate(a_spec(base, **vary))
    return Space.of(Study(spec=spec, folder=folder, training=[], judging=[]))


def rule_file(name: str, when: str, extends: str = "kube-1.36") -> str:
    return (
        "apiVersion: policy/v1\n"
        "kind: PreemptionRules\n"
        f"metadata: {{name: {name}}}\n"
        f"extends: {extends}\n"
        "spec: {victims: {eligible: {insert: [{at: start, rule: {id: between, when: "
        f"'{when}', verdict: deny, reason: in between, why: a test}}}}]}}}}}}\n"
    )


BETWEEN = "victim.runtimeSeconds >= 600 && victim.runtimeSeconds < 1200"
TWO_NUMBERS = [
    {"name": "low", "rule": "between", "text": "600", "from": 600, "to": 3600},
    {"name": "high", "rule": "between", "text": "1200", "from": 600, "to": 3600},
]


def test_two_numbers_of_one_rule_stand_at_their_places(tmp_path: Path) -> None:
    """Also where one becomes what the other was; both are said, and one that stays is not."""
    (tmp_path / "base.yaml").write_text(rule_file("base", BETWEEN))
    space = a_space(tmp_path, "base.yaml", numbers=TWO_NUMBERS)

    def replaced(**choice: int) -> list[tuple[str, str, str]]:
        names = {"name": "t", "description": "", "folder": tmp_path}
        file = space.file(choice, whys={"between": "trial 7"}, **names)
        changed = file.get("spec", {}).get("victims", {}).get("eligible", {}).get("replace", [])
        return [(rule["when"], rule["reason"], rule["why"]) for rule in changed]

    assert replaced(low=1200, high=1500) == [
        (
            "victim.runtimeSeconds >= 1200 && victim.runtimeSeconds < 1500",
            "in between (600 is 1200, 1200 is 1500 here)",
            "1200 in place of 600, 1500 in place of 1200; trial 7",
        )
    ]
    assert replaced(low=600, high=1500) == [
        (
            "victim.runtimeSeconds >= 600 && victim.runtimeSeconds < 1500",
            "in between (1200 is 1500 here)",
            "1500 in place of 1200; trial 7",
        )
    ]
    assert replaced(low=600, high=1200) == []
    assert [space.changes({"low": low, "high": 1200}) for low in (600, 601)] == [0, 1]


def test_two_names_of_one_number_are_refused(tmp_path: Path) -> None:
    """One of them would overwrite the other."""
    (tmp_path / "base.yaml").write_text(rule_file("base", BETWEEN))
    twice = [TWO_NUMBERS[0], TWO_NUMBERS[0] | {"name": "again"}]
    with pytest.raises(TraceError, match="`low` and `again` are the same number: `600` in rule"):
        a_space(tmp_path, "base.yaml", numbers=twice)


def test_a_base_is_looked_for_beside_the_tuning_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in the current folder, where another file may have its name; includes likewise."""
    there, here = tmp_path / "there", tmp_path / "here"
    for folder, number in ((there, "600"), (here, "7")):
        folder.mkdir()
        when = f"victim.runtimeSeconds < {number}"
        (folder / "base.yaml").write_text(rule_file("base", when))
        (folder / "more.yaml").write_text(rule_file("more", when).replace("between", "more"))
    for cwd, folder in ((here, Path("../there")), (here, there), (tmp_path, Path("there"))):
        monkeypatch.chdir(cwd)
        space = a_space(folder, "base.yaml", include=["./more.yaml"])
        rules = space.rule_set({"include ./more.yaml": True}, "t")
        found = [space.base.victims.eligible[0], *rules.victims.eligible[:2]]
        sources = [(r.id, r.when.source) for r in found if r.when is not None]
        young = "victim.runtimeSeconds < 600"
        assert sources == [("between", young), ("more", young), ("between", young)]


def test_a_study_is_another_one_under_other_includes_or_another_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials of before would be shown as if they had been made under the rules of now."""
    (tmp_path / "more.yaml").write_text(rule_file("more", "victim.runtimeSeconds < 600"))
    before = a_space(tmp_path, include=["./more.yaml"]).digest
    assert a_space(tmp_path, include=["./more.yaml"]).digest == before
    (tmp_path / "more.yaml").write_text(rule_file("more", "victim.runtimeSeconds < 601"))
    edited = a_space(tmp_path, include=["./more.yaml"]).digest
    monkeypatch.setattr("policy.simulation.tuning.spec.ENGINE_VERSION", "another")
    upgraded = a_space(tmp_path, include=["./more.yaml"]).digest
    assert len({before, edited, upgraded}) == 3


def test_a_tuning_file_assumes_what_policy_simulate_does() -> None:
    """The same words and defaults, and each of them is part of the study."""
    told = {
        "restart": "remaining",
        "comeBack": "1m",
        "bareComeBack": "never",
        "cycleTime": "20ms",
        "durations": "siblings",
        "scheduler": "other",
    }
    assert Tuning.model_validate(a_spec()).simulation.options() == Options()
    assumed = Tuning.model_validate(a_spec() | {"simulation": told})
    assert assumed.simulation.options() == Options(
        restart=Restart.REMAINING,
        return_ms=60_000,
        bare_return_ms=None,
        cycle_ms=20,
        durations=Durations.SIBLINGS,
        scheduler="other",
    )
    alone = Tuning.model_validate(a_spec() | {"simulation": {"comeBack": "1m"}})
    assert alone.simulation.options() == Options(return_ms=60_000)
    digests = {
        Study(
            spec=Tuning.model_validate(a_spec() | {"simulation": {key: value}}),
            folder=Path(),
            training=[],
            judging=[],
        ).digest([])
        for key, value in told.items()
    }
    assert len(digests) == len(told)
    for key, wrong in (("bareComeBack", "soon"), ("cycleTime", "0ms"), ("durations", "long")):
        with pytest.raises(ValidationError, match=key):
            Tuning.model_validate(a_spec() | {"simulation": {key: wrong}})


def test_unknown_durations_are_filled_in_as_the_tuning_file_says(tmp_path: Path) -> None:
    """The median of the workload's other pods, where it wants that."""
    trace = Path(__file__).parents[2] / "examples" / "simulation" / "trace"
    shutil.copytree(trace, tmp_path / "trace")
    events = (tmp_path / "trace" / "events.jsonl").read_text().splitlines(keepends=True)
    job = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}]
    for name, end in (("one", 50), ("two", None)):
        pod = {
            "metadata": {"name": name, "namespace": "default", "ownerReferences": job},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        }
        events.append(json.dumps({"t": 300, "op": "create", "pod": pod}) + "\n")
        if end is not None:
            ended = {"metadata": {"name": name, "namespace": "default"}}
            events.append(json.dumps({"t": 300 + end, "op": "finish", "pod": ended}) + "\n")
    events.sort(key=lambda line: json.loads(line)["t"])
    (tmp_path / "trace" / "events.jsonl").write_text("".join(events))
    work = {}
    for durations in ("observed", "siblings"):
        spec = a_spec() | {
            "training": [{"trace": "trace"}],
            "simulation": {"durations": durations},
        }
        (tmp_path / "t.yaml").write_text(json.dumps(spec))
        found = read_study(tmp_path / "t.yaml").training[0](0)
        work[durations] = {t.key: t.work_ms for t in found.tasks}["default/two"]
    assert work == {"observed": None, "siblings": 50_000}


class TestCasesOfRules:
    """Cases beside rules that were found touch each of the file's own rules, or say why not."""

    def written(self, tmp_path: Path, text: str) -> WrittenCases:
        file = tmp_path / "found.yaml"
        file.write_text(text)
        rules = RuleSet.load(file)
        # Nothing comes: no decision of the trace shows anything.
        trace = Trace(name="t", start_ms=0, end_ms=1000, objects=[], tasks=[], events=[])
        base = RuleSet.load("kube-1.36")
        cases = written(trace, base, rules, options=Options(), own=own_rules(text))
        if cases.text:
            (tmp_path / "found.cases.yaml").write_text(cases.text)
            assert run_beside(str(file)) == []
            assert {w.rule for w in untested(str(file), rules)} == set(cases.untouched)
        return cases

    def test_made_up_clusters_have_young_pods_and_a_past(self, tmp_path: Path) -> None:
        """A cooldown that only young pods get to, and an order that only they decide."""
        text = """
            apiVersion: policy/v1
            kind: PreemptionRules
            metadata: {name: rules}
            extends: kube-1.36
            include: [cooldown]
            spec:
              victims:
                eligible:
                  insert:
                    - at: start
                      rule: {id: old, when: victim.runtimeSeconds >= 60, verdict: deny, why: a test}
                forbid:
                  replace:
                    - id: cooldown
                      when: history.preemptedCount(victim.workload, duration('5m')) > 0
                      why: a test
              ranking:
                remove: [latest-start, fewest-victims]
                insert:
                  - after: lowest-top-priority
                    rule:
                      id: latest-start
                      maximize: candidate.earliestStartOfTopPriority
                      why: a test
                  - after: latest-start
                    rule: {id: fewest-victims, minimize: candidate.victimCount, why: a test}
            """
        cases = self.written(tmp_path, textwrap.dedent(text))
        assert (cases.differing, cases.untouched) == (0, {})

    def test_a_rule_that_no_case_touches_is_named(self, tmp_path: Path) -> None:
        """It asks for a label, which made-up pods do not have."""
        text = rule_file("rules", 'has(victim.labels.tier) && victim.labels.tier == "gold"')
        cases = self.written(tmp_path, text)
        assert cases.untouched == {
            "between": "it decides nothing on the first trace, and nothing in the clusters that"
            " were made up for it"
        }


def test_every_order_of_criteria_is_the_one_that_was_chosen() -> None:
    """Also those in which all of them move; the others stay where they are."""
    space = a_space(ranking=CRITERIA)
    for order in space.orders:
        rules = space.rule_set({"ranking": order}, "t")
        assert [c.id for c in rules.ranking] == [
            "fewest-pdb-violations",
            *order.split(" > "),
            "by-name",
        ]
    assert len(space.orders) == 24


def test_a_number_stands_in_its_rule_and_in_its_reason() -> None:
    """A time is written as rules write it; nothing else of the rule changes."""
    number = {"name": "rest", "rule": "cooldown", "text": "15m", "from": "5m", "to": "2h"}
    space = a_space(include=["cooldown"], numbers=[number])
    rules = space.rule_set({"include cooldown": True, "rest": 5400}, "t")
    (found,) = [r for r in rules.victims.forbid if r.id == "cooldown"]
    shipped = next(r for r in RuleSet.load("cooldown").victims.forbid if r.id == "cooldown")
    assert found.when is not None
    assert shipped.when is not None
    assert found.when.source == shipped.when.source.replace("15m", "90m")
    assert found.reason == f"{shipped.reason} (15m is 90m here)"


def test_a_file_beside_the_tuning_file_is_no_shipped_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the tuning file is read from its own folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "rules.yaml").write_text(
        "apiVersion: policy/v1\n"
        "kind: PreemptionRules\n"
        "metadata: {name: mine}\n"
        "extends: kube-1.36\n"
        "spec: {ranking: {remove: [latest-start]}}\n"
    )
    space = a_space(include=["./mine"])
    rules = space.rule_set({"include ./mine": True}, "t")
    assert "latest-start" not in [c.id for c in rules.ranking]
    assert "latest-start" in [c.id for c in space.base.ranking]


def test_the_unchanged_choice_is_the_base() -> None:
    """Under another name, and with no other difference."""
    space = a_space(include=["cooldown", "max-victims"], ranking=CRITERIA)
    rules = space.rule_set(space.unchanged(), "kube-1.36")
    assert rules.canonical == RuleSet.load("kube-1.36").canonical
    assert space.changes(space.unchanged()) == 0
    assert canonical.digest(rules.canonical) == canonical.digest(space.base.canonical)


def test_a_part_of_a_trace_begins_with_the_nodes_of_then_and_no_pods_of_before() -> None:
    """What changed before has changed; what comes later is not part of it."""

    def node(name: str) -> Node:
        return Node(metadata=ObjectMeta(name=name))

    def task(name: str, at: int) -> TracePod:
        return TracePod(pod=a_pod(name).pod, arrives_ms=at, work_ms=1)

    whole = Trace(
        name="t",
        start_ms=1000,
        end_ms=9000,
        objects=[node("a"), node("b")],
        tasks=[task("x", 1000), task("y", 4000), task("z", 6000)],
        events=[
            TraceEvent(at_ms=2000, change=("Node", "a", None)),
            TraceEvent(at_ms=2500, change=("Node", "c", node("c"))),
            TraceEvent(at_ms=5000, change=("Node", "b", None)),
        ],
    )
    found = part(whole, 2000, 5000)
    assert (found.start_ms, found.end_ms) == (3000, 6000)
    assert [o.metadata.name for o in found.objects] == ["b", "c"]
    assert [t.key for t in found.tasks] == ["default/y"]
    assert [e.at_ms for e in found.events] == [5000]
    assert found.notes == ["pods left out that came before this part of the trace: 1"]
    with pytest.raises(TraceError, match="`t` ends 8 s after its start, before that part"):
        part(whole, 9000, None)


def test_of_several_priorities_counts_are_summed_and_the_worst_percentile_counts() -> None:
    """One that falls on a pod that never started is the whole time."""
    waits = {"wait": {"p95": 700}, "arrived": 1, "evictions": 2, "waiting_ms": 700}
    never = {"wait": {"p95": None}, "arrived": 3, "evictions": 5, "waiting_ms": 90_000}
    empty = {"wait": {"p95": None}, "arrived": 0, "evictions": 7, "waiting_ms": 0}
    result = {
        "start_ms": 1000,
        "end_ms": 61_000,
        "everyone": never,
        "by_priority": {"9": waits, "8": empty, "1": never},
        "timeline": {"waiting_mean": "1.512000"},
    }
    assert value(result, "wait p95", 8) == 700
    assert value(result, "wait p95", 1) == 60_000
    assert value(result, "evictions", 8) == 9
    assert value(result, "evictions", None) == 5
    assert (value(result, "waiting", None), value(result, "waiting", 8)) == (90_000, 700)
