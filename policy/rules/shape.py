"""The shape of a rule file against its pydantic model: every finding with its place, in words.

Each kind of rule file has a model of its own; paths, places and sentences are shared.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from policy.rules.documents import Branch, Item, Leaf, Place, Series
from policy.text.problems import Problem

Path: TypeAlias = tuple[str | int, ...]
M = TypeVar("M", bound=BaseModel)

MessageOverride: TypeAlias = Callable[[str, Path, str], tuple[str, str | None] | None]
"""(pydantic's type of error, path, text found) -> message and help; None: the usual words."""

EXPRESSION_KEYS: Final = frozenset({"when", "ascending", "descending", "minimize", "maximize"})
"""`when: true` and `maximize: 1` are expressions, not YAML's truth values and numbers."""

TYPE_WORDS: Final[Mapping[type, str]] = {
    int: "a whole number",
    str: "text",
    bool: "true or false",
    list: "a list",
}
_KIND_WORDS: Final[Mapping[str, str]] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "`true` or `false`",
    "list_type": "a list",
    "model_type": "a mapping",
    "dict_type": "a mapping",
    "model_attributes_type": "a mapping",
}


@dataclass(slots=True)
class FileShape(Generic[M]):
    """One file against one model; `problems` holds what is wrong."""

    root: Branch
    model: type[M]
    words: MessageOverride
    missing: Mapping[str, str]  #: key -> what to write where it is missing
    above: Sequence[str] = ()  #: keys of the file that were read, and taken out, before
    problems: list[Problem] = field(default_factory=list)

    def validate(self) -> M | None:
        """The model, None where it has problems."""
        try:
            return self.model.model_validate(_data(self.root), by_alias=True)
        except ValidationError as exc:
            errors = [(self._plain(e), e) for e in exc.errors(include_url=False)]
            inside = [path for path, error in errors if not self._asks_for_no_mapping(path, error)]
            for path, error in errors:
                # Where a mapping is one of several things that may stand there, and one stands
                # there, what is wrong in it counts, not that it is none of the others.
                if not self._asks_for_no_mapping(path, error) or not any(
                    other[: len(path)] == path for other in inside
                ):
                    self._finding(path, error)
            return None

    def _asks_for_no_mapping(self, path: Path, error: Mapping[str, Any]) -> bool:
        """Is a mapping refused for not being a text, a number or a list?"""
        words = _KIND_WORDS.get(error["type"], "a mapping")
        return words != "a mapping" and isinstance(find(self.root, path), Branch)

    def _finding(self, path: Path, error: Mapping[str, Any]) -> None:
        kind = error["type"]
        if kind == "extra_forbidden":
            self._unknown_key(path)
            return
        if kind == "missing":
            owner = find(self.root, path[:-1]) or self.root
            key = str(path[-1])
            self._complain(owner.place, path, f"missing key `{key}`", self.missing.get(key))
            return
        item = find(self.root, path) or self.root
        found = item.text if isinstance(item, Leaf) else ""
        message, advice = self.words(kind, path, found) or _message(error, item, path)
        self._complain(item.place, path, message, advice)

    def _plain(self, error: Mapping[str, Any]) -> Path:
        """The path without the names of alternatives, which pydantic adds where a type has some."""
        plain: Path = ()
        for part in error["loc"]:
            if find(self.root, (*plain, part)) is not None:
                plain = (*plain, part)
        return (*plain, error["loc"][-1]) if error["type"] == "missing" else plain

    def _complain(self, place: Place, path: Path, message: str, advice: str | None) -> None:
        problem = place.problem(show(path), message, advice)
        if problem not in self.problems:
            self.problems.append(problem)

    def _unknown_key(self, path: Path) -> None:
        owner = find(self.root, path[:-1])
        key = str(path[-1])
        assert isinstance(owner, Branch)
        where = f" in `{show(path[:-1])}`" if path[:-1] else ""
        known = [*_known_keys(self.model, path[:-1]), *(self.above if owner is self.root else ())]
        message = f"unknown key `{key}`{where}"
        self._complain(owner.keys[key], path, message, suggest(key, known))


