"""The files of an artifact: what may be named, and what a folder must be to come back as it is."""

from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qinglan.errors import DataError
from qinglan.files.digests import digest
from qinglan.store.backend import path_fault
from qinglan.store.manifest import Manifest, ManifestFile, build_manifest, read_sources

FILE = ManifestFile(sha256="0" * 64, size=1)
PIECES = st.sampled_from(["..", ".", "", "a", "分词", "~", "a\x00b", "\\", "..\\", "C:", "\n", "\ud800", " ", "..."])
PATHS = st.one_of(st.text(), st.lists(st.one_of(PIECES, st.text(max_size=5)), min_size=1).map("/".join))


@pytest.mark.slow
@given(PATHS)
def test_a_path_that_passes_stays_in_its_folder_and_on_its_line(path: str) -> None:
    if path_fault(path):
        return
    root = PurePosixPath("/store/releases/digest")

    assert (root / path).is_relative_to(root)
    assert ".." not in (root / path).parts
    assert str(PurePosixPath(path)) == path
    assert "\n" not in path


def test_no_file_is_also_a_folder() -> None:
    forged = Manifest.model_construct(files={"a": FILE, "a/b/c": FILE})

    with pytest.raises(DataError, match="'a' is a file, and a folder of 'a/b/c'"):
        Manifest.parse(forged.dump(), "manifest")


@pytest.mark.parametrize("text", ["", "{}", '{"files": {}}', '{"files": {"a": {"sha256": "b", "size": 1}}}', "[]"])
def test_a_text_that_is_no_manifest_is_refused(text: str) -> None:
    with pytest.raises(DataError, match="manifest: "):
        Manifest.parse(text.encode(), "manifest")


def test_a_manifest_has_its_folders_digest(tmp_path: Path) -> None:
    for name in ("b", "a/z", "a.b", "é", "B"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)

    manifest = build_manifest(read_sources(tmp_path))

    assert manifest.digest == digest(tmp_path)
    assert Manifest.parse(manifest.dump(), "manifest") == manifest
    assert manifest.files["é"].size == 2


@pytest.mark.parametrize("name", [b"a\nb", b"a\\b", b"\xff"])
def test_a_folder_with_a_name_that_cannot_come_back_is_refused(tmp_path: Path, name: bytes) -> None:
    (tmp_path / name.decode(errors="surrogateescape")).write_text("x")

    with pytest.raises(DataError, match="Rename it"):
        read_sources(tmp_path)
