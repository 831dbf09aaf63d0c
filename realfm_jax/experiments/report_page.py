"""The parts of a run's HTML page: text that is escaped, tables, figures inside the page, sections."""

import base64
import html
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from realfm_jax.comparison import CURVES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from xarray import Dataset

Row = Mapping[str, str]
"""Of curves.csv."""
POINTS = 200
"""Of the accuracy curve."""


def heading(words: str, level: int = 3) -> str:
    """A heading; a page has level 1, a run 2, what is in it 3."""
    return f"<h{level}>{html.escape(words)}</h{level}>"


def paragraph(words: str) -> str:
    """A paragraph of plain text.

    >>> paragraph("a < b")
    '<p>a &lt; b</p>'
    """
    return f"<p>{html.escape(words)}</p>"


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in a box that scrolls where the page is narrow; a row is named by its first cell."""

    def line(cells: Sequence[str], tag: str) -> str:
        first = f'<th scope="{"col" if tag == "th" else "row"}">{html.escape(cells[0])}</th>'
        return f"<tr>{first}{''.join(f'<{tag}>{html.escape(c)}</{tag}>' for c in cells[1:])}</tr>"

    body = "".join(line(row, "td") for row in rows)
    head = f"<thead>{line(heads, 'th')}</thead>" if heads else ""
    box = f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(caption)}">'
    return f"{box}<table><caption>{html.escape(caption)}</caption>{head}<tbody>{body}</tbody></table></div>"


def folded(summary: str, content: str) -> str:
    """Something to open."""
    return f"<details><summary>{html.escape(summary)}</summary>{content}</details>"


def preformatted(text: str) -> str:
    """Text whose lines stay as they are."""
    return f'<pre tabindex="0">{html.escape(text)}</pre>'


def picture(draw: Callable[["Axes"], Any], alt: str, height: float = 2.5) -> str:
    """What `draw` draws, one column wide, as an SVG inside the page; the same every time."""
    import matplotlib
    from matplotlib.figure import Figure

    from realfm_jax.plots import _style as style

    figure = Figure(figsize=(style.COLUMN, height), layout="constrained")
    style.styled(lambda: draw(figure.subplots()))()
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "realfm", "svg.fonttype": "path"}):
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    data = base64.b64encode(file.getvalue()).decode()
    words = html.escape(alt)
    source = f"data:image/svg+xml;base64,{data}"
    return f'<figure><img src="{source}" alt="{words}"><figcaption>{words}</figcaption></figure>'


def pictures(*drawn: str) -> str:
    """Side by side, or below each other where the page is narrow."""
    return f'<div class="pictures">{"".join(drawn)}</div>'


def number(value: float | None, form: str = "") -> str:
    """A number as text; what JSON could not hold (the payoff of a perfect model is infinite) is said.

    >>> number(12345.6), number(0.123456), number(None), number(0.97777, ".2%")
    ('12,346', '0.1235', 'not finite', '97.78%')
    """
    if value is None or not np.isfinite(value):
        return "not finite"
    return format(value, form or (",.0f" if abs(value) >= 1e4 else ",.4g"))


def span(values: Any, form: str = ",.0f") -> str:
    """The mean, and from where to where if it is not the same for all.

    >>> span([3.0, 3.0]), span([2.0, 4.0])
    ('3', '3 (2 to 4)')
    """
    found = np.asarray(values, float)
    low, high, mean = (format(x, form) for x in (found.min(), found.max(), found.mean()))
    return mean if low == high else f"{mean} ({low} to {high})"


def mean(values: Any) -> float:
    """Of values that may be null."""
    return float(np.asarray(values, float).mean())


def title(mechanism: str, result: dict[str, Any]) -> str:
    """A mechanism by the name it has with this run's payoff."""
    linear = result["experiment"]["payoff"] == "linear" and "RealFM" in mechanism
    return f"Linear {mechanism}" if linear else mechanism


