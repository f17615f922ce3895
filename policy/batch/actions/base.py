"""What an action is: one pass over the session, in the order in which the rules list it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from policy.batch.views import ActionView


class Action(ABC):
    """Base of all actions. An action keeps nothing between sessions."""

    name: ClassVar[str]  #: as rule files write it
    doc: ClassVar[str]  #: one sentence: what it does

    @abstractmethod
    def run(self, session: ActionView) -> None:
        """Changes the session."""
