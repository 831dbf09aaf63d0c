"""Every parameter of a game by name."""

from typing import Any

import numpy as np
import pytest

import realfm_jax as rfm

GAME = rfm.Game(
    rfm.Devices(cost=[1e-3, 2e-3, 3e-3], accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.25)),
    rfm.Server(accuracy=rfm.InverseSqrt(a_opt=0.9, k=0.3)),
    rfm.RealFM(),
)


def test_names_lead_to_values_and_back() -> None:
    found = rfm.parameters(GAME)
    assert float(found["server_k"]) == 0.3
    assert found["shaping"] == "taylor"
    assert found["devices"] == 3
    changed = rfm.replace(GAME, server_k=0.4, payoff_scale=[1.0, 2.0, 3.0], shaping="exact", epsilon=1e-6)
    assert float(changed.server.accuracy.k) == 0.4
    np.testing.assert_array_equal(changed.devices.payoff.scale, [1.0, 2.0, 3.0])
    assert changed.mechanism.shaping == "exact"
    assert float(changed.mechanism.epsilon) == 1e-6
    assert rfm.parameters(GAME)["shaping"] == "taylor", "the original stays as it was"


def test_the_number_of_devices_changes_only_by_its_name() -> None:
    assert len(rfm.replace(GAME, cost=1e-3).devices) == 3
    assert len(rfm.replace(GAME, cost=1e-3, devices=7).devices) == 7
    np.testing.assert_array_equal(rfm.replace(GAME, devices=2).devices.cost, [1e-3, 2e-3])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"profit_margn": 0.5}, "unknown parameter 'profit_margn'; did you mean profit_margin"),
        ({"zzz": 0.5}, "unknown parameter 'zzz'; known: cost, a_opt"),
        ({"profit_margin": 3.0}, "Server.profit_margin must be in"),
        ({"cost": [1.0, 2.0]}, "cost must have shape"),
        ({"devices": 4}, "devices must be at least 1 and at most 3"),
        ({"devices": 0}, "devices must be at least 1"),
        ({"money": "free"}, "RealFM.money must be one of capped, paper; got 'free'"),
        ({"mechanism": rfm.EqualShare(), "shaping": "exact"}, "unknown parameter 'shaping'"),
    ],
)
def test_mistakes_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rfm.replace(GAME, **change)
