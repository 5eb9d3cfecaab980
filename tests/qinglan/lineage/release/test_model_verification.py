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
from qinglan.errors import AlteredError, ConfigError, DataError
from qinglan.files.digests import digest
from qinglan.lineage.release.model_verification import verify_model
from qinglan.lineage.signing.keys import KEYS_VARIABLE
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys
from qinglan.lineage.trace.release_folder import PROVENANCE
from qinglan.rewriter.card import CARD
from tests.releases.registered_release import NAME, SignedRelease, make_inputs, make_release, tiny_weights

INDEX = "model.safetensors.index.json"


def test_a_release_is_named_by_its_digests_and_who_signed_it(made: SignedRelease) -> None:
    proof = verify_model(made.folder / "model", trust=made.keys / TRUST_FILE)

    assert proof.state == "signed" and proof.name == "fivedoctors/rewriter"
    assert proof.model_digest == digest(made.folder / "model") == made.registered.model
    assert proof.release_digest == digest(made.folder) == made.registered.release
    assert proof.prompts_digest == digest(made.folder / "model" / CARD)
    assert proof.version == made.registered.model[:12]
    assert proof.summary == (
        f"release fivedoctors/rewriter {made.registered.release[:12]}, its digests, signed by "
        f"{made.registered.signed_by[:12]}"
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [("rewriter.json", "the prompts are not those of its release"), ("model.safetensors", "not as in its release")],
)
def test_a_changed_byte_of_the_model_is_refused_by_file_name(release: Path, name: str, said: str) -> None:
    path = release / "model" / name
    path.write_bytes(path.read_bytes()[:-1] + b"!")

    with pytest.raises(AlteredError, match=said) as refused:
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
    release: Path, made: SignedRelease
) -> None:
    (release / "model/model.safetensors").unlink()

    assert verify_model(release / "model", weights=False).release_digest == made.registered.release
    with pytest.raises(DataError, match=r"model\.safetensors: its release names it"):
        verify_model(release / "model")
    (release / "model/tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: its release names it"):
        verify_model(release / "model", weights=False)


