"""Runs beside the paper's own records, in one table: `python -m realfm_jax.experiments.summary RUN ...`."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from realfm_jax.experiments.place import load_result
from realfm_jax.experiments.published import find

HEADS = (
    "data set",
    "devices",
    "labels",
    "costs and payoffs",
    "phi",
    "seed",
    "alone",
    "paper",
    "together",
    "paper",
    "contribution",
    "paper",
    "server u",
    "paper",
    "minutes",
)
_ORDER = ("cifar10", "mnist", "digits"), ("iid", "D-0.6", "D-0.3"), ("power", "linear")


def drawn(experiment: dict[str, Any]) -> str:
    """How costs and payoffs were drawn, in the paper's word.

    >>> drawn({"costs": "normal", "payoffs": "random"})
    'nonuniformPC'
    """
    names = {("uniform", "uniform"): "uniform", ("normal", "uniform"): "nonuniformC"}
    names |= {("normal", "random"): "nonuniformPC", ("uniform", "random"): "nonuniformP"}
    return names[experiment["costs"], experiment["payoffs"]]


def distribution(experiment: dict[str, Any]) -> str:
    """How labels are distributed, as the paper writes it.

    >>> distribution({"distribution": 0.3}), distribution({"distribution": "iid"})
    ('D-0.3', 'iid')
    """
    given = experiment["distribution"]
    return "iid" if given == "iid" else f"D-{float(given):g}"


def markdown(results: Iterable[dict[str, Any]]) -> str:
    """A row for each run, ours and the paper's side by side, as Markdown."""
    rows = [row(result) for result in sorted(results, key=_place)]
    lines = [HEADS, tuple("---" if i < 6 else "---:" for i in range(len(HEADS))), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def row(result: dict[str, Any]) -> tuple[str, ...]:
    """One run: accuracies, mean contribution and server utility, each beside the paper's."""
    what, found = result["experiment"], result["mechanisms"]["RealFM"]
    key = (what["dataset"], what["devices"], distribution(what), drawn(what), what["payoff"])
    paper = find(*key)
    ours = (
        float(np.mean(result["devices"]["accuracy_local"])),
        result["accuracy_federated"],
        float(np.mean(found["contribution"])),
        found["server_utility"],
    )
    theirs: Sequence[float | None] = (None,) * 4
    if paper is not None:
        theirs = (paper.accuracy_local, paper.accuracy_federated, paper.contribution, paper.server_utility)
    forms = (".4f", ".4f", ".3g", ".4g")
    pairs = [
        text
        for form, own, other in zip(forms, ours, theirs, strict=True)
        for text in (format(own, form), "" if other is None else format(other, form))
    ]
    minutes = f"{result['timings']['total'] / 60:.0f}"
    return (key[0], str(key[1]), key[2], key[3], key[4], str(what["seed"]), *pairs, minutes)


def _place(result: dict[str, Any]) -> tuple[Any, ...]:
    what = result["experiment"]
    names, labels, payoffs = _ORDER
    where = labels.index(distribution(what)) if distribution(what) in labels else len(labels)
    return (
        names.index(what["dataset"]),
        -what["devices"],
        where,
        payoffs.index(what["payoff"]),
        drawn(what),
        what["seed"],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of some runs."""
    from realfm_jax.cli import guarded

    parser = argparse.ArgumentParser(prog="python -m realfm_jax.experiments.summary", description=__doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, metavar="RUN", help="directory or result.json of a run"
    )
    options = parser.parse_args(argv)
    return guarded(lambda: print(markdown(map(load_result, options.runs))), own_process=argv is None)


if __name__ == "__main__":
    raise SystemExit(main())
