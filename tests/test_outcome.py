"""What measured accuracies are worth: against the authors' records, by hand, and for random populations."""

import csv
import dataclasses
import importlib.util
import re
from itertools import groupby
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import SHARED
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from published import ROWS, all_rows

import realfm_jax as rfm
from realfm_jax.experiments.outcome import Measured, outcomes
from realfm_jax.experiments.published import SETTINGS, Published, find

ROOT = Path(__file__).parents[1]
RECORD = SHARED / "published"
CURVE = rfm.GeneralizationBound(0.95, 10.0)
at_hand = pytest.mark.skipif(not RECORD.exists(), reason="the authors' full record is not at hand")


def measured(
    cost: ArrayLike,
    samples: ArrayLike,
    local: ArrayLike,
    fed: float,
    phi: rfm.payoff.Payoff,
    margin: float = 1.0,
    epsilon: float = 1e-9,
) -> Measured:
    devices = rfm.Devices(np.asarray(cost, float), CURVE, phi)
    scale_free = rfm.LinearPayoff() if isinstance(phi, rfm.LinearPayoff) else rfm.PowerPayoff()
    server = rfm.Server(payoff=scale_free, profit_margin=margin)
    return Measured(devices, server, np.asarray(samples, float), np.asarray(local, float), fed, epsilon)


def judges(population: Measured) -> tuple[rfm.Devices, rfm.Server]:
    power = rfm.PowerPayoff()
    return (
        dataclasses.replace(population.devices, payoff=power),
        dataclasses.replace(population.server, payoff=power),
    )


@st.composite
def populations(draw: st.DrawFn, margin: float | None = None) -> Measured:
    """Up to six devices, some of which may be better than the federated model."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(1, 6))
    linear = draw(st.booleans())
    phi = rfm.LinearPayoff() if linear else rfm.PowerPayoff(scale=rng.uniform(0.9, 1.1, n))
    return measured(
        cost=10 ** rng.uniform(-5, -3) * rng.uniform(0.8, 1.2, n),
        samples=rng.integers(10, 8000, n),
        local=rng.uniform(0.1, 0.9, n),
        fed=float(rng.uniform(0.3, 0.99)),
        phi=phi,
        margin=float(rng.uniform(0.05, 0.95)) if margin is None else margin,
    )


@pytest.mark.parametrize("rows", [ROWS, all_rows()], ids=["quoted", "all at hand"])
def test_asked_is_the_published_contribution_and_never_below_the_data_used(rows: list[tuple]) -> None:
    def together(row: tuple) -> tuple:
        return row[0], "linear" in row[1], row[7]

    reached = below = 0
    for (_, linear, fed), group in groupby(sorted(rows, key=together), together):
        cost, scale, _, used, local, _, recorded = np.array([row[2:] for row in group], float).T
        phi = rfm.LinearPayoff() if linear else rfm.PowerPayoff(scale=scale)
        asked = measured(cost, used, local, fed, phi).asked("taylor")
        gains = fed >= local
        assert np.abs(asked - recorded)[gains].max(initial=0) < 1
        assert (asked[~gains] == used[~gains]).all()
        assert (recorded[~gains] < used[~gains]).all(), "the authors' formula goes below"
        reached, below = reached + gains.sum(), below + (~gains).sum()
    assert reached + below == len(rows)
    assert reached >= 36
    assert below >= 2


def test_two_devices_by_hand() -> None:
    population = measured([1e-3, 1e-3], [100, 200], [0.5, 0.6], 0.8, rfm.LinearPayoff(), epsilon=0.0)
    found = outcomes(population, judges(population))
    assert list(found) == ["Local", "EqualShare", "RealFM", "RealFM exact"]
    by_hand = {  # contribution, accuracy, utility, common utility, server's utility, in common
        "Local": ([100, 200], [0.5, 0.6], [0.4, 0.4], [2.9, 5.05], 0.55, 1 / 0.45**2 - 1),
        "EqualShare": ([100, 200], [0.8, 0.8], [0.7, 0.6], [23.9, 23.8], 0.8, 24.0),
        "RealFM": ([400, 400], [0.8, 0.8], [0.4, 0.4], [23.6, 23.6], 0.8, 24.0),
        "RealFM exact": ([400, 400], [0.8, 0.8], [0.4, 0.4], [23.6, 23.6], 0.8, 24.0),
    }
    for name, (contribution, accuracy, utility, common, server, server_common) in by_hand.items():
        got = found[name]
        assert got.contribution == pytest.approx(contribution)
        assert got.accuracy == pytest.approx(accuracy)
        assert got.utility == pytest.approx(utility)
        assert got.common_utility == pytest.approx(common)
        assert (got.server_utility, got.common_server_utility) == pytest.approx((server, server_common))
        assert (got.money == 0).all()


def test_power_payoff_by_hand() -> None:
    """phi(1/2) = 3, phi' = 16, phi'' = 96; phi(3/4) = 15: Taylor owes 4 + 3 = 7, exact 12."""
    population = measured([0.5], [10], [0.5], 0.75, rfm.PowerPayoff(), epsilon=0.0)
    assert population.asked("taylor") == pytest.approx([24.0])
    assert population.asked("exact") == pytest.approx([34.0])
    found = outcomes(population, judges(population))
    assert found["RealFM"].utility == pytest.approx([3.0])
    assert found["RealFM exact"].utility == pytest.approx([-2.0])
    assert found["Local"].utility == pytest.approx([-2.0])


