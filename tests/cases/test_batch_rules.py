"""Batch rules: our own files, and configurations of kube-batch and Volcano as they are."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import pytest

from policy.batch import BatchRules
from policy.rules.problems import RulesError

REAL = Path(__file__).parents[1] / "data" / "scheduler-config"

OWN = """\
apiVersion: policy/v1
kind: BatchRules
metadata: {name: mine}
spec:
  actions: [allocate, preempt]
  tiers:
    - plugins:
        - {name: gang, enablePreemptable: false}
        - {name: nodeorder, arguments: {leastrequested.weight: 3}}
"""

SAMPLE = """\
actions: "reclaim, allocate, backfill, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""

VOLCANO = """\
apiVersion: v1
kind: ConfigMap
metadata:
  name: volcano-scheduler-configmap
data:
  volcano-scheduler.conf: |
    actions: "enqueue, allocate, backfill"
    tiers:
    - plugins:
      - name: priority
      - name: gang
        enablePreemptable: false
        enableHierarchy: true
      - name: magic
    - plugins:
      - name: predicates
        arguments:
          predicate.GPUSharingEnable: true
          predicate.MemoryPressureEnable: true
          predicate.NodePortsEnable: false
          predicate.PodAffinityEnable: perhaps
      - name: binpack
        arguments:
          binpack.weight: "5"
      - name: usage
    metrics:
      interval: 30s
"""


def complaints(text: str) -> list[str]:
    """Messages of everything that is wrong, with line and column."""
    with pytest.raises(RulesError) as caught:
        BatchRules.load(text)
    return [f"{p.line}:{p.column} {p.message}" for p in caught.value.problems]


def notices(rules: BatchRules) -> list[str]:
    return [f"{n.line}:{n.column} {n.message}" for n in rules.notices]


# --- what is shipped ---------------------------------------------------------------------------


def test_rule_sets_of_both_semantics_are_shipped() -> None:
    """kube-batch's default, its sample and the safe rules; Volcano's default and with capacity."""
    assert BatchRules.names() == (
        "batch-safe",
        "kube-batch",
        "kube-batch-sample",
        "volcano",
        "volcano-capacity",
    )
    assert [BatchRules.load(name).name for name in BatchRules.names()] == [*BatchRules.names()]


def test_the_sample_equals_the_configuration_that_kube_batch_ships() -> None:
    """kube-batch-sample and kube-batch's own file ask for the same actions and plugins."""
    ours, theirs = BatchRules.load("kube-batch-sample"), BatchRules.load(SAMPLE)
    assert (ours.actions, ours.tiers, ours.options) == (
        theirs.actions,
        theirs.tiers,
        theirs.options,
    )


@pytest.mark.parametrize("name", BatchRules.names())
def test_rules_come_back_from_their_canonical_text(name: str) -> None:
    """A stored rule set is the same again, with the same digest, also in another process."""
    rules = BatchRules.load(name)
    again = BatchRules.from_canonical(rules.canonical)
    assert again == rules
    assert pickle.loads(pickle.dumps(rules)) == rules


def test_the_safe_rules_extend_the_sample() -> None:
    """An overlay replaces what it names and keeps the rest."""
    safe, sample = BatchRules.load("batch-safe"), BatchRules.load("kube-batch-sample")
    assert safe.naming == sample.naming
    assert safe.actions != sample.actions
    assert all(getattr(safe.options, name) for name in ("keep_gangs", "fit_first", "roll_back"))


# --- our own files -----------------------------------------------------------------------------


def test_a_file_of_ours_is_read() -> None:
    """Actions in order, tiers of plugins with flags and arguments."""
    rules = BatchRules.load(OWN)
    gang, nodeorder = rules.tiers[0]
    assert rules.actions == ("allocate", "preempt")
    assert not gang.enabled("enablePreemptable")
    assert gang.enabled("enableReclaimable")
    assert nodeorder.arguments == {"leastrequested.weight": "3"}
    assert rules.notices == ()


