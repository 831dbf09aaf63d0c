"""A TOML file, and what was set on the command line, as games, sweeps, designs and plots."""

import contextlib
import copy
import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from realfm_jax.comparison import SETTINGS, Setting
from realfm_jax.game import Game, Mechanism
from realfm_jax.mechanism import EqualShare, LocalOnly, RealFM
from realfm_jax.parameters import UNITS, replace, unknown
from realfm_jax.payoff import LinearPayoff
from realfm_jax.schema import RANGE, TABLES, Key

OPTIONS = ("matched", "method", "certificate", "chunk")
"""Keys of [sweep] that are no parameters."""
BELONGS = {
    "mechanism": ("RealFM", ("epsilon", "shaping", "money")),
    "payoff": ("power", ("exponent", "payoff_spread", "payoff_exponent", "server_payoff_exponent")),
}
"""What choice in [game] gives other keys a meaning."""
DIRECT = ("payoff_scale", "payoff_exponent", "server_payoff_scale", "server_payoff_exponent")
"""Parameters of a game that no setting draws."""


class Sweep(NamedTuple):
    """Arguments of `sweep`.

    Attributes:
      game: what is not varied.
      parameters: the values of what is, by name.
      options: the other arguments.
      coordinates: (dimension, values, attributes) of labels to add to the result.
    """

    game: Game
    parameters: dict[str, Any]
    options: dict[str, Any]
    coordinates: dict[str, Any]


