"""What an experiment is: who the devices are, what they train, and on how much data."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import ArrayLike

from realfm_jax.comparison import CURVES, Setting
from realfm_jax.config import tables_of
from realfm_jax.game import Devices, Server
from realfm_jax.parameters import unknown
from realfm_jax.payoff import LinearPayoff
from realfm_jax.shaping import Shaping

if TYPE_CHECKING:
    import flax.linen as nn

    from realfm_jax.federated import Recipe

CHOICES: dict[str, tuple[str, ...]] = {
    "dataset": ("digits", "mnist", "cifar10"),
    "costs": ("uniform", "normal"),
    "payoffs": ("uniform", "random"),
    "payoff": ("power", "linear"),
    "shaping": ("taylor", "exact"),
    "curve": tuple(CURVES),
    "data": ("squeezed", "decided"),
    "model": ("digits-cnn", "compact-cnn", "mnist-cnn", "resnet8", "resnet18"),
    "optimizer": ("adam", "sgd"),
}
"""Fields of an experiment that are one of a few words."""
SQUEEZE = 0.0002
"""Of the authors' rule for the data used: cap (1 - exp(-0.0002 m^o)), cap = training images / devices."""


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One run of the paper's experimental process (its appendix), by one seed.

    Attributes:
      dataset: "digits", "mnist" or "cifar10".
      preset: whose values fill in what was not said; for the record.
      devices: n.
      distribution: "iid", or alpha of Dirichlet label proportions (the paper: 0.6 and 0.3).
      costs: "uniform" (all c_e) or "normal" (Normal(c_e, cost_spread c_e)), the paper's "C".
      payoffs: "uniform" (all 1) or "random" (scales uniform in 1 +- payoff_spread), the paper's "P".
      payoff: "power" (RealFM) or "linear" (Linear RealFM, which ignores scales).
      shaping: "taylor" (the paper) or "exact".
      profit_margin: p_m.
      seed: of costs, payoffs, shards, initial weights and batches.
      curve: "bound" or "inverse-sqrt", accuracy against data; a_opt and k of it, None: fitted first.
      cost: c_e, mean marginal cost.
      data: on how much a device trains. "squeezed": as the authors do, the same images alone and together,
        cap (1 - exp(-0.0002 m^o)) of them. "decided": m^o alone; together what the mechanism asks for, as
        far as its share of the training images goes.
      model: "digits-cnn", "compact-cnn", "mnist-cnn", "resnet8" or "resnet18".
      optimizer: "adam", or "sgd": momentum 0.9, weight decay 5e-4, rate / 10 after 1/2 and 3/4 of training.
      epochs, batch, local_steps, learning_rate: as in `federated.Recipe`.
      score_every: epochs from one scoring of all local models to the next.
    """

    dataset: str
    preset: str
    devices: int
    curve: str
    cost: float
    data: str
    model: str
    optimizer: str
    learning_rate: float
    epochs: int
    batch: int
    local_steps: int
    score_every: int = 1
    distribution: str | float = "iid"
    costs: str = "uniform"
    payoffs: str = "uniform"
    payoff: str = "power"
    shaping: Shaping = "taylor"
    profit_margin: float = 1.0
    seed: int = 0
    a_opt: float | None = None
    k: float | None = None
    cost_spread: float = 0.05
    payoff_spread: float = 0.1
    exponent: float = 2.0
    epsilon: float = 1e-9

    def __post_init__(self) -> None:
        for name, allowed in CHOICES.items():
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {', '.join(allowed)}; got {getattr(self, name)!r}")
        for name in ("devices", "epochs", "batch", "local_steps", "score_every"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; got {value!r}")
        if not 0 < self.profit_margin <= 1:
            raise ValueError(f"profit_margin must be in (0, 1]; got {self.profit_margin}")
        if (self.a_opt is None) != (self.k is None):
            raise ValueError(
                f"a_opt and k must both be given, or both be left to be fitted; got {self.a_opt}"
            )
        if self.alpha is not None and not (math.isfinite(self.alpha) and self.alpha > 0):
            raise ValueError(f'distribution must be "iid" or a number > 0; got {self.distribution!r}')

    @property
    def alpha(self) -> float | None:
        """Of the Dirichlet distribution of labels; None: IID."""
        if self.distribution == "iid":
            return None
        try:
            return float(self.distribution)
        except ValueError:
            raise ValueError(
                f'distribution must be "iid" or a number > 0; got {self.distribution!r}'
            ) from None

    @property
    def name(self) -> str:
        """In words that make a directory's name; the seed is not among them.

        >>> from realfm_jax.experiments.mnist import PRESETS
        >>> PRESETS["small"].name
        'mnist-small-16-iid-uniform-power'
        """
        spread = {(True, True): "nonuniformPC", (True, False): "nonuniformC", (False, True): "nonuniformP"}
        drawn = spread.get((self.costs == "normal", self.payoffs == "random"), "uniform")
        words = [self.dataset, self.preset, str(self.devices), self.distribution_name, drawn, self.payoff]
        words += [self.shaping] if self.shaping != "taylor" else []
        words += [f"pm-{self.profit_margin:g}"] if self.profit_margin != 1 else []
        return "-".join(words)

    @property
    def distribution_name(self) -> str:
        """As the paper writes it: iid, D-0.6, D-0.3."""
        return "iid" if self.alpha is None else f"D-{self.alpha:g}"

    def population(self) -> tuple[Devices, Server]:
        """Devices and server with the payoffs by which they decide, drawn by the seed."""
        devices, server = self.judges()
        if self.payoff == "power":
            return devices, server
        linear = LinearPayoff()
        return dataclasses.replace(devices, payoff=linear), dataclasses.replace(server, payoff=linear)

    def judges(self) -> tuple[Devices, Server]:
        """The same devices and server, with the power payoff for everybody: the common measure."""
        setting = Setting(
            curve=self.curve,
            a_opt=0.5 if self.a_opt is None else self.a_opt,
            k=1.0 if self.k is None else self.k,
            devices=self.devices,
            cost=self.cost,
            cost_spread=self.cost_spread if self.costs == "normal" else 0.0,
            payoff_spread=self.payoff_spread if self.payoffs == "random" else 0.0,
            exponent=self.exponent,
            profit_margin=self.profit_margin,
            epsilon=self.epsilon,
            seed=self.seed,
        )
        return setting.draw(), setting.server()

    def module(self) -> "nn.Module":
        """The network, from fresh weights."""
        from realfm_jax.federated import models

        return {
            "digits-cnn": models.DigitsCNN,
            "compact-cnn": models.CompactCNN,
            "mnist-cnn": models.MnistCNN,
            "resnet8": models.ResNet8,
            "resnet18": models.ResNet18,
        }[self.model]()

    def recipe(self, largest: int) -> "Recipe":
        """How to train, if the largest shard has so many samples (it says how many steps an epoch has)."""
        import optax

        from realfm_jax.federated import Recipe

        plain = Recipe(optax.identity(), self.epochs, self.batch, self.local_steps)
        if self.optimizer == "adam":
            return dataclasses.replace(plain, optimizer=optax.adam(self.learning_rate))
        steps = self.epochs * self.local_steps * plain.rounds_per_epoch(largest)
        rate = optax.piecewise_constant_schedule(self.learning_rate, {steps // 2: 0.1, 3 * steps // 4: 0.1})
        sgd = optax.chain(optax.add_decayed_weights(5e-4), optax.sgd(rate, momentum=0.9))
        return dataclasses.replace(plain, optimizer=sgd)

    def toml(self) -> str:
        """As a TOML file, which `read` reads."""
        fields = dataclasses.asdict(self).items()
        lines = [
            f'{name} = "{v}"' if isinstance(v, str) else f"{name} = {v!r}"
            for name, v in fields
            if v is not None
        ]
        return "\n".join(["[experiment]", *lines, ""])


def images_used(local_optimum: ArrayLike, images: int) -> np.ndarray:
    """The authors' rule: local optima m_i^o, [n], whole samples of them, squeezed into the training images.

    >>> images_used([906.6, 198478.1], 2 * 3125).tolist()
    [517, 3125]
    """
    optimum = np.floor(np.asarray(local_optimum, float))
    share = images // len(optimum)
    return np.maximum((share * -np.expm1(-SQUEEZE * optimum)).astype(int), 1)


def changed(experiment: Experiment, **values: Any) -> Experiment:
    """The experiment with other values; unknown names are refused with the nearest ones.

    >>> from realfm_jax.experiments.digits import PRESETS
    >>> changed(PRESETS["small"], epoch=3)
    Traceback (most recent call last):
    ValueError: unknown key 'epoch'; did you mean epochs or epsilon?
    """
    known = {field.name: field.type for field in dataclasses.fields(Experiment)}
    for name in values:
        if name not in known:
            raise ValueError(str(unknown("key", name, known)))
    return dataclasses.replace(experiment, **values)


def read(path: Path, presets: Mapping[str, Experiment]) -> Experiment:
    """The experiment of a TOML file, [experiment]; what it leaves out is its preset's."""
    tables = tables_of(path)
    if set(tables) != {"experiment"}:
        raise ValueError(f"{path} must have one table, [experiment]; got {', '.join(tables) or 'none'}")
    given = tables["experiment"]
    preset = given.get("preset", "small")
    if preset not in presets:
        raise ValueError(f"{path}: preset must be one of {', '.join(presets)}; got {preset!r}")
    try:
        return changed(presets[preset], **given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from error
