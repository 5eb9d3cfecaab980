"""A model is asked as it was trained. (Its bytes: tests/qinglan/lineage/release/test_model_verification.py.)"""

import subprocess
from pathlib import Path

import orjson
import pytest

from qinglan import prompts
from qinglan.errors import DataError
from qinglan.lineage.signing.trust import TRUST_FILE, ensure_keys
from qinglan.rewriter.card import RewriterCard, read_card, refuse_other_prompts, write_card
from qinglan.rewriter.model import Student
from tests.models.tiny_rewriter import tiny_model
from tests.processes.forkserver import forked


def test_a_model_that_was_trained_with_other_prompts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its own text alone: the code's request and fields are in the digest too."""
    write_card(tmp_path, RewriterCard(stage="sft", system_prompts={"fivedoctors": "你是专家"}))
    monkeypatch.setattr(prompts, "CHINESE", prompts.CHINESE._replace(student="请改写一下。"))

    for load in (lambda: refuse_other_prompts(tmp_path, read_card(tmp_path)), lambda: Student.load(tmp_path)):
        with pytest.raises(DataError, match=r"was trained with prompts .* Serve it with the code"):
            load()


def test_a_card_without_the_digest_of_its_prompts_is_refused(tmp_path: Path) -> None:
    """Else an emptied digest lets any prompts pass, another tenant's too."""
    card = {
        "stage": "sft",
        "system_prompts": {"fivedoctors": "你是专家", "chengla": "你是老师"},
        "prompts_sha256": "",
    }
    (tmp_path / "rewriter.json").write_bytes(orjson.dumps(card))

    for load in (lambda: refuse_other_prompts(tmp_path, read_card(tmp_path)), lambda: Student.load(tmp_path)):
        with pytest.raises(DataError, match="does not say with which prompts"):
            load()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "code", "message"),
    [
        ("", 3, "no such folder"), ("empty", 3, "by the sft or ppo stage"), ("config.json", 3, "no whole model"),
        ("model.safetensors", 3, "no whole model"), ("card", 3, "trained for no tenant"),
    ],
)  # fmt: skip
def test_without_its_model_it_ends_with_what_to_do(tmp_path: Path, spoil: str, code: int, message: str) -> None:
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
        forked("serving.rewriter", "--model", str(folder), "--port", "0"),
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip

    assert (ended.returncode, message in ended.stderr) == (code, True), ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""


@pytest.mark.slow
def test_where_a_signature_is_asked_for_a_bare_folder_ends_it(tmp_path: Path) -> None:
    """A model without its release is served as unproven, and never under --trust."""
    folder = tiny_model(tmp_path / "model")
    ensure_keys(tmp_path / "keys")

    ended = subprocess.run(
        forked(
            "serving.rewriter", "--model", str(folder), "--port", "0", "--trust", str(tmp_path / "keys" / TRUST_FILE)
        ),
        capture_output=True,
        text=True,
        timeout=180,
    )

    assert (ended.returncode, ended.stdout) == (8, ""), ended.stderr
    assert f"{folder}: a signature is required (--trust)" in ended.stderr and "Traceback" not in ended.stderr
