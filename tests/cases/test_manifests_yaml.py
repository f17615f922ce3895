"""YAML is read as Kubernetes reads it, and hostile YAML ends in an error."""

from __future__ import annotations

import io
from typing import Any

import pytest

from policy.manifests import yaml12


def load(text: str) -> Any:
    [(_, value)] = yaml12.documents(io.BytesIO(text.encode()))
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


def test_documents_carry_their_line() -> None:
    """Each document knows where it starts; empty ones are left out."""
    text = "a: 1\n---\n---\n# only a comment\n---\nb: 2\n"
    assert list(yaml12.documents(io.BytesIO(text.encode()))) == [(1, {"a": 1}), (5, {"b": 2})]


def _laughs() -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines.extend(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message", "line"),
    [
        ("a: [1, 2\nb: 3", "did not find expected ',' or ']'", 2),
        ("a: b: c", "mapping values are not allowed in this context", 1),
        ("a: *nowhere", "unknown alias `*nowhere`", 1),
        ("? [a, b]\n: c", "a key must be a text, not a collection", 1),
        ("a: &a [*a]", "unknown alias `*a`", 1),
        ("[" * 100_000, "nested more than 100 levels deep", 1),
        (_laughs(), "aliases make the object larger than 3 MiB", 6),
    ],
)
def test_bad_texts_name_their_place(text: str, message: str, line: int) -> None:
    """A text that is no YAML, or that would fill the memory, is an error with its line."""
    with pytest.raises(yaml12.YamlError) as caught:
        load(text)
    assert (caught.value.message, caught.value.line) == (message, line)
