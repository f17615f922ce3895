"""Reading the values of a mapping one by one; what is wrong is noted with its place."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from policy.cluster import quantities, times
from policy.rules.documents import Branch, Item, Leaf, Place, Series
from policy.text.problems import Problem

_AGO = re.compile(r"(?:[0-9]{1,6}[smhdw])+")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def seconds(text: str) -> int | None:
    """Seconds in `90s`, `1h30m` or `2d`; None for what is no such length of time."""
    if not _AGO.fullmatch(text):
        return None
    return sum(int(n) * _SECONDS[unit] for n, unit in re.findall(r"([0-9]+)([smhdw])", text))


def before(now_ms: int, ago: int | None) -> str | None:
    """The instant so many seconds ago; None without a number."""
    return None if ago is None else times.to_text(now_ms - ago * 1000)


@dataclass(slots=True)
class Fields:
    """The keys of one mapping; `close` complains about those that were not read."""

    branch: Branch
    path: str
    problems: list[Problem]
    _asked: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, item: Item, path: str, problems: list[Problem]) -> Fields | None:
        """None, and a problem, for what is no mapping."""
        if isinstance(item, Branch):
            return cls(item, path, problems)
        if isinstance(item, Leaf) and item.value is None:
            return cls(Branch(item.place, {}, {}), path, problems)
        problems.append(item.place.problem(path, f"`{path}` must be a mapping of keys to values"))
        return None

    def get(self, key: str) -> Item | None:
        self._asked.append(key)
        return self.branch.get(key)

    def has(self, key: str) -> bool:
        return key in self.branch.entries

    def complain(self, place: Place, key: str, message: str, advice: str | None = None) -> None:
        self.problems.append(place.problem(self._at(key), message, advice))

    def close(self) -> None:
        """Every key must have been asked for."""
        for key, place in self.branch.keys.items():
            if key not in self._asked:
                message = f"unknown key `{key}` in `{self.path}`"
                self.problems.append(place.problem(self._at(key), message, known(key, self._asked)))

    def _at(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _leaf(self, key: str, what: str) -> Leaf | None:
        item = self.get(key)
        if item is None or isinstance(item, Leaf):
            return item
        self.complain(item.place, key, f"`{key}` must be {what}")
        return None

    def text(self, key: str, default: str = "") -> str:
        leaf = self._leaf(key, "text")
        return default if leaf is None else leaf.text

    def word(self, key: str, choices: Iterable[str]) -> str:
        """One of a few words, "" where it is left out."""
        leaf = self._leaf(key, "a word")
        if leaf is None:
            return ""
        names = list(choices)
        if leaf.text not in names:
            self.complain(
                leaf.place, key, f"unknown `{key}` `{leaf.text}`", known(leaf.text, names)
            )
            return ""
        return leaf.text

    def number(self, key: str, default: int | None = None) -> int | None:
        leaf = self._leaf(key, "a whole number")
        if leaf is None:
            return default
        value = leaf.value
        if isinstance(value, bool) or not isinstance(value, int):
            self.complain(leaf.place, key, f"`{key}` must be a whole number, not `{leaf.text}`")
            return default
        return value

    def ago(self, key: str) -> int | None:
        """Seconds before now, None where it is left out."""
        leaf = self._leaf(key, "a length of time")
        if leaf is None:
            return None
        found = seconds(leaf.text)
        if found is None:
            message = f"`{leaf.text}` is no length of time"
            self.complain(leaf.place, key, message, "write `90s`, `10m`, `1h30m` or `2d`")
        return found

    def quantity(self, key: str) -> str | int | float | None:
        leaf = self._leaf(key, "a quantity")
        return None if leaf is None else self._quantity(leaf, key)

    def _quantity(self, leaf: Leaf, key: str) -> str | int | float | None:
        value = leaf.value
        try:
            if isinstance(value, str | int | float) and not isinstance(value, bool):
                quantities.units(value)
                return value
        except quantities.QuantityError:
            pass
        message = f"`{leaf.text}` is no quantity"
        self.complain(leaf.place, key, message, "write `4`, `500m` or `8Gi`")
        return None

    def quantities(self, key: str) -> dict[str, str | int | float]:
        found: dict[str, str | int | float] = {}
        for name, leaf in self._leaves(key):
            amount = self._quantity(leaf, f"{key}.{name}")
            if amount is not None:
                found[name] = amount
        return found

    def texts(self, key: str) -> dict[str, str]:
        """A mapping of text to text."""
        return {name: leaf.text for name, leaf in self._leaves(key)}

    def numbers(self, key: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, leaf in self._leaves(key):
            value = leaf.value
            if isinstance(value, bool) or not isinstance(value, int):
                message = f"`{name}` must be a whole number, not `{leaf.text}`"
                self.complain(leaf.place, f"{key}.{name}", message)
            else:
                found[name] = value
        return found

    def leaves(self, key: str) -> Mapping[str, Leaf]:
        """A mapping of text to scalars."""
        return dict(self._leaves(key))

    def _leaves(self, key: str) -> Iterable[tuple[str, Leaf]]:
        item = self.get(key)
        inner = None if item is None else Fields.of(item, self._at(key), self.problems)
        for name, value in inner.branch.entries.items() if inner is not None else ():
            if isinstance(value, Leaf):
                yield name, value
            else:
                self.complain(value.place, f"{key}.{name}", f"`{name}` must be a single value")

    def list(self, key: str) -> list[Leaf]:
        """A list of scalars."""
        item = self.get(key)
        if item is None:
            return []
        if not isinstance(item, Series):
            self.complain(item.place, key, f"`{key}` must be a list")
            return []
        found = []
        for part in item.items:
            if isinstance(part, Leaf):
                found.append(part)
            else:
                self.complain(part.place, key, f"`{key}` must be a list of single values")
        return found

    def only(self, key: str, names: Iterable[str]) -> Fields:
        """The same mapping with nothing but some names of the mapping at a key."""
        item, wanted = self.get(key), set(names)
        entries = dict(self.branch.entries)
        if isinstance(item, Branch):
            kept = {name: value for name, value in item.entries.items() if name in wanted}
            entries[key] = Branch(item.place, kept, item.keys)
        return Fields(
            Branch(self.branch.place, entries, self.branch.keys), self.path, self.problems
        )

    def named(self, key: str) -> Iterable[tuple[str, Fields]]:
        """A mapping of names to mappings."""
        item = self.get(key)
        inner = None if item is None else Fields.of(item, self._at(key), self.problems)
        for name, value in inner.branch.entries.items() if inner is not None else ():
            found = Fields.of(value, f"{self._at(key)}.{name}", self.problems)
            if found is not None:
                yield name, found


def priority_of(entry: Fields, priorities: Mapping[str, int]) -> int | None:
    """The `priority` of an entry, or that of its `class`; priorities: by the name of the class."""
    name = entry.text("class")
    if name and name not in priorities:
        place = entry.branch.entries["class"].place
        entry.complain(place, "class", f"no class `{name}` in this case", known(name, priorities))
    return entry.number("priority", priorities.get(name))


def known(wanted: str, names: Iterable[str]) -> str:
    """The help for a word that is none of `names`."""
    every = list(dict.fromkeys(names))
    close = difflib.get_close_matches(wanted, every, n=1)
    if close:
        return f"did you mean `{close[0]}`?"
    return "known: " + ", ".join(f"`{name}`" for name in every)
