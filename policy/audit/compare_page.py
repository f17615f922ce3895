"""The comparison of two rule sets as one self-contained HTML page: no network, no script.

Written with string templates: the page has four parts and no logic of its own, which does not
pay for a template engine. Every text that comes from data goes through `escape`,
which leaves it neither tags nor characters that hide or turn what stands beside it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape as html_escape
from typing import Final

from policy.audit import compare
from policy.audit.compare import Change, Comparison, Group, Result, Summary
from policy.cluster import times
from policy.text.printable import printable

_MOST_ROWS: Final = 20
_MOST_CHANGES: Final = 300
_WIDTH: Final = 960

_COLOURS: Final = {
    Change.SAME: "same",
    Change.OTHER_NODE: "c1",
    Change.OTHER_VICTIMS: "c2",
    Change.NOW_FITS: "c3",
    Change.NEWLY_POSSIBLE: "c4",
    Change.NOW_PREEMPTS: "c5",
    Change.NO_LONGER_POSSIBLE: "c6",
    Change.OTHER_REASON: "c7",
}
"""CSS classes; the order is that of the bar and its legend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What was compared, for the head of the page."""

    recorded_rules: Sequence[str]  #: names of the rule sets that decided
    rules: str
    rules_digest: str
    cluster: str
    skipped: int


def escape(text: str) -> str:
    """Text of the data as the page may hold it."""
    return html_escape(printable(text))


def _grouped(value: int) -> str:
    """A number that no line break tears apart."""
    return compare.grouped(value).replace(" ", "\N{NARROW NO-BREAK SPACE}")


def _duration(seconds: int) -> str:
    return compare.duration(seconds).replace(" ", "\N{NO-BREAK SPACE}")


def page(about: About, summary: Summary, changed: Sequence[Comparison]) -> str:
    """The whole page. `changed`: the decisions that differ, in the order to show them."""
    head = f"{', '.join(about.recorded_rules) or 'nothing'} and {about.rules}"
    body = "\n".join(
        (
            _head(about, summary),
            _cards(summary.total),
            _changes(summary),
            _groups("Who preempts, by namespace", "namespace", summary.by_namespace),
            _groups("Who preempts, by priority", "priority", summary.by_priority),
            _groups("Who leaves, by namespace", "namespace", summary.by_victim_namespace),
            _groups("Who leaves, by priority", "priority", summary.by_victim_priority),
            _decisions(changed),
        )
    )
    return _PAGE.format(title=escape(head), style=_STYLE, body=body)


def _head(about: About, summary: Summary) -> str:
    before = ", ".join(about.recorded_rules) or "no decision"
    skipped = (
        f" {about.skipped} decisions could not be judged: their state is not kept."
        if about.skipped
        else ""
    )
    return f"""<header>
<h1>{escape(about.rules)} <span class="dim">instead of</span> {escape(before)}</h1>
<p>{_grouped(summary.total.decisions)} recorded decisions of cluster <b>{escape(about.cluster)}</b>
decided again, each on the state it was made on.{skipped}
<span class="dim digest">{escape(about.rules_digest)}</span></p>
</header>"""


# --- the figures -------------------------------------------------------------------------------


def _cards(total: Group) -> str:
    share = 100 * total.changed / total.decisions if total.decisions else 0
    parts = [
        f'<div class="card"><h2>Decisions that differ</h2><p class="big">{_grouped(total.changed)}'
        f'<span class="unit"> of {_grouped(total.decisions)}</span></p>'
        f"<p>{share:.1f} %</p></div>"
    ]
    for name, attribute in _FIGURES:
        before, after = getattr(total.before, attribute), getattr(total.after, attribute)
        shown = _duration if attribute == "lost_seconds" else _grouped
        parts.append(
            f'<div class="card"><h2>{name}</h2><p class="big">{shown(after)}</p>'
            f"<p>{_delta(before, after, attribute)}, {shown(before)} before</p></div>"
        )
    return f'<section class="cards">{"".join(parts)}</section>'


_FIGURES: Final = (
    ("Victims", "victims"),
    ("PDB violations", "pdb_violations"),
    ("Lost run time", "lost_seconds"),
)


def _delta(before: int, after: int, attribute: str) -> str:
    """The change, coloured by whether it hurts more or less."""
    if before == after:
        return '<span class="dim">no change</span>'
    shown = _duration if attribute == "lost_seconds" else _grouped
    word, kind = ("more", "worse") if after > before else ("less", "better")
    if attribute != "lost_seconds" and word == "less":
        word = "fewer"
    return f'<span class="{kind}">{shown(abs(after - before))} {word}</span>'


def _changes(summary: Summary) -> str:
    total = sum(summary.changes.values())
    shown = [(change, summary.changes.get(change, 0)) for change in _COLOURS]
    x = 0.0
    bars = []
    for change, count in shown:
        if not count:
            continue
        width = _WIDTH * count / total
        label = (
            f'<text x="{x + width / 2:.1f}" y="25" class="inside on-{_COLOURS[change]}">'
            f"{_grouped(count)}</text>"
            if width > 12 + 8 * len(_grouped(count))
            else ""
        )
        bars.append(
            f'<g><title>{escape(change.meaning)}: {_grouped(count)}</title><rect x="{x:.1f}" y="0"'
            f' width="{max(width - 1, 0.5):.1f}" height="40" class="{_COLOURS[change]}"/>'
            f"{label}</g>"
        )
        x += width
    legend = "".join(
        f'<li class="{"dim" if not count else ""}"><i class="{_COLOURS[change]}"></i>'
        f"<b>{_grouped(count)}</b> {escape(change.meaning)}</li>"
        for change, count in shown
    )
    return f"""<section><h2>What changes</h2>
