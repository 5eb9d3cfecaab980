"""A model server that cannot load its model ends with a code, the next step, and no traceback."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys
from qinglan.rewriter.card import RewriterCard, write_card
from tests.models.tiny_rewriter import tiny_model
from tests.models.tiny_style import tiny_style_model
from tests.processes.forkserver import forked
from tests.releases.registered_release import make_release, use_keys

pytestmark = pytest.mark.slow


def cut(folder: Path, name: str) -> Path:
    tiny_model(folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:100])
    return folder


def of_no_tenant(folder: Path) -> Path:
    write_card(tiny_model(folder), RewriterCard(stage="base"))
    return folder


def empty(folder: Path) -> Path:
    folder.mkdir()
    return folder


FAULTS: dict[str, tuple[str, Callable[[Path], Path], list[str], str]] = {
    "no folder": ("rewriter", lambda folder: folder, [], "no such folder"),
    "an empty folder": ("rewriter", empty, [], "by the sft or ppo stage"),
    "a cut configuration": ("rewriter", lambda folder: cut(folder, "config.json"), [], "no whole model"),
    "cut weights": ("rewriter", lambda folder: cut(folder, "model.safetensors"), [], "no whole model"),
    "a base model": ("rewriter", of_no_tenant, [], "trained for no tenant"),
    "no style model": ("style", lambda folder: folder, [], "no such folder"),
    "an empty style model": ("style", empty, [], "written by the style"),
    "a style model without ONNX": ("style", tiny_style_model, ["--engine", "onnx"], "onnx"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_without_its_model_a_server_ends_with_what_to_do(tmp_path: Path, fault: str) -> None:
    server, make, options, message = FAULTS[fault]

    ended = end_of(server, make(tmp_path / "model"), *options)

    assert (ended.returncode, ended.stdout) == (3, ""), ended.stderr
    assert message in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("server", ["rewriter", "style"])
def test_where_a_signature_is_asked_for_a_bare_folder_ends_it(tmp_path: Path, server: str) -> None:
    """A model without its release is served as unproven, and never under --trust."""
    folder = (tiny_model if server == "rewriter" else tiny_style_model)(tmp_path / "model")
    ensure_keys(tmp_path / "keys")

    ended = end_of(server, folder, "--trust", str(tmp_path / "keys" / TRUST_FILE))

    assert (ended.returncode, ended.stdout) == (8, ""), ended.stderr
    assert "a signature is required (--trust)" in ended.stderr and "Traceback" not in ended.stderr


def test_a_model_that_is_not_what_the_release_around_it_says_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    release = make_release(tmp_path / "other", use_keys(tmp_path / "keys", monkeypatch)).folder
    shutil.rmtree(release / "model")
    shutil.copytree(tiny_style_model(tmp_path / "model"), release / "model")

    ended = end_of("style", release / "model")

    assert ended.returncode == 8
    assert "not as in its release" in ended.stderr and "Traceback" not in ended.stderr


def end_of(server: str, folder: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = forked(f"serving.{server}", "--model", str(folder), "--port", "0", *options)
    return subprocess.run(command, capture_output=True, text=True, timeout=300)
