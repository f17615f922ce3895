"""Texts that changed between versions of kube-scheduler, apart from what the filters decide.

A rule set says once whose texts it gives (`messages`); every filter takes the text which that
version has. `docs/generated/generations.md` shows where the generations differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class Messages(StrEnum):
    """The version of kube-scheduler that brought a text, oldest first."""

    V1_14 = "1.14"  # 1.13 and 1.14
    V1_20 = "1.20"  # 1.19 to 1.26
    V1_27 = "1.27"  # 1.27 to 1.32
    V1_33 = "1.33"
    V1_34 = "1.34"  # 1.34.0 and 1.34.1
    V1_34_2 = "1.34.2"  # and later


NEWEST: Final = Messages.V1_34_2
_ORDER: Final = tuple(Messages)


def text_of(texts: Mapping[Messages, str], version: Messages) -> str:
    """The text that a version has: the last of those that came with it or before it.

    texts: by the version that brought them; the oldest version has one.
    """
    until = _ORDER.index(version) + 1
    return next(texts[came] for came in reversed(_ORDER[:until]) if came in texts)
