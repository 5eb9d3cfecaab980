"""A wrong path is named as what it is, wherever a person gives one."""

import os
from pathlib import Path

import pytest

from qinglan.files.input_paths import path_fault

ADDRESS = "this is an address, and no file is fetched. Download it"
WRONG = [
    ("https://x.example/q.csv", f"https://x.example/q.csv: {ADDRESS}"),
    ("HTTP://u:p@x.example/q.csv", f"HTTP://...x.example/q.csv: {ADDRESS}"),
    ("s3://bucket/q.csv?key=1", f"s3://bucket/q.csv?...: {ADDRESS}"),
    ("file:///q.csv", ADDRESS),
    ("none.csv", "none.csv: no such file"),
    ("n" * 300, "File name too long"),
    ("a\0b", "no such file"),
    ("q.csv/q.csv", "no such file"),
    ("pipe", "pipe: is a device or a pipe"),
    ("/dev/null", "/dev/null: is a device or a pipe"),
    ("link", "link: no such file"),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "q.csv").write_text("question\nhow?\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("nothing")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    return tmp_path


@pytest.mark.parametrize(("path", "message"), [*WRONG, ("folder", "folder: is a folder. Name the file in it.")])
def test_a_wrong_path_is_named_as_what_it_is(here: Path, path: str, message: str) -> None:
    assert message in path_fault(Path(path), "Give rows.")


@pytest.mark.parametrize(("path", "folder"), [("q.csv", False), ("q.csv", True), ("folder", True)])
def test_a_path_with_what_is_needed_has_no_fault(here: Path, path: str, folder: bool) -> None:
    assert path_fault(Path(path), "Give rows.", folder) == ""