def decisions(result: dict[str, Any]) -> str:
    """(A): the curve, what a sample costs, and what devices do about it."""
    devices, asked, fit = result["devices"], result["experiment"], result["fit"]
    whence = "given"
    if fit:
        worst = np.abs(np.asarray(fit["residual"], float)).max()
        whence = f"fitted to {len(fit['samples'])} trainings (largest misfit {worst:.3f})"
    curve = f"{asked['curve']}, a_opt {asked['a_opt']:.4g}, k {asked['k']:.4g}; {whence}"
    rule = (
        "the optimum squeezed into the images at hand, as the authors do: the same alone and together"
        if asked["data"] == "squeezed"
        else "what was decided, as far as a device's share of the images goes"
    )
    rows = [
        ("accuracy curve", curve),
        ("cost of a sample", span(devices["cost"], ".4g")),
        ("payoff scale", span(devices["payoff_scale"], ".4g")),
        ("local optimum, samples", span(devices["local_optimum"])),
        (f"equilibrium of {title('RealFM', result)}, samples", span(devices["equilibrium"])),
        ("its federated accuracy", f"{result['theory']['server_accuracy']:.4f}"),
        ("images used alone", span(devices["samples_alone"])),
        ("images used together", f"{span(devices['samples_together'])}; {rule}"),
    ]
    fed = f"{result['theory']['server_accuracy']:.4f}"
    alt = f"By theory: {rows[3][1]} samples alone, {rows[4][1]} for a federated accuracy of {fed}."
    facts = table("By theory, mean over the devices (least to most)", (), rows)
    drawn = pictures(picture(lambda ax: decision_curve(result, ax), alt))
    return heading("(A) Devices decide") + facts + drawn


def decision_curve(result: dict[str, Any], ax: "Axes") -> None:
    """The accuracy curve, what it was fitted to, and where devices and server are on it."""
    from realfm_jax.plots import _style as style

    devices, asked, fit = result["devices"], result["experiment"], result["fit"]
    curve = CURVES[asked["curve"]](a_opt=asked["a_opt"], k=asked["k"])
    optimum, given = (np.asarray(devices[key], float) for key in ("local_optimum", "equilibrium"))
    measured = np.asarray(fit["samples"], float) if fit else np.asarray([])
    ends = np.concatenate([optimum, given, [given.sum()], measured])
    ends = ends[ends > 0]
    low, high = (ends.min(), ends.max()) if ends.size else (1.0, 1e4)
    samples = np.geomspace(max(low / 10, 1.0), 2 * high, POINTS)
    style.dressed(ax).plot(samples, np.asarray(curve(samples)), color=style.COLORS[2], label="curve")
    if fit:
        ax.plot(measured, fit["accuracy"], "x", color=style.COLORS[4], label="measured")
    ax.plot(optimum, np.asarray(curve(optimum)), "^", color=style.COLORS[1], label="device alone")
    reached = np.full(given.shape, result["theory"]["server_accuracy"])
    ax.plot(given, reached, "o", color=style.COLORS[0], label="device together")
    ax.plot(given.sum(), reached[0], "D", color=style.COLORS[3], label="all of them")
    ax.set(xscale="log", xlabel="Contribution (samples)", ylabel="Accuracy")
    style.legend(ax, columns=2)


def training(result: dict[str, Any], curves: Sequence[Row]) -> str:
    """(B): accuracy by epoch, and who holds which labels."""
    from realfm_jax.federated.catalogue import KNOWN
    from realfm_jax.plots import labels, learning

    devices, asked = result["devices"], result["experiment"]
    recipe = (
        f"{asked['model']}, {asked['epochs']} epochs in batches of {asked['batch']}, {asked['optimizer']}, "
        f"rate {asked['learning_rate']:g}; together, averaged every {asked['local_steps']} steps. "
        "On test images mixed as a device's own labels are, its own model gets "
        f"{mean(devices['own_accuracy_local']):.1%} right, the federated one "
        f"{mean(devices['own_accuracy_federated']):.1%} (means)."
    )
    alone, fed = mean(devices["accuracy_local"]), result["accuracy_federated"]
    known = KNOWN.get(asked["dataset"])
    counts = np.asarray(devices["labels"])
    runs = {"together": series(curves, "federated"), "alone": series(curves, "local")}
    learnt = picture(
        lambda ax: learning(runs, ax),
        f"Test accuracy by epoch: {fed:.4f} together at the end, {alone:.4f} alone in the mean.",
    )
    held = picture(
        lambda ax: labels(SimpleNamespace(counts=counts), ax, known.classes if known else None),  # type: ignore[arg-type]
        f"Training images by device and label: {counts.sum():,} images of {len(counts)} devices.",
        height=min(max(3.0, 1.4 + 0.11 * len(counts)), 6.5),
    )
    return heading("(B) Training, alone and together") + paragraph(recipe) + pictures(learnt, held)


def series(curves: Sequence[Row], kind: str) -> "Dataset":
    """Accuracies of one of the two trainings as `learning` takes them, from the rows of curves.csv."""
    import xarray as xr

    rows = [row for row in curves if row["kind"] == kind]
    if not rows:
        raise ValueError(f"curves.csv has no rows of kind {kind}")
    epochs = sorted({int(row["epoch"]) for row in rows})
    devices = sorted({int(row["device"]) for row in rows})
    column = "global_accuracy" if kind == "federated" else "accuracy"
    values = np.full((len(epochs), len(devices)), np.nan)
    for row in rows:
        place = epochs.index(int(row["epoch"])), devices.index(int(row["device"]))
        values[place] = float(row[column] or "nan")
    at = {"epoch": epochs, "device": devices}
    if kind == "federated":  # one model, which every device's row repeats
        return xr.Dataset({column: ("epoch", values[:, 0])}, {"epoch": epochs})
    return xr.Dataset({column: (("epoch", "device"), values)}, at)


