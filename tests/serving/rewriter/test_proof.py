"""A server loads what its release says, to the byte, and asks it as it was trained."""

import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from qinglan import prompts
from qinglan.errors import Altered, DataError
from qinglan.lineage.digests import digest
from qinglan.lineage.keychain import ensure_keys
from qinglan.lineage.keys import VARIABLE
from qinglan.lineage.trust import TRUST
from qinglan.rewriter import RewriterCard, Student, write_card
from serving.rewriter.proof import prove
from tests.release_world import Made, make_release, use_keys
from tests.tiny import tiny_model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    with pytest.MonkeyPatch.context() as patch:
        keys = use_keys(tmp_path_factory.mktemp("keys"), patch)
        return make_release(tmp_path_factory.mktemp("made"), keys)


@pytest.fixture
def release(made: Made, tmp_path: Path) -> Path:
    """A copy that a test may spoil."""
    return shutil.copytree(made.folder, tmp_path / "release")


def test_a_release_is_named_by_the_digest_of_its_model_and_who_signed_it(made: Made) -> None:
    found = prove(made.folder / "model", weights=True, trust=made.keys / TRUST)

    assert found.version == digest(made.folder / "model")[:12]
    assert found.said == f"release fivedoctors/rewriter, its digests, signed by {made.registered.signed_by[:12]}"


@pytest.mark.parametrize(
    ("name", "said"),
    [("rewriter.json", "the prompts are not those of its release"), ("model.safetensors", "not as in its release")],
)
def test_one_changed_byte_is_refused_by_name(release: Path, name: str, said: str) -> None:
    path = release / "model" / name
    path.write_bytes(path.read_bytes().replace(b"0", b"1", 1) + b" ")

    with pytest.raises(Altered, match=said) as refused:
        prove(release / "model", weights=True)
    assert str(path) in str(refused.value)


def test_a_file_too_many_is_refused(release: Path) -> None:
    (release / "model" / "extra.json").write_text("{}")

    with pytest.raises(Altered, match=r"extra\.json.*says nothing of it"):
        prove(release / "model", weights=True)


def test_a_file_too_few_is_refused_but_merged_weights_before_a_vllm(release: Path, made: Made) -> None:
    (release / "model" / "model.safetensors").unlink()

    assert prove(release / "model", weights=False).version == digest(made.folder / "model")[:12]
    with pytest.raises(DataError, match=r"model\.safetensors: its release names it"):
        prove(release / "model", weights=True)
    (release / "model" / "tokenizer.json").unlink()
    with pytest.raises(DataError, match=r"tokenizer\.json: its release names it"):
        prove(release / "model", weights=False)


def test_a_release_signed_by_nobody_whose_signature_counts_is_refused(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "others"))
    ensure_keys(tmp_path / "others")

    with pytest.raises(Altered, match="is not in the trust policy"):
        prove(made.folder / "model", weights=True, trust=tmp_path / "others" / TRUST)


def test_a_bare_folder_is_named_by_its_digest_and_called_unproven(tmp_path: Path) -> None:
    write_card(tmp_path / "model", RewriterCard(stage="sft", system_prompts={"fivedoctors": "你是专家"}))

    found = prove(tmp_path / "model", weights=True)

    assert found.version == digest(tmp_path / "model")[:12]
    assert found.said.startswith("unproven")


def test_a_model_that_was_trained_with_other_prompts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its own text alone: the code's request and fields are in the digest too."""
    write_card(tmp_path, RewriterCard(stage="sft", system_prompts={"fivedoctors": "你是专家"}))
    monkeypatch.setattr(prompts, "STUDENT_ASKS", "请改写一下。")

    for load in (lambda: prove(tmp_path, weights=True), lambda: Student.load(tmp_path)):
        with pytest.raises(DataError, match=r"was trained with prompts .* Serve it with the code"):
            load()


def test_a_card_of_before_the_digest_still_loads(tmp_path: Path) -> None:
    (tmp_path / "rewriter.json").write_bytes(
        orjson.dumps({"stage": "sft", "system_prompts": {"fivedoctors": "你是专家"}})
    )

    assert prove(tmp_path, weights=True).card.prompts_sha256 == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "code", "said"),
    [
        ("", 3, "no such folder"), ("empty", 3, "by the sft or ppo stage"), ("config.json", 3, "no whole model"),
        ("model.safetensors", 3, "no whole model"), ("card", 3, "trained for no tenant"),
    ],
)  # fmt: skip
def test_without_its_model_it_ends_with_what_to_do(tmp_path: Path, spoil: str, code: int, said: str) -> None:
    folder = tmp_path / "model"
    if spoil == "empty":
        folder.mkdir()
    elif spoil:
        tiny_model(folder)
        if spoil == "card":
            write_card(folder, RewriterCard(stage="base"))
        else:
            (folder / spoil).write_bytes((folder / spoil).read_bytes()[:100])

    ended = subprocess.run(
        [sys.executable, "-m", "serving.rewriter", "--model", str(folder), "--port", "0"],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip

    assert (ended.returncode, said in ended.stderr) == (code, True), ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
