"""The command line that the three experiments share."""

import argparse
import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from realfm_jax.experiments import cifar, digits, mnist
from realfm_jax.experiments.experiment import CHOICES, Experiment, changed, read

PRESETS: dict[str, Mapping[str, Experiment]] = {
    "digits": digits.PRESETS,
    "mnist": mnist.PRESETS,
    "cifar": cifar.PRESETS,
}
LONG = 3600.0
"""Seconds that nobody should be surprised by: longer runs want --yes."""

_EPILOG = """\
examples:
  {command}
  {command} --distribution 0.3 --costs normal --payoffs random --seeds 0 1 2
  {command} --payoff linear               the baseline, Linear RealFM
  {command} --out my-run                  killed? the same with --resume goes on
  {command} --config my-run/config.toml --out again

A run's directory gets config.toml, result.json, curves.csv, page.png, the models handed out (models/)
and, until it is finished, checkpoints/. `realfm report DIRECTORY` makes a page of it,
`python -m realfm_jax.experiments.figures DIRECTORY ...` the paper's figures of several.
"""


def about(name: str) -> str:
    """An experiment in a few words."""
    whose = "the whole mechanism on" if name == "digits" else "the paper's experiment on"
    return f"{whose} {name}: devices decide, train alone and together, get models and money"


def examples(command: str) -> str:
    """What to try, and what comes of it."""
    return _EPILOG.format(command=command)


def parser(name: str) -> argparse.ArgumentParser:
    """The options of an experiment."""
    command = f"python -m realfm_jax.experiments.{name}"
    found = argparse.ArgumentParser(
        prog=command,
        description=about(name)[0].upper() + about(name)[1:] + ".",
        epilog=examples(command),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add(found, name)
    return found


def add(command: argparse.ArgumentParser, name: str) -> None:
    """Give a parser the options of an experiment."""
    presets = PRESETS[name]
    small = presets["small"]
    words = "; ".join(f"{p}: {_work(e)}" for p, e in presets.items())
    command.add_argument("--preset", choices=tuple(presets), help=f"{words} (default: by the hardware)")
    command.add_argument(
        "--config", type=Path, metavar="FILE", help="config.toml of an earlier run, or your own"
    )
    command.add_argument("--devices", type=int, metavar="N", help=f"number of devices ({small.devices})")
    command.add_argument(
        "--distribution",
        metavar="iid|ALPHA",
        help="IID labels, or Dirichlet(ALPHA); the paper: iid, 0.6, 0.3",
    )
    for field, meaning in {
        "costs": "the same for all, or Normal(c_e, spread c_e)",
        "payoffs": "scale 1 for all, or uniform in 0.9 to 1.1",
        "payoff": "power: RealFM; linear: Linear RealFM, phi(a) = a",
        "shaping": "of the rewards: the paper's, or exact",
    }.items():
        command.add_argument(
            f"--{field}", choices=CHOICES[field], help=f"{meaning} ({getattr(small, field)})"
        )
    command.add_argument(
        "--profit-margin", type=float, metavar="P", help="share of its utility that the server keeps (1)"
    )
    command.add_argument("--seeds", type=int, nargs="+", metavar="S", help="one run for each (0)")
    command.add_argument(
        "--epochs",
        type=int,
        metavar="E",
        help=f"of training ({', '.join(f'{p} {e.epochs}' for p, e in presets.items())})",
    )
    command.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where tensorflow-datasets keeps prepared data"
    )
    command.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="directory of the run; with several seeds, of one for each (default: below realfm-results/)",
    )
    command.add_argument("--resume", action="store_true", help="go on with a run that was cut short")
    command.add_argument("--keep-checkpoints", action="store_true", help="also when the run is finished")
    command.add_argument(
        "--estimate",
        action="store_true",
        help="measure a few steps, say how long the run would take, and stop",
    )
    command.add_argument("--yes", action="store_true", help="start even if it takes longer than an hour")


