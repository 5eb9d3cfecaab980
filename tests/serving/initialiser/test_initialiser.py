"""Nothing gets into a pod's volume that is not the release of that digest, signed by keys that count."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from components.release.register.config import RegisterConfig
from components.release.register.stage import register, register_held
from qinglan.errors import AlteredError, ConfigError, DataError
from qinglan.files.digests import digest
from qinglan.lineage.auditing.deploy_gate import break_glass
from qinglan.lineage.release.model_verification import verify_model
from qinglan.lineage.release.release_notes import make_override
from qinglan.lineage.signing.keys import load_signer
from qinglan.lineage.signing.trust import TRUST_FILE, TrustPolicy, ensure_keys, load_trust, revoke_key
from qinglan.store import open_store
from serving.initialiser.release_fetcher import fetch_release
from tests.releases.registered_release import (
    NAME,
    SignedRelease,
    make_held_inputs,
    make_inputs,
    make_release,
    tiny_weights,
    use_keys,
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> SignedRelease:
    """With an adapter beside its merged weights, as a LoRA training exports it."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(folder / "keys", patch)
        model = tiny_weights(folder / "rl_model")
        shutil.copytree(tiny_weights(folder / "adapter"), model / "adapter")
        inputs = make_inputs(folder, model)
        done = register(inputs, folder / "release", RegisterConfig(name=NAME, base="Qwen/Qwen3-32B"))
        return SignedRelease(folder / "release", inputs, keys, done)


@pytest.fixture
def into(tmp_path: Path) -> Path:
    (tmp_path / "volume").mkdir()
    return tmp_path / "volume"


def pushed(release: Path, store: Path) -> str:
    return open_store(str(store)).push(release, digest(release))


def files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def with_another_byte(release: Path) -> None:
    path = release / "model/model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"!")


def test_a_release_is_laid_out_as_it_is_and_its_server_can_check_it_again(
    built: SignedRelease, tmp_path: Path, into: Path
) -> None:
    uri = pushed(built.folder, tmp_path / "store")

    message = fetch_release(uri, into, built.policy)

    assert digest(into) == built.registered.release
    assert message.startswith(f"{NAME} {built.registered.release[:12]}, model {built.registered.model[:12]}")
    assert verify_model(into / "model", trust=built.keys / TRUST_FILE).state == "signed"


def test_a_server_with_the_base_gets_everything_but_merged_weights(
    built: SignedRelease, tmp_path: Path, into: Path
) -> None:
    uri = pushed(built.folder, tmp_path / "store") + "/model/adapter"

    message = fetch_release(uri, into, built.policy)

    assert files(built.folder) - files(into) == {"model/model.safetensors"}
    assert "model/model.safetensors stayed in the store" in message
    proof = verify_model(into / "model", weights=False, trust=built.keys / TRUST_FILE)
    assert (proof.release_digest, proof.version) == (built.registered.release, built.registered.model[:12])


