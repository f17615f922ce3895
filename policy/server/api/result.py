"""What an operation of the API gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiResult:
    """A document, and how it is answered."""

    document: Any
    status: int = 200
    #: parameters of the next page, None for one that it does not have; empty on the last page
    next: Mapping[str, str | int | None] = field(default_factory=dict)
    immutable: bool = False  #: the same for ever, under this address
