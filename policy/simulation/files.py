"""Files that say what is simulated: YAML against a model, every problem with its place."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from policy.rules.documents import parse
from policy.rules.problems import RulesError
from policy.rules.shape import FileShape
from policy.simulation.trace import TraceError
from policy.text.problems import Problem
from policy.text.system import explained

M = TypeVar("M", bound=BaseModel)


def read_model(path: str | Path, model: type[M], *, missing: Mapping[str, str]) -> M:
    """Read a file as a model. Raises RulesError with every problem, TraceError.

    missing: what to write for a key that is missing.
    """
    try:
        text = Path(path).read_text("utf-8")
    except OSError as exc:
        raise TraceError(f"{path}: {explained(exc).message}") from exc
    except UnicodeDecodeError as exc:
        raise TraceError(f"{path}: not UTF-8 text") from exc
    problems: list[Problem] = []
    shape = FileShape(
        root=parse(text, str(path), problems),
        model=model,
        words=lambda kind, path, found: None,  # the usual ones
        missing=missing,
        problems=problems,
    )
    found = shape.validate()
    if found is None or problems:
        raise RulesError(problems)
    return found