<svg viewBox="0 0 {_WIDTH} 40" role="img" aria-label="decisions by kind of change">{"".join(bars)}
</svg><ul class="legend">{legend}</ul></section>"""


def _groups(title: str, name: str, groups: Mapping[str, Group] | Mapping[int, Group]) -> str:
    """A table with a pair of bars per figure: before above, after below."""
    counted = any(group.decisions for group in groups.values())
    items = [
        (key, group)
        for key, group in groups.items()
        if group.before.victims or group.after.victims or group.changed
    ]
    items.sort(key=lambda item: (-max(item[1].before.victims, item[1].after.victims), str(item[0])))
    if not items:
        return ""
    rest = len(items) - _MOST_ROWS
    top = items[:_MOST_ROWS]
    most = {
        attribute: max(
            max(getattr(g.before, attribute), getattr(g.after, attribute)) for _, g in top
        )
        for _, attribute in _FIGURES
    }
    heads = "".join(f"<th>{figure}</th>" for figure, _ in _FIGURES)
    lines = "".join(
        f"<tr><th>{escape(str(key))}</th>"
        + (
            f'<td class="number">{_grouped(group.changed)} of {_grouped(group.decisions)}</td>'
            if counted
            else ""
        )
        + "".join(
            f"<td>{_pair(getattr(group.before, a), getattr(group.after, a), most[a], a)}</td>"
            for _, a in _FIGURES
        )
        + "</tr>"
        for key, group in top
    )
    more = f'<p class="dim">and {rest} more</p>' if rest > 0 else ""
    differ = "<th>differ</th>" if counted else ""
    kind = "groups counted" if counted else "groups"
    return f"""<section><h2>{title}</h2>
<p class="dim key"><i class="before"></i> as recorded <i class="after"></i> with the other rules</p>
<table class="{kind}"><thead><tr><th>{name}</th>{differ}{heads}</tr></thead>
<tbody>{lines}</tbody></table>{more}</section>"""


def _pair(before: int, after: int, most: int, attribute: str) -> str:
    shown = _duration if attribute == "lost_seconds" else _grouped
    room = 130
    bars = []
    for y, (kind, value) in ((0, ("before", before)), (17, ("after", after))):
        width = room * value / most if most else 0
        bars.append(
            f'<rect x="0" y="{y + 2}" width="{width:.1f}" height="11" class="{kind}"/>'
            f'<text x="{width + 6 if value else 0:.1f}" y="{y + 12}">{shown(value)}</text>'
        )
    return f'<svg viewBox="0 0 210 34" class="pair">{"".join(bars)}</svg>'


# --- the decisions -----------------------------------------------------------------------------


def _decisions(changed: Sequence[Comparison]) -> str:
    if not changed:
        return "<section><h2>Decisions that differ</h2><p>None.</p></section>"
    parts = [_decision(comparison) for comparison in changed[:_MOST_CHANGES]]
    rest = len(changed) - _MOST_CHANGES
    more = (
        f'<p class="dim">and {_grouped(rest)} more: <code>policy compare --output json</code></p>'
        if rest > 0
        else ""
    )
    return f"<section><h2>Decisions that differ</h2>{''.join(parts)}{more}</section>"


def _decision(comparison: Comparison) -> str:
    when = times.to_text(comparison.now_ms) or ""
    return f"""<details><summary><i class="{_COLOURS[comparison.change]}"></i>
