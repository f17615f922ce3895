"""Without an extra, what needs it says how to install it, and everything else works."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from policy.cli.app import run
from policy.extras import ExtraMissing
from policy.parts import Workers, map_parts
from policy.store import Store

TUNING = "examples/simulation/tuning.yaml"


@pytest.mark.parametrize(
    ("arguments", "module", "said", "extra"),
    [
        ("rules prove kube-1.35", "z3", "proofs need the package `z3-solver`", "prove"),
        (f"tune {TUNING}", "optuna", "`policy tune` needs the package `optuna`", "tune"),
        ("serve", "uvicorn", "the service needs the package `uvicorn`", "server"),
        (
            "serve --environment prod --follow",
            "lightkube",
            "`--follow` needs the package `lightkube`",
            "live",
        ),
        ("follow", "httpx2", "`policy follow` needs the package `httpx2`", "live"),
        (
            "import --context x",
            "lightkube",
            "reading a cluster itself needs the package `lightkube`",
            "live",
        ),
        (
            "import --in-cluster",
            "httpx2",
            "reading a cluster itself needs the package `httpx2`",
            "live",
        ),
        (
            f"audit anchor --sign-key {__file__}",
            "cryptography",
            "signatures need the package `cryptography`",
            "sign",
        ),
        (
            "export --output out --format parquet",
            "pyarrow",
            "Parquet needs the package `pyarrow`",
            "parquet",
        ),
    ],
)
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    arguments: str,
    module: str,
    said: str,
    extra: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing else is done first, and no process is started."""
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    database = str(tmp_path / "policy.db")
    Store.open(database, create=True).close()
    monkeypatch.setenv("POLICY_DB", database)
    assert run(arguments.split()) == 1
    assert capsys.readouterr().err.splitlines()[-2:] == [
        said,
        f"  help: install the extra: `pip install 'preemption-policy[{extra}]'`",
    ]


class _Doubling:
    """A work that needs nothing."""

    def open(self) -> AbstractContextManager[Callable[[int], int]]:
        return nullcontext(lambda part: 2 * part)


def test_work_on_dask_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--dask` of every command comes to this function."""
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ExtraMissing, match="`--dask` needs the package `distributed`"):
        list(map_parts(_Doubling(), [1], Workers(dask="tcp://127.0.0.1:9")))
