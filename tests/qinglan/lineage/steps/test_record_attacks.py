"""Records of a run are not signed: what they cannot make an auditor read, show or believe."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from qinglan.lineage.auditing.audit import Audit, audit
from qinglan.lineage.trace import digest_check
from tests.releases.lineage_world import NOW, Keys, write_run


@pytest.fixture
def run(tmp_path: Path, keys: Keys) -> Path:
    return write_run(tmp_path / "run", keys)


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Every place whose bytes the auditor reads."""
    places: list[Path] = []
    original = digest_check.hash_paths

    def noted(paths: Any) -> Any:
        places.extend(paths := list(paths))
        return original(paths)

    monkeypatch.setattr(digest_check, "hash_paths", noted)
    return places


def of(run: Path, keys: Keys) -> Audit:
    return audit(str(run), keys.policy, now=NOW)


def records(run: Path) -> list[tuple[Path, dict[str, Any]]]:
    result = [(path, orjson.loads(path.read_bytes())) for path in sorted((run / "records").glob("*.json"))]
    return [(path, record) for path, record in result if "outputs" in record]


def point(run: Path, kind: str, target: Path) -> str:
    """The first artifact of this kind, said to be elsewhere; its name."""
    for path, record in records(run):
        for name, part in record[kind].items():
            if part.get("uri"):
                part["uri"] = str(target)
                path.write_bytes(orjson.dumps(record))
                return str(name)
    raise AssertionError(f"no {kind}")


def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "secret").write_text("root:$6$")
    return folder


def test_a_record_of_something_that_nobody_signed_makes_the_auditor_read_nothing(
    run: Path, keys: Keys, tmp_path: Path, hashed: list[Path]
) -> None:
    folder = outside(tmp_path)
    part = {"name": "x", "uri": str(folder), "sha256": "a" * 64}
    other = {"stage": "x", "status": "done", "inputs": {"x": part}, "outputs": {"y": part}}
    (run / "records" / "x.json").write_bytes(orjson.dumps(other))

    of(run, keys)

    assert hashed and not [path for path in hashed if path.is_relative_to(folder)]


@pytest.mark.parametrize("name", ["secret", "."])
def test_an_output_outside_of_the_run_is_not_read(
    run: Path, keys: Keys, tmp_path: Path, hashed: list[Path], name: str
) -> None:
    folder = outside(tmp_path)
    point(run, "outputs", folder / name)

    of(run, keys)

    assert hashed and not [path for path in hashed if path.is_relative_to(folder)]


def test_a_folder_in_the_place_of_a_signed_file_is_altered_unread(
    run: Path, keys: Keys, tmp_path: Path, hashed: list[Path]
) -> None:
    folder = outside(tmp_path)
    point(run, "inputs", folder)

    assert of(run, keys).verdict == "altered"
    assert not [path for path in hashed if path.is_relative_to(folder)]


def test_an_audit_shows_no_digest_of_a_file_outside_of_the_run(run: Path, keys: Keys, tmp_path: Path) -> None:
    from qinglan.files.files import sha256_file

    secret = outside(tmp_path) / "secret"
    point(run, "inputs", secret)

    result = of(run, keys)

    assert result.verdict == "altered"
    assert sha256_file(secret)[:12] not in str(result)


def linked_file(path: Path, backup: Path) -> None:
    path.rename(backup)
    path.symlink_to(backup)


def linked_parent(path: Path, backup: Path) -> None:
    path.parent.rename(backup)
    path.parent.symlink_to(backup)


@pytest.mark.parametrize("link", [linked_file, linked_parent])
def test_an_artifact_that_is_a_link_is_altered_though_its_bytes_are_right(
    run: Path, keys: Keys, tmp_path: Path, link: Callable[[Path, Path], None], hashed: list[Path]
) -> None:
    assert of(run, keys).verdict == "intact"
    path = next(path for path in hashed if path.is_relative_to(run / "artifacts"))

    link(path, tmp_path / "kept")
    result = of(run, keys)

    assert result.verdict == "altered"
    assert any("is a symbolic link" in finding.why for finding in result.findings)


def test_a_run_behind_a_link_is_as_intact_as_the_run(run: Path, keys: Keys, tmp_path: Path) -> None:
    (tmp_path / "newest").symlink_to(run)

    assert of(tmp_path / "newest", keys).verdict == "intact"


@pytest.mark.parametrize("uri", ["/" + "a" * 5000, "file:///" + "a/" * 3000, "/a\0b", "\udc80", "../" * 400 + "etc"])
def test_a_place_that_no_system_has_is_a_finding(run: Path, keys: Keys, uri: str) -> None:
    for kind in ("inputs", "outputs"):
        shutil.copytree(run, run.with_name(kind))
        record_path, record = records(run.with_name(kind))[0]
        for part in record[kind].values():
            part["uri"] = uri
        text = orjson.dumps({}) if "\udc80" in uri else orjson.dumps(record)
        record_path.write_bytes(text)

        assert of(run.with_name(kind), keys).verdict in ("incomplete", "altered", "intact")


def test_a_shown_link_to_elsewhere_is_altered_unread(
    run: Path, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, read = outside(tmp_path), []

    def digest_of(path: Path) -> str:
        read.append(path)
        return ""

    (run / "files").mkdir(exist_ok=True)
    names = [name for _, record in records(run) for name in record["outputs"]]
    (run / "files" / names[0]).unlink(missing_ok=True)
    (run / "files" / names[0]).symlink_to(folder)
    monkeypatch.setattr("qinglan.lineage.auditing.audit_targets.digest_of", digest_of)

    assert of(run, keys).verdict == "altered"
    assert read == []
