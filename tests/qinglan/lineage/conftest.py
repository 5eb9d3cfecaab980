"""Fixtures of the lineage's tests: a release to load, two releases to attack, untrusted keys."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from qinglan.lineage.signing.trust import TrustPolicy, ensure_keys
from tests.qinglan.lineage.attacks import OTHER
from tests.qinglan.lineage.tampering import Scene
from tests.releases.lineage_world import Keys, make_keys
from tests.releases.registered_release import SignedRelease, make_release, use_keys


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def no_release_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the check of a release's own files, which test_attacks.py tests."""
    monkeypatch.setattr("qinglan.lineage.auditing.audit.check_release", lambda *arguments: [])


@pytest.fixture(scope="module")
def genuine(tmp_path_factory: pytest.TempPathFactory) -> SignedRelease:
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(tmp_path_factory.mktemp("keys"), patch)
        return make_release(tmp_path_factory.mktemp("made"), keys)


@pytest.fixture
def release(genuine: SignedRelease, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(genuine.folder, tmp_path / "release")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SignedRelease, SignedRelease, Path]]:
    folder = tmp_path_factory.mktemp("attacks")
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(folder / "keys", patch)
        release = make_release(folder / "made", keys)
        other = make_release(folder / "other", keys, OTHER, first=0.75, lead=0.07)
        ensure_keys(folder / "foreign")
        yield release, other, folder / "foreign"


@pytest.fixture(scope="module")
def trusted(world: tuple[SignedRelease, SignedRelease, Path]) -> TrustPolicy:
    return world[0].policy


@pytest.fixture
def scene(world: tuple[SignedRelease, SignedRelease, Path], trusted: TrustPolicy, tmp_path: Path) -> Scene:
    genuine, other, foreign = world
    shutil.copytree(genuine.folder, tmp_path / "release", copy_function=shutil.copyfile)
    return Scene(tmp_path / "release", genuine, other, foreign, trusted)
