"""A progress bar with rate and time left, where somebody is looking."""

import contextlib
from collections.abc import Callable, Iterator

DELAY = 2.0
"""Seconds before a bar appears: what is quicker needs none."""


@contextlib.contextmanager
def bar(total: int, unit: str, show: bool | None = None, done: int = 0) -> Iterator[Callable[..., None]]:
    """A bar over `total` units of work, `done` of them already; yields what to call as work proceeds:
    `step(amount)`, with facts to show beside the bar by keyword.

    `show=None` shows it in a terminal, once the work has taken two seconds.
    """
    from tqdm import tqdm

    with tqdm(
        total=total,
        initial=done,
        unit=f" {unit}s",
        unit_scale=True,
        delay=DELAY if show is None else 0.0,
        disable=None if show is None else not show,
        dynamic_ncols=True,
        smoothing=0.05,
    ) as shown:

        def step(amount: int, **facts: object) -> None:
            if facts:
                shown.set_postfix(facts, refresh=False)
            shown.update(amount)

        yield step