class SourcedError(ValueError):
    """An error that says where the value comes from."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Checked tables.

    Attributes:
      tables: by name, then by key.
      file: where they come from, if from a file.
      given: keys set on the command line, in full ("game.cost").
    """

    tables: dict[str, dict[str, Any]]
    file: Path | None = None
    given: tuple[str, ...] = ()

    def table(self, name: str) -> dict[str, Any]:
        """One of the tables; empty if it was left out."""
        return self.tables.get(name, {})

    @contextlib.contextmanager
    def blame(self, table: str) -> Iterator[None]:
        """Errors about values say where those come from."""
        try:
            yield
        except SourcedError:
            raise
        except ValueError as error:
            raise SourcedError(f"{self.file or 'command line'}, [{table}]: {error}") from error

    @property
    def setting(self) -> Setting:
        """The population: the paper's setting with what [game] changes. Lists set how many devices."""
        game = self.table("game")
        known = {field.name: field.type for field in dataclasses.fields(Setting)}
        lists = [len(value) for value in game.values() if isinstance(value, list)]
        changed: dict[str, Any] = {"devices": lists[0]} if lists else {}
        changed |= {
            name: float(value) if known[name] is float else value
            for name, value in game.items()
            if name in known and not isinstance(value, list)
        }
        return dataclasses.replace(SETTINGS[self.setting_name], **changed)

    @property
    def setting_name(self) -> str:
        """Of the paper's setting that fills in what [game] leaves open."""
        return self.table("game").get("setting", "cifar10")

    @property
    def names_a_mechanism(self) -> bool:
        """Whether [game] is one game, or a population to be seen under every mechanism."""
        return bool({"mechanism", "shaping", "money", "payoff"} & set(self.table("game")))

    def game(self) -> Game:
        """The game of [game]."""
        given = self.table("game")
        with self.blame("game"):
            for choice, (needed, keys) in BELONGS.items():
                for key in keys:
                    if key in given and given.get(choice, needed) != needed:
                        raise ValueError(f'{key} has a meaning with {choice} = "{needed}" only')
            setting = self.setting
            devices, server = setting.draw(), setting.server()
            if given.get("payoff") == "linear":
                devices = dataclasses.replace(devices, payoff=LinearPayoff())
                server = dataclasses.replace(server, payoff=LinearPayoff())
            game = Game(devices, server, self.mechanism(given.get("mechanism", "RealFM")))
            own = {
                name: value for name, value in given.items() if name in DIRECT or isinstance(value, list)
            }
            return replace(game, **own)

    def mechanism(self, name: str) -> Mechanism:
        """A mechanism by name, with what [game] says about it."""
        if name != "RealFM":
            return {"EqualShare": EqualShare, "LocalOnly": LocalOnly}[name]()
        chosen = {key: self.table("game")[key] for key in ("shaping", "money") if key in self.table("game")}
        return RealFM(epsilon=self.setting.epsilon, **chosen)

    def sweep(self) -> Sweep:
        """The sweep of [sweep]."""
        game, table = self.game(), self.table("sweep")
        varied = {name: value for name, value in table.items() if name not in OPTIONS}
        options = {name: table[name] for name in OPTIONS if name in table}
        coordinates = {}
        with self.blame("sweep"):
            values = {name: _values(name, value) for name, value in varied.items()}
            if "mechanism" in values:
                values["mechanism"] = [self.mechanism(name) for name in values["mechanism"]]
            if "mean_cost" in values:
                if "cost" in values:
                    raise ValueError("cost and mean_cost are the same parameter; give one of them")
                means = np.asarray(values["mean_cost"])
                drawn = "cost" not in self.table("game") or np.ndim(self.table("game")["cost"]) == 0
                center = self.setting.cost if drawn else float(jnp.mean(game.devices.cost))
                rows = np.outer(means, np.asarray(game.devices.cost) / center)
                values = {
                    "cost" if name == "mean_cost" else name: rows if name == "mean_cost" else value
                    for name, value in values.items()
                }
                dimension = "game" if options.get("matched") else "cost_row"
                about = {"long_name": "mean cost", "units": UNITS["cost"]}
                coordinates["mean_cost"] = (dimension, means, about)
        return Sweep(game, values, options, coordinates)

    def design(self) -> dict[str, Any]:
        """The arguments of `design`."""
        return {key: value for key, value in self.table("design").items() if key != "certificate"}

    def record(self, command: str) -> dict[str, Any]:
        """What it takes to run the same again."""
        return {
            "command": command,
            "file": None if self.file is None else self.file.name,
            "setting": self.setting_name,
            **dataclasses.asdict(self.setting),
            "tables": self.tables,
        }

    def name(self) -> str:
        """For files that were given none: the file or setting, and what was changed."""
        changed = []
        for key in self.given:
            table, *keys = key.split(".")
            value: Any = self.tables[table]
            for part in keys:
                value = value[part]
            if keys[-1] not in ("setting", "seed"):
                changed.append(f"{keys[-1]}-{value}")
        words = "-".join([self.file.stem if self.file else self.setting_name, *changed])
        return "".join(c if c.isalnum() or c in "-_.+" else "_" for c in words)[:100]


def read(file: Path | None, assignments: Sequence[tuple[str, str]] = ()) -> Config:
    """The tables of a file, with assignments made on the command line, all checked.

    >>> config = read(None, [("game.devices", "3"), ("game.mechanism", "EqualShare")])
    >>> len(config.game().devices), config.game().mechanism
    (3, EqualShare())
    >>> read(None, [("game.profit_margn", "0.5")])
    Traceback (most recent call last):
    ValueError: command line: unknown key 'profit_margn' of [game]; did you mean profit_margin?
    """
    tables: dict[str, Any] = {}
    if file is not None:
        tables = tables_of(file)
        _check(tables, str(file))
    for key, text in assignments:
        _assign(tables, key, parse(text))
    _check(tables, "command line")
    return Config(tables, file, tuple(key for key, _ in assignments))


