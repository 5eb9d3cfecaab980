"""A model is asked as it was trained. (Its bytes: tests/qinglan/lineage/release/test_model_verification.py.)"""

from pathlib import Path

import orjson
import pytest

from qinglan import prompts
from qinglan.errors import DataError
from qinglan.rewriter.card import RewriterCard, read_card, refuse_other_prompts, write_card
from qinglan.rewriter.model import Student


def test_a_model_that_was_trained_with_other_prompts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its own text alone: the code's request and fields are in the digest too."""
    write_card(tmp_path, RewriterCard(stage="sft", system_prompts={"fivedoctors": "你是专家"}))
    changed = prompts.CHINESE._replace(student="请改写一下。")
    monkeypatch.setattr(prompts, "words_of", lambda system: changed)

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