def test_an_index_without_its_weights_is_refused_before_an_adapter_too(
    made: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a node has it where somebody laid the index there and the merged weights stayed in the store."""
    monkeypatch.setenv(KEYS_VARIABLE, str(made.keys))
    model = tiny_weights(tmp_path / "rl_model")
    (model / INDEX).write_text('{"metadata": {}, "weight_map": {"embed": "model.safetensors"}}')
    register(make_inputs(tmp_path, model), tmp_path / "release", RegisterConfig(name=NAME))
    pod, trust = tmp_path / "release/model", made.keys / TRUST_FILE
    assert verify_model(pod, trust=trust).state == "signed"

    (pod / "model.safetensors").unlink()
    with pytest.raises(AlteredError, match=r"index\.json: no whole model: it names 'model\.safetensors'"):
        verify_model(pod, weights=False, trust=trust)
    (pod / INDEX).unlink()
    assert verify_model(pod, weights=False, trust=trust).state == "signed"


def test_files_outside_of_the_model_may_be_missing_when_it_is_loaded(release: Path, made: SignedRelease) -> None:
    """The audit wants it; a server does not."""
    shutil.rmtree(release / "lineage")
    (release / "report.html").unlink()

    assert verify_model(release / "model").release_digest == made.registered.release


def test_a_statement_of_another_model_is_refused(release: Path, made: SignedRelease, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEYS_VARIABLE, str(made.keys))
        other = make_release(tmp_path / "other", made.keys, first=0.25)
    shutil.copyfile(other.folder / PROVENANCE, release / PROVENANCE)

    with pytest.raises(AlteredError, match="not as in its release"):
        verify_model(release / "model", trust=made.keys / TRUST_FILE)


def test_a_release_signed_by_nobody_whose_signature_counts_is_refused(made: SignedRelease, tmp_path: Path) -> None:
    ensure_keys(tmp_path / "others")

    with pytest.raises(AlteredError, match="is not in the trust policy"):
        verify_model(made.folder / "model", trust=tmp_path / "others" / TRUST_FILE)


def test_a_bare_folder_is_named_by_its_digest_and_called_unproven(tmp_path: Path) -> None:
    folder = tiny_weights(tmp_path / "model")

    proof = verify_model(folder)

    assert (proof.state, proof.model_digest) == ("unproven", digest(folder))
    assert proof.summary.startswith("unproven")


def alone(release: Path) -> Path:
    """A copy of the model without its release."""
    return shutil.copytree(release / "model", release.parent / "alone" / "model")


def renamed(release: Path) -> Path:
    return (release / "model").rename(release / "other")


def copied(release: Path) -> Path:
    return shutil.copytree(release / "model", release / "other")


def linked(release: Path) -> Path:
    path = release.parent / "elsewhere" / "model"
    path.parent.mkdir()
    path.symlink_to(release / "model")
    return path


def linked_beside_the_statement(release: Path) -> Path:
    (release / "model").rename(release.parent / "moved")
    (release / "model").symlink_to(release.parent / "moved")
    return release / "model"


def by_dots(release: Path) -> Path:
    copied(release)
    return release / "model" / ".." / "other"


def by_dots_to_the_release(release: Path) -> Path:
    return release / "model" / ".."


def by_dots_at_the_end(release: Path) -> Path:
    (release / "model" / "sub").mkdir()
    return release / "model" / "sub" / ".."


def the_release_itself(release: Path) -> Path:
    return release


UNPROVEN = [
    alone, renamed, copied, linked, linked_beside_the_statement, by_dots, by_dots_to_the_release, by_dots_at_the_end,
    the_release_itself,
]  # fmt: skip


@pytest.mark.parametrize("reached", UNPROVEN)
def test_where_a_signature_is_required_a_folder_outside_of_a_release_is_refused(
    release: Path, made: SignedRelease, reached: Callable[[Path], Path]
) -> None:
    folder = reached(release)

    with pytest.raises(
        AlteredError, match=r"a signature is required \(--trust\).* Name the folder model/ inside of a"
    ):
        verify_model(folder, trust=made.keys / TRUST_FILE)
    with pytest.raises(AlteredError, match="a signature is required"):
        verify_model(folder, weights=False, trust=made.keys / TRUST_FILE)


def statement_gone(release: Path) -> None:
    (release / PROVENANCE).unlink()


def statement_linked(release: Path) -> None:
    (release / PROVENANCE).rename(release.parent / "moved.json")
    (release / PROVENANCE).symlink_to(release.parent / "moved.json")


def statement_linked_to_nothing(release: Path) -> None:
    (release / PROVENANCE).unlink()
    (release / PROVENANCE).symlink_to(release.parent / "nothing.json")


def statement_a_pipe(release: Path) -> None:
    (release / PROVENANCE).unlink()
    os.mkfifo(release / PROVENANCE)


def statement_a_folder(release: Path) -> None:
    (release / PROVENANCE).unlink()
    (release / PROVENANCE).mkdir()


def statement_empty(release: Path) -> None:
    (release / PROVENANCE).write_bytes(b"")


@pytest.mark.parametrize(
    "spoil", [statement_linked, statement_linked_to_nothing, statement_a_pipe, statement_a_folder, statement_empty]
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_statement_that_is_no_plain_file_proves_nothing(
    release: Path, made: SignedRelease, spoil: Callable[[Path], None], asked: bool
) -> None:
    """What only looks like a release's statement is refused without a policy too: it is no bare folder."""
    spoil(release)

    with pytest.raises((AlteredError, DataError), match="provenance"):
        verify_model(release / "model", trust=made.keys / TRUST_FILE if asked else None)


def test_without_a_policy_a_folder_without_a_release_is_served_as_unproven(release: Path) -> None:
    for reached in (alone, linked):
        assert verify_model(reached(release)).state == "unproven"
    statement_gone(release)
    assert verify_model(release / "model").state == "unproven"


def test_a_policy_that_is_not_there_is_said(release: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no trust policy"):
        verify_model(release / "model", trust=tmp_path / "none.yaml")


def test_other_ways_to_name_the_very_folder_prove_the_same(
    release: Path, made: SignedRelease, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").symlink_to(release)
    monkeypatch.chdir(release / "model")

    for named in (".", "../model", "../lineage/../model", f"{release}/model/", f"{release}/model/.",
                  f"{tmp_path}/files/model"):  # fmt: skip
        assert verify_model(Path(named), trust=made.keys / TRUST_FILE).release_digest == made.registered.release


def with_subject(release: Path, change: Callable[[list[dict[str, object]]], object]) -> None:
    """The release's statement with other subjects; nobody signed it, and without a policy nobody asks."""
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
