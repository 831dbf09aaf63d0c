"""Shards: disjoint, of exact size, with the label proportions drawn, also where labels run out."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

from realfm_jax.federated.partition import Partition, allocate, partition
from realfm_jax.plots import shards as plots_shards

SEEDS = st.integers(0, 2**63 - 1)
ALPHAS = st.none() | st.floats(1e-12, 1e6) | st.sampled_from([0.3, 0.6])


@st.composite
def crowds(draw: st.DrawFn) -> tuple[np.ndarray, list[int]]:
    """Labels of which some may be rare or missing, and sizes that ask for few of them or for all."""
    random = np.random.default_rng(draw(SEEDS))
    share = random.dirichlet(np.full(draw(st.integers(1, 12)), 0.5))
    labels = random.choice(len(share), draw(st.integers(1, 400)), p=share)
    devices = draw(st.integers(1, min(20, len(labels))))
    asked = draw(st.integers(devices, len(labels)))
    cuts = np.sort(random.choice(np.arange(1, asked), devices - 1, replace=False))
    return labels, np.diff(np.concatenate([[0], cuts, [asked]])).tolist()


def same(one: Partition, two: Partition) -> bool:
    pairs = zip(one.indices, two.indices, strict=True)
    return all(np.array_equal(first, second) for first, second in pairs)


@settings(max_examples=150)
@given(crowds(), SEEDS, ALPHAS)
def test_shards_are_disjoint_and_of_exact_size(
    crowd: tuple[np.ndarray, list[int]], seed: int, alpha: float | None
) -> None:
    labels, sizes = crowd
    shards = partition(labels, sizes, seed, alpha)
    assert [len(shard) for shard in shards.indices] == sizes == shards.sizes.tolist()
    together = np.concatenate(shards.indices)
    assert together.dtype == np.int64
    assert len(np.unique(together)) == len(together)
    assert together.min() >= 0
    assert together.max() < len(labels)
    for shard, counts in zip(shards.indices, shards.counts, strict=True):
        np.testing.assert_array_equal(np.bincount(labels[shard], minlength=labels.max() + 1), counts)
    np.testing.assert_allclose(shards.proportions.sum(1), 1)
    np.testing.assert_allclose(shards.weights, np.array(sizes) / sum(sizes))


@given(crowds(), SEEDS, ALPHAS)
def test_the_key_alone_decides(crowd: tuple[np.ndarray, list[int]], seed: int, alpha: float | None) -> None:
    labels, sizes = crowd
    first = partition(labels, sizes, seed, alpha)
    np.random.seed(seed % 7)  # noqa: NPY002 (numpy's global state must not matter)
    assert same(first, partition(labels, np.array(sizes), seed, alpha))


def test_other_keys_give_other_shards_and_a_seed_is_its_jax_key() -> None:
    labels = np.arange(300) % 10
    seen = [partition(labels, [100, 100], key, 0.5) for key in (0, 1, 2**32, jax.random.key(1))]
    assert not any(same(seen[i], seen[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    assert same(seen[1], seen[3])


@settings(max_examples=100)
@given(SEEDS, st.floats(1e-3, 100), st.lists(st.integers(1, 300), min_size=1, max_size=16))
def test_where_data_suffice_shards_have_the_proportions_drawn(
    seed: int, alpha: float, sizes: list[int]
) -> None:
    labels = np.repeat(np.arange(10), sum(sizes) + 10)
    shards = partition(labels, sizes, seed, alpha)
    assert shards.drawn is not None
    assert np.abs(shards.counts - shards.drawn * shards.sizes[:, None]).max() < 1


def test_proportions_are_dirichlet() -> None:
    # Of a symmetric Dirichlet distribution: mean 1/C, variance (C - 1) / (C^2 (C alpha + 1)).
    for alpha in (0.3, 0.6, 5.0):
        drawn = partition(np.repeat(np.arange(10), 400), np.ones(4000, int), 3, alpha).drawn
        assert drawn is not None
        np.testing.assert_allclose(drawn.mean(0), 0.1, atol=0.02)
        assert drawn.var() == pytest.approx(9 / (100 * (10 * alpha + 1)), rel=0.05)


def test_iid_shards_are_alike() -> None:
    labels = np.repeat(np.arange(4), 5000)
    shares = partition(labels, [2000] * 8, 0).proportions
    assert (
        0 < np.abs(shares - 0.25).max() < 0.05
    )  # five standard deviations; exactly equal would be no draw


def test_a_shard_is_mixed_and_of_all_samples() -> None:
    labels = np.repeat(np.arange(10), 100)
    one = partition(labels, [1000], 0, 0.3)
    assert sorted(one.indices[0].tolist()) == list(range(1000))
    # Sorted, the label would change 9 times from one sample to the next; mixed, about 900 times.
    assert np.count_nonzero(np.diff(labels[one.indices[0]])) > 800


def test_a_label_that_runs_out_is_shared_and_replaced() -> None:
    want = np.array([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
    counts = allocate(want, np.array([40, 40, 40]), np.array([40, 100, 50]))
    # 80 are wanted of label 0: each gets half of what it wants. Device 0 wanted nothing else, so it takes
    # 1 and 2 as 70 and 40 are left; device 2 by what it wanted times what is left, 70 to 40.
    np.testing.assert_array_equal(counts[:, 0], [20, 10, 10])
    np.testing.assert_array_equal(counts[0, 1:], [13, 7])
    np.testing.assert_array_equal(counts[1], [10, 30, 0])
    np.testing.assert_array_equal(counts[2], [10, 16, 14])


def test_all_the_data_by_devices_that_all_want_the_same() -> None:
    available = np.array([7, 1, 0, 100, 3])
    want = np.tile([1 - 2e-300, 1e-300, 0.0, 1e-300, 0.0], (111, 1))
    counts = allocate(want, np.ones(111, int), available)
    np.testing.assert_array_equal(counts.sum(0), available)


@pytest.mark.parametrize(
    ("labels", "sizes", "key", "alpha", "message"),
    [
        ([0, 1, 1], [2, 2], 0, None, "sizes must sum to at most the 3 samples there are; got 4"),
        ([0, 1, 1], [2, 0], 0, None, "sizes must be at least 1; got 0 for device 1"),
        ([0, 1, 1], [], 0, None, "sizes must be integers, .devices.; got float64 .0."),
        ([0, 1, 1], [1.5], 0, None, "sizes must be integers, .devices.; got float64 .1."),
        ([0, -1], [1], 0, None, "labels must be integers >= 0"),
        ([0.0, 1.0], [1], 0, None, "labels must be integers >= 0, .N.; got float64 .2."),
        ([0, 1], [1], 0, 0.0, "alpha must be finite and > 0, or None for IID shards; got 0.0"),
        ([0, 1], [1], 0, float("nan"), "alpha must be finite and > 0"),
        ([0, 1], [1], -1, 0.5, "key must be from 0 to 2.63 - 1; got -1"),
        ([0, 1], [1], 0.5, 0.5, "key must be an integer or a jax.random.key; got 0.5"),
        (
            [0, 1],
            [1],
            jax.random.split(jax.random.key(0)),
            0.5,
            "key must be one key; got keys of shape .2.",
        ),
    ],
)
def test_mistakes_are_named(
    labels: list[int], sizes: list[int], key: int, alpha: float | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        partition(labels, sizes, key, alpha)


def test_the_picture_shows_every_count() -> None:
    shards = partition(np.repeat(np.arange(5), 40), [60, 20, 35], 1, 0.3)
    ax = plots_shards.labels(shards, ax=Figure().subplots())
    (bars,) = ax.collections
    corners = np.stack([np.asarray(path.vertices)[:4] for path in bars.get_paths()])
    left, right, middle = corners[:, 0, 0], corners[:, 1, 0], corners[:, :, 1].mean(1)
    assert len(corners) == np.count_nonzero(shards.counts) < shards.counts.size
    shown = np.zeros(shards.counts.shape)
    device, label = np.rint(middle).astype(int), np.rint(left + plots_shards.FULL / 2).astype(int)
    shown[device, label] = right - left
    np.testing.assert_allclose(shown, plots_shards.FULL * shards.counts / shards.counts.max())
    assert ax.get_title("right") == f"longest bar: {shards.counts.max()} samples"
    assert ax.yaxis_inverted()
    with pytest.raises(ValueError, match="classes must name all 5 labels; got 2 names"):
        plots_shards.labels(shards, classes=["a", "b"])
