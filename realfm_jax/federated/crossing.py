"""Where a count first falls to each of several aims: grid, then interpolation, sharing what was counted.

The count (images that a model gets right) falls along the way, but not strictly. Of all the points counted
the first at which it has fallen to an aim is taken: so a lower aim never lies before a higher one, nor does
it get more.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

NEAREST = 1e-6
"""Points no further apart are not told apart: the count jumps there, and its lower side is taken."""


class Aim(NamedTuple):
    """A range of counts, both ends included."""

    least: int
    most: int


class Bracket(NamedTuple):
    """The first point, of those counted, at which an aim is crossed, and the point before it."""

    before: float
    first: float


def crossings(
    count: Callable[[float], int], start: int, aims: Sequence[Aim], cells: int
) -> dict[float, int]:
    """Counts at points of [0, 1], so close that each aim is met at the first point at or below it.

    Args:
      count: of a point; costly.
      start: the count at 0, above all aims.
      aims: those that the count does not fall to are left unmet.
      cells: pieces at whose ends the count is taken first, until it has fallen to all aims.

    >>> found = crossings(lambda x: round(100 * (1 - x)), 100, [Aim(40, 41), Aim(70, 71)], cells=4)
    >>> [found[bracket(found, aim).first] for aim in (Aim(40, 41), Aim(70, 71))], len(found)
    ([40, 70], 7)
    """
    known, lowest = {0.0: start}, min(aim.most for aim in aims)
    for cell in range(1, cells + 1):
        known[cell / cells] = count(cell / cells)
        if known[cell / cells] <= lowest:
            break
    while (point := _next(known, aims)) is not None:
        known[point] = count(point)
    return known


def bracket(known: dict[float, int], aim: Aim) -> Bracket | None:
    """Where the aim is first crossed; None if nowhere.

    >>> bracket({0.0: 9, 1.0: 2, 0.5: 4}, Aim(3, 5))
    Bracket(before=0.0, first=0.5)
    """
    before = 0.0
    for point in sorted(known):
        if known[point] <= aim.most:
            return Bracket(before, point)
        before = point
    return None


def _next(known: dict[float, int], aims: Sequence[Aim]) -> float | None:
    """A point to count at for the first aim that is crossed but not met; None if there is none."""
    for aim in aims:
        cell = bracket(known, aim)
        if cell is None or known[cell.first] >= aim.least or cell.first - cell.before <= NEAREST:
            continue
        high, low = known[cell.before], known[cell.first]
        # Where a straight line meets the aim; but never so near an end that little would be won.
        share = (high - (aim.least + aim.most) / 2) / (high - low)
        return cell.before + (cell.first - cell.before) * min(max(share, 0.25), 0.75)
    return None
