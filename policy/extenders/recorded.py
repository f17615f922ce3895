"""Extenders as a record has them: the answers of a decision that was made before."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable

from policy.decision.model import ExtenderCall
from policy.extenders.protocol import Answer, ExtenderVerb, request_digest
from policy.rules.ruleset import Extender


class NotRecorded(LookupError):  # told to people in the words of its message
    """A question that the recorded decision did not ask: it is another decision."""


class RecordedExtenders:
    """Gives each recorded answer once, to exactly the question that it answered."""

    def __init__(self, calls: Iterable[ExtenderCall]) -> None:
        self._answers: dict[tuple[str, str, str], deque[Answer]] = defaultdict(deque)
        for call in calls:
            self._answers[call.extender, call.verb, call.request].append(
                Answer(status=call.status, error=call.error, content=call.answer)
            )

    def ask(self, kind: ExtenderVerb, extender: Extender, request: bytes) -> Answer:
        digest = request_digest(request)
        found = self._answers.get((extender.url_prefix, kind.value, digest))
        if not found:
            raise NotRecorded(
                f"no recorded answer of `{extender.url_prefix}` to this `{kind.value}` request"
            )
        return found.popleft()
