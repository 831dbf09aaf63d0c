"""The command line: `realfm`, or `python -m realfm_jax`."""

import argparse
import functools
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax

from realfm_jax import commands, data_command
from realfm_jax._version import __version__
from realfm_jax.comparison import SETTINGS, Setting
from realfm_jax.config import read
from realfm_jax.experiments import command as experiment
from realfm_jax.experiments import report
from realfm_jax.schema import KINDS, TABLES, describe

_TOP = """\
examples:
  realfm                                                devices decide, train and are rewarded: digits
  realfm mnist --distribution 0.3                       the paper's MNIST experiment
  realfm report realfm-results/RUN                      a page to read of it
  realfm solve --setting mnist --profit-margin 0.5      theory only; half the gain is paid out
  realfm sweep experiments/sweep-cost-margin.toml --out run.zarr
  realfm plot run.zarr --kind heatmap --variable server_utility --out picture.pdf
  realfm design experiments/design-server.toml          the server's best profit margin and epsilon
  realfm data fetch mnist                               images to train on

solve, sweep, design and plot read the same TOML files ([game], [sweep], [design], [plot]; each `--help`
lists the keys), and `--set TABLE.KEY=VALUE` changes any value. experiments/ has files to start from.
Results carry version, configuration and seed; none is overwritten without --force.
"""

_SOLVE = """\
examples:
  realfm solve                             the paper's CIFAR-10 setting, 16 devices
  realfm solve --setting mnist             the paper's MNIST setting
  realfm solve --devices 1000 --seed 7 --out run.json
  realfm solve --set game.shaping=exact --set 'game.cost=[1e-4, 2e-4, 3e-4]'

Where [game] names a mechanism, shaping, money or payoff, only that game is solved. Utilities are given
twice: by the payoff with which a mechanism's devices decide ("own phi"; for Linear RealFM that is
phi(a) = a, another unit of utility), and by the same power payoff for all ("same phi").
"""

_SWEEP = """\
examples:
  realfm sweep experiments/sweep-cost-margin.toml --out run.zarr
  realfm sweep experiments/sweep-cost-margin.toml --set sweep.cost.count=200 --out big.zarr
  realfm sweep --set game.devices=4 --set 'sweep.k=[1, 10, 100]' --out result.nc
  realfm sweep experiments/sweep-mechanisms.toml --out table.csv

Values are a list, [1e-4, 1e-3], or a range, { from = 1e-5, to = 1e-2, count = 60, scale = "log" }. A
.zarr is written piece by piece: after Ctrl-C, or worse, the same command goes on where it stopped. The
other formats are written at the end: .nc (NetCDF 3), .csv (one row per game and device), .json.
`cost` sets one cost for every device; to keep the spread drawn for [game], sweep `mean_cost`.
"""

_DESIGN = """\
examples:
  realfm design experiments/design-server.toml
  realfm design experiments/design-server.toml --set design.floor.min_utility=100
  realfm design --set game.devices=8 --set 'design.over=["profit_margin"]' --out best.json
  realfm design --set design.objective=welfare --set design.method=aggregate
"""

_PLOT = """\
examples:
  realfm plot run.zarr --kind heatmap --variable server_utility --out picture.png
  realfm plot run.nc --kind lines --variable contribution --x cost --select profit_margin=0.8
  realfm plot experiments/game.toml --kind utility --device 2 --out utility.pdf
  realfm plot --kind cost-comparison --out paper.svg

A table [plot] may hold the same as the options, e.g. select = { profit_margin = 0.8 }.

kinds of plots (lines and heatmap of a sweep's result; from a TOML file all of them):
"""

_DESCRIPTIONS = {
    "solve": ("equilibria of one setting under every mechanism: theory only", _SOLVE, ("game",)),
    "sweep": ("equilibria for many values of any parameters", _SWEEP, ("game", "sweep")),
    "design": ("parameters whose equilibrium is best for somebody", _DESIGN, ("game", "design")),
    "plot": ("pictures of sweeps and games", _PLOT, ()),
}


def parser() -> argparse.ArgumentParser:
    """The arguments that `realfm` understands."""
    layout = argparse.RawDescriptionHelpFormatter
    top = argparse.ArgumentParser(
        prog="realfm",
        description="Incentives for federated learning: who contributes how much, and what it brings whom.",
        epilog=_TOP,
        formatter_class=layout,
    )
    top.add_argument("--version", action="version", version=f"realfm-jax {__version__}")
    below = top.add_subparsers(dest="command", metavar="COMMAND")
    for name, (about, examples, tables) in _DESCRIPTIONS.items():
        kinds = [f"  {kind:<22} {words}" for kind, words in KINDS.items()] if name == "plot" else []
        epilog = "\n".join([examples + "\n".join(kinds), describe(*tables)])
        sentence = about[0].upper() + about[1:] + "."
        command = below.add_parser(
            name, help=about, description=sentence, epilog=epilog, formatter_class=layout
        )
        _add_common(command, name)
        if name == "solve":
            _add_settings(command)
        if name == "plot":
            _add_plot(command)
    others = {
        "data": (data_command.ABOUT, data_command.EXAMPLES, data_command.add),
        "report": (report.ABOUT, report.EXAMPLES, report.add),
    }
    for name in experiment.PRESETS:
        more = functools.partial(experiment.add, name=name)
        others[name] = (experiment.about(name), experiment.examples(f"realfm {name}"), more)
    for name, (about, examples, add) in others.items():
        sentence = about[0].upper() + about[1:] + "."
        add(
            below.add_parser(
                name, help=about, description=sentence, epilog=examples, formatter_class=layout
            )
        )
    return top


