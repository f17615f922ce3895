"""What the author of a broken rule file reads: a corpus of files beside their messages.

`POLICY_UPDATE_GOLDEN=1 pytest tests/cases/test_rules_messages.py` writes the messages anew;
read the difference before keeping it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from policy.rules import RulesError, RuleSet
from tests.support.tried import Kind, Tried

FOLDER = Path(__file__).parent / "bad_rules"
FILES = sorted(path.name for path in FOLDER.glob("*.yaml"))


@pytest.mark.parametrize("name", FILES)
def test_a_broken_file_is_refused_with_its_golden_message(
    name: str, monkeypatch: pytest.MonkeyPatch, tried: Tried
) -> None:
    """Each broken file is refused with exactly the message that lies beside it."""
    tried(Kind.BAD_RULES)
    monkeypatch.chdir(FOLDER)
    golden = FOLDER / name.replace(".yaml", ".golden")
    with pytest.raises(RulesError) as refused:
        RuleSet.load(Path(name))
    message = f"{refused.value}\n"
    if os.environ.get("POLICY_UPDATE_GOLDEN"):
        golden.write_text(message, encoding="utf-8")
    assert message == golden.read_text(encoding="utf-8")


def test_the_corpus_is_large_and_without_strays() -> None:
    """The corpus holds at least 60 files, and every message belongs to one of them."""
    messages = sorted(path.name for path in FOLDER.glob("*.golden"))
    assert len(FILES) >= 60
    assert messages == [name.replace(".yaml", ".golden") for name in FILES]


GENERATED: dict[str, tuple[Callable[[], bytes], str]] = {
    "ten-megabytes": (
        lambda: b"# filler\n" * (10_000_000 // 9),
        "f.yaml: is larger than 1048576 bytes, the limit of a rule file",
    ),
    "not-utf-8": (lambda: b"kind: \xff\xfe\n", "f.yaml: not UTF-8: byte 7"),
    "binary": (
        lambda: b"kind: \x00\x01\n",
        "f.yaml: not YAML: control characters are not allowed at character 7",
    ),
    "half-a-million-brackets": (
        lambda: b"[ " * 500_000,
        "f.yaml:1:61: values are nested more than 30 levels deep",
    ),
    "a-long-line": (
        lambda: b"kind: " + b"x" * 500_000 + b": y",
        "f.yaml:1:500007: not YAML: mapping values are not allowed in this context",
    ),
    "many-flat-values": (
        lambda: b"a: [" + b"1," * 110_000 + b"]",
        "f.yaml:1:200001: more than 100000 values after aliases are expanded",
    ),
}


@pytest.mark.parametrize("name", GENERATED)
def test_hostile_files_are_refused_in_one_line(name: str, tmp_path: Path, tried: Tried) -> None:
    """A file that is huge, binary or endlessly nested is refused by size, byte or depth."""
    tried(Kind.BAD_RULES)
    content, expected = GENERATED[name]
    path = tmp_path / "f.yaml"
    path.write_bytes(content())
    with pytest.raises(RulesError) as refused:
        RuleSet.load(path)
    first = str(refused.value).splitlines()[0]
    assert first.removeprefix(f"{tmp_path}/") == expected


def test_brackets_that_the_parser_counts_itself_are_refused_by_our_limit(tmp_path: Path) -> None:
    """Where it reads that far ahead; which column it names depends on its version."""
    path = tmp_path / "f.yaml"
    path.write_bytes(b"[" * 1_000_000)
    with pytest.raises(RulesError, match=r"f.yaml:1:\d+: values are nested more than 30 levels"):
        RuleSet.load(path)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            "kube-1.99",
            "kube-1.99: no shipped rule set `kube-1.99`\n  help: did you mean `kube-1.29`?",
        ),
        ("./missing.yaml", "missing.yaml: no such file or folder"),
        ("./", ".: is a folder, not a rule file"),
    ],
)
def test_a_source_that_is_not_there_is_named(
    source: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name or path without a rule file behind it is told from a broken file."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RulesError) as refused:
        RuleSet.load(source)
    assert str(refused.value) == expected


def test_a_broken_override_points_into_its_json() -> None:
    """Overrides given by a program are checked like a file, with positions in their JSON."""
    with pytest.raises(RulesError) as refused:
        RuleSet.load("kube-1.35", {"candidates": {"minPercentage": 101}})
    assert str(refused.value) == (
        "<overrides>:3:22: `minPercentage` must be at most 100, not 101\n"
        '      "minPercentage": 101\n'
        "                       ^^^"
    )


def test_a_mapping_that_is_no_json_is_refused() -> None:
    """A mapping with a value that no file could hold is refused, not guessed at."""
    with pytest.raises(RulesError) as refused:
        RuleSet.load({"metadata": {"name": object}})
    assert str(refused.value).startswith("<mapping>: the value is no JSON: ")