def _work(experiment: Experiment) -> str:
    return f"{experiment.model}, {experiment.epochs} epochs, batch {experiment.batch}"


def experiments(name: str, options: argparse.Namespace) -> list[Experiment]:
    """What was asked for, one for each seed."""
    import jax

    presets = PRESETS[name]
    if options.config is not None:
        if options.preset is not None:
            raise ValueError(
                f"--preset {options.preset} and --config exclude each other: the file names its preset"
            )
        base = read(options.config, presets)
    else:
        default = "paper" if jax.default_backend() != "cpu" and "paper" in presets else "small"
        base = presets[options.preset or default]
    fields = ("devices", "distribution", "costs", "payoffs", "payoff", "shaping", "profit_margin", "epochs")
    given: dict[str, Any] = {f: getattr(options, f) for f in fields if getattr(options, f) is not None}
    if given.get("distribution", "iid") != "iid":
        given["distribution"] = changed(base, distribution=given["distribution"]).alpha
    return [changed(base, **given, seed=seed) for seed in options.seeds or [base.seed]]


def main(name: str, argv: Sequence[str] | None = None) -> int:
    """Run an experiment from its command line; returns the exit code as `realfm` does."""
    from realfm_jax.cli import guarded

    options = parser(name).parse_args(argv)
    return guarded(lambda: start(name, options, own_process=argv is None), own_process=argv is None)


def start(name: str, options: argparse.Namespace, own_process: bool) -> None:
    """Run what the options ask for; in a process of its own every core is a JAX device."""
    from realfm_jax import federated

    if own_process:
        federated.use_cores()
    asked = experiments(name, options)
    data = federated.load(asked[0].dataset, data_dir=options.data_dir)
    for experiment in asked:
        _one(experiment, data, options, many=len(asked) > 1)


def _one(experiment: Experiment, data: Any, options: argparse.Namespace, many: bool) -> None:
    from realfm_jax.experiments.estimate import estimate
    from realfm_jax.experiments.page import save_page
    from realfm_jax.experiments.place import Place
    from realfm_jax.experiments.result import document, table
    from realfm_jax.experiments.run import run

    seconds = estimate(experiment, data)
    what = f"{experiment.name}, seed {experiment.seed}: preset {experiment.preset} ({_work(experiment)})"
    print(f"{what}, {seconds}", flush=True)
    if options.estimate:
        return
    if seconds.total > LONG and not options.yes:
        raise ValueError(
            f"that takes {seconds}; give --yes to start it all the same, --preset small or fewer --epochs"
        )
    place = Place(_directory(experiment, options, many))
    place.claim(experiment, options.resume)
    begun = time.perf_counter()
    try:
        finished = run(experiment, data, place, say=lambda words: print(words, flush=True))
    except KeyboardInterrupt:
        saved = f"what was done is kept; the same command with --out {place.path} --resume goes on"
        raise KeyboardInterrupt(saved) from None
    result = document(finished, dataclasses.asdict(experiment))
    result["timings"]["total"] = time.perf_counter() - begun
    place.save_curves(finished)
    place.save_models(finished)
    place.save_result(result)
    save_page(result, finished, place.path / "page.png")
    if not options.keep_checkpoints:
        place.forget_checkpoints()
    print(f"\n{table(result)}\n\nsaved {place.path} ({result['timings']['total']:.0f} s)", flush=True)


def _directory(experiment: Experiment, options: argparse.Namespace, many: bool) -> Path:
    """Where a run goes: as said, or below realfm-results/; under a free name, unless it is resumed."""
    from realfm_jax.formats import FOLDER

    if options.out is not None:
        return options.out / f"seed-{experiment.seed}" if many else options.out
    path, count = FOLDER / f"{experiment.name}-seed-{experiment.seed}", 1
    while not options.resume and path.exists():
        count += 1
        path = FOLDER / f"{experiment.name}-seed-{experiment.seed}-{count}"
    return path
