"""A server loads what its release says, to the byte; what has no release is called unproven."""

import os
import shutil
import time
from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from components.release.register.config import RegisterConfig
from components.release.register.stage import register
from qinglan.digests import digest
from qinglan.errors import AlteredError, ConfigError, DataError
from qinglan.lineage.keys import KEYS_VARIABLE
from qinglan.lineage.model_verification import refuse_changed, verify_model
from qinglan.lineage.release_folder import PROVENANCE
from qinglan.lineage.trust import TRUST_FILE, ensure_keys
from qinglan.rewriter.card import CARD
from qinglan.rewriter.model import Student
from tests.registered_release import NAME, Made, make_inputs, make_release, tiny_weights, use_keys
from tests.tiny_rewriter import tiny_model

INDEX = "model.safetensors.index.json"
Swap = Callable[[Path, bytes], object]


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


def test_merged_weights_may_stay_away_before_an_adapter_and_nothing_else_may(release: Path, made: Made) -> None:
    (release / "model/model.safetensors").unlink()

    assert verify_model(release / "model", weights=False).release_digest == made.registered.release
    with pytest.raises(DataError, match=r"model\.safetensors: its release names it"):
        verify_model(release / "model")
    (release / "model/tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: its release names it"):
        verify_model(release / "model", weights=False)


def test_an_index_without_its_weights_is_refused_before_an_adapter_too(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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


def test_files_outside_of_the_model_may_be_missing_when_it_is_loaded(release: Path, made: Made) -> None:
    """The audit wants it; a server does not."""
    shutil.rmtree(release / "lineage")
    (release / "report.html").unlink()

    assert verify_model(release / "model").release_digest == made.registered.release


def test_a_statement_of_another_model_is_refused(release: Path, made: Made, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(KEYS_VARIABLE, str(made.keys))
        other = make_release(tmp_path / "other", made.keys, first=0.25)
    shutil.copyfile(other.folder / PROVENANCE, release / PROVENANCE)

    with pytest.raises(AlteredError, match="not as in its release"):
        verify_model(release / "model", trust=made.keys / TRUST_FILE)


def test_a_release_signed_by_nobody_whose_signature_counts_is_refused(made: Made, tmp_path: Path) -> None:
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
    release: Path, made: Made, reached: Callable[[Path], Path]
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
    release: Path, made: Made, spoil: Callable[[Path], None], asked: bool
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
    release: Path, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "files").symlink_to(release)
    monkeypatch.chdir(release / "model")

    for named in (".", "../model", "../lineage/../model", f"{release}/model/", f"{release}/model/.",
                  f"{tmp_path}/files/model"):  # fmt: skip
        assert verify_model(Path(named), trust=made.keys / TRUST_FILE).release_digest == made.registered.release


def written_in_place(path: Path, other: bytes) -> None:
    """The same size, and the time set back, as an attacker would."""
    about = path.stat()
    with path.open("r+b") as file:
        file.write(other)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def replaced_by_rename(path: Path, other: bytes) -> None:
    about, fresh = path.stat(), path.with_name("fresh")
    fresh.write_bytes(other)
    os.utime(fresh, ns=(about.st_atime_ns, about.st_mtime_ns))
    fresh.replace(path)


def exchanged_and_put_back(path: Path, other: bytes) -> None:
    """The genuine file is back when the model is loaded."""
    kept = path.with_name("kept")
    path.rename(kept)
    path.write_bytes(other)
    kept.replace(path)


def written_and_put_back(path: Path, other: bytes) -> None:
    before = path.read_bytes()
    written_in_place(path, other)
    written_in_place(path, before)


def swapped_for_a_link(path: Path, other: bytes) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_bytes(other)
    path.unlink()
    path.symlink_to(elsewhere)


def swapped_for_a_hard_link(path: Path, other: bytes) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    elsewhere.write_bytes(other)
    path.unlink()
    path.hardlink_to(elsewhere)


def joined_by_another(path: Path, other: bytes) -> None:
    path.with_name("consolidated.safetensors").write_bytes(other)


def taken_out(path: Path, other: bytes) -> None:
    path.unlink()


SWAPS = (
    written_in_place, replaced_by_rename, exchanged_and_put_back, written_and_put_back, swapped_for_a_link,
    swapped_for_a_hard_link, joined_by_another, taken_out,
)  # fmt: skip


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "chat_template.jinja"])
@pytest.mark.parametrize("swap", SWAPS, ids=lambda swap: swap.__name__)
def test_what_is_loaded_is_what_was_compared(tmp_path: Path, swap: Swap, name: str) -> None:
    folder = tiny_weights(tmp_path / "model")
    proof = verify_model(folder)
    refuse_changed(folder, proof)
    time.sleep(0.02)  # the kernel's clock has steps of up to 10 ms
    path = folder / name

    swap(path, path.read_bytes()[::-1])

    with pytest.raises(AlteredError, match="changed while the model was being loaded"):
        refuse_changed(folder, proof)


@pytest.mark.slow
def test_a_server_whose_weights_are_exchanged_while_it_loads_serves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from serving.rewriter.config import ServerConfig
    from serving.rewriter.model import KServeRewriter

    model, other = tiny_model(tmp_path / "model"), tiny_model(tmp_path / "other", seed=2)
    load = Student.load

    def exchanged(folder: Path) -> Student:
        time.sleep(0.02)
        replaced_by_rename(folder / "model.safetensors", (other / "model.safetensors").read_bytes())
        return load(folder)

    monkeypatch.setattr(Student, "load", exchanged)
    server = KServeRewriter(ServerConfig(model=model))

    with pytest.raises(AlteredError, match="changed while the model was being loaded"):
        server.load()
    assert not server.ready


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
