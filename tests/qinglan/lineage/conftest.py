"""Fixtures of the lineage's tests: a release to load, two releases to attack, keys that nobody trusts."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from qinglan.lineage.signing.trust import TrustPolicy, ensure_keys
from tests.qinglan.lineage.attacks import OTHER
from tests.qinglan.lineage.tampering import Scene
from tests.releases.registered_release import SignedRelease, make_release, use_keys


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> SignedRelease:
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(tmp_path_factory.mktemp("keys"), patch)
        return make_release(tmp_path_factory.mktemp("made"), keys)


@pytest.fixture
def release(made: SignedRelease, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(made.folder, tmp_path / "release")


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
    made, other, foreign = world
    shutil.copytree(made.folder, tmp_path / "release", copy_function=shutil.copyfile)
    return Scene(tmp_path / "release", made, other, foreign, trusted)
