"""A server loads the copy that it compared, which no other user can change, not even through a shared mapping."""

import mmap
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from qinglan.errors import AlteredError, DataError
from qinglan.files.digests import digest
from qinglan.lineage.release import model_verification
from qinglan.lineage.release.model_verification import verified_copy, verify_model
from qinglan.lineage.signing.trust import TRUST_FILE
from qinglan.rewriter.model import Student
from qinglan.style.model import ONNX_FILE, StyleModel
from serving.rewriter.config import ServerConfig
from serving.rewriter.model import KServeRewriter
from serving.style.model import KServeStyleModel
from tests.models.tiny_rewriter import tiny_model
from tests.models.tiny_style import tiny_style_model
from tests.releases.registered_release import SignedRelease, tiny_weights

WEIGHTS = "model.safetensors"
Swap = Callable[[Path, bytes], object]


def shared_mapping(path: Path) -> mmap.mmap:
    """A mapping whose pages are dirty: what is written to them later changes neither mtime nor ctime."""
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    for start in range(0, len(mapped), mmap.PAGESIZE):
        mapped[start] = mapped[start]
    return mapped


def written_in_place(path: Path, other: bytes) -> None:
    """The same size, and the time set back, as an attacker would."""
    about = path.stat()
    with path.open("r+b") as file:
        file.write(other)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def swapped_for_a_link(path: Path, other: bytes) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_bytes(other)
    path.unlink()
    path.symlink_to(elsewhere)


def joined_by_another(path: Path, other: bytes) -> None:
    path.with_name("consolidated.safetensors").write_bytes(other)


def taken_out(path: Path, other: bytes) -> None:
    path.unlink()


SWAPS = (written_in_place, swapped_for_a_link, joined_by_another, taken_out)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "chat_template.jinja", "rewriter.json"])
def test_a_write_through_a_shared_mapping_reaches_nothing_that_was_compared(tmp_path: Path, name: str) -> None:
    path = tiny_weights(tmp_path / "model") / name
    before = digest(path.parent)
    mapped = shared_mapping(path)
    times = path.stat().st_mtime_ns

    with verified_copy(path.parent) as (copy, proof):
        mapped[:] = bytes(len(mapped))

        assert path.stat().st_mtime_ns == times, "the times show nothing of it"
        assert digest(copy) == proof.model_digest == before != digest(path.parent)


@pytest.mark.parametrize("before_compared", [True, False], ids=["before it was compared", "afterwards"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "chat_template.jinja"])
@pytest.mark.parametrize("swap", SWAPS, ids=lambda swap: swap.__name__)
def test_no_change_of_a_file_after_its_copy_reaches_what_is_compared_and_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swap: Swap, name: str, before_compared: bool
) -> None:
    path = tiny_weights(tmp_path / "model") / name
    before = digest(path.parent)

    def change(*arguments: object, **options: object) -> None:
        swap(path, path.read_bytes()[::-1])

    if before_compared:
        monkeypatch.setattr(model_verification, "refuse_foreign_files", change)
    with verified_copy(path.parent) as (copy, proof):
        if not before_compared:
            change()

        assert digest(copy) == proof.model_digest == before


def test_the_copy_is_of_its_own_user_alone_and_is_removed(tmp_path: Path) -> None:
    folder = tiny_weights(tmp_path / "model")
    (folder / "model.safetensors").chmod(0o666)
    (folder / "adapter").mkdir()
    (folder / "adapter" / "notes.md").write_text("of a folder below")

    with verified_copy(folder) as (copy, _):
        inside = [path for path in copy.rglob("*") if path.is_file()]
        assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
        assert not copy.is_relative_to(folder) and (copy / "adapter" / "notes.md") in inside
        assert {path.stat().st_nlink for path in inside} == {1} and not any(path.is_symlink() for path in inside)

    assert not copy.parent.exists()


def test_the_copy_of_a_release_is_compared_with_its_statement(release: Path, genuine: SignedRelease) -> None:
    trust = genuine.keys / TRUST_FILE
    with verified_copy(release / "model", trust=trust) as (copy, proof):
        assert proof == verify_model(release / "model", trust=trust)
        assert digest(copy) == genuine.registered.model


def test_merged_weights_that_another_program_loads_are_verified_where_they_are(release: Path) -> None:
    """A vLLM beside the server reads them from the volume: a copy of 64 GB would be of no use."""
    with verified_copy(release / "model", weights=False) as (copy, _):
        assert (copy / "config.json").is_file() and not (copy / WEIGHTS).exists()
    with (release / "model" / WEIGHTS).open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")

    with pytest.raises(AlteredError, match="not as in its release"), verified_copy(release / "model", weights=False):
        raise AssertionError("it was taken")


def test_an_error_about_the_copy_names_the_folder_that_somebody_knows(tmp_path: Path) -> None:
    folder = tiny_weights(tmp_path / "model")

    with pytest.raises(DataError) as refused, verified_copy(folder) as (copy, _):
        raise DataError(f"{copy / 'x.json'}: no such file.", f"See {copy}.")

    assert refused.value.lines == (f"{folder / 'x.json'}: no such file.", f"See {folder}.")
    assert str(refused.value) == "\n".join(refused.value.lines)


@pytest.mark.parametrize("name", ["other.json", "adapter.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/etc/hostname"), Path.mkdir])
def test_what_is_no_plain_file_of_a_release_is_refused_and_not_copied(
    release: Path, make: Callable[[Path], None], name: str
) -> None:
    path = release / "model" / name
    path.unlink(missing_ok=True)
    make(path)

    with pytest.raises(AlteredError, match=name), verified_copy(release / "model"):
        raise AssertionError("it was taken")


def onnx_model(folder: Path) -> Path:
    from components.training.style.export import export_int8

    export_int8(tiny_style_model(folder), folder / ONNX_FILE)
    return folder


SERVERS: list[Any] = [
    pytest.param(tiny_model, WEIGHTS, Student, lambda folder: KServeRewriter(ServerConfig(model=folder))),
    pytest.param(tiny_style_model, WEIGHTS, StyleModel, lambda folder: KServeStyleModel("s", folder, "torch", 8)),
    pytest.param(onnx_model, ONNX_FILE, StyleModel, lambda folder: KServeStyleModel("s", folder, "onnx", 8)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "file", "model", "server"), SERVERS, ids=["rewriter", "style", "style on onnx"])
def test_weights_that_are_zeroed_through_a_mapping_after_they_were_compared_are_not_served(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[Path], Path],
    file: str,
    model: type[Student] | type[StyleModel],
    server: Callable[[Path], KServeRewriter | KServeStyleModel],
) -> None:
    """As an attacker would who writes to the volume: the pages are dirty already when the server starts."""
    path = make(tmp_path / "model") / file
    genuine, mapped, load = path.read_bytes(), shared_mapping(path), model.load
    loaded: list[bytes] = []

    def zeroed(folder: Path, *engine: Any) -> Any:
        mapped[len(mapped) // 2 :] = bytes(len(mapped) - len(mapped) // 2)
        loaded.append((folder / file).read_bytes())
        return load(folder, *engine)

    monkeypatch.setattr(model, "load", zeroed)
    for metrics in ("serving.rewriter.model.Metrics", "serving.style.model.Metrics"):
        monkeypatch.setattr(metrics, lambda *of: None)  # a process has one server, and each series once
    assert server(path.parent).load()

    assert loaded == [genuine] and path.read_bytes() != genuine