def test_comments_and_spelling_do_not_change_the_digest() -> None:
    """The digest is that of what decides: a description or a comma list changes nothing."""
    other = OWN.replace("{name: mine}", "{name: mine, description: other words}")
    other = other.replace("[allocate, preempt]", '"allocate,preempt"  # in this order')
    assert BatchRules.load(other).digest == BatchRules.load(OWN).digest
    assert (
        BatchRules.load(OWN.replace("preempt]", "reclaim]")).digest != BatchRules.load(OWN).digest
    )


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("allocate, preempt", "allocate, prempt", "5:23 unknown action `prempt`"),
        ("allocate, preempt", "", "5:12 no action is left"),
        ("[allocate, preempt]", "{a: b}", "5:12 `actions` must be a list of names"),
        ("name: gang", "name: gong", "8:18 unknown plugin `gong`"),
        ("enablePreemptable", "enablePreempt", "8:24 unknown key `enablePreempt`"),
        ("enablePreemptable", "disableJobOrder", "8:24 unknown key `disableJobOrder`"),
        ("false", "no", "8:43 YAML reads `no` as false"),
        ("false", "'false'", "8:43 `enablePreemptable` must be `true` or `false`"),
        ("weight: 3", "weights: 3", "9:41 unknown argument `leastrequested.weights`"),
        ("weight: 3", "weight: many", "9:64 `many` is not a whole number"),
        ("weight: 3", "weight: [3]", "9:64 `leastrequested.weight` must be a single value"),
        ("plugins:\n    ", "plugin:\n    ", "7:7 missing key `plugins`"),
        ("{name: mine}", "{name: Mine}", "3:18 `Mine` is no name"),
        ("policy/v1", "policy/v2", "1:13 unknown `apiVersion` `policy/v2`"),
        ("  actions: [allocate, preempt]\n", "", "5:3 missing key `actions`"),
        ("spec:\n", "spec:\n  option: {}\n", "5:3 unknown key `option`"),
        ("spec:\n", "spec:\n  options: {keepGang: true}\n", "5:13 unknown key `keepGang`"),
        (
            "spec:\n",
            "spec:\n  options: {keepGangs: 1}\n",
            "5:24 `keepGangs` must be `true`",
        ),
        ("spec:\n", "spec:\n  audit: {nodes: -1}\n", "5:18 `nodes` must be at least 0, not -1"),
        (
            "spec:\n",
            "spec:\n  naming: {schedulerName: ''}\n",
            "5:27 `schedulerName` must",
        ),
        (
            "spec:\n",
            "extends: kube-botch\nspec:\n",
            "4:10 cannot extend `kube-botch`: no shipped",
        ),
        ("  tiers:\n", "  tiers: 3\n  more:\n", "6:10 `tiers` must be a list, not the number 3"),
    ],
)
def test_a_mistake_is_named_with_its_place(old: str, new: str, expected: str) -> None:
    """Every mistake in a file of ours is an error that tells where and what."""
    assert old in OWN
    found = complaints(OWN.replace(old, new, 1))
    assert any(line.startswith(expected) for line in found), found


def test_all_mistakes_come_at_once() -> None:
    """A file with several mistakes is corrected in one go."""
    text = OWN.replace("preempt]", "prempt]").replace("gang", "gong").replace("weight: 3", "w: 3")
    assert len(complaints(text)) == 3


def test_a_message_shows_the_line_and_offers_a_correction() -> None:
    """The message has the form of all rule files: place, what was typed, help apart."""
    with pytest.raises(RulesError) as caught:
        BatchRules.load(OWN.replace("name: gang", "name: gnag"))
    assert str(caught.value) == (
        "<text>:8:18: unknown plugin `gnag`\n"
        "      - {name: gnag, enablePreemptable: false}\n"
        "               ^^^^\n"
        "  help: did you mean `gang`?"
    )


