"""Releases as each version has signed them, kept with their public keys: later versions must still verify them.

    python -m pytest tests/qinglan/lineage/release/test_golden_release.py --write-golden

writes one of this version's beside those there are, and never over one. Its private keys are thrown away.
"""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import qinglan
from qinglan.errors import ConfigError
from qinglan.lineage.signing.trust import TRUST_FILE, TrustPolicy, load_trust
from tests.releases.registered_release import make_release, use_keys

GOLDEN = Path(__file__).parent / "golden"


def signed_ones() -> list[Path]:
    return sorted(path for path in GOLDEN.iterdir() if path.is_dir())


def trust(folder: Path) -> TrustPolicy:
    return load_trust(folder / TRUST_FILE)


def write_golden(name: str = qinglan.__version__) -> Path:
    """A release of this version; a ConfigError where there is one of that name."""
    target = GOLDEN / name
    if target.exists():
        raise ConfigError(f"{target}: is there, and what was signed stays as it was. Give another name.")
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("QINGLAN_RUN", "golden")
        release = make_release(Path(folder) / "made", use_keys(Path(folder) / "keys", patch))
        target.mkdir(parents=True)
        shutil.copytree(release.folder, target / "release")
        shutil.copyfile(release.keys / TRUST_FILE, target / TRUST_FILE)
        (target / "digest.txt").write_text(release.registered.release + "\n")
    return target
