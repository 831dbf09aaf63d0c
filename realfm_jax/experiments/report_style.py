"""How the HTML page of `realfm report` looks, from a phone's width up, in the light and in the dark."""

STYLE = """
:root{color-scheme:light dark;--ink:#1a1a1a;--paper:#fff;--line:#ccc;--soft:#f3f3f3;--bad:#b00020}
*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:74rem;font:1rem/1.5 system-ui,sans-serif;
color:var(--ink);background:var(--paper);overflow-wrap:break-word}a{color:inherit}
h1,h2,h3{line-height:1.25}h2{margin-top:3rem;border-top:3px solid var(--ink);padding-top:1rem}
h3{margin-top:2rem}.lead{font-size:1.15rem}.scroll{overflow:auto;max-height:40rem;margin:1rem 0;background:
linear-gradient(to left,var(--paper) 1.5rem,transparent) right/3rem 100% no-repeat local,
linear-gradient(to left,var(--line),transparent) right/1.5rem 100% no-repeat}
table{border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums}
caption{text-align:left;font-weight:600;padding-bottom:.4rem;max-width:calc(100vw - 2rem)}
th,td{padding:.25rem .6rem;border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}
th{position:sticky;background:var(--paper);white-space:normal}th:first-child{text-align:left;left:0}
thead th{top:0}thead th:first-child{z-index:1}
table:has(thead) th:first-child{background:linear-gradient(to left,var(--line) 1px,var(--paper) 1px)}
table:not(:has(thead)) :is(th,td){text-align:left;white-space:normal;vertical-align:top;font-weight:400}
table:not(:has(thead)) td{overflow-wrap:anywhere}.scroll:not(:has(thead)){max-height:none}
.pictures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem}
figure{margin:0;max-width:34rem}img{width:100%;height:auto;display:block}figcaption{font-size:.875rem}
pre{white-space:pre-wrap;background:var(--soft);padding:.75rem;font-size:.875rem}details{margin:1rem 0}
summary{cursor:pointer;font-weight:600}ul.checks{list-style:none;padding:0}.fail{color:var(--bad)}
@media (prefers-color-scheme:dark){:root{--ink:#e6e6e6;--paper:#191919;--line:#444;--soft:#262626;
--bad:#ff8a80}img{filter:invert(.9) hue-rotate(180deg)}}
"""
"""Figures are drawn on white; in the dark their lightness is turned over, and hues stay. A table wider than
the page is shaded at its right end until scrolled there, and its first column, under which the others pass,
ends in a line: a number cut in two looks like a smaller one."""

PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<title>{title}</title><style>{style}</style></head>
<body><main><h1>{title}</h1>{content}</main></body></html>
"""
"""Asks for nothing, and may not."""
