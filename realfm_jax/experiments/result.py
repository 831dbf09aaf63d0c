"""A finished run as one JSON document, and as a table to read."""

import dataclasses
from typing import Any

import numpy as np

from realfm_jax.experiments.run import Finished
from realfm_jax.formats import text_table
from realfm_jax.record import plain, provenance

UNSTABLE = ("timings", "provenance")
"""Of a result: what differs between two runs of the same experiment."""


def document(finished: Finished, typed: dict[str, Any]) -> dict[str, Any]:
    """Everything about a run; `typed` is the configuration before anything was fitted."""
    theory, check = finished.decision.equilibrium, finished.decision.certificate
    local = finished.trained.local.curves.isel(epoch=-1)
    fed = finished.trained.federated.curves.isel(epoch=-1)
    about = provenance(typed) | {"data": dict(finished.data.provenance)}
    return plain(
        {
            "provenance": about,
            "experiment": dataclasses.asdict(finished.experiment),
            "fit": finished.decision.fitted,
            "devices": {
                "cost": finished.measured.cost,
                "payoff_scale": _payoff_scale(finished),
                "local_optimum": theory.local.contribution,
                "equilibrium": theory.contribution,
                "samples_alone": finished.decision.alone,
                "samples_together": finished.decision.together,
                "labels": finished.trained.shards.counts,
                "accuracy_local": finished.measured.accuracy_local,
                "own_accuracy_local": local["own_accuracy"].values,
                "own_accuracy_federated": fed["global_own_accuracy"].values,
                "better_alone": finished.measured.accuracy_local > finished.measured.accuracy_federated,
            },
            "accuracy_federated": finished.measured.accuracy_federated,
            "reward_rate": finished.rate,
            "mechanisms": finished.outcomes,
            "rewards": {case: _reward(finished, case) for case in finished.rewards},
            "theory": {
                "server_accuracy": theory.server_accuracy,
                "server_utility": theory.server_utility,
                "utility": theory.utility,
                "converged": theory.converged,
                "equal_share_total": np.asarray(theory.local.contribution).max(),
            },
            "certificate": {
                "equilibrium": check.is_equilibrium,
                "relative_regret": check.relative_regret,
                "participation": check.is_rational,
                "budget": check.within_budget,
                "assumptions": {name: bool(held.all()) for name, held in check.assumptions.items()},
                "measured_participation": _nobody_loses(finished),
            },
            "timings": finished.timings,
        }
    )


def _payoff_scale(finished: Finished) -> np.ndarray:
    payoff: Any = finished.experiment.judges()[0].payoff
    return np.broadcast_to(np.asarray(payoff.scale, float), len(finished.decision.alone))


def _reward(finished: Finished, case: str) -> dict[str, Any]:
    """What was handed out in one case; money by the rate that holds when all give what is asked."""
    given = finished.rewards[case]
    extra = np.maximum(given.contribution - finished.measured.samples, 0.0)
    return {
        "contribution": given.contribution,
        "promised": given.promised,
        "achieved": given.achieved,
        "interval": given.interval,
        "keeps_own_model": given.own,
        "money": finished.rate * extra,
    }


def _nobody_loses(finished: Finished) -> bool:
    """Whether RealFM leaves every device at least what it has alone, with the accuracies measured."""
    alone = finished.outcomes["Local"].utility
    with_it = finished.outcomes[
        "RealFM exact" if finished.experiment.shaping == "exact" else "RealFM"
    ].utility
    return bool((with_it >= alone - 1e-9 * np.abs(alone).max()).all())


def table(result: dict[str, Any]) -> str:
    """Devices and mechanisms, as text."""
    return f"{_devices(result)}\n\n{_mechanisms(result)}"


def _devices(result: dict[str, Any]) -> str:
    devices, gave, fed = result["devices"], result["rewards"]["gave"], result["mechanisms"]["RealFM"]
    heads = (
        "device",
        "cost",
        "alone",
        "own acc.",
        "gave",
        "promised",
        "delivered",
        "95 % interval",
        "money",
        "asked",
    )
    rows = []
    for i in range(len(devices["cost"])):
        low, high = gave["interval"][i]
        rows.append(
            (
                str(i),
                f"{devices['cost'][i]:.4g}",
                f"{devices['samples_alone'][i]:,}",
                f"{devices['accuracy_local'][i]:.4f}",
                f"{gave['contribution'][i]:,.0f}",
                f"{gave['promised'][i]:.4f}",
                f"{gave['achieved'][i]:.4f}",
                f"{low:.3f} - {high:.3f}",
                f"{gave['money'][i]:.4g}",
                f"{fed['contribution'][i]:,.0f}",
            )
        )
    return text_table([heads], rows)


def _mechanisms(result: dict[str, Any]) -> str:
    heads = (
        "mechanism",
        "samples / device",
        "devices' accuracy",
        "server u",
        "devices' u",
        "server u, power phi",
        "devices' u, power phi",
    )
    rows = []
    for name, found in result["mechanisms"].items():
        means = {
            key: float(np.mean(found[key]))
            for key in ("contribution", "accuracy", "utility", "common_utility")
        }
        label = (
            f"Linear {name}" if result["experiment"]["payoff"] == "linear" and "RealFM" in name else name
        )
        rows.append(
            (
                label,
                f"{means['contribution']:,.0f}",
                f"{means['accuracy']:.4f}",
                f"{found['server_utility']:,.4g}",
                f"{means['utility']:,.4g}",
                f"{found['common_server_utility']:,.4g}",
                f"{means['common_utility']:,.4g}",
            )
        )
    return text_table([heads], rows)