def rewards(result: dict[str, Any]) -> str:
    """(C): what each device gave, was promised and got."""
    from realfm_jax.experiments.page import promises

    given = result["rewards"]
    own = [str(i) for i, kept in enumerate(given["gave"]["keeps_own_model"]) if kept]
    kept = (
        f"Own model kept by device {', '.join(own)}: what was earned is above the accuracy of the "
        "federated model, or below that of guessing, and no model is made for that."
    )
    rate = result["reward_rate"]
    paid = (
        f"{rate:.4g} for each sample beyond those used alone" if rate else "none: the server keeps it all"
    )
    words = (
        f"Models are measured on the test images; intervals are 95 % (Wilson). Money: {paid} "
        f"(profit margin {result['experiment']['profit_margin']:g})."
    )
    gap = np.abs(np.subtract(given["gave"]["promised"], given["gave"]["achieved"])).max()
    shown = pictures(
        picture(
            lambda ax: promises(result, ax).locator_params(axis="x", nbins=5),
            f"Accuracy delivered, at most {gap:.4f} off what was promised.",
        )
    )
    half = handed_out(result, "half", "Models for half of what is asked beyond that used alone")
    parts = [
        heading("(C) Rewards"),
        paragraph(words),
        handed_out(result, "gave", "Models for what devices gave"),
    ]
    parts += [paragraph(kept)] if own else []
    return "".join([*parts, folded("And for half of what is asked", half), shown])


def handed_out(result: dict[str, Any], case: str, caption: str) -> str:
    """The devices' table."""
    devices, given, found = result["devices"], result["rewards"][case], result["mechanisms"]
    heads = ["device", "cost", "samples alone", "own accuracy", "gave", "promised", "delivered"]
    heads += ["95 % interval", "money", "asked, Taylor", "asked, exact", "model"]
    columns = [
        [str(device) for device in range(len(devices["cost"]))],
        [number(x) for x in devices["cost"]],
        [f"{x:,}" for x in devices["samples_alone"]],
        [f"{x:.4f}" for x in devices["accuracy_local"]],
        [number(x, ",.0f") for x in given["contribution"]],
        [number(x, ".4f") for x in given["promised"]],
        [f"{x:.4f}" for x in given["achieved"]],
        [f"{low:.4f} to {high:.4f}" for low, high in given["interval"]],
        [number(x) for x in given["money"]],
        *([number(x, ",.0f") for x in found[name]["contribution"]] for name in ("RealFM", "RealFM exact")),
        ["its own" if own else "made for it" for own in given["keeps_own_model"]],
    ]
    return table(caption, heads, list(zip(*columns, strict=True)))


def mechanisms(result: dict[str, Any]) -> str:
    """The same devices and models under every mechanism."""
    from realfm_jax.experiments.page import gains

    linear = result["experiment"]["payoff"] == "linear"
    own = "phi(a) = a" if linear else "own phi"
    heads = ["mechanism", "samples / device", "devices' accuracy", "money / device"]
    heads += [f"{who} u, {phi}" for phi in (own, "power phi") for who in ("server", "devices'")]
    rows = []
    for name, found in result["mechanisms"].items():
        means = {key: mean(found[key]) for key in ("contribution", "accuracy", "money", "utility")}
        cells = [number(means["contribution"], ",.0f"), number(means["accuracy"], ".4f")]
        values = (means["money"], found["server_utility"], means["utility"], found["common_server_utility"])
        cells += [number(value) for value in (*values, mean(found["common_utility"]))]
        rows.append((title(name, result), *cells))
    drawn = [picture(lambda ax: gains(result, ax), f"Utility under each mechanism, by {own}.")]
    if linear:
        alike = {
            name: {"server_utility": m["common_server_utility"], "utility": m["common_utility"]}
            for name, m in result["mechanisms"].items()
        }
        common = result | {"mechanisms": alike}
        drawn.append(picture(lambda ax: gains(common, ax), "The same, by one power payoff for everybody."))
    words = "From measured accuracies; u is utility. The power payoff is one measure for all mechanisms."
    shown = table("Mechanisms, means over the devices", heads, rows)
    return heading("Mechanisms") + paragraph(words) + shown + pictures(*drawn)
