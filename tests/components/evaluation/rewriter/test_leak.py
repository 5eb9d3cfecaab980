"""A locked question that training or selection saw stops the evaluation, however it is dressed."""

from pathlib import Path
from typing import Any

import orjson
import pytest

from components.evaluation.rewriter import leak
from qinglan.errors import DataError
from qinglan.files.digests import digest
from qinglan.files.files import sha256_file
from qinglan.rewriter.card import RewriterCard, write_card
from qinglan.rows.prompt_parquet import ParquetRows
from qinglan.rows.rows import ValidatedRewrite
from qinglan.rows.training_rows import ppo_row, sft_row
from tests.components.evaluation.rewriter.sample_evaluation import PRODUCTS, locked_row

TEST = [locked_row("s", "fivedoctors", product, turn) for product in PRODUCTS for turn in (1, 2)]
OTHER = locked_row("s", "fivedoctors", "蓝莓软胶囊", 1)


def write_training(folder: Path, sft: list[ValidatedRewrite], ppo: list[ValidatedRewrite]) -> dict[str, Path]:
    """As the convert stage writes them; the rows are in the last file that is read of each."""
    for kind in ("sft", "ppo"):
        (folder / kind).mkdir()
    for split in ("train", "dev"):
        chats = [sft_row(row, "train", 1.0) for row in (sft if split == "dev" else [OTHER])]
        (folder / f"sft/{split}.jsonl").write_bytes(b"".join(orjson.dumps(chat) + b"\n" for chat in chats))
        with ParquetRows(folder / f"ppo/{split}.parquet") as add:
            for row in ppo if split == "dev" else [OTHER]:
                add.add(ppo_row(row, "train"))
    return {"sft": folder / "sft", "ppo": folder / "ppo"}


def test_a_clean_test_passes_and_says_how_many_rows_it_was_compared_with(tmp_path: Path) -> None:
    leaks = leak.check(TEST, write_training(tmp_path, [OTHER], [OTHER, OTHER]), 0.8)

    clean = {"same": 0, "alike": 0, "examples": []}
    assert leaks == {"threshold": 0.8, "parts": {"sft": {"rows": 2, **clean}, "ppo": {"rows": 3, **clean}}}


@pytest.mark.parametrize("where", ["sft", "ppo"])
@pytest.mark.parametrize(
    "dressed",
    [
        {},
        {"id": "another"},
        {"id": "another", "question": " 要放冰箱吗？？", "user_profile": "另一个人"},
        {"id": "another", "history_summary": "客服已介绍，鱼油软胶囊。"},
        {"id": "another", "conversation_id": "elsewhere"},
    ],
)
def test_a_seen_question_is_found_by_its_content(tmp_path: Path, where: str, dressed: dict[str, Any]) -> None:
    observed = TEST[2].model_copy(update=dressed)
    rows = {"sft": [OTHER], "ppo": [OTHER], where: [observed]}

    with pytest.raises(DataError, match=rf"1 rows .* test row {TEST[2].id} is dev\..*:1 \(row {observed.id}\)"):
        leak.check(TEST, write_training(tmp_path, rows["sft"], rows["ppo"]), 0.8)


def test_the_same_words_about_another_product_are_no_leak(tmp_path: Path) -> None:
    other = TEST[2].model_copy(update={"id": "another", "history_summary": "客服已介绍蓝莓软胶囊"})

    leaks = leak.check(TEST, write_training(tmp_path, [other], [other]), 0.8)

    assert [(part["same"], part["alike"]) for part in leaks["parts"].values()] == [(0, 0), (0, 0)]


BOILERPLATE = "欢迎光临本店。\n本店支持七天无理由退换。\n活动期间满三百减四十，详询客服。\n"
LONG = TEST[2].model_copy(
    update={
        "id": "long",
        "question": "那它一天吃几次",
        "history_summary": "客服已介绍虾青素软胶囊，已解答防伪溯源查询方法",
    }
)


