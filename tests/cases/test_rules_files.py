"""Which files are read as rules, and what is said of all others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from policy.batch import BatchRules
from policy.cases.finding import suites
from policy.rules import RulesError, RuleSet

SECRET = "root:x:0:0:the-secret"

OVERLAY = """\
apiVersion: policy/v1
kind: PreemptionRules
metadata: {name: mine}
extends: %s
"""

BATCH = OVERLAY.replace("PreemptionRules", "BatchRules")


def refusal(text: str, folder: Path) -> str:
    """What is said of rules that extend something that is none."""
    (folder / "mine.yaml").write_text(text)
    with pytest.raises(RulesError) as refused:
        (BatchRules if "BatchRules" in text else RuleSet).load(folder / "mine.yaml")
    return str(refused.value)


@pytest.mark.parametrize("rules", [OVERLAY, BATCH], ids=["single", "batch"])
@pytest.mark.parametrize("name", ["passwd", "link.txt", "passwd.yaml", "list.yaml", "linked.yaml"])
def test_no_message_quotes_a_file_that_holds_no_rules(
    rules: str, name: str, tmp_path: Path
) -> None:
    """Whatever `extends` leads to, by its name or by a link, only rules are ever shown."""
    content = {"list.yaml": f"- {SECRET}\n", "passwd.yaml": f"{SECRET}\n*{SECRET} : [\n"}
    for file in ("passwd", "passwd.yaml", "list.yaml"):
        (tmp_path / file).write_text(content.get(file, f"{SECRET}\n"))
    (tmp_path / "link.txt").symlink_to(tmp_path / "passwd")
    (tmp_path / "linked.yaml").symlink_to(tmp_path / "passwd")
    message = refusal(rules % f"./{name}", tmp_path)
    assert SECRET not in message
    assert "secret" not in message


@pytest.mark.parametrize("rules", [OVERLAY, BATCH], ids=["single", "batch"])
def test_a_fifo_or_device_is_refused_unread(rules: str, tmp_path: Path) -> None:
    """Nothing waits for a writer that never comes, and nothing reads a device without end."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zero.yaml").symlink_to("/dev/zero")
    assert [refusal(rules % f"./{name}.yaml", tmp_path) for name in ("pipe", "zero")] == [
        f"{tmp_path}/mine.yaml:4:10: cannot extend `./{name}.yaml`: is not a regular file\n"
        f"      extends: ./{name}.yaml\n"
        f"               {'^' * (7 + len(name))}"
        for name in ("pipe", "zero")
    ]


@pytest.mark.parametrize(
    "name", ["loop.yaml", "a" * 300 + ".yaml", "mine.yaml/more.yaml", "nul\\0.yaml"]
)
def test_a_path_that_leads_nowhere_is_refused(name: str, tmp_path: Path) -> None:
    """Circles of links, names that are too long, and paths below files are errors of ours."""
    (tmp_path / "loop.yaml").symlink_to(tmp_path / "loop.yaml")
    message = refusal(OVERLAY % f'"./{name}"', tmp_path)
    assert message.startswith(f"{tmp_path}/mine.yaml:4:10: cannot extend `./")


def test_only_yaml_endings_are_rule_files(tmp_path: Path) -> None:
    """A rule file is told by its ending before a byte of it is read."""
    path = tmp_path / "rules.json"
    path.write_text("{}")
    with pytest.raises(RulesError) as refused:
        RuleSet.load(path)
    assert str(refused.value) == (
        f"{path}: is not a rule file\n  help: a rule file ends in `.yaml` or `.yml`"
    )


@pytest.mark.parametrize("rules", [OVERLAY, BATCH], ids=["single", "batch"])
def test_nothing_outside_of_the_rules_folder_is_read(rules: str, tmp_path: Path) -> None:
    """Neither a path that climbs, nor an absolute one, nor a link leads out of `within`."""
    root = tmp_path / "root"
    root.mkdir()
    base = "kube-batch" if "BatchRules" in rules else "kube-1.35"
    outside = tmp_path / "base.yaml"
    outside.write_text(rules % base)
    (root / "link.yaml").symlink_to(outside)
    (root / "inside.yaml").write_text(rules % base)
    load = (BatchRules if "BatchRules" in rules else RuleSet).load
    found = {}
    for way in ("../base.yaml", str(outside), "./link.yaml", "./inside.yaml"):
        (root / "mine.yaml").write_text(rules % way)
        try:
            found[way] = load(root / "mine.yaml", within=root).name
        except RulesError as exc:
            found[way] = exc.problems[0].message.partition("`: ")[2]
    said = f"is outside of the rules folder `{root}`"
    assert found == {
        "../base.yaml": said,
        str(outside): said,
        "./link.yaml": said,
        "./inside.yaml": "mine",
    }


def test_cases_are_read_inside_of_the_rules_folder_only(tmp_path: Path) -> None:
    """A file of cases that is a link to the outside is refused like the rules themselves."""
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "cases.yaml").write_text("[]\n")
    (root / "mine.yaml").write_text(OVERLAY % "kube-1.35")
    (root / "mine.cases.yaml").symlink_to(tmp_path / "cases.yaml")
    (suite,) = suites([str(root / "mine.yaml")], within=root)
    with pytest.raises(RulesError, match="is outside of the rules folder"):
        suite.cases()
