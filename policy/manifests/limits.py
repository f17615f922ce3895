"""How much a manifest may be: bounds that hold before memory is spent, and their messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MIB: Final = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes in bytes of text, after decompression."""

    #: of one object; an API server takes requests up to this size
    object_bytes: int = 3 * MIB
    #: of all files together
    input_bytes: int = 4096 * MIB
    #: objects that are kept
    objects: int = 2_000_000


DEFAULT: Final = Limits()


def sized(size: int) -> str:
    """`3 MiB`, `1500 bytes`."""
    return f"{size // MIB} MiB" if size >= MIB and size % MIB == 0 else f"{size} bytes"


def too_large(limits: Limits) -> tuple[str, str]:
    """(message, help) for an object that is larger than it may be."""
    return (
        f"the object is larger than {sized(limits.object_bytes)}",
        "an API server accepts 3 MiB; `--max-object-size` raises the limit",
    )


def too_much(limits: Limits) -> tuple[str, str]:
    """(message, help) for an input that is larger than it may be."""
    return (
        f"the input is larger than {sized(limits.input_bytes)} after decompression",
        "`--max-input-size` raises the limit",
    )


def too_many(limits: Limits) -> tuple[str, str]:
    """(message, help) for more objects than are kept."""
    return f"more than {limits.objects} objects", "`--max-objects` raises the limit"