def test_an_adapter_is_not_asked_of_a_release_without_one(built: SignedRelease, tmp_path: Path, into: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        other = make_release(tmp_path / "other", use_keys(built.keys, patch))
    uri = pushed(other.folder, tmp_path / "store") + "/model/adapter"

    with pytest.raises(DataError, match="has no adapter"):
        fetch_release(uri, into, built.policy)
    assert files(into) == set()


@pytest.fixture
def held(built: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SignedRelease:
    """A release of a model that the gate held, which says so."""
    use_keys(built.keys, monkeypatch)
    inputs = make_held_inputs(tmp_path)
    done = register_held(inputs, tmp_path / "held", RegisterConfig(name=NAME, base="Qwen/Qwen3-32B"))
    return SignedRelease(tmp_path / "held", inputs, built.keys, done)


def test_a_held_release_is_served_by_an_override_that_a_releaser_signed_and_by_nothing_else(
    held: SignedRelease, tmp_path: Path, into: Path
) -> None:
    """The same override that lets it be deployed: without this its pods would never come."""
    store = tmp_path / "store"
    uri = pushed(held.folder, store)
    with pytest.raises(AlteredError, match="the gate says hold, as the release says itself"):
        fetch_release(uri, into, held.policy)
    assert files(into) == set()
    break_glass(str(held.folder), str(store), (), held.policy, "the pilot may be worse", "Li Na")

    message = fetch_release(uri, into, held.policy)

    assert digest(into) == held.registered.release
    assert message.endswith("; it serves by an override of Li Na: the pilot may be worse")


def test_an_override_of_other_keys_or_of_another_name_opens_nothing(
    held: SignedRelease, tmp_path: Path, into: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, signer, built = tmp_path / "store", load_signer("releaser"), held.registered
    uri = pushed(held.folder, store)
    use_keys(tmp_path / "others", monkeypatch)
    stranger = load_signer("releaser")
    for who, name in ((stranger, NAME), (signer, "chengla/rewriter")):
        note = make_override(who, built.release, name, "Li Na", "the pilot may be worse", ["verdict"])
        open_store(str(store)).attach(built.release, "break-glass", note)

    with pytest.raises(AlteredError, match="the gate says hold"):
        fetch_release(uri, into, held.policy)
    assert files(into) == set()


def test_an_override_covers_no_file_that_was_altered(held: SignedRelease, tmp_path: Path, into: Path) -> None:
    release = shutil.copytree(held.folder, tmp_path / "release")
    with_another_byte(release)
    uri = pushed(release, tmp_path / "store")
    note = make_override(
        load_signer("releaser"), digest(release), NAME, "Li Na", "the pilot may be worse", ["verdict"]
    )
    open_store(str(tmp_path / "store")).attach(digest(release), "break-glass", note)

    with pytest.raises(AlteredError, match=r"model/model\.safetensors: its digest is"):
        fetch_release(uri, into, held.policy)
    assert files(into) == set()


def change(release: Path, file: str, old: bytes, new: bytes) -> None:
    path = release / file
    path.write_bytes(path.read_bytes().replace(old, new, 1))


SPOILT: list[tuple[Callable[[Path], object], str]] = [
    (
        lambda release: next(release.glob("lineage/*convert*.dsse.json")).unlink(),
        r"lineage/.*convert.*: the release's statement names it, and it is not there",
    ),
    (with_another_byte, r"model/model\.safetensors: its digest is"),
    (
        lambda release: (release / "model/more.json").write_text("{}"),
        r"model/more\.json: the release's statement does not name it",
    ),
    (lambda release: (release / "model/more.bin").write_bytes(b"\x80\x04."), r"more\.bin"),
    (lambda release: change(release, "provenance.dsse.json", b'"payload":"e', b'"payload":"f'), "provenance"),
    (lambda release: (release / "model.sig").unlink(), r"model\.sig: .*not there"),
]


# Merged weights, which are other bytes in the second, stay in the store of a server with the base.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "message", "adapter"),
    [(*item, False) for item in SPOILT] + [(*item, True) for item in SPOILT if "safe" not in item[1]],
)
def test_a_spoilt_release_is_refused_under_whatever_digest_somebody_pushed_it(
    built: SignedRelease, tmp_path: Path, into: Path, spoil: Callable[[Path], object], message: str, adapter: bool
) -> None:
    """The store's own digests are right here: whoever can write to it can push anything."""
    release = shutil.copytree(built.folder, tmp_path / "release")
    spoil(release)
    uri = pushed(release, tmp_path / "store") + ("/model/adapter" if adapter else "")

    with pytest.raises((AlteredError, DataError), match=message):
        fetch_release(uri, into, built.policy)
    assert files(into) == set()


def test_bytes_that_were_changed_in_the_store_are_refused(built: SignedRelease, tmp_path: Path, into: Path) -> None:
    uri = pushed(built.folder, tmp_path / "store")
    with_another_byte(tmp_path / "store/releases" / built.registered.release)

    with pytest.raises(DataError, match="not the bytes that were pushed"):
        fetch_release(uri, into, built.policy)
    assert files(into) == set()


@pytest.mark.parametrize("role", ["releaser", "builder"])
def test_a_key_that_was_revoked_opens_nothing(built: SignedRelease, tmp_path: Path, into: Path, role: str) -> None:
    keys = shutil.copytree(built.keys, tmp_path / "keys")
    key = next(name for name, item in built.policy.keys.items() if item.role == role)
    revoke_key(keys, key, "laptop lost", (datetime.now(UTC) - timedelta(days=1)).isoformat())
    uri = pushed(built.folder, tmp_path / "store")

    with pytest.raises(AlteredError, match=r"was revoked at .* laptop lost"):
        fetch_release(uri, into, load_trust(keys / TRUST_FILE))
    assert files(into) == set()


def test_other_keys_open_nothing(built: SignedRelease, tmp_path: Path, into: Path) -> None:
    ensure_keys(tmp_path / "others")
    uri = pushed(built.folder, tmp_path / "store")

    for policy in (load_trust(tmp_path / "others" / TRUST_FILE), TrustPolicy()):
        with pytest.raises(AlteredError, match="is not in the trust policy"):
            fetch_release(uri, into, policy)
    assert files(into) == set()


def test_files_of_an_earlier_attempt_are_removed_except_a_resumable_download(
    built: SignedRelease, tmp_path: Path, into: Path
) -> None:
    (into / "model").mkdir()
    (into / "model/evil.json").write_text("{}")
    (into / "evil.json").write_text("{}")

    fetch_release(pushed(built.folder, tmp_path / "store"), into, built.policy)

    assert digest(into) == built.registered.release


@pytest.mark.parametrize(
    "uri",
    ["s3://qinglan/latest", f"s3://q/releases/{'1' * 63}", f"s3://q/releases/{'1' * 64}/../x",
     f"s3://q/releases/{'1' * 64}/model", f"s3://q/releases/{'1' * 64}?versionId=1"],
)  # fmt: skip
def test_an_address_without_a_digest_is_refused(uri: str, into: Path) -> None:
    with pytest.raises(ConfigError, match="names no release by its digest"):
        fetch_release(uri, into, TrustPolicy())


@pytest.mark.slow
def test_as_kserve_calls_it_it_ends_with_what_it_has_to_say(built: SignedRelease, tmp_path: Path, into: Path) -> None:
    uri = pushed(built.folder, tmp_path / "store")
    trust = (built.keys / TRUST_FILE).read_text()
    nobody = {**os.environ, "QINGLAN_KEYS": str(tmp_path / "none")}

    def run(uri: str, trust: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "serving.initialiser", uri, str(into)],
            capture_output=True, text=True, timeout=300, env=nobody | {"QINGLAN_TRUST": trust},
        )  # fmt: skip

    good = run(uri, trust)
    assert good.returncode == 0 and "every byte and signature verified" in good.stderr
    unknown = run(uri, "keys: {}")
    assert unknown.returncode == 8 and "is not in the trust policy" in unknown.stderr
    assert run(uri, "").returncode == 2
    gone = run(uri[:-1] + "x", trust)
    assert gone.returncode == 2 and "Traceback" not in gone.stderr
