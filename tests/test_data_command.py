"""`realfm data`: fetches, lists and verifies; a wrong file is named and fails."""

import argparse
from pathlib import Path

import pytest
import tiny

from realfm_jax import data_command
from realfm_jax.federated import catalogue


def realfm_data(*arguments: str) -> None:
    parser = argparse.ArgumentParser()
    data_command.add(parser)
    data_command.run(parser.parse_args(arguments))


def test_fetch_list_verify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("tensorflow_datasets")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("REALFM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path / "tfds"))
    monkeypatch.setitem(catalogue.KNOWN, "mnist", tiny.known())

    realfm_data("list")
    said = capsys.readouterr().out.splitlines()
    assert said[0].split()[:5] == ["digits", "package", "47.8", "kB", "sha256"]
    assert said[1:] == [f"{name:<8} nowhere: realfm data fetch {name}" for name in ("mnist", "cifar10")]

    folder = tiny.prepare(tmp_path / "tfds")
    capsys.readouterr()
    realfm_data("fetch", "mnist")
    cache = tmp_path / "cache" / "mnist-3.0.1.npz"
    assert capsys.readouterr().out == f"mnist: {cache} (42.2 kB; TFDS directory; sha256 right)\n"

    for action, last in (("list", "not read"), ("verify", "sha256 right")):
        realfm_data(action, "mnist")
        first, second = capsys.readouterr().out.splitlines()
        assert f"sha256 right  {cache}" in first
        assert last in second
        assert second.endswith(str(folder))

    content = cache.read_bytes()
    cache.write_bytes(content[:20_000] + bytes([content[20_000] ^ 1]) + content[20_001:])
    for action in ("list", "verify"):
        with pytest.raises(ValueError, match=f"{cache} is damaged"):
            realfm_data(action)
        lines = capsys.readouterr().out.splitlines()
        assert f"WRONG         {cache}" in lines[1]  # said in its line, and the others are still looked at
        assert str(folder) in lines[2]
    realfm_data("fetch", "mnist", "--again")
    assert cache.read_bytes() == content


def test_mistakes_are_named(tmp_path: Path) -> None:
    for arguments, message in (
        (("fetch", "mist"), "unknown data set 'mist'; did you mean mnist"),
        (("list", "CIFAR"), "unknown data set 'CIFAR'"),
        (("fetch", "digits"), "digits is in the package: there is nothing to fetch"),
    ):
        with pytest.raises(ValueError, match=message):
            realfm_data(*arguments, "--cache-dir", str(tmp_path))


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    for action in ("fetch", "list", "verify"):
        with pytest.raises(SystemExit):
            realfm_data(action, "--help")
        text = capsys.readouterr().out
        assert text.count("  realfm data ") >= 4
        for name in catalogue.KNOWN:
            assert f"\n  {name} " in text