def test_a_file_that_extends_itself_is_refused(tmp_path: Path) -> None:
    """A circle of files is an error, not an endless load."""
    for name, other in (("a", "b"), ("b", "a")):
        text = OWN.replace("spec:", f"extends: ./{other}.yaml\nspec:")
        (tmp_path / f"{name}.yaml").write_text(text)
    with pytest.raises(RulesError, match="extends this file in turn, in a circle"):
        BatchRules.load(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("kube-batc", "no shipped batch rules"),
        ("./nowhere.yaml", "no such file or folder"),
        ("kind: [\n", "not YAML"),
        ("kind: Queue\nmetadata: {name: q}\n", "is neither batch rules nor a scheduler config"),
        ({"actions": "allocate", "tiers": "x"}, "must be a list of tiers"),
        ({"tiers": []}, "`actions` is missing"),
        ({"actions": "allocate,, backfill"}, "an action without a name"),
        ({"actions": "gangpreempt"}, "no action is left"),
        ({"actions": "list_of_action_in_order"}, "unknown action"),
        ({"actions": {"a": 1}}, "must be names"),
        ({"actions": "allocate", "tiers": [{"plugins": [{"names": "x"}]}]}, "needs a `name`"),
        ({"actions": "allocate", "tiers": [{"name": "gang"}]}, "a tier holds `plugins`"),
    ],
    ids=str,
)
def test_what_is_no_rule_set_is_refused_with_a_message(source: object, message: str) -> None:
    """Nothing unreadable is taken for rules, and none of it ends in a traceback."""
    with pytest.raises(RulesError, match=message):
        BatchRules.load(source)  # type: ignore[arg-type]  # among them what no caller should give


# --- foreign configurations --------------------------------------------------------------------


def test_a_configuration_of_kube_batch_is_taken_as_it_is() -> None:
    """Order, tiers and repetition are kept, and there is nothing to say about it."""
    rules = BatchRules.load(SAMPLE)
    assert rules.actions == ("reclaim", "allocate", "backfill", "preempt")
    assert [[use.name for use in tier] for tier in rules.tiers] == [
        ["priority", "gang", "conformance"],
        ["drf", "predicates", "proportion", "nodeorder"],
    ]
    assert rules.naming.scheduler == "kube-batch"
    assert rules.notices == ()


def test_what_volcano_has_beside_is_left_out_and_told() -> None:
    """Plugins and arguments of Volcano that are unknown or not modelled are named one by one."""
    rules = BatchRules.load(VOLCANO)
    assert rules.actions == ("enqueue", "allocate", "backfill")
    assert (rules.semantics, rules.naming.scheduler) == ("volcano", "volcano")
    assert rules.tiers[1][0].arguments == {"predicate.NodePortsEnable": "false"}
    assert notices(rules) == [
        "8:11 unknown plugin `magic`",
        "12:7 argument `predicate.GPUSharingEnable` of Volcano is left out",
        "13:7 unknown argument `predicate.MemoryPressureEnable`",
        "15:36 `perhaps` is not `true` or `false`; the default counts",
        "18:23 `5` is not a whole number without quotes; the default counts",
        "19:11 plugin `usage` of Volcano is left out",
    ]
    assert rules.unmodelled == (
        "plugin magic",
        "argument predicate.GPUSharingEnable",
        "plugin usage",
    )
    assert rules.notices[0].source == "<text>[volcano-scheduler.conf]"


def test_switches_of_the_first_versions_are_told_in_the_words_of_today() -> None:
    """`disableTaskOrder` has had no effect for years; the notice says what to write."""
    text = SAMPLE.replace("- name: drf", "- name: drf\n    disableTaskOrder: true")
    (notice,) = BatchRules.load(text).notices
    assert (notice.message, notice.help) == (
        "unknown key `disableTaskOrder`",
        "write `enableTaskOrder: false`",
    )


REFUSED = {
    "docs__plugin-conf-0.yaml": "unknown action `list_of_action_in_order`",
}


def configurations() -> list[Path]:
    return sorted(f for kind in ("kube-batch", "volcano") for f in (REAL / kind).iterdir())


def test_every_real_configuration_is_accepted_or_refused_in_words() -> None:
    """42 configurations out of Volcano's documents and 6 shipped ones: one is a template."""
    refused = {}
    assert len(configurations()) == 48
    for file in configurations():
        try:
            rules = BatchRules.load(file)
        except RulesError as exc:
            refused[file.name] = str(exc)
        else:
            assert rules.actions
    assert refused.keys() == REFUSED.keys()
    for name, message in REFUSED.items():
        assert message in refused[name]


def test_stored_batch_rules_keep_their_digest() -> None:
    """A text from before an option existed is read with the option off, and keeps its digest."""
    older = json.loads(BatchRules.load("kube-batch").canonical)
    del older["spec"]["options"]["countRoom"]
    text = json.dumps(older, sort_keys=True, separators=(",", ":"))
    rules = BatchRules.from_canonical(text)
    assert (rules.canonical, rules.digest, rules.options.count_room) == (
        text,
        "sha256:" + hashlib.sha256(text.encode()).hexdigest(),
        False,
    )
