"""A release in a store, proven without its weights: what is wrong is named, and an outage is no verdict."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from qinglan.errors import OutageError
from qinglan.files.digests import digest
from qinglan.lineage.auditing.audit import audit
from qinglan.lineage.release.release_notes import ROLLOUT_NOTE, RolloutStatement, sign_rollout
from qinglan.lineage.signing.keys import load_signer
from qinglan.lineage.signing.trust import Revocation, TrustPolicy, new_key
from qinglan.store import open_store
from serving.rollout.cluster.release_verifier import prove_release
from serving.rollout.ports import Proof
from serving.rollout.spec import Release
from tests.releases.registered_release import NAME, SignedRelease, use_keys
from tests.releases.whole_release import make_whole_release


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SignedRelease:
    keys = use_keys(tmp_path / "keys", monkeypatch)
    built = make_whole_release(tmp_path / "made", keys)
    open_store(str(tmp_path / "store")).push(built.folder, digest(built.folder))
    return built


def proof(
    tmp_path: Path, built: SignedRelease, name: str = NAME, policy: TrustPolicy | None = None, adapter: str = ""
) -> Proof:
    uri = f"{tmp_path}/store/releases/{built.registered.release}{adapter}"
    release = Release(name=name, digest=built.registered.release, uri=uri, model="")
    return prove_release(uri, release, policy or built.policy)


def stored(tmp_path: Path, built: SignedRelease, name: str) -> Path:
    return tmp_path / "store/releases" / built.registered.release / name


@pytest.mark.parametrize("adapter", ["", "/model/adapter"])
def test_a_whole_release_is_proven_by_its_digests(tmp_path: Path, built: SignedRelease, adapter: str) -> None:
    result = proof(tmp_path, built, adapter=adapter)

    assert result == Proof(built.registered.release, digest(built.folder / "model"), ())


def test_a_release_is_verified_without_reading_its_weights(tmp_path: Path, built: SignedRelease) -> None:
    stored(tmp_path, built, "model/model.safetensors").unlink()

    assert proof(tmp_path, built).missing == ()


def test_an_untrusted_rollout_note_does_not_block_a_release(tmp_path: Path, built: SignedRelease) -> None:
    """As where the controller's key is not in the policy: it would refuse the stable model of its own rollouts."""
    new_key(tmp_path / "stranger", "rollout")
    ended = datetime.now(UTC).isoformat()
    output = RolloutStatement(
        built.registered.release, NAME, "qinglan/rewriter-1", "rewriter", "Promoted", (), ended, ended, {}, {}, ()
    )
    open_store(str(tmp_path / "store")).attach(
        built.registered.release, ROLLOUT_NOTE, sign_rollout(output, load_signer("rollout", tmp_path / "stranger"))
    )

    assert audit(built.registered.release, built.policy, store=str(tmp_path / "store")).verdict == "altered"
    assert proof(tmp_path, built).missing == ()


@pytest.mark.parametrize("name", ["report.html", "model/config.json", "evaluation.json", "provenance.dsse.json"])
def test_an_altered_byte_of_a_release_is_reported(tmp_path: Path, built: SignedRelease, name: str) -> None:
    file = stored(tmp_path, built, name)
    file.chmod(0o644)
    file.write_bytes(file.read_bytes().replace(b"e", b"f", 1))

    assert proof(tmp_path, built).missing


def test_another_name_and_a_revoked_key_stand_against_it(tmp_path: Path, built: SignedRelease) -> None:
    now = datetime.now(UTC)
    revoked = {
        id: item.model_copy(update={"revoked": Revocation(at=item.since, reason="laptop lost")})
        for id, item in built.policy.keys.items()
    }
    assert now > next(iter(revoked.values())).since

    assert any("chengla/rewriter" in item for item in proof(tmp_path, built, "chengla/rewriter").missing)
    policy = built.policy.model_copy(update={"keys": revoked})
    assert any("laptop lost" in item for item in proof(tmp_path, built, policy=policy).missing)


def test_a_release_without_a_store_entry_or_a_digest_is_reported(tmp_path: Path, built: SignedRelease) -> None:
    stored(tmp_path, built, "x").parent.with_suffix(".json").unlink()
    release = Release(name=NAME, digest="", uri="", model="")

    assert "no releases/" in proof(tmp_path, built).missing[0]
    assert "names no release by its digest" in prove_release("s3://models/latest", release, built.policy).missing[0]


def test_a_store_that_gives_no_answer_is_no_verdict(built: SignedRelease, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "QINGLAN_S3_ENDPOINT": "http://127.0.0.1:1", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    uri = f"s3://bucket/releases/{built.registered.release}"
    release = Release(name=NAME, digest=built.registered.release, uri=uri, model="")

    with pytest.raises(OutageError):
        prove_release(uri, release, built.policy)
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    with pytest.raises(OutageError, match="could not be read"):
        prove_release(uri, release, built.policy)