<b>{comparison.id}</b> {escape(comparison.preemptor)}
<span class="dim">priority {comparison.priority}, {escape(when)}</span>
<span class="what">{escape(comparison.change.meaning)}</span></summary>
<div class="sides">{_side("as recorded", comparison.before, comparison.after)}
{_side("with the other rules", comparison.after, comparison.before)}</div></details>"""


def _side(title: str, result: Result, other: Result) -> str:
    gone = {victim.pod for victim in other.victims}
    victims = "".join(
        f'<tr class="{"" if victim.pod in gone else "only"}"><td>{escape(victim.pod)}</td>'
        f'<td class="number">{victim.priority}</td>'
        f'<td class="number">{_duration(victim.lost_seconds)}</td>'
        f"<td>{'violates a PDB' if victim.pdb_violating else ''}</td></tr>"
        for victim in result.victims
    )
    table = (
        "<table><thead><tr><th>victim</th><th>priority</th><th>lost</th><th></th></tr></thead>"
        f"<tbody>{victims}</tbody></table>"
        if victims
        else ""
    )
    where = f"{result.outcome.value}{f' on {result.node}' if result.node else ''}"
    why = f"decided by {result.decided_by}" if result.decided_by else result.message
    return (
        f'<div><h3>{title}</h3><p><b>{escape(where)}</b></p><p class="dim">{escape(why)}</p>'
        f"{table}</div>"
    )


# --- words and style ---------------------------------------------------------------------------


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body><main>
{body}
</main></body></html>
"""

_STYLE: Final = """
:root{--bg:#fff;--fg:#1b1f24;--dim:#65707d;--line:#e1e5ea;--card:#f6f8fa;--same:#c9d1d9;
--before:#9aa7b4;--after:#2f6fde;--good:#1a7f4b;--bad:#b3341d;
--c1:#2f6fde;--c2:#7a4fd0;--c3:#1a9a62;--c4:#7cb518;--c5:#e08a00;--c6:#cf3f2a;--c7:#6b7785}
@media(prefers-color-scheme:dark){:root{--bg:#12161b;--fg:#e4e9ee;--dim:#8d99a6;--line:#2a313a;
--card:#1a2027;--same:#3b4550;--before:#66727e;--after:#5b93f5;--good:#4cc38a;--bad:#f0806c;
--c1:#5b93f5;--c2:#a283ee;--c3:#36b37e;--c4:#a3d13d;--c5:#f2a93b;--c6:#ea6a55;--c7:#8a96a3}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:1040px;margin:0 auto;padding:32px 24px 64px}
h1{font-size:26px;margin:0 0 4px;font-weight:650}h2{font-size:17px;margin:0 0 12px}
h3{font-size:13px;margin:0 0 6px;color:var(--dim);font-weight:600}
section{margin-top:36px}p{margin:0 0 8px}.dim{color:var(--dim)}
.digest{display:block;font:12px ui-monospace,monospace;overflow-wrap:anywhere}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:14px}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px}
.card h2{font-size:13px;color:var(--dim);font-weight:600;margin:0 0 4px}.card p{margin:0}
.big{font-size:27px;font-weight:650;line-height:1.25}.unit{font-size:14px;font-weight:400;
color:var(--dim)}
.better{color:var(--good);font-weight:600}.worse{color:var(--bad);font-weight:600}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:12px;fill:var(--fg);font-variant-numeric:tabular-nums}
svg .inside{fill:#fff;text-anchor:middle;font-weight:650;font-size:13px}
svg .inside.on-same{fill:var(--fg)}
.same{fill:var(--same);background:var(--same)}.before{fill:var(--before);background:var(--before)}
.after{fill:var(--after);background:var(--after)}
.c1{fill:var(--c1);background:var(--c1)}.c2{fill:var(--c2);background:var(--c2)}
.c3{fill:var(--c3);background:var(--c3)}.c4{fill:var(--c4);background:var(--c4)}
.c5{fill:var(--c5);background:var(--c5)}.c6{fill:var(--c6);background:var(--c6)}
.c7{fill:var(--c7);background:var(--c7)}
.legend{list-style:none;margin:14px 0 0;padding:0;display:grid;gap:4px 24px;
grid-template-columns:repeat(auto-fill,minmax(320px,1fr))}
i{display:inline-block;width:12px;height:12px;border-radius:3px;margin:0 6px 0 0;
vertical-align:-1px}
.key i{margin-left:12px}.key i:first-child{margin-left:0}
table{border-collapse:collapse;width:100%}
th{text-align:left;font-weight:600}thead th{color:var(--dim);font-size:13px}
td,th{padding:5px 12px 5px 0;border-bottom:1px solid var(--line);vertical-align:middle}
tbody th{font-weight:500;overflow-wrap:anywhere}.number{font-variant-numeric:tabular-nums;
white-space:nowrap}.pair{width:210px}
.groups{table-layout:fixed}.groups thead th:first-child{width:21%}
.groups.counted thead th:nth-child(2){width:13%}
details{border-bottom:1px solid var(--line);padding:7px 0}
summary{cursor:pointer;overflow-wrap:anywhere}summary .what{float:right;color:var(--dim)}
.sides{display:grid;grid-template-columns:1fr 1fr;gap:28px;padding:12px 0 10px 18px}
.sides table{font-size:13px}.sides td{overflow-wrap:anywhere}.only td:first-child{font-weight:650}
@media(max-width:760px){.sides{grid-template-columns:1fr}summary .what{float:none;display:block}
.groups{display:block;overflow-x:auto}}
"""
