"""A server loads what its release says, to the byte; what has no release is called unproven."""

import os
import shutil
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from components.release.register.config import RegisterConfig
from components.release.register.stage import register
from qinglan.errors import AlteredError, DataError
from qinglan.files.digests import digest
from qinglan.lineage.release.model_verification import verify_model
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys
from qinglan.lineage.trace.release_folder import PROVENANCE
from tests.releases.registered_release import NAME, SignedRelease, make_inputs, make_release, tiny_weights

INDEX = "model.safetensors.index.json"


def test_a_release_is_named_by_its_digests_and_who_signed_it(genuine: SignedRelease) -> None:
    proof = verify_model(genuine.folder / "model", trust=genuine.keys / TRUST_FILE)

    assert proof.state == "signed" and proof.name == "fivedoctors/rewriter"
    assert proof.model_digest == digest(genuine.folder / "model") == genuine.registered.model
    assert proof.release_digest == digest(genuine.folder) == genuine.registered.release
    assert proof.version == genuine.registered.model[:12]
    assert proof.summary == (
        f"release fivedoctors/rewriter {genuine.registered.release[:12]}, its digests, signed by "
        f"{genuine.registered.signed_by[:12]}"
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [("rewriter.json", "the prompts are not those of its release"), ("model.safetensors", "not as in its release")],
)
def test_a_changed_byte_of_the_model_is_refused_by_file_name(release: Path, name: str, message: str) -> None:
    path = release / "model" / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")

    with pytest.raises(AlteredError, match=message) as refused:
        verify_model(release / "model")
    assert str(path) in str(refused.value)


def test_a_file_too_many_is_refused(release: Path) -> None:
    (release / "model/extra.json").write_text("{}")

    with pytest.raises(AlteredError, match=r"extra\.json.*says nothing of it"):
        verify_model(release / "model")


def test_a_link_to_the_right_bytes_is_refused_too(release: Path) -> None:
    path = release / "model/config.json"
    path.rename(release.parent / "config.json")
    path.symlink_to(release.parent / "config.json")

    with pytest.raises(AlteredError, match="a symbolic link"):
        verify_model(release / "model")


def test_merged_weights_may_stay_away_before_an_adapter_and_nothing_else_may(
    release: Path, genuine: SignedRelease
) -> None:
    (release / "model/model.safetensors").unlink()

    assert verify_model(release / "model", weights=False).release_digest == genuine.registered.release
    with pytest.raises(DataError, match=r"model\.safetensors: its release names it"):
        verify_model(release / "model")
    (release / "model/tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: its release names it"):
        verify_model(release / "model", weights=False)


