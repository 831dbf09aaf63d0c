"""Which samples a device sees at which step: its shard in a new random order each time around, without end.

A batch that begins near the end of one order is filled from the next, so every batch is full, no sample is
left out, and a shard smaller than a batch simply comes round more than once in it.
"""

import functools

import numpy as np


def draw(
    shards: tuple[np.ndarray, ...], seed: tuple[int, ...], step: int, steps: int, batch: int
) -> np.ndarray:
    """Samples of steps `step`, ..., `step + steps - 1` of every device: int64 [devices, steps, batch].

    They follow from the seed, the device's place and the step, not from how many are drawn at a time.

    >>> draw((np.array([7, 8]),), seed=(0,), step=0, steps=1, batch=4).shape
    (1, 1, 4)
    """
    places = np.arange(step * batch, (step + steps) * batch)
    drawn = [_stream(shard, (*seed, device), places) for device, shard in enumerate(shards)]
    return np.stack(drawn).reshape(len(shards), steps, batch)


def _stream(shard: np.ndarray, seed: tuple[int, ...], places: np.ndarray) -> np.ndarray:
    """The samples at these consecutive places of a device's endless stream."""
    length = len(_orders(len(shard), (*seed, 0)))
    first, last = places[0] // length, places[-1] // length
    parts = [_orders(len(shard), (*seed, int(part))) for part in range(first, last + 1)]
    return shard[np.concatenate(parts)[places - first * length]]


@functools.lru_cache(maxsize=4096)
def _orders(size: int, seed: tuple[int, ...]) -> np.ndarray:
    """Random orders of `size` things, one after the other, at least 1024 places in all: a tiny shard needs
    no generator for each time around. Kept, because consecutive rounds ask for the same ones.
    """
    laps = np.tile(np.arange(size), (-(-1024 // size), 1))
    return np.random.default_rng(seed).permuted(laps, axis=1).reshape(-1)