@settings(max_examples=15)
@given(populations(), st.sampled_from(["taylor", "exact"]))
def test_the_rate_spends_the_purse_and_stays_below_every_cost(
    population: Measured, shaping: rfm.Shaping
) -> None:
    rate = population.reward_rate(shaping)
    margin, worth = (
        float(population.server.profit_margin),
        population.server.payoff(population.accuracy_federated),
    )
    purse = (1 - margin) * float(worth)
    paid = rate * population.asked(shaping, rate).sum()
    assert 0 < rate <= population.cost.min()
    if rate < population.cost.min():
        assert paid == pytest.approx(purse, rel=1e-6)
    else:
        assert paid <= purse * (1 + 1e-9)


def test_rate_of_two_devices_by_hand() -> None:
    population = measured([1e-3, 2e-3], [100, 200], [0.5, 0.6], 0.8, rfm.PowerPayoff(), margin=0.5)
    rate = population.reward_rate("taylor")
    assert 0 < rate < 1e-3
    assert rate * population.asked("taylor", rate).sum() == pytest.approx(12.0)
    assert measured([1e-3], [100], [0.5], 0.8, rfm.PowerPayoff()).reward_rate("taylor") == 0.0


@settings(max_examples=15)
@given(populations(), st.sampled_from(["taylor", "exact"]), st.booleans())
def test_what_is_asked_earns_the_federated_accuracy(
    population: Measured, shaping: rfm.Shaping, paid: bool
) -> None:
    rate = population.reward_rate(shaping) if paid else 0.0
    full = population.earned(population.asked(shaping, rate), shaping, rate)
    np.testing.assert_allclose(full, population.accuracy_best, rtol=1e-6)
    np.testing.assert_allclose(
        population.earned(population.samples, shaping, rate), population.accuracy_local
    )
    less = population.earned(population.samples / 2, shaping, rate)
    np.testing.assert_allclose(less, population.accuracy_local)


@settings(max_examples=15)
@given(populations(), st.sampled_from(["taylor", "exact"]))
def test_more_earns_no_less_and_never_more_than_the_best_model(
    population: Measured, shaping: rfm.Shaping
) -> None:
    asked = population.asked(shaping)
    shares = (0.0, 0.1, 0.5, 0.9, 1.0, 2.0, 100.0)
    steps = np.array(
        [population.earned(population.samples + x * (asked - population.samples), shaping) for x in shares]
    )
    assert (np.diff(steps, axis=0) >= -1e-12).all()
    assert (steps <= np.maximum(population.accuracy_federated, population.accuracy_local) + 1e-12).all()
    gains = population.accuracy_federated > population.accuracy_local + 1e-6
    assert (np.diff(steps[:4], axis=0)[:, gains] > 0).all()


@settings(max_examples=15)
@given(populations(margin=1.0))
def test_exact_asks_at_least_as_much_as_taylor(population: Measured) -> None:
    taylor, exact = population.asked("taylor"), population.asked("exact")
    assert (exact >= taylor * (1 - 1e-12)).all()
    if isinstance(population.devices.payoff, rfm.PowerPayoff):
        gains = population.accuracy_federated > population.accuracy_local + 1e-3
        assert (exact[gains] > taylor[gains]).all()