def tables_of(file: Path) -> dict[str, Any]:
    """What a TOML file says, unchecked."""
    if not file.exists():
        raise FileNotFoundError(f"{file} does not exist")
    try:
        return tomllib.loads(file.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{file} is not a TOML file: {error}") from error


def parse(text: str) -> Any:
    """A value as TOML writes it; what is none is text.

    >>> parse("3"), parse("[1e-4, 2e-4]"), parse("exact"), parse("{from = 1, to = 2, count = 3}")["to"]
    (3, [0.0001, 0.0002], 'exact', 2)
    """
    try:
        found = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return found["value"] if set(found) == {"value"} else text


def _assign(tables: dict[str, Any], key: str, value: Any) -> None:
    first, *path = key.split(".")
    if first not in TABLES or not path:
        near = [f"{table}.{first}" for table in TABLES if first in TABLES[table]]
        near = [f"{first}.KEY=VALUE"] if first in TABLES else near
        if near:
            raise ValueError(f"command line: {key!r} is no table and key; write {' or '.join(near)}")
        raise ValueError(f"command line: {unknown('table', first, TABLES)} Write TABLE.KEY=VALUE")
    *parents, last = first, *path
    node: Any = tables
    for depth, part in enumerate(parents):
        node = node.setdefault(part, {})
        if not isinstance(node, dict):
            place = ".".join(parents[: depth + 1])
            raise ValueError(f"command line: {key} cannot be set, because {place} is {node!r}, no table")
    node[last] = copy.deepcopy(value)


def _check(tables: Mapping[str, Any], where: str) -> None:
    """Raise for the first key or value that means nothing."""
    for name, table in tables.items():
        if name not in TABLES:
            near = [f"[{table}]" for table in TABLES if name in TABLES[table]]
            hint = f"; the key {name} belongs into {' or '.join(near)}" if near else ""
            raise ValueError(f"{where}: {unknown('table', name, TABLES)}{hint}")
        if not isinstance(table, dict):
            raise ValueError(f"{where}: {name} must be a table, [{name}]; got {table!r}")
        _check_table(name, table, TABLES[name], where)


def _check_table(name: str, table: Mapping[str, Any], keys: Mapping[str, Key], where: str) -> None:
    for key, value in table.items():
        if key not in keys:
            raise ValueError(f"{where}: {_unknown(key, name, keys)}")
        if not keys[key].holds(value):
            raise ValueError(f"{where}: {name}.{key} must be {keys[key].allowed}; got {value!r:.80}")
        if name == "sweep" and isinstance(value, dict):
            _check_table(f"{name}.{key}", value, RANGE, where)
            _check_range(f"{name}.{key}", value, where)


def _unknown(key: str, table: str, keys: Mapping[str, Key]) -> str:
    """Another table where the key means something, or else the nearest keys of this one."""
    problem, hint = str(unknown("key", key, keys)).split("; ", 1)
    elsewhere = [f"[{other}]" for other in TABLES if key in TABLES[other]]
    hint = f"it belongs into {' or '.join(elsewhere)}" if elsewhere else hint
    return f"{problem} of [{table}]; {hint}"


def _check_range(name: str, given: Mapping[str, Any], where: str) -> None:
    missing = [key for key in ("from", "to", "count") if key not in given]
    if missing:
        raise ValueError(f"{where}: {name} also needs {' and '.join(missing)}; got {dict(given)!r}")
    if given.get("scale") == "log" and not (given["from"] > 0 and given["to"] > 0):
        raise ValueError(f"{where}: {name} must be from and to numbers > 0 if scale is log; got {given!r}")


def _values(name: str, given: Any) -> Any:
    """The values of one swept parameter, ranges spelt out."""
    if isinstance(given, dict):
        space: Any = np.geomspace if given.get("scale") == "log" else np.linspace
        given = space(given["from"], given["to"], given["count"])
        if name == "devices":  # a range of them means whole numbers, each once
            given = np.unique(np.round(given)).tolist()
    if name != "devices":
        return given if isinstance(given, list) else np.asarray(given, float)
    if any(number != int(number) or number < 1 for number in given):
        raise ValueError(f"devices must be whole numbers of at least 1; got {given}")
    return [int(number) for number in given]
