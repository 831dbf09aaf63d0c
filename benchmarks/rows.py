"""What was measured, row by row, and the tables they make."""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of a table; not-a-number: does not apply.

    Attributes:
      name: what was timed.
      count: units (games or devices) that one run deals with.
      seconds: the shortest run.
      ratio: its time per unit over that of our first row.
      compile_seconds: tracing and compiling, before.
      difference: largest relative difference between its answers and ours, over everything compared.
      more: figures that only this section has.
    """

    name: str
    count: int
    seconds: float = math.nan
    ratio: float = math.nan
    compile_seconds: float = math.nan
    difference: float = math.nan
    more: dict[str, float] = dataclasses.field(default_factory=dict)

    @property
    def each(self) -> float:
        """Seconds per unit."""
        return self.seconds / self.count


def table(title: str, rows: list[Row], of: str, unit: str, extras: dict[str, str]) -> str:
    """A section as Markdown that also reads well in a terminal; what does not apply stays empty."""
    lines = [[title, f"{of}s", f"{unit} / {of}", "ratio", "compile s", "difference", *extras.values()]]
    for row in rows:
        numbers: list[tuple[float, str]] = [
            (row.count, ",d"),
            (row.each / {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}[unit], ",.2f"),
            (row.ratio, ",.3g" if row.ratio < 1e3 else ",.0f"),
            (row.compile_seconds, ".1f"),
            (row.difference, ".0e"),
            *((row.more.get(name, math.nan), ".3g") for name in extras),
        ]
        lines.append([row.name, *("" if math.isnan(x) else format(x, spec) for x, spec in numbers)])
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])])
    texts = ([x.rjust(w) for x, w in zip(line[1:], widths[1:], strict=True)] for line in lines)
    heads = (line[0].ljust(widths[0]) for line in lines)
    return "".join(f"| {' | '.join([head, *text])} |\n" for head, text in zip(heads, texts, strict=True))