@settings(max_examples=15)
@given(populations())
def test_nobody_loses_and_exact_leaves_epsilon_per_sample(population: Measured) -> None:
    found = outcomes(population, judges(population))
    alone, size = found["Local"].utility, 1e-9 * (1 + np.abs(found["RealFM"].utility).max())
    assert (found["RealFM"].utility >= alone - size).all()
    exact = found["RealFM exact"]
    extra = exact.contribution - population.samples
    # Where nothing is gained nothing is given; elsewhere (c - r + eps) d is the value, so eps d is left.
    scale = 1 + np.abs(exact.utility) + np.asarray(population.devices.payoff(exact.accuracy))
    assert (np.abs(exact.utility - alone - population.epsilon * extra) <= 1e-8 * scale).all()


@pytest.mark.parametrize("cost", [[2.5e-4, 3e-4, 2e-4], [2.5e-4, 2.5e-4]])
def test_equal_share_collects_the_largest_local_optimum(cost: list[float]) -> None:
    devices = rfm.Devices(np.array(cost), CURVE, rfm.PowerPayoff())
    found = rfm.solve(rfm.Game(devices, rfm.Server(), rfm.EqualShare()))
    optimum = np.asarray(rfm.local_optimum(devices).contribution)
    assert bool(found.converged)
    assert float(found.contribution.sum()) == pytest.approx(optimum.max(), rel=1e-6)


def test_quoted_settings_are_told_apart_and_found() -> None:
    assert len({row[:5] for row in SETTINGS}) == len(SETTINGS) >= 24
    for row in SETTINGS:
        assert find(*row[:5]) is row
        assert row.accuracy_federated > row.accuracy_local
        assert row.device_utility >= row.device_utility_local * (1 - 1e-2)
    for unknown in [("digits", 16, "iid", "uniform", "power"), ("mnist", 4, "iid", "uniform", "power")]:
        assert find(*unknown) is None


def test_utilities_of_a_setting_by_hand() -> None:
    power = Published("mnist", 2, "iid", "uniform", "power", 0.5, 2.0, 3, 0.5, 0.75, 10.0)
    assert (power.server_utility, power.server_utility_local) == (15.0, 3.0)
    assert (power.device_utility, power.device_utility_local) == (25.0, 4.5)
    linear = power._replace(payoff="linear", cost=0.01)
    assert (linear.server_utility, linear.server_utility_local) == (0.75, 0.5)
    assert (linear.device_utility, linear.device_utility_local) == pytest.approx((0.65, 0.47)), (
        "z plays no part"
    )


@at_hand
def test_quoted_settings_are_those_of_the_record() -> None:
    with (RECORD / "settings.csv").open() as file:
        record = {
            (row["dataset"], int(row["devices"]), row["distribution"], row["experiment"]): row
            for row in csv.DictReader(file)
        }
    assert len(record) == 72
    columns = ("marginal_cost", "payoff_scale", "m_local_used", "acc_local", "acc_federated", "m_federated")
    for row in SETTINGS:
        experiment = f"linear-{row.experiment}" if row.payoff == "linear" else row.experiment
        theirs = record[row.dataset, row.devices, row.distribution, experiment]
        assert row[5:] == pytest.approx([float(theirs[name]) for name in columns], rel=2.5e-4)


def differences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("differences", ROOT / "docs" / "differences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def quoted_lines() -> tuple[set[str], set[str]]:
    """Of docs/differences.md, numbers only: rows and lists from a clone alone, and from the full record."""
    text = (ROOT / "docs" / "differences.md").read_text().split("## In numbers")[1]
    lines = set(re.findall(r"^(?:- |\| (?:mnist|cifar10)).*$", text, flags=re.M))
    mark = "- *full record*: "
    return {line for line in lines if not line.startswith(mark)}, {
        "- " + line.removeprefix(mark) for line in lines if line.startswith(mark)
    }


def test_the_document_quotes_what_its_script_prints_from_a_clone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    differences().main([])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("From a clone alone: the means of")
    numbers = {line for line in printed if line.startswith(("- ", "| mnist", "| cifar10"))}
    assert len(numbers) > 30
    assert quoted_lines()[0] == numbers


@at_hand
def test_the_document_quotes_the_full_record(capsys: pytest.CaptureFixture[str]) -> None:
    differences().main([str(RECORD)])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "From the authors' record: 72 settings, those of 8 devices device by device."
    assert quoted_lines()[1]
    assert quoted_lines()[1] <= set(printed)
