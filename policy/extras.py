"""What extras bring: looked for before it is imported, so that an error says what to install."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

_PACKAGES: Final = {
    "dask": {"distributed": "distributed"},
    "live": {
        "httpx2": "httpx2",
        "lightkube": "lightkube",
        "prometheus_client": "prometheus-client",
    },
    "parquet": {"pyarrow": "pyarrow"},
    "prove": {"z3": "z3-solver"},
    "server": {
        "httptools": "httptools",
        "prometheus_client": "prometheus-client",
        "starlette": "starlette",
        "uvicorn": "uvicorn",
    },
    "sign": {"cryptography": "cryptography"},
    "tune": {"optuna": "optuna"},
}
"""By extra: which modules are imported, and of which package each is."""


class ExtraMissing(Exception):  # told to people in the words of its message
    """Packages of an extra are not installed; `help` says how to install them."""

    def __init__(self, message: str, *, help: str) -> None:
        super().__init__(message)
        self.help = help


def require(extra: str, needs: str) -> None:
    """Raises ExtraMissing. needs: the beginning of its message, such as `proofs need`."""
    missing = [
        f"`{package}`" for module, package in _PACKAGES[extra].items() if find_spec(module) is None
    ]
    if missing:
        noun = "the package" if len(missing) == 1 else "the packages"
        raise ExtraMissing(
            f"{needs} {noun} {', '.join(missing)}",
            help=f"install the extra: `pip install 'preemption-policy[{extra}]'`",
        )
