"""Print the tables of docs/theory.md: `python docs/theory_numbers.py`."""

import dataclasses

import jax
import jax.numpy as jnp

import realfm_jax as rfm


def free_rides() -> None:
    """A device of prohibitive cost among 15 ordinary ones (CIFAR-10 setting)."""
    print("cost     shaping   samples given   accuracy got   free ride")
    for cost in (0.05, 0.5, 3.0):
        for shaping in ("taylor", "exact"):
            costs = jnp.full(16, 2.5e-4).at[0].set(cost)
            devices = rfm.Devices(costs, rfm.GeneralizationBound(0.95, 10.0))
            game = rfm.Game(devices, rfm.Server(), rfm.RealFM(shaping))
            found = rfm.solve(game)
            ride = rfm.certify(game, found, probes=0).free_ride[0]
            print(
                f"{cost:<7g}  {shaping:7s}  {found.contribution[0]:14.1f}"
                f"  {found.accuracy[0]:13.4f}  {ride:10.3f}"
            )


def money() -> None:
    """Regret at RealFM's equilibrium under the paper's money rule and under ours (MNIST setting)."""
    print("devices  p_m    r / c   regret, paper   at m / m*   regret, capped")
    for n in (2, 4, 8):
        for margin in (0.0, 0.25, 0.5):
            devices = rfm.Devices(jnp.full(n, 4e-5), rfm.InverseSqrt(0.9975, 0.25))
            game = rfm.Game(devices, rfm.Server(profit_margin=margin), rfm.RealFM())
            found = rfm.solve(game)
            literal = dataclasses.replace(game, mechanism=rfm.RealFM(money="paper"))
            broken = rfm.certify(literal, rfm.outcome_at(literal, found.contribution), probes=0)
            closed = rfm.certify(game, found, probes=0)
            print(
                f"{n:7d}  {margin:4.2f}  {found.reward_rate / 4e-5:6.3f}  {broken.relative_regret:14.4f}"
                f"  {broken.deviation[0] / found.contribution[0]:10.3f}  {closed.relative_regret:15.1e}"
            )


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    free_rides()
    print()
    money()