def test_an_index_without_its_weights_is_refused_before_an_adapter_too(
    genuine: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a node with a planted index, while the merged weights stayed in the store."""
    monkeypatch.setenv(KEYS_VARIABLE, str(genuine.keys))
    model = tiny_weights(tmp_path / "rl_model")
    (model / INDEX).write_text('{"metadata": {}, "weight_map": {"embed": "model.safetensors"}}')
    register(make_inputs(tmp_path, model), tmp_path / "release", RegisterConfig(name=NAME))
    pod, trust = tmp_path / "release/model", genuine.keys / TRUST_FILE
    assert verify_model(pod, trust=trust).state == "signed"

    (pod / "model.safetensors").unlink()
    with pytest.raises(AlteredError, match=r"index\.json: no whole model: it names 'model\.safetensors'"):
        verify_model(pod, weights=False, trust=trust)
    (pod / INDEX).unlink()
    assert verify_model(pod, weights=False, trust=trust).state == "signed"


def test_files_outside_of_the_model_may_be_missing_when_it_is_loaded(release: Path, genuine: SignedRelease) -> None:
    """The audit wants it; a server does not."""
    shutil.rmtree(release / "lineage")
    (release / "report.html").unlink()

    assert verify_model(release / "model").release_digest == genuine.registered.release


def test_a_statement_of_another_model_is_refused(release: Path, genuine: SignedRelease, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEYS_VARIABLE, str(genuine.keys))
        other = make_release(tmp_path / "other", genuine.keys, first=0.25)
    shutil.copyfile(other.folder / PROVENANCE, release / PROVENANCE)

    with pytest.raises(AlteredError, match="not as in its release"):
        verify_model(release / "model", trust=genuine.keys / TRUST_FILE)


def test_a_release_signed_by_nobody_whose_signature_counts_is_refused(genuine: SignedRelease, tmp_path: Path) -> None:
    ensure_keys(tmp_path / "others")

    with pytest.raises(AlteredError, match="is not in the trust policy"):
        verify_model(genuine.folder / "model", trust=tmp_path / "others" / TRUST_FILE)


def alone(release: Path) -> Path:
    """A copy of the model without its release."""
    return shutil.copytree(release / "model", release.parent / "alone" / "model")


def renamed(release: Path) -> Path:
    return (release / "model").rename(release / "other")


def linked(release: Path) -> Path:
    path = release.parent / "elsewhere" / "model"
    path.parent.mkdir()
    path.symlink_to(release / "model")
    return path


def linked_beside_the_statement(release: Path) -> Path:
    (release / "model").rename(release.parent / "moved")
    (release / "model").symlink_to(release.parent / "moved")
    return release / "model"


def by_dots_at_the_end(release: Path) -> Path:
    (release / "model" / "sub").mkdir()
    return release / "model" / "sub" / ".."


UNPROVEN = [alone, renamed, linked, linked_beside_the_statement, by_dots_at_the_end]


@pytest.mark.parametrize("reached", UNPROVEN)
def test_where_a_signature_is_required_a_folder_outside_of_a_release_is_refused(
    release: Path, genuine: SignedRelease, reached: Callable[[Path], Path]
) -> None:
    folder = reached(release)

    with pytest.raises(AlteredError, match=r"a signature is required \(--trust\).* model/ "):
        verify_model(folder, trust=genuine.keys / TRUST_FILE)
    with pytest.raises(AlteredError, match="a signature is required"):
        verify_model(folder, weights=False, trust=genuine.keys / TRUST_FILE)


def statement_gone(release: Path) -> None:
    (release / PROVENANCE).unlink()


def statement_linked(release: Path) -> None:
    (release / PROVENANCE).rename(release.parent / "moved.json")
    (release / PROVENANCE).symlink_to(release.parent / "moved.json")


def statement_a_pipe(release: Path) -> None:
    (release / PROVENANCE).unlink()
    os.mkfifo(release / PROVENANCE)


def statement_empty(release: Path) -> None:
    (release / PROVENANCE).write_bytes(b"")


@pytest.mark.parametrize("spoil", [statement_linked, statement_a_pipe, statement_empty])
@pytest.mark.parametrize("required", [True, False])
def test_a_statement_that_is_no_plain_file_proves_nothing(
    release: Path, genuine: SignedRelease, spoil: Callable[[Path], None], required: bool
) -> None:
    """It is refused without a policy too: a folder beside something like a statement is not bare."""
    spoil(release)

    with pytest.raises((AlteredError, DataError), match="provenance"):
        verify_model(release / "model", trust=genuine.keys / TRUST_FILE if required else None)


def test_without_a_policy_a_folder_without_a_release_is_served_as_unproven(release: Path) -> None:
    for reached in (alone, linked):
        assert verify_model(reached(release)).state == "unproven"
    statement_gone(release)
    assert verify_model(release / "model").state == "unproven"


def test_other_ways_to_name_the_very_folder_prove_the_same(
    release: Path, genuine: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").symlink_to(release)
    monkeypatch.chdir(release / "model")

    for named in (".", "../model", "../lineage/../model", f"{release}/model/", f"{release}/model/.",
                  f"{tmp_path}/files/model"):  # fmt: skip
        assert verify_model(Path(named), trust=genuine.keys / TRUST_FILE).release_digest == genuine.registered.release


def with_subject(release: Path, change: Callable[[list[dict[str, object]]], object]) -> None:
    """The release's statement with other subjects, unsigned; without a policy signatures are not checked."""
    envelope = orjson.loads((release / PROVENANCE).read_bytes())
    statement = orjson.loads(b64decode(envelope["payload"]))
    change(statement["subject"])
    envelope["payload"] = b64encode(orjson.dumps(statement)).decode()
    (release / PROVENANCE).write_bytes(orjson.dumps(envelope))


@pytest.mark.parametrize("algorithm", ["md5", "sha1", "sha512", "sha3_512", "gitCommit", "SHA256", ""])
@pytest.mark.parametrize("name", ["model", "model/model.safetensors"])
def test_a_digest_of_another_algorithm_proves_nothing(release: Path, name: str, algorithm: str) -> None:
    def renamed(subjects: list[dict[str, object]]) -> None:
        [subject] = [subject for subject in subjects if subject["name"] == name]
        [digest] = dict(subject["digest"]).values()  # type: ignore[call-overload]
        subject["digest"] = {algorithm: digest}

    with_subject(release, renamed)

    with pytest.raises(AlteredError, match=f"{name}: its digest is called {algorithm}"):
        verify_model(release / "model")


def test_a_file_that_is_named_twice_is_refused(release: Path) -> None:
    with_subject(release, lambda subjects: subjects.append(subjects[0]))

    with pytest.raises(AlteredError, match="names a file twice"):
        verify_model(release / "model")