def _add_common(command: argparse.ArgumentParser, name: str) -> None:
    also = " or result of `realfm sweep`" if name == "plot" else ""
    command.add_argument("file", nargs="?", type=Path, metavar="FILE", help=f"TOML file{also}")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        type=_assignment,
        metavar="TABLE.KEY=VALUE",
        help="change a value of the file; again for more",
    )
    command.add_argument("--out", type=Path, help="where to save the result (default: in realfm-results/)")
    known = commands.FORMATS[name]
    command.add_argument(
        "--format", choices=known, help=f"of the result (default: by the suffix of --out, else {known[0]})"
    )
    resumed = "; a .zarr is otherwise resumed" if name == "sweep" else ""
    command.add_argument("--force", action="store_true", help=f"overwrite an existing result{resumed}")


def _assignment(text: str) -> tuple[str, str]:
    key, found, value = text.partition("=")
    if not found:
        raise argparse.ArgumentTypeError(f"must be TABLE.KEY=VALUE; got {text!r}")
    return key.strip(), value.strip()


def _add_settings(command: argparse.ArgumentParser) -> None:
    """The fields of a setting as options: short for --set game.KEY=VALUE."""
    group = command.add_argument_group("short for --set game.KEY=VALUE")
    group.add_argument("--setting", dest="game.setting", metavar="X", help=_shown("setting"))
    for field in fields(Setting):
        values = ", ".join(f"{name} {getattr(s, field.name)}" for name, s in SETTINGS.items())
        flag = "--" + field.name.replace("_", "-")
        words = f"{_shown(field.name)} ({values})"
        group.add_argument(flag, dest=f"game.{field.name}", metavar="X", help=words)


def _add_plot(command: argparse.ArgumentParser) -> None:
    """The keys of [plot] as options."""
    group = command.add_argument_group("short for --set plot.KEY=VALUE")
    for name in TABLES["plot"]:
        if name != "select":
            group.add_argument(f"--{name}", dest=f"plot.{name}", metavar="X", help=_shown(name, "plot"))
    group.add_argument(
        "--select",
        action="append",
        default=[],
        type=_assignment,
        metavar="NAME=VALUE",
        help=f"{_shown('select', 'plot')}; again for more",
    )


def _shown(name: str, table: str = "game") -> str:
    return TABLES[table][name].about.replace("%", "%%")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code: 0, 2 for a mistake in what was asked, 130 for Ctrl-C.

    Without `argv` it is the process's own command line, and Ctrl-C ends the process here.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not arguments or (
        arguments[0].startswith("-") and arguments[0] not in ("-h", "--help", "--version")
    ):
        arguments.insert(0, "digits")
    options = parser().parse_args(arguments)
    return guarded(lambda: _run(options, own_process=argv is None), own_process=argv is None)


def guarded(work: Callable[[], None], own_process: bool) -> int:
    """Do the work of a command, in float64; mistakes, warnings and Ctrl-C end in words and an exit code.

    `own_process`: the process is the command's alone, and Ctrl-C ends it here.
    """
    jax.config.update("jax_enable_x64", True)
    if own_process:
        sys.unraisablehook = _interrupt_again
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            work()
    except (ValueError, OSError) as error:
        print(f"realfm: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt as interrupted:
        print(f"\nrealfm: interrupted; {interrupted or 'nothing was written'}", file=sys.stderr)
        if own_process:
            # JAX, interrupted while it compiles, crashes when Python takes it down in good order.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(130)
        return 130
    return 0


def _interrupt_again(ignored: Any) -> None:
    """Ctrl-C inside a callback of the garbage collector (JAX has one) would go unheard: repeat it."""
    if issubclass(ignored.exc_type, KeyboardInterrupt):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(ignored)


def _run(options: argparse.Namespace, own_process: bool) -> None:
    if options.command == "data":
        return data_command.run(options)
    if options.command == "report":
        return report.run(options)
    if options.command in experiment.PRESETS:
        return experiment.start(options.command, options, own_process)
    given: dict[str, Any] = vars(options)
    output = commands.Output(options.out, options.format, options.force)
    assignments = [
        *options.set,
        *((f"plot.select.{name}", value) for name, value in given.get("select", [])),
    ]
    assignments += [(key, value) for key, value in given.items() if "." in key and value is not None]
    if options.command == "plot" and options.file and options.file.suffix != ".toml":
        return commands.plot(read(None, assignments), output, result=options.file)
    return getattr(commands, options.command)(read(options.file, assignments), output)


def _warn(message: Warning | str, *args: Any, **kwargs: Any) -> None:
    del args, kwargs
    print(f"realfm: {message}", file=sys.stderr)