# -- paths -----------------------------------------------------------------------------------


def show(path: Iterable[str | int]) -> str:
    """`spec.victims.eligible[1].when`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def find(root: Item, path: Iterable[str | int]) -> Item | None:
    """The item at a path, None where there is none."""
    item: Item | None = root
    for part in path:
        if isinstance(part, int):
            found = isinstance(item, Series) and part < len(item.items)
            item = item.items[part] if isinstance(item, Series) and found else None
        else:
            item = item.get(part) if isinstance(item, Branch) else None
    return item


def _data(item: Item, key: str = "") -> Any:
    """Ordinary values; expressions stay the text that they are."""
    if isinstance(item, Leaf):
        return item.text if key in EXPRESSION_KEYS else item.value
    if isinstance(item, Series):
        return [_data(part) for part in item.items]
    return {name: _data(value, name) for name, value in item.entries.items()}


def _known_keys(model: Any, path: Path) -> list[str]:
    """Keys of the model at a path, read from the models' annotations."""
    for part in path:
        if part in model.model_fields:  # and no place in a list, nor a name of the file's own
            annotation = model.model_fields[part].annotation
            model = next(_models(annotation), model)
    return list(model.model_fields)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


# -- words -----------------------------------------------------------------------------------


def _message(error: Mapping[str, Any], item: Item | None, path: Path) -> tuple[str, str | None]:
    kind = error["type"]
    name = str(path[-1]) if path and isinstance(path[-1], str) else show(path[-2:])
    if kind in _KIND_WORDS:
        advice = None
        if name in EXPRESSION_KEYS:
            advice = "YAML reads signs of the expression as its own: quote it, or use `>-`"
        elif kind == "string_type" and isinstance(item, Leaf):
            advice = f"quote it: `'{item.text}'`"
        return f"`{name}` must be {_KIND_WORDS[kind]}, not {found_in(item)}", advice
    context = error.get("ctx", {})
    found = item.text if isinstance(item, Leaf) else ""
    if kind in ("enum", "literal_error"):
        choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        return f"unknown `{name}` `{found}`", suggest(found, choices)
    if kind == "string_pattern_mismatch":
        return f"`{found}` is no {name}", "use lower-case words with `-` between them"
    if kind in ("greater_than_equal", "less_than_equal"):
        limit = context.get("ge", context.get("le"))
        side = "at least" if kind.startswith("greater") else "at most"
        return f"`{name}` must be {side} {limit}, not {found}", None
    if kind in ("too_short", "string_too_short"):
        least = context.get("min_length", 1)
        if least > 1:
            what = "characters" if kind == "string_too_short" else "entries"
            return f"`{name}` must have at least {least} {what}", None
        return f"`{name}` must not be empty", None
    if kind == "too_long":
        return f"`{name}` must have at most {context.get('max_length')} entries", None
    if kind == "string_too_long":
        return f"`{name}` is longer than {context.get('max_length')} characters", None
    said = error["msg"].removeprefix("Value error, ")
    return f"`{name}`: {said[:1].lower()}{said[1:]}", None


def found_in(item: Item | None) -> str:
    """What stands there: `the number 3`."""
    if isinstance(item, Series):
        return "a list"
    if isinstance(item, Branch):
        return "a mapping"
    if item is None:
        return "nothing"
    value = item.value
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return f"the truth value `{item.text}`"
    if isinstance(value, int | float):
        return f"the number {item.text}"
    return f"the text `{item.text}`"


def suggest(wanted: str, known: Iterable[str]) -> str:
    """The nearest of the names that there are, or all of them."""
    names = list(known)
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(wanted.lower(), lowered, n=1, cutoff=0.6)
    if close:
        return f"did you mean `{lowered[close[0]]}`?"
    if not names:
        return "there is none"
    return "known: " + ", ".join(f"`{name}`" for name in names)
