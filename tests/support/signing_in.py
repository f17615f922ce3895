"""How people sign in: by the form."""

from __future__ import annotations

from urllib.parse import quote

from playwright.sync_api import Page

from tests.support.serving import Serving


def sign_in(page: Page, service: Serving, token: str, path: str = "/") -> Page:
    """What the form leads to is `path`, loaded with everything that belongs to it."""
    page.goto(f"{service.url}/login?next={quote(path, safe='/')}")
    page.fill("input[name=token]", token)
    with page.expect_navigation(wait_until="load"):
        page.click("main button")
    return page
