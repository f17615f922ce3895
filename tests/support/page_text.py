"""What stands on a page, without its markup."""

from __future__ import annotations

import re
from html import unescape

import httpx


def words(page: httpx.Response) -> str:
    """The text of a page below its menu, one blank between words."""
    return plain(page.text.partition('<main id="content">')[2])


def table(page: httpx.Response, label: str) -> list[list[str]]:
    """The cells of a table."""
    found = re.search(rf'aria-label="{label}"><table.*?</table>', page.text, re.DOTALL)
    assert found is not None, page.text
    return [
        [plain(cell) for cell in cells]
        for row in re.findall(r"<tr[^>]*>(.*?)</tr>", found[0], re.DOTALL)
        if (cells := re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL))
    ]


def plain(markup: str) -> str:
    """Without the markup; code is in backquotes, as in what the command line says."""
    markup = re.sub(r"</?code>", "`", markup)
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", markup)).split())
