"""The complete state of a training run on disk, by Orbax: whole or not at all, checked when it is read."""

import hashlib
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from realfm_jax.record import save_json

Tree = Any
KEPT = 2
"""Checkpoints kept: the latest, and the one before it in case the latest cannot be read."""


class Checkpoints:
    """The checkpoints of one run, in one directory; `fingerprint` says which run it is."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        import orbax.checkpoint as ocp

        self.path = path.absolute()
        _claim(self.path, fingerprint)
        options = ocp.CheckpointManagerOptions(max_to_keep=KEPT, enable_async_checkpointing=False)
        self.manager: Any = ocp.CheckpointManager(self.path / "rounds", options=options)

    def save(self, step: int, tree: Tree) -> None:
        """Write `tree`; a kill at any moment leaves the checkpoints before it as they were."""
        from orbax.checkpoint import args

        self.manager.save(step, args=args.StandardSave(_leaves(tree)))
        save_json(self._seal(step), _digests(self._place(step)))
        for seal in self.path.glob("seal-*.json"):
            if not self._place(int(seal.stem.removeprefix("seal-"))).exists():
                seal.unlink()

    def latest(self, template: Callable[[int], Tree]) -> Tree | None:
        """The latest state whose files are what was written; None if there is none.

        `template(step)` is a tree of that structure, shapes and types. What is damaged is said aloud and
        removed, so that training can write it again; so is, silently, what a kill left without a seal.
        """
        for step in sorted(self.manager.all_steps(), reverse=True):
            seal = self._seal(step)
            if seal.exists() and json.loads(seal.read_text()) == _digests(self._place(step)):
                return self._restore(step, template(step))
            if seal.exists():
                warnings.warn(
                    f"checkpoint {self._place(step)} is damaged; going back to the one before it",
                    stacklevel=2,
                )
            shutil.rmtree(self._place(step))
            self.manager.reload()
        return None

    def _place(self, step: int) -> Path:
        return self.path / "rounds" / str(step)

    def _seal(self, step: int) -> Path:
        """Written last: the digests of a checkpoint's files."""
        return self.path / f"seal-{step}.json"

    def _restore(self, step: int, template: Tree) -> Tree:
        from orbax.checkpoint import args

        found = self.manager.restore(step, args=args.StandardRestore(_leaves(template)))
        leaves, structure = jax.tree.flatten(template)
        read = [found.get(_name(number), leaf) for number, leaf in enumerate(leaves)]
        return jax.tree.unflatten(structure, read)

    def close(self) -> None:
        """Let go of the directory."""
        self.manager.close()


def _leaves(tree: Tree) -> dict[str, np.ndarray]:
    """The arrays of a tree by number, the same files whatever classes hold them; but for empty ones, which
    Orbax does not save.
    """
    leaves = enumerate(map(np.asarray, jax.tree.leaves(tree)))
    return {_name(number): leaf for number, leaf in leaves if leaf.size}


def _digests(directory: Path) -> dict[str, str]:
    """The sha256 of every file below a directory, by its path in it."""
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    found = {}
    for path in files:
        with path.open("rb") as file:
            found[str(path.relative_to(directory))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def _name(number: int) -> str:
    return f"{number:05d}"


def _claim(path: Path, fingerprint: str) -> None:
    """Make the directory this run's, or make sure that it is."""
    claim = path / "run.json"
    if not path.exists() or not any(path.iterdir()):
        save_json(claim, {"fingerprint": fingerprint})
    elif not claim.exists():
        raise FileExistsError(f"{path} exists and holds no training run; give another checkpoint directory")
    elif json.loads(claim.read_text())["fingerprint"] != fingerprint:
        raise FileExistsError(
            f"{path} holds another run (other model, optimizer, data, shards, seed or recipe); "
            "give another checkpoint directory, or delete this one"
        )
