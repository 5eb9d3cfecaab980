"""Which prompts verl gets: what fits, the hard ones' share, and errors that say where."""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.training.ppo.prompt_rows import LEFT_OUT, is_hard, oversample_hard, prepare_prompts
from qinglan.errors import DataError
from qinglan.files.files import read_jsonl
from qinglan.prompts import student_messages
from qinglan.rewriter.model import fit_prompt
from qinglan.rows.prompt_parquet import ParquetRows, read_prompts
from qinglan.rows.rows import QuarantinedRow, Question
from qinglan.rows.training_rows import ppo_row
from tests.models.ppo_world import laptop, validated, write_rows
from tests.models.tiny_rewriter import SYSTEM, tiny_model


@pytest.mark.slow
@given(st.lists(st.booleans(), min_size=1, max_size=80), st.floats(0, 1), st.integers(0, 9))
def test_a_share_of_hard_rows_keeps_the_number_of_rows(hard: list[bool], share: float, seed: int) -> None:
    chosen = oversample_hard(hard, share, seed)

    assert len(chosen) == len(hard)
    if share and len(set(hard)) == 2:
        assert sum(hard[at] for at in chosen) == round(share * len(hard))
        for kind in (True, False):
            repeats = [Counter(chosen)[at] for at, flag in enumerate(hard) if flag == kind]
            assert max(repeats) - min(repeats) <= 1
    else:
        assert chosen == list(range(len(hard)))


@pytest.mark.parametrize(
    ("gold", "rank", "accepted", "hard"),
    [(["k1"], 1, False, False), (["k1"], 2, True, True), (["k1"], None, True, True), ([], None, True, False),
     ([], None, False, True)],
)  # fmt: skip
def test_a_row_is_hard_where_the_teacher_misses(
    gold: list[str], rank: int | None, accepted: bool, hard: bool
) -> None:
    row = {"gold": gold, "teacher_retrieval": {"gold_rank": rank}, "accepted": accepted}

    assert is_hard(row) == hard


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tiny_model(tmp_path_factory.mktemp("model")))


def test_verl_gets_half_hard_rows_in_the_schema_of_the_convert_stage(tmp_path: Path, tokenizer: Any) -> None:
    import pyarrow.parquet

    rows = write_rows(tmp_path / "rows", train=32, hard=4)

    prompts = prepare_prompts(rows, tmp_path, tokenizer, laptop(max_prompt_tokens=200))

    written = pyarrow.parquet.read_table(tmp_path / "train.parquet")
    assert written.schema == pyarrow.parquet.read_schema(rows / "train.parquet")
    ranks = [row["teacher_retrieval"]["gold_rank"] for row in written["extra_info"].to_pylist()]
    assert (ranks.count(None), len(ranks), prompts.hard) == (16, 32, 4)
    assert prompts.dev_by_tenant == {"qinglan/fivedoctors": 8}


def test_questions_from_passages_leave_with_the_other_further_rows(tmp_path: Path, tokenizer: Any) -> None:
    rows = write_rows(tmp_path / "rows", train=32)
    with ParquetRows(tmp_path / "more" / "train.parquet") as file:
        for row in read_prompts(rows / "train.parquet"):
            file.add(row)
        file.add(ppo_row(validated(99, "train"), "train", SYSTEM, kind="pseudo"))
    shutil.copyfile(rows / "dev.parquet", tmp_path / "more" / "dev.parquet")
    config = laptop(max_prompt_tokens=200, hard_share=0)

    counts = [
        prepare_prompts(tmp_path / "more", tmp_path, tokenizer, config, further).train for further in (True, False)
    ]

    assert counts == [33, 32]


def test_the_longest_prompt_that_stays_is_what_all_are_padded_to(tmp_path: Path, tokenizer: Any) -> None:
    rows = write_rows(tmp_path / "rows", train=32)

    longest = prepare_prompts(rows, tmp_path, tokenizer, laptop(max_prompt_tokens=200)).longest

    assert longest < 200
    fitting = prepare_prompts(rows, tmp_path, tokenizer, laptop(max_prompt_tokens=longest))
    assert (fitting.trimmed, fitting.too_long) == (0, 0)
    with pytest.raises(DataError, match="10 prompts are fewer"):
        prepare_prompts(rows, tmp_path, tokenizer, laptop(max_prompt_tokens=bare_tokens(tokenizer, 1)))


