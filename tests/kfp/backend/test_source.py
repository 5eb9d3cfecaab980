"""The clone of KFP that a user names: refused with the next step, or unpacked and changed."""

import subprocess
from pathlib import Path

import pytest

from qinglan.errors import ConfigError, QinglanError
from tests.kfp.backend.source import TAG, Change, change, commit_of_tag


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def clone(folder: Path, tag: str) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    (folder / "main.go").write_text("package main\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "one")
    git(folder, "tag", "-a", tag, "-m", tag)
    return folder


def test_a_tag_leads_to_its_commit(tmp_path: Path) -> None:
    source = clone(tmp_path / "pipelines", TAG)

    assert commit_of_tag(source) == git(source, "rev-parse", "HEAD")


def test_a_folder_without_the_tag_is_refused(tmp_path: Path) -> None:
    for source in (tmp_path / "none", tmp_path, clone(tmp_path / "pipelines", "2.16.0")):
        with pytest.raises(ConfigError, match="git clone"):
            commit_of_tag(source)


def test_a_change_is_made_once(tmp_path: Path) -> None:
    (tmp_path / "main.go").write_text('listen(":80")\n')

    change(tmp_path, [Change("main.go", '":80"', '"127.0.0.1:80"')])

    assert (tmp_path / "main.go").read_text() == 'listen("127.0.0.1:80")\n'


@pytest.mark.parametrize("text", ["", 'listen(":80"); listen(":80")'])
def test_a_change_that_no_longer_fits_is_an_error_and_no_open_port(tmp_path: Path, text: str) -> None:
    (tmp_path / "main.go").write_text(text)

    with pytest.raises(QinglanError, match=r"main\.go"):
        change(tmp_path, [Change("main.go", '":80"', '"127.0.0.1:80"')])
