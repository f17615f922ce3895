"""What is fuzzed: functions of bytes that return, whatever the bytes are."""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final
from unittest.mock import patch

import click

from policy.cli.app import run
from policy.cluster import quantities, times
from policy.manifests import Limits, ManifestError, read, resolve
from policy.rules import RulesError, RuleSet
from policy.rules.expressions import Context, ExpressionError, ValueType, compile_expression

CLUSTER: Final = {
    "kind": "List",
    "items": [
        {
            "kind": "Node",
            "metadata": {"name": "n1"},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
        },
        {
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]},
        },
    ],
}
_LIMITS: Final = Limits(object_bytes=50_000, input_bytes=200_000, objects=100)

READING: Final = ("decisions", "explain", "nominations", "report", "state", "what-if", "rules")
"""Commands whose arguments are fuzzed: they read a database and write nothing."""


def manifests(data: bytes) -> None:
    """Manifests of every form; a time and a quantity besides."""
    with contextlib.suppress(ManifestError):
        found = read(["-"], stdin=io.BytesIO(data), limits=_LIMITS)
        resolve(found.objects, places=found.places)
    text = data.decode(errors="replace")
    with contextlib.suppress(times.TimeError):
        assert times.EARLIEST <= times.parse(text) <= times.LATEST
    with contextlib.suppress(quantities.QuantityError):
        quantities.units(text)


def rules(data: bytes) -> None:
    """A rule file."""
    file = _FOLDER / "rules.yaml"
    file.write_bytes(data)
    with contextlib.suppress(RulesError):
        RuleSet.load(file)


def expressions(data: bytes) -> None:
    """An expression, wherever one may stand."""
    text = data.decode(errors="replace")
    for context in Context:
        with contextlib.suppress(ExpressionError):
            compile_expression(text, context=context, expected=frozenset(ValueType))


def sql(data: bytes) -> None:
    """A query and its parameters, divided by NUL."""
    query, *parameters = data.decode(errors="replace").split("\0")
    named = [part for parameter in parameters for part in ("--param", parameter)]
    _run(["sql", "--db", str(_database()), *named, "--", query])


def commands(data: bytes) -> None:
    """Arguments of a command that reads, divided by NUL; the first byte chooses the command."""
    arguments = data[1:].decode(errors="replace").split("\0")
    _run([READING[data[0] % len(READING)] if data else "state", *arguments])


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    function.__name__: function for function in (manifests, rules, expressions, sql, commands)
}


def _run(arguments: Sequence[str]) -> None:
    """Run a command line; click's own errors, and ours, are statuses and not exceptions."""
    out = io.StringIO()
    with (
        patch.dict(os.environ, POLICY_DB=str(_database())),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        status = run(list(arguments))
    assert isinstance(status, int), click.unstyle(out.getvalue())


_TEMPORARY: Final = tempfile.TemporaryDirectory(prefix="policy-fuzz-")
_FOLDER: Final = Path(_TEMPORARY.name)


@cache
def _database() -> Path:
    file, database = _FOLDER / "cluster.json", _FOLDER / "policy.db"
    file.write_text(json.dumps(CLUSTER))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert run(["import", str(file), "--db", str(database)]) == 0
    return database
