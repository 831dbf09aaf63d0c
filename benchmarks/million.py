"""Print and save: a million games streamed to disk, once whole, once killed half-way and resumed; a million
devices in one game, solved and certified.

`python -m benchmarks.million`: half a minute or a few, and 2 GB of disk, which are given back.
"""

import argparse
import filecmp
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import realfm_jax as rfm
from benchmarks.__main__ import game_of
from benchmarks.machine import machine, peak_megabytes
from benchmarks.peers import draw
from realfm_jax.record import provenance, save_json

DEVICES = 16


def stream(store: Path, rows: int) -> dict[str, float]:
    """Every one of so many draws of costs with as many payoff scales, into a store."""
    cost, scale = draw(rows, DEVICES)
    game = game_of(cost[0], scale[0])
    begun = time.perf_counter()
    rfm.sweep(game, cost=cost, payoff_scale=np.linspace(0.5, 2.0, rows), store=store, progress=True)
    return {"seconds": time.perf_counter() - begun, "peak_megabytes": peak_megabytes()}


def certified(devices: int) -> dict[str, Any]:
    """One game of so many devices, solved, and searched for a device that would rather do otherwise."""
    game = game_of(*draw(devices))
    begun = time.perf_counter()
    found = jax.block_until_ready(rfm.solve(game, method="aggregate"))
    solved = time.perf_counter() - begun
    cert: Any = rfm.certify(game, found, probes=0)
    return {
        "solve_seconds": solved,
        "certificate_seconds": time.perf_counter() - begun - solved,
        "converged": bool(found.converged),
        "report": str(cert),
        "peak_megabytes": peak_megabytes(),
    }


def child(*arguments: str) -> subprocess.Popen[str]:
    """A process of its own, whose peak of memory is its own, and which can be killed."""
    command = [sys.executable, "-m", "benchmarks.million", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What a process prints at its end."""
    printed, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{process.args!r} ended with {process.returncode}")
    return json.loads(printed.splitlines()[-1])


def pieces(store: Path) -> dict[Path, int]:
    """The chunk files of a store, and when each was written."""
    return {path.relative_to(store): path.stat().st_mtime_ns for path in store.glob("*/*[0-9]")}


def killed(store: Path, rows: int, total: int) -> int:
    """Kill a sweep once half of its chunks are there; returns how many are."""
    process = child(*_stream(store, rows))
    while process.poll() is None and (not store.exists() or len(pieces(store)) < total / 2):
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return len(pieces(store))


def compare(folder: Path, rows: int) -> dict[str, Any]:
    """The same sweep whole and broken; an error if a chunk differs or was computed twice."""
    whole, broken = folder / "whole", folder / "broken"
    found: dict[str, Any] = {"games": rows**2, "whole": answer(child(*_stream(whole, rows)))}
    total = pieces(whole)
    found["chunks"], found["chunks_when_killed"] = len(total), killed(broken, rows, len(total))
    if not 0 < found["chunks_when_killed"] < len(total):
        raise RuntimeError(
            f"killed with {found['chunks_when_killed']} of {len(total)} chunks: not half-way"
        )
    before = pieces(broken)
    found["resumed"] = answer(child(*_stream(broken, rows)))
    after = pieces(broken)
    again = [path for path, written in before.items() if after[path] != written]
    # The piece it was killed in has some of its variables; those are written anew.
    variables = len({path.parent for path in total})
    if len(again) > variables:
        raise RuntimeError(f"{len(again)} chunks were computed twice")
    same = filecmp.cmpfiles(whole, broken, [str(path) for path in total], shallow=False)[0]
    if set(after) != set(total) or len(same) != len(total):
        raise RuntimeError(f"only {len(same)} of {len(total)} chunks are identical")
    return found | {"identical_chunks": len(same), "megabytes_on_disk": _megabytes(whole)}


def _stream(store: Path, rows: int) -> tuple[str, ...]:
    return "--stream", str(store), "--rows", str(rows)


def _megabytes(store: Path) -> float:
    return sum(path.stat().st_size for path in store.rglob("*") if path.is_file()) / 1e6


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.million", description=__doc__)
    parser.add_argument("--rows", type=int, default=1000, help="a sweep has rows^2 games (1000)")
    parser.add_argument("--devices", type=int, default=1_000_000, help="in the one large game (1000000)")
    parser.add_argument("--out", default="realfm-results/million.json", help="where to save the figures")
    parser.add_argument("--stream", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--certify", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.stream:
        return print(json.dumps(stream(options.stream, options.rows)))
    if options.certify:
        return print(json.dumps(certified(options.devices)))
    with tempfile.TemporaryDirectory() as folder:
        sweep = compare(Path(folder), options.rows)
    whole, resumed = sweep["whole"], sweep["resumed"]
    print(
        f"{sweep['games']:,} games of {DEVICES} devices: {whole['seconds']:.1f} s, peak "
        f"{whole['peak_megabytes']:.0f} MB, {sweep['megabytes_on_disk']:.0f} MB on disk\n"
        f"killed with {sweep['chunks_when_killed']} of {sweep['chunks']} chunks, resumed in "
        f"{resumed['seconds']:.1f} s: {sweep['identical_chunks']} chunks identical bit for bit"
    )
    large = answer(child("--certify", "--devices", str(options.devices)))
    print(
        f"one game of {options.devices:,} devices: solved in {large['solve_seconds']:.1f} s, "
        f"certified in {large['certificate_seconds']:.1f} s, peak {large['peak_megabytes']:.0f} MB\n"
        f"{large['report']}"
    )
    about = provenance({"rows": options.rows, "devices": options.devices}) | {"hardware": machine()}
    print("saved", save_json(options.out, {"provenance": about, "sweep": sweep, "large_game": large}))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