@pytest.mark.parametrize("where", ["sft", "ppo"])
@pytest.mark.parametrize(
    "dressed",
    [
        {"question": "那它一天吃几回"},
        {"question": "那它一天吃几次啊？"},
        {"question": "请问：那它一天吃几次"},
        {"history_summary": "客服已介绍虾青素软胶囊，已解答　防伪溯源查询方法了"},
        {"history_summary": f"{BOILERPLATE}{LONG.history_summary}"},
        {"history_summary": f"{LONG.history_summary}{BOILERPLATE}"},
        {"history_summary": ""},
        {
            "question": "那它一天吃幾次",
            "history_summary": f"{BOILERPLATE}客服已介紹蝦青素軟膠囊，已解答防偽溯源查詢方法",
        },
        {"question": "请问那它每天服用多少次呢，谢谢"},
    ],
)
def test_a_row_that_is_nearly_a_test_row_is_counted_by_name_and_without_its_text(
    tmp_path: Path, where: str, dressed: dict[str, Any]
) -> None:
    rows = {"sft": [OTHER], "ppo": [OTHER], where: [LONG.model_copy(update={"id": "x", **dressed})]}

    leaks = leak.check([*TEST, LONG], write_training(tmp_path, rows["sft"], rows["ppo"]), 0.8)

    result = leaks["parts"][where]
    assert (result["same"], result["alike"], result["examples"][0]["test"]) == (0, 1, "long")
    assert "(row x)" in result["examples"][0]["learned"]
    assert sum(part["alike"] for part in leaks["parts"].values()) == 1
    assert "虾青素" not in str(leaks)


@pytest.mark.parametrize("history", ["", BOILERPLATE, "客服已介绍鱼油软胶囊"])
def test_a_complete_test_question_is_seen_after_any_history(tmp_path: Path, history: str) -> None:
    question = "虾青素软胶囊一天要吃几次才有效"
    complete = LONG.model_copy(update={"question": question, "need": question})
    in_pieces = complete.model_copy(update={"need": "虾青素软胶囊给孩子吃，一天要吃几次才有效，饭前还是饭后"})
    observed = complete.model_copy(update={"id": "x", "history_summary": history})
    training = write_training(tmp_path, [observed], [OTHER])

    assert leak.check([*TEST, complete], training, 0.8)["parts"]["sft"]["alike"] == 1
    assert leak.check([*TEST, in_pieces], training, 0.8)["parts"]["sft"]["alike"] == (history == "")


def model(folder: Path, rows: Path, **more: str) -> Path:
    """A model's card as training leaves it."""
    folder.mkdir()
    parents = {path.stem: sha256_file(path) for path in rows.iterdir()}
    write_card(folder, RewriterCard(stage="sft", system_prompts={}, max_new_tokens=8, parents=parents | more))
    return folder


def check(models: dict[str, Path], training: dict[str, Path]) -> dict[str, dict[str, str]]:
    return leak.check_parents(models, {name: digest(folder) for name, folder in models.items()}, training)


def test_models_must_have_learned_from_the_very_rows_that_were_compared(tmp_path: Path) -> None:
    training = write_training(tmp_path, [OTHER], [OTHER])
    sft = model(tmp_path / "a", training["sft"])
    rl = model(tmp_path / "b", training["ppo"], sft_model=digest(sft))

    named = check({"sft": sft, "rl": rl}, training)
    assert named["rl"]["sft_model"] == digest(sft) and named["sft"]["dev"] == sha256_file(
        training["sft"] / "dev.jsonl"
    )
    with pytest.raises(DataError, match="rl: its card names train rows"):
        check({"sft": sft, "rl": rl}, {"sft": training["sft"]})
    with pytest.raises(DataError, match="from another SFT model"):
        check({"sft": model(tmp_path / "c", training["sft"], more="x"), "rl": rl}, training)
    (training["sft"] / "train.jsonl").write_bytes(b"{}\n")
    with pytest.raises(DataError, match="sft: its card names train rows"):
        check({"sft": sft}, training)


def test_without_every_training_file_nobody_can_tell(tmp_path: Path) -> None:
    folders = write_training(tmp_path, [OTHER], [OTHER])
    (folders["ppo"] / "dev.parquet").unlink()

    with pytest.raises(DataError, match=r"dev\.parquet: not there"):
        leak.check(TEST, folders, 0.8)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"not json", "no chat with a user turn"),
        (b'{"messages": [{"role": "system", "content": "x"}]}', "no chat with a user turn"),
        (b'{"messages": [{"role": "user", "content": "free text"}]}', "has no line"),
    ],
)
def test_a_training_row_that_cannot_be_compared_is_an_error(line: bytes, reason: str) -> None:
    with pytest.raises(DataError, match=rf"train\.jsonl:3: .*{reason}"):
        leak.parse_chat_question(line, "train.jsonl:3")
