"""When a service looks at what others may have written."""

from __future__ import annotations

import time

from policy.server.extender.news import News


def test_only_the_first_of_what_is_heard_is_new() -> None:
    news = News()
    assert news.age is None
    assert [news.hear(), news.hear()] == [True, False]
    assert news.age is not None
    news.take()
    assert news.age is None
    assert news.hear()


def test_a_decision_refutes_what_was_heard_before_it_began() -> None:
    news = News()
    before = time.monotonic()
    news.hear()
    news.recorded(before)
    assert news.age is not None
    news.recorded(time.monotonic())
    assert news.age is None
