"""The libraries of the extra `server`, or a message that says how to get them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from policy.store import StoreError

_NEEDED: Final = ("starlette", "uvicorn", "httptools", "prometheus_client")


def require() -> None:
    """Raises StoreError where a library is missing."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise StoreError(
            f"the service needs {', '.join(f'`{name}`' for name in missing)}",
            help="install the extra: `pip install 'preemption-policy[server]'`",
        )
