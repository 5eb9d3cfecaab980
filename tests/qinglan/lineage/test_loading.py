"""A server loads what its release says, to the byte; what has no release is called unproven."""

import shutil
from pathlib import Path

import pytest

from qinglan.errors import Altered, DataError
from qinglan.lineage.digests import digest
from qinglan.lineage.keychain import ensure_keys
from qinglan.lineage.keys import VARIABLE
from qinglan.lineage.loading import PROMPTS, proof_of
from qinglan.lineage.release_folder import PROVENANCE
from qinglan.lineage.trust import TRUST
from qinglan.rewriter import CARD
from tests.release_world import Made, make_release, tiny_weights, use_keys


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(tmp_path_factory.mktemp("keys"), patch)
        return make_release(tmp_path_factory.mktemp("made"), keys)


@pytest.fixture
def release(made: Made, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(made.folder, tmp_path / "release")


def test_a_release_is_named_by_its_digests_and_who_signed_it(made: Made) -> None:
    proof = proof_of(made.folder / "model", trust=made.keys / TRUST)

    assert proof.state == "signed" and proof.name == "fivedoctors/rewriter"
    assert proof.model_digest == digest(made.folder / "model") == made.registered.model
    assert proof.release_digest == digest(made.folder) == made.registered.release
    assert proof.prompts_digest == digest(made.folder / "model" / CARD) and PROMPTS == CARD
    assert proof.version == made.registered.model[:12]
    assert proof.said == (
        f"release fivedoctors/rewriter {made.registered.release[:12]}, its digests, signed by "
        f"{made.registered.signed_by[:12]}"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [("rewriter.json", "the prompts are not those of its release"), ("model.safetensors", "not as in its release")],
)
def test_one_changed_byte_is_refused_by_name(release: Path, name: str, said: str) -> None:
    path = release / "model" / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")

    with pytest.raises(Altered, match=said) as refused:
        proof_of(release / "model")
    assert str(path) in str(refused.value)


def test_a_file_too_many_is_refused(release: Path) -> None:
    (release / "model/extra.json").write_text("{}")

    with pytest.raises(Altered, match=r"extra\.json.*says nothing of it"):
        proof_of(release / "model")


def test_a_link_to_the_right_bytes_is_refused_too(release: Path) -> None:
    path = release / "model/config.json"
    path.rename(release.parent / "config.json")
    path.symlink_to(release.parent / "config.json")

    with pytest.raises(Altered, match="a symbolic link"):
        proof_of(release / "model")


def test_merged_weights_may_stay_away_before_an_adapter_and_nothing_else_may(release: Path, made: Made) -> None:
    (release / "model/model.safetensors").unlink()

    assert proof_of(release / "model", weights=False).release_digest == made.registered.release
    with pytest.raises(DataError, match=r"model\.safetensors: its release names it"):
        proof_of(release / "model")
    (release / "model/tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: its release names it"):
        proof_of(release / "model", weights=False)


def test_what_does_not_belong_to_the_model_may_stay_away(release: Path, made: Made) -> None:
    """The audit wants it; a server does not."""
    shutil.rmtree(release / "lineage")
    (release / "report.html").unlink()

    assert proof_of(release / "model").release_digest == made.registered.release


def test_a_statement_of_another_model_is_refused(release: Path, made: Made, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, str(made.keys))
        other = make_release(tmp_path / "other", made.keys, first=0.25)
    shutil.copyfile(other.folder / PROVENANCE, release / PROVENANCE)

    with pytest.raises(Altered, match="not as in its release"):
        proof_of(release / "model", trust=made.keys / TRUST)


def test_a_release_signed_by_nobody_whose_signature_counts_is_refused(made: Made, tmp_path: Path) -> None:
    ensure_keys(tmp_path / "others")

    with pytest.raises(Altered, match="is not in the trust policy"):
        proof_of(made.folder / "model", trust=tmp_path / "others" / TRUST)


def test_a_bare_folder_is_named_by_its_digest_and_called_unproven(tmp_path: Path) -> None:
    folder = tiny_weights(tmp_path / "model")

    proof = proof_of(folder)

    assert (proof.state, proof.model_digest) == ("unproven", digest(folder))
    assert proof.said.startswith("unproven")
