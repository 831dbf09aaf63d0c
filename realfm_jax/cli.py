"""The command line: `realfm`, or `python -m realfm_jax`."""

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import jax

from realfm_jax._version import __version__
from realfm_jax.comparison import SETTINGS, Outcome, Setting, games, play, table
from realfm_jax.record import provenance, save_json

_EPILOG = """\
examples:
  realfm                                   the paper's CIFAR-10 setting, 16 devices
  realfm solve --setting mnist             the paper's MNIST setting
  realfm solve --profit-margin 0.5         a server that pays out half of what it gains
  realfm solve --devices 1000 --seed 7 --out run.json

Utilities are given twice: by the payoff with which a mechanism's devices decide ("own phi"; for
Linear RealFM that is phi(a) = a, another unit of utility), and by the same power payoff for all
("same phi").
"""

_HELP = {
    "curve": "accuracy-data curve: bound (the paper's, CIFAR-10) or inverse-sqrt (MNIST)",
    "a_opt": "best attainable accuracy, in (0, 1)",
    "k": "complexity of the learning task, > 0",
    "devices": "number of devices",
    "cost": "mean cost of a sample; each device draws Normal(cost, cost-spread * cost)",
    "cost_spread": "relative standard deviation of the costs",
    "payoff_spread": "payoff scales are uniform in 1 +- this",
    "exponent": "of the power payoff 1/(1-a)^exponent - 1",
    "profit_margin": "share of its utility that the server keeps, in [0, 1]; it pays out the rest",
    "epsilon": "least utility that a further sample earns a device, > 0",
    "seed": "of the random draws",
}


def parser() -> argparse.ArgumentParser:
    """The arguments that `realfm` understands."""
    top = argparse.ArgumentParser(
        prog="realfm",
        description="Incentives for federated learning: who contributes how much, and what it brings whom.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"realfm-jax {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    solve = commands.add_parser(
        "solve",
        help="equilibria of one setting under every mechanism (the default)",
        description="Solve one setting under every mechanism, certify the equilibria, save all as JSON.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    solve.add_argument(
        "--setting",
        choices=SETTINGS,
        default="cifar10",
        help="the paper's setting to start from (default: cifar10)",
    )
    for field in dataclasses.fields(Setting):
        flag = "--" + field.name.replace("_", "-")
        values = ", ".join(f"{name} {getattr(s, field.name)}" for name, s in SETTINGS.items())
        solve.add_argument(
            flag, type=field.type, default=None, metavar="X", help=f"{_HELP[field.name]} ({values})"
        )
    solve.add_argument(
        "--out",
        type=Path,
        help="where to save the result (default: realfm-results/, named by setting and seed)",
    )
    solve.add_argument("--force", action="store_true", help="overwrite an existing --out")
    return top


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    top = parser()
    if not arguments or (
        arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version")
    ):
        arguments.insert(0, "solve")
    options = top.parse_args(arguments)
    jax.config.update("jax_enable_x64", True)
    try:
        return _solve(options)
    except (ValueError, FileExistsError) as error:
        print(f"realfm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nrealfm: interrupted; nothing was written", file=sys.stderr)
        return 130


def _solve(options: argparse.Namespace) -> int:
    given = {f.name: getattr(options, f.name) for f in dataclasses.fields(Setting)}
    changed = {name: value for name, value in given.items() if value is not None}
    setting = dataclasses.replace(SETTINGS[options.setting], **changed)
    marks = [f"{name}-{value}" for name, value in changed.items() if name != "seed"]
    default = Path("realfm-results") / (
        "-".join([options.setting, *marks, f"seed-{setting.seed}"]) + ".json"
    )
    target = options.out or default
    if options.out and target.exists() and not options.force:
        raise FileExistsError(f"{target} exists; give --force to overwrite it, or another --out")
    outcomes: dict[str, Outcome] = {}
    playing = games(setting)
    print(f"{setting.devices} devices, {options.setting} setting, seed {setting.seed}", flush=True)
    for number, (name, game) in enumerate(playing.items(), start=1):
        begun = time.perf_counter()
        _progress(f"[{number}/{len(playing)}] {name}: solving and certifying ...")
        outcomes[name] = play(game, measured_by=playing["RealFM"])
        jax.block_until_ready(outcomes[name].common_utility)
        _progress(f"[{number}/{len(playing)}] {name}: {time.perf_counter() - begun:.1f} s\n")
    print(f"\n{table(outcomes)}\n\nRealFM: {outcomes['RealFM'].certificate}\n")
    config = {"command": "solve", "setting": options.setting, **dataclasses.asdict(setting)}
    print(f"saved {save_json(target, {'provenance': provenance(config), 'mechanisms': outcomes})}")
    return 0


def _progress(text: str) -> None:
    """Progress goes to the terminal only, so that a redirected run stays clean."""
    if sys.stderr.isatty():
        print("\r\033[K" + text, end="", file=sys.stderr, flush=True)
