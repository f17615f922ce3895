"""Rule sets of every kind as people look at them: what is shipped, texts by line, differences."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Final, TypeAlias

from policy.batch import diff as batch_diff
from policy.batch.rules import BatchRules
from policy.rules import RulesError, RuleSet, diff
from policy.rules.diff import RuleChange
from policy.rules.diff_table import DiffRow, diff_rows
from policy.rules.files import (
    BATCH_RULES,
    file_of,
    own_name,
    shipped,
    shipped_environments,
    shipped_names,
    shipped_rules,
)

AnyRules: TypeAlias = RuleSet | BatchRules


class RulesKind(StrEnum):
    """What a shipped file is for. Values are part of the output."""

    RULE_SET = "rule set"
    RULE = "rule"  # that overlays include
    ENVIRONMENT = "environment"
    BATCH = "batch rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedRules:
    """One shipped file."""

    name: str
    kind: RulesKind
    description: str
    digest: str


def shipped_kinds() -> dict[str, RulesKind]:
    """Every shipped name in the order of lists, with its kind; none is loaded."""
    names = (
        (RulesKind.RULE_SET, shipped_names()),
        (RulesKind.RULE, shipped_rules()),
        (RulesKind.ENVIRONMENT, shipped_environments()),
        (RulesKind.BATCH, shipped_names(BATCH_RULES)),
    )
    return {name: kind for kind, of_kind in names for name in of_kind}


def single_pod_names() -> list[str]:
    """The shipped names that can judge decisions."""
    return [name for name, kind in shipped_kinds().items() if kind is not RulesKind.BATCH]


@cache
def every_shipped() -> tuple[ShippedRules, ...]:
    """What is shipped, loaded once in a process."""
    found = ((name, kind, load_shipped(name)) for name, kind in shipped_kinds().items())
    return tuple(
        ShippedRules(name=name, kind=kind, description=rules.description, digest=rules.digest)
        for name, kind, rules in found
    )


@cache
def load_shipped(name: str) -> AnyRules:
    """A shipped file of any kind, loaded once in a process. Raises RulesError."""
    batch = shipped_kinds().get(name) is RulesKind.BATCH
    return BatchRules.load(name) if batch else RuleSet.load(name)


def from_canonical(text: str) -> AnyRules:
    """The rules of any kind whose canonical text this is. Raises RulesError."""
    from policy.store.record.rule_sets import is_batch  # lists of files need no database

    return BatchRules.from_canonical(text) if is_batch(text) else RuleSet.from_canonical(text)


def canonical_of(wanted: str, stored: Callable[[str], str]) -> str:
    """Canonical text of the rule set with a digest, or with one that begins so.

    A shipped one, which no database need have, or that which `stored` finds. Raises InvalidValue,
    and what `stored` raises where no shipped one has the digest.
    """
    from policy.store.errors import NotFound  # lists of files need no database
    from policy.store.read.queries import digest_range, more_than_one_rule_set

    require_digest(wanted)
    low, high = digest_range(wanted)
    found = {one.digest: one.name for one in every_shipped() if low <= one.digest < high}
    texts = {load_shipped(name).canonical for name in found.values()}
    if low not in found:
        # The beginning of a digest may be that of others, too.
        try:
            texts.add(stored(wanted))
        except NotFound:
            if not texts:
                raise
    if len(texts) > 1:
        raise more_than_one_rule_set(wanted)
    return texts.pop()


def shipped_as(rules: AnyRules) -> str | None:
    """The shipped name of the same rules, which has their reasons and their lines."""
    for name in shipped_kinds():
        # The name is a part of the digest, so only files of that name are loaded.
        if own_name(name) == rules.name and load_shipped(name).digest == rules.digest:
            return name
    return None


def recorded_as(wanted: str) -> str:
    """A filter for the rule set of decisions as the record has it: the listed name of a shipped one
    is the name that this calls itself. Everything else stays as it is. Raises InvalidValue.
    """
    require_digest(wanted)
    return own_name(wanted) if wanted in shipped() else wanted


_DIGEST: Final = "sha256:"


def require_digest(wanted: str) -> None:
    """Refuse a digest, or a beginning of one, that finds nothing however long one looks.

    A name is none, and passes. Raises InvalidValue.
    """
    if not wanted.startswith(_DIGEST):
        return
    from policy.store.errors import InvalidValue  # lists of files need no database
    from policy.store.read.queries import is_digest

    if not is_digest(wanted):
        short = is_digest(f"{wanted}0000")
        what = "too short for" if short else "not"
        raise InvalidValue(
            f"`{wanted[:80]}` is {what} the beginning of a digest",
            help=f"give `{_DIGEST}` and 4 to 64 of its hexadecimal digits, in lower case",
        )


# --- text --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleText:
    """A rule set as text, line by line, and where each of its rules stands."""

    title: str  #: the file, as places in it are written, or `CANONICAL`
    lines: Sequence[str]
    rules: AnyRules  #: with origins that lead into the lines, where they can be known


CANONICAL: Final = "canonical text"
_TEXT: Final = "<text>"
"""Source of places in a rule set that was read as text."""


def text_of(rules: AnyRules, name: str | None) -> RuleText:
    """The shipped file of that name, or without one the canonical text, a key a line."""
    if name is not None:
        lines = shipped()[name].read_text("utf-8").splitlines()
        return RuleText(title=file_of(name), lines=lines, rules=rules)
    text = json.dumps(json.loads(rules.canonical), indent=2, ensure_ascii=False)
    return RuleText(title=CANONICAL, lines=text.splitlines(), rules=_placed(rules, text))


def _placed(rules: AnyRules, text: str) -> AnyRules:
    """The same rules with the lines of a text; as they are where the text is not read alike."""
    if isinstance(rules, BatchRules):
        return rules
    try:
        read = RuleSet.load(f"{text}\n")
    except RulesError:  # a text of an earlier release, which only its canonical form explains
        return rules
    return read if read.digest == rules.digest else rules


def line_of(origin: str, text: RuleText) -> tuple[str, int] | None:
    """Where an origin leads: a shipped name ("" for the text itself) and a line."""
    file, _, line = origin.rpartition(":")
    if not line.isdigit():
        return None
    if file in (_TEXT, text.title):
        return "", int(line)
    name = _files().get(file)
    return None if name is None else (name, int(line))


@cache
def _files() -> Mapping[str, str]:
    """Shipped names by the files that places are written with."""
    return {file_of(name): name for name in shipped()}


# --- differences -------------------------------------------------------------------------------


class NothingInCommonError(Exception):
    """Two rule sets of different kinds."""

    def __init__(self) -> None:
        super().__init__("a rule set and batch rules have nothing in common to compare")


def differences(old: AnyRules, new: AnyRules) -> tuple[RuleChange, ...]:
    """The changes that lead from one to the other. Raises NothingInCommonError."""
    if isinstance(old, RuleSet) and isinstance(new, RuleSet):
        return diff.compare(old, new)
    if isinstance(old, BatchRules) and isinstance(new, BatchRules):
        return batch_diff.compare(old, new)
    raise NothingInCommonError


def difference_rows(old: AnyRules, new: AnyRules, changes: Sequence[RuleChange]) -> list[DiffRow]:
    """The changes side by side, a row or more per change."""
    if isinstance(old, RuleSet) and isinstance(new, RuleSet):
        return diff_rows(old, new, changes)
    return batch_diff.diff_rows(changes)
