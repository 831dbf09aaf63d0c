"""What may stand in a TOML file: tables, keys, what each holds, and a word about it for `--help`."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, get_args

from realfm_jax.comparison import CURVES, SETTINGS
from realfm_jax.equilibrium import Method
from realfm_jax.mechanism import Money
from realfm_jax.shaping import Shaping

MECHANISMS = ("RealFM", "EqualShare", "LocalOnly")
PAYOFFS = ("power", "linear")
KINDS = {
    "lines": "a variable of a sweep against one parameter, a line for each value of another",
    "heatmap": "a variable of a sweep over two parameters, as colours",
    "utility": "utility of one device against its contribution, the others at equilibrium",
    "mechanisms": "what each device gives and gets under five mechanisms",
    "pareto": "server against device utility over profit margin, epsilon and shaping",
    "sensitivity": "by how many per cent results move for +1 % on each parameter",
    "design-path": "how the objective of [design] rose from its start to what was found",
    "cost-comparison": "the paper's figure: data collected alone against cost (of [game]: a_opt)",
    "utility-comparison": "the paper's figure: utility alone against data (of [game]: a_opt, k)",
}
"""Of plots; the first two draw sweeps, the others a game."""


class Key(NamedTuple):
    """What a key holds.

    Attributes:
      allowed: in words, for messages.
      holds: whether a value is allowed.
      about: what it means, for `--help`.
    """

    allowed: str
    holds: Callable[[Any], bool]
    about: str = ""


def is_number(value: Any) -> bool:
    """A finite number; true and false are none, though Python counts with them."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any) -> bool:
    """A whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and bool(value) and all(map(of, value))


def _is_table(value: Any, of: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(of, value.values()))


def _number(about: str) -> Key:
    return Key("a number", is_number, about)


def _numbers(about: str) -> Key:
    return Key(
        "a number, or a list of numbers, one per device",
        lambda value: is_number(value) or _is_list(value, is_number),
        f"{about}, or a list, one each",
    )


def _whole(least: int, about: str) -> Key:
    allowed = f"a whole number of at least {least}"
    return Key(allowed, lambda value: is_whole(value) and value >= least, about)


def _flag(about: str) -> Key:
    return Key("true or false", lambda value: isinstance(value, bool), about)


def _text(about: str) -> Key:
    return Key("text", lambda value: isinstance(value, str), about)


def _one_of(names: Any, about: str) -> Key:
    shown = f"{' | '.join(names)}: {about}" if len(names) <= 4 else about
    return Key(f"one of {', '.join(names)}", lambda value: value in tuple(names), shown)


def _some_of(names: Any, about: str) -> Key:
    allowed = f"a list of some of {', '.join(names)}"
    return Key(allowed, lambda value: _is_list(value, lambda name: name in tuple(names)), about)


def _values(about: str, rows: bool = False) -> Key:
    """Of a swept number: in a list, in rows for each device, or in a range (a table, checked by itself)."""

    def holds(value: Any) -> bool:
        if rows and _is_list(value, lambda row: isinstance(row, list)):
            return all(_is_list(row, is_number) for row in value)
        return isinstance(value, dict) or _is_list(value, is_number)

    listed = "a list of numbers" + (" (or of rows, one number per device)" if rows else "")
    return Key(f"{listed}, or a range {{from, to, count, scale}}", holds, about)


RANGE = {
    "from": _number("first value"),
    "to": _number("last value"),
    "count": _whole(1, "how many"),
    "scale": _one_of(("linear", "log"), 'spacing, "linear" unless said otherwise'),
}
"""Keys of a range of swept values; all but the scale are needed."""

_METHOD = _one_of(get_args(Method), "default auto; aggregate is fastest")

TABLES: dict[str, dict[str, Key]] = {
    "game": {
        "setting": _one_of(SETTINGS, "the paper's, fills in all else (default: cifar10)"),
        "devices": _whole(1, "number of devices"),
        "cost": _numbers("mean cost of a sample: devices draw Normal(cost, cost_spread * cost)"),
        "cost_spread": _number("relative standard deviation of the costs"),
        "payoff_spread": _number("payoff scales are uniform in 1 +- this"),
        "a_opt": _numbers("best attainable accuracy, in (0, 1)"),
        "k": _number("complexity of the learning task, > 0"),
        "curve": _one_of(CURVES, "accuracy against data; the paper's for CIFAR-10, for MNIST"),
        "payoff": _one_of(PAYOFFS, "what an accuracy a is worth; 1/(1-a)^exponent - 1, or a"),
        "exponent": _number("of the power payoff, devices' and server's"),
        "profit_margin": _number("share of its utility that the server keeps, in [0, 1]; rest is paid out"),
        "mechanism": _one_of(MECHANISMS, "default RealFM"),
        "epsilon": _number("of RealFM: least utility that a further sample earns a device, > 0"),
        "shaping": _one_of(get_args(Shaping), "of RealFM; the paper's, or what asks for most data"),
        "money": _one_of(get_args(Money), "of RealFM; what accuracy has not paid, or the paper's"),
        "seed": _whole(0, "of the draws"),
        "payoff_scale": _numbers("of the devices' payoffs, instead of drawn ones"),
        "payoff_exponent": _numbers("of the devices' power payoffs alone"),
        "server_payoff_scale": _number("of the server's payoff"),
        "server_payoff_exponent": _number("of the server's power payoff alone"),
    },
    "sweep": {
        "cost": _values("the same cost for every device, or rows of their own", rows=True),
        "mean_cost": _values("costs as drawn for [game], scaled to this mean: the spread stays"),
        "a_opt": _values("best attainable accuracy", rows=True),
        "k": _values("complexity of the learning task"),
        "payoff_scale": _values("the same for every device, or rows", rows=True),
        "payoff_exponent": _values("of the devices' payoffs", rows=True),
        "server_payoff_scale": _values("of the server's payoff"),
        "server_payoff_exponent": _values("of the server's payoff"),
        "profit_margin": _values("in [0, 1]"),
        "epsilon": _values("of RealFM, > 0"),
        "shaping": _some_of(get_args(Shaping), "of RealFM"),
        "money": _some_of(get_args(Money), "of RealFM"),
        "mechanism": _some_of(MECHANISMS, "each with the game's parameters"),
        "devices": _values("the first so many of the game's devices"),
        "matched": _flag("true: first values together, then second ones ...; false: all combinations"),
        "method": _METHOD,
        "certificate": _flag("also regret, best deviation and free riding of every device"),
        "chunk": _whole(1, "games solved, and written to .zarr, together"),
    },
    "design": {
        "objective": _text("what to maximise: server_utility (default), total_contribution, welfare, ..."),
        "over": Key(
            "a list of names of parameters",
            lambda value: _is_list(value, lambda name: isinstance(name, str)),
            "what to choose (default: profit_margin and epsilon)",
        ),
        "bounds": Key(
            "a table of name = [low, high]",
            lambda value: _is_table(value, lambda pair: _is_list(pair, is_number) and len(pair) == 2),
            "within which to choose it",
        ),
        "floor": Key(
            "a table of name = number",
            lambda value: _is_table(value, is_number),
            "what must be reached, e.g. { min_utility = 60.0 }",
        ),
        "start": Key(
            "a table of name = number",
            lambda value: _is_table(value, is_number),
            "climb from here only",
        ),
        "starts": _whole(1, "how many starts are tried otherwise (default: 16)"),
        "method": _METHOD,
        "certificate": _flag("also certify the equilibrium found"),
    },
    "plot": {
        "kind": _one_of(KINDS, "see below"),
        "variable": _text("of a sweep (default: server_utility)"),
        "x": _text("parameter from left to right"),
        "y": _text("heatmap: parameter upwards"),
        "hue": _text("lines: parameter that tells them apart"),
        "select": Key(
            "a table of name = value",
            lambda value: _is_table(value, lambda one: is_number(one) or isinstance(one, str)),
            "of a sweep only this part, nearest where it is a number",
        ),
        "device": _whole(0, "utility: which device"),
        "dpi": _whole(10, "dots per inch of a PNG (default: 300)"),
    },
}
"""The one schema of all commands."""


def describe(*tables: str) -> str:
    """The keys of some tables, for `--help`."""
    lines = []
    for name in tables:
        lines.append(f"keys of [{name}]:")
        lines += [f"  {key:<22} {held.about}" for key, held in TABLES[name].items()]
    return "\n".join(lines)
