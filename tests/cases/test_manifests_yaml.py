"""YAML is read as Kubernetes reads it, and hostile YAML ends in an error."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from policy.manifests import ManifestError, read, yaml_values
from policy.rules import RulesError, RuleSet
from policy.text.yaml12 import YamlError


def load(text: str) -> Any:
    [value] = yaml_values.documents(io.BytesIO(text.encode()))
    return value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("n", "n"),
        ("2026-11-20", "2026-11-20"),
        ("2026-11-20T08:00:00Z", "2026-11-20T08:00:00Z"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("100m", "100m"),
        ("1e3", 1000.0),
        ("0.5", 0.5),
        (".5", 0.5),
        ("-7", -7),
        ("0x10", 16),
        ("0o17", 15),
        ('"5"', "5"),
        ("'true'", "true"),
        ("true", True),
        ("True", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("!!str 5", "5"),
        ("1.2.3", "1.2.3"),
        ("-", [None]),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: Any) -> None:
    """Only null, booleans and numbers of YAML 1.2 are more than text."""
    assert load(f"value: {text}" if text != "-" else "value:\n-") == {"value": value}


def test_keys_are_text() -> None:
    """A key that looks like a number or a boolean stays what was written."""
    assert load("{1: a, true: b, 0x1: c}") == {"1": "a", "true": "b", "0x1": "c"}


def test_merge_keys_fill_in_what_is_missing() -> None:
    """`<<` adds the keys of another mapping, and own keys win wherever they stand."""
    text = "base: &b {x: 1, y: 2}\nbefore: {<<: *b, x: 3}\nafter: {x: 3, <<: [*b, {z: 4}]}\n"
    assert load(text) == {
        "base": {"x": 1, "y": 2},
        "before": {"x": 3, "y": 2},
        "after": {"x": 3, "y": 2, "z": 4},
    }


def test_block_texts_keep_their_lines() -> None:
    """A block text is text, also where it looks like a number."""
    assert load("a: |\n  1\nb: >-\n  2\n  3\n") == {"a": "1\n", "b": "2 3"}


def test_empty_documents_are_left_out() -> None:
    """A document with nothing in it is no value."""
    text = "a: 1\n---\n---\n# only a comment\n---\nb: 2\n"
    assert list(yaml_values.documents(io.BytesIO(text.encode()))) == [{"a": 1}, {"b": 2}]


def _laughs() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines.extend(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10))
    return "\n".join(lines)


def _stairs() -> str:
    """Each line is one level deeper than the one before, and none looks it."""
    return "\n".join(["a0: &a0 [x]", *(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200))])


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: [1, 2\nb: 3", "not YAML: did not find expected ',' or ']'", 2),
        ("a: b: c", "not YAML: mapping values are not allowed in this context", 1),
        ("a: *nowhere", "not YAML: unknown alias `*nowhere`", 1),
        ("? [a, b]\n: c", "a key must be text, not a collection", 1),
        ("a: &a [*a]", "not YAML: unknown alias `*a`", 1),
        ("[" * 100_000, "values are nested more than 100 levels deep", 1),
        (_stairs(), "values are nested more than 100 levels deep", 100),
        (_laughs(), "aliases make the object larger than 3 MiB", 6),
    ],
)
def test_bad_texts_name_their_place(text: str, message: str, line: int) -> None:
    """A text that is no YAML, or that would fill the memory, is an error with its line."""
    with pytest.raises(YamlError) as caught:
        load(text)
    assert (caught.value.message, caught.value.line) == (message, line)


@pytest.mark.parametrize(
    "text", ["a: {x: 1, x: 2}", "a: &a {x: 1, x: 2}", "- {<<: {x: 1}, x: 2, x: 3}"]
)
def test_a_key_that_stands_twice_is_kept_in_mind(text: str) -> None:
    """A mapping in which a key stands more than once tells which."""
    value = load(text)
    [mapping] = value.values() if isinstance(value, dict) else value
    assert (type(mapping).__name__, mapping.repeated) == ("Repeating", ["x"])


def test_a_rule_file_and_a_manifest_refuse_the_same_text_alike(tmp_path: Path) -> None:
    """What is no YAML is said in the same words, whichever of the two was meant to stand there."""
    for text in ("kind: [\n", "kind: &a [*a]\n", "kind:\n\t- b", "kind: \a\n", "? [a]\n: b\n"):
        file = tmp_path / "a.yaml"
        file.write_text(text)
        with pytest.raises(RulesError) as of_rules:
            RuleSet.load(file)
        with pytest.raises(ManifestError) as of_manifests:
            read([file])
        [rules], [manifests] = of_rules.value.problems, of_manifests.value.problems
        assert replace(rules, source_line=None) == manifests