def bare_tokens(tokenizer: Any, number: int) -> int:
    """Tokens of a row's prompt without its history."""
    row = validated(number, "train", history_summary="")
    return fit_prompt(tokenizer, student_messages(row, SYSTEM), 1000).tokens


def test_a_long_history_loses_its_oldest_turns_and_the_row_stays(tmp_path: Path, tokenizer: Any) -> None:
    import pyarrow.parquet

    rows = write_rows(tmp_path / "rows", train=32)
    longest = prepare_prompts(rows, tmp_path, tokenizer, laptop(max_prompt_tokens=200)).longest

    prompts = prepare_prompts(rows, tmp_path, tokenizer, laptop(max_prompt_tokens=longest - 1))

    assert (prompts.train, prompts.too_long) == (32, 0) and prompts.trimmed > 0 and prompts.longest < longest
    for row in pyarrow.parquet.read_table(tmp_path / "train.parquet").to_pylist():
        info = Question.model_validate({name: row["extra_info"][name] for name in Question.model_fields})
        served = fit_prompt(tokenizer, student_messages(info, SYSTEM), longest - 1)
        assert row["prompt"] == served.messages and row["extra_info"]["history_summary"] == info.history_summary != ""


def test_prompts_that_verl_does_not_get_are_listed_with_their_figures(tmp_path: Path, tokenizer: Any) -> None:
    rows = write_rows(tmp_path / "rows", train=32)
    allowed = bare_tokens(tokenizer, 1)

    config = laptop(max_prompt_tokens=allowed, collection=8, batch=8, dev_rows=2)
    prompts = prepare_prompts(rows, tmp_path, tokenizer, config)

    left_out = [row for _, row in read_jsonl(tmp_path / "log" / LEFT_OUT, QuarantinedRow)]
    reasons = Counter(row.reason for row in left_out)
    written_ids = {info["id"] for name in ("train", "dev") for info in read_infos(tmp_path / f"{name}.parquet")}
    every = {info["id"] for name in ("train", "dev") for info in read_infos(rows / f"{name}.parquet")}
    assert reasons["prompt_too_long"] == prompts.too_long > 0 and reasons["not_drawn"] > 0
    assert written_ids.isdisjoint(row.id for row in left_out) and written_ids | {row.id for row in left_out} == every
    detail = f"{allowed + 1} tokens without any history, ppo.max_prompt_tokens allows {allowed}"
    assert detail in left_out[0].detail


def read_infos(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    infos: list[dict[str, Any]] = pyarrow.parquet.read_table(path)["extra_info"].to_pylist()
    return infos


@pytest.mark.parametrize(
    ("train", "changes", "message"),
    [
        (32, {"max_prompt_tokens": 5}, "max_prompt_tokens"),
        (10, {"max_prompt_tokens": 200}, "10 prompts are fewer than the 16"),
        (0, {}, r"train\.parquet: no rows"),
        (
            32,
            {"reward": {"retrieval": {"kb_name": "other"}}},
            r"was validated with retrieval .*default.* this training .*other",
        ),
    ],
)
def test_rows_that_no_step_can_take_are_refused_before_verl_starts(
    tmp_path: Path, tokenizer: Any, train: int, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        prepare_prompts(write_rows(tmp_path / "rows", train=train), tmp_path, tokenizer, laptop(**changes))


def test_a_tokenizer_without_ids_is_an_error(tmp_path: Path, tokenizer: Any) -> None:
    class Silent:
        apply_chat_template = tokenizer.apply_chat_template
        decode = tokenizer.decode

        def __call__(self, text: str, add_special_tokens: bool) -> Any:
            return type("Encoding", (), {"input_ids": []})

    with pytest.raises(DataError, match="0 ids"):
        prepare_prompts(write_rows(tmp_path / "rows"), tmp_path, Silent(), laptop())
