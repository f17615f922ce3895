"""What `import policy` costs and gives."""

from __future__ import annotations

import subprocess
import sys

import policy


def test_importing_the_package_loads_nothing_heavy():
    """No numpy, no database, no pydantic before a name is used."""
    code = "import policy, sys; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"alembic", "cel_expr_python", "click", "msgspec", "numpy", "pydantic", "sqlalchemy"}
    assert heavy.isdisjoint(loaded)
    assert "policy" in loaded


def test_every_public_name_is_there():
    """All of `__all__` can be had, and an unknown name is an AttributeError."""
    assert [name for name in policy.__all__ if getattr(policy, name) is None] == []
    assert set(policy.__all__) <= set(dir(policy))
    assert not hasattr(policy, "nonsense")
