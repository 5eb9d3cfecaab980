"""The weights that training starts from: made from the knowledge base alone, once, or taken from a hub or folder."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from components.training.base.config import BaseConfig, TinyConfig
from components.training.base.corpus import TrainingText, build_corpus
from components.training.base.pretrain import IGNORED, LONGEST, batches, examples, logits_at
from components.training.base.stage import base, text_base
from components.training.base.tokenizer import train_tokenizer
from qinglan.errors import ConfigError, DataError
from qinglan.files.digests import digest
from qinglan.files.files import sha256_file
from qinglan.prompts import Message
from qinglan.rag.contract import Passage
from qinglan.rewriter.card import read_card
from qinglan.rewriter.model import Student
from qinglan.rows.prompt_parquet import ParquetRows
from qinglan.rows.training_rows import ppo_row
from tests.models.ppo_world import validated
from tests.models.tiny_rewriter import SYSTEM, TEXTS, tiny_model
from tests.models.training_rows import knowledge_base

SMALL = BaseConfig(source="tiny", tiny=TinyConfig(hidden=16, layers=1, heads=2, steps=2, batch=4))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    with ParquetRows(tmp_path / "prompts" / "train.parquet") as rows:
        for number in range(6):
            rows.add(ppo_row(validated(number, "train"), "train"))
    return tmp_path / "prompts"


@pytest.mark.slow
@given(st.text())
@settings(max_examples=200)
def test_the_tokenizer_loses_no_character(text: str) -> None:
    tokenizer = tiny_tokenizer()

    ids = tokenizer(text, add_special_tokens=False).input_ids

    assert tokenizer.decode(ids) == text.replace("\ud800", "")


@cache
def tiny_tokenizer() -> Any:
    """The tokenizer of all examples, made when the first of them asks for it: it imports transformers."""
    return train_tokenizer(TEXTS, TinyConfig(vocabulary=600))


def test_the_pretraining_corpus_comes_from_the_knowledge_base_alone(tmp_path: Path) -> None:
    passages = [Passage(id="k", title="虾青素软胶囊 用法", content="每日一次，随餐服用。常见问法：一天吃几次。")]
    letters = set("虾青素软胶囊用法每日一次随餐服用常见问法一天吃几次")

    texts = build_corpus(SYSTEM, passages, seed=3)

    assert len(texts) == 4
    for text in texts[1:]:
        prompt_lines = text.prompt[1]["content"].split("\n")
        assert {letter for line in prompt_lines[:3] for letter in line.split(": ")[1] if letter.isalpha()} <= letters
        assert text.answer.startswith("虾青素软胶囊 ")
    assert build_corpus(SYSTEM, passages, seed=3) == texts != build_corpus(SYSTEM, passages, seed=4)


def test_a_tenant_without_prompt_files_is_taught_under_the_prompt_that_convert_rendered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: set[str] = set()

    def pretrain(model: Any, tokenizer: Any, texts: list[TrainingText], config: BaseConfig) -> float:
        shown.update(text.prompt[0]["content"] for text in texts if text.prompt)
        return 0.0

    monkeypatch.setattr("components.training.base.pretrain.pretrain", pretrain)
    with ParquetRows(tmp_path / "prompts" / "train.parquet") as rows:
        for tenant in ("acme", "beta"):
            rows.add(ppo_row(validated(1, "train", tenant_id=tenant), "train", f"你为{tenant}改写"))
    (tmp_path / "kb").mkdir()
    for tenant in ("acme", "beta"):
        knowledge_base(tmp_path / "kb" / f"{tenant}.jsonl", 12)

    base(tmp_path / "kb", tmp_path / "prompts", tmp_path / "model", SMALL)

    assert shown == {"你为acme改写", "你为beta改写"}


@pytest.mark.slow
def test_base_weights_are_made_once_for_the_same_texts(prompts: Path, tmp_path: Path) -> None:
    passages = knowledge_base(tmp_path / "kb.jsonl", 12)

    first = base(passages, prompts, tmp_path / "a", SMALL)
    again = base(passages, prompts, tmp_path / "b", SMALL)
    other = base(knowledge_base(tmp_path / "kb2.jsonl", 13), prompts, tmp_path / "c", SMALL)

    assert (first.cached, again.cached, other.cached) == (0, 1, 0)
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest(tmp_path / "c")
    assert first.steps == 2 and first.parameters > 0
    assert read_card(tmp_path / "a").parents["kb.jsonl"]


def rewritten(prompts: Path, folder: Path, text: str = "") -> Path:
    """The prompts as another version of the library would write them; the first question may be another."""
    rows = pyarrow.parquet.read_table(prompts / "train.parquet").to_pylist()
    if text:
        rows[0]["prompt"][-1]["content"] += text
    table = pyarrow.Table.from_pylist(
        [row | {"reward_model": {"ground_truth": "of no interest here"}} for row in rows]
    )
    folder.mkdir()
    pyarrow.parquet.write_table(table, folder / "train.parquet", compression="zstd", version="2.4")
    assert (folder / "train.parquet").read_bytes() != (prompts / "train.parquet").read_bytes()
    return folder


@pytest.mark.parametrize(("text", "cached"), [("", 1), ("。", 0), (" ", 0)])
def test_base_weights_are_known_again_by_the_prompts_and_not_by_their_files_bytes(
    prompts: Path, tmp_path: Path, text: str, cached: int
) -> None:
    """A parquet names the library that wrote it: on another machine the same prompts made the base anew."""
    passages, again = knowledge_base(tmp_path / "kb.jsonl", 12), rewritten(prompts, tmp_path / "again", text)
    base(passages, prompts, tmp_path / "a", SMALL)

    assert base(passages, again, tmp_path / "b", SMALL).cached == cached
    assert read_card(tmp_path / "b").parents["train.parquet"] == sha256_file(again / "train.parquet")


def test_the_same_texts_make_the_same_bytes_with_any_number_of_threads(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passages = knowledge_base(tmp_path / "kb.jsonl", 12)
    torch.set_num_threads(1)
    base(passages, prompts, tmp_path / "a", SMALL)
    monkeypatch.setenv("QINGLAN_CACHE", str(tmp_path / "another"))

    torch.set_num_threads(2)
    assert base(passages, prompts, tmp_path / "b", SMALL).cached == 0

    assert digest(tmp_path / "a") == digest(tmp_path / "b")
    assert torch.get_num_threads() == 2, "whoever calls keeps the number of threads that it had"


def test_a_step_costs_as_much_as_its_tokens_however_long_a_passage_is() -> None:
    page, line = TrainingText((), "每日服用频次" * 400), TrainingText((), "虾青素软胶囊 每日服用频次")

    cut = examples(tiny_tokenizer(), [page, line, line, line] * 64, seed=0)
    lengths = [len(example.ids) for example in cut]
    steps = [group for _, step in zip(range(40), batches(lengths, 64, seed=0), strict=False) for group in step]
    padded = sum(len(group) * max(lengths[number] for number in group) for group in steps)

    assert max(lengths) == LONGEST and len(set(lengths)) == 2
    assert padded / sum(lengths[number] for group in steps for number in group) < 1.1


def test_of_a_long_text_the_seed_draws_a_piece_and_of_a_long_prompt_the_end_stays() -> None:
    message: Message = {"role": "user", "content": "用户正在了解虾青素" * 100}
    texts = [TrainingText((), "".join(map(chr, range(0x4E00, 0x4F00)))), TrainingText((message,), "虾青素")]

    [passage, chat], [other, _], [again, _] = (examples(tiny_tokenizer(), texts, seed) for seed in (1, 2, 1))

    assert passage == again != other
    assert passage.labels == passage.ids
    assert tiny_tokenizer().decode([label for label in chat.labels if label != IGNORED]) == "虾青素<|im_end|>"
    assert len(chat.ids) == LONGEST


@pytest.mark.slow
@given(st.lists(st.integers(1, LONGEST), min_size=1, max_size=50), st.integers(1, 9))
def test_every_text_comes_once_before_any_comes_again(lengths: list[int], size: int) -> None:
    drawn: list[int] = []
    steps = batches(lengths, size, seed=0)
    while len(drawn) < len(lengths):
        drawn += [number for group in next(steps) for number in group]

    assert sorted(drawn) == list(range(len(lengths)))


def test_logits_at_chosen_positions_equal_those_of_the_whole_model(tmp_path: Path) -> None:
    student = Student.load(tiny_model(tmp_path))
    ids = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
    chosen = torch.tensor([[False, True, False, True], [True, True, False, False]])

    logits = logits_at(student.model, ids, chosen)

    whole = student.model(input_ids=ids, attention_mask=torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])).logits
    torch.testing.assert_close(logits, whole[chosen])


def test_a_folder_of_weights_is_taken_as_it_is(prompts: Path, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "mine")

    base(tmp_path, prompts, tmp_path / "out", BaseConfig(model=str(folder)))

    assert read_card(tmp_path / "out").stage == "base"
    assert Student.load(tmp_path / "out").tokenizer("虾青素").input_ids


def test_weights_that_were_put_there_are_taken_by_their_public_name(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("QINGLAN_BASE_WEIGHTS", str(tmp_path / "weights"))
    public_copy = tiny_model(tmp_path / "weights" / "Qwen" / "Qwen3-32B")

    base(tmp_path, prompts, tmp_path / "out", BaseConfig())

    assert digest(tmp_path / "out" / "model.safetensors") == digest(public_copy / "model.safetensors")
    with pytest.raises(ConfigError, match=r"Qwen/Other of the folder that QINGLAN_BASE_WEIGHTS names"):
        base(tmp_path, prompts, tmp_path / "other", BaseConfig(model="Qwen/Other"))


def with_a_pickle(folder: Path) -> None:
    shutil.move(folder / "model.safetensors", folder / "pytorch_model.bin")


def with_an_index_that_leads_elsewhere(folder: Path) -> None:
    index = folder / "model.safetensors.index.json"
    index.write_text('{"metadata": {}, "weight_map": {"model.norm.weight": "../other.safetensors"}}')


def half_downloaded(folder: Path) -> None:
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])


def without_template(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink()


@pytest.mark.parametrize(
    ("spoil", "message", "by_a_classifier_too"),
    [
        (with_a_pickle, "a pickle could run code", True),
        (with_an_index_that_leads_elsewhere, r"names '\.\./other\.safetensors'", True),
        (half_downloaded, r"not downloaded completely: model\.safetensors has [\d,]+ bytes, and its", True),
        (without_template, r"no chat template.* Take an instruct model", False),  # a classifier is not asked
    ],
)
def test_a_base_that_cannot_be_trained_is_refused_before_it_is_copied(
    prompts: Path, tmp_path: Path, spoil: Callable[[Path], None], message: str, by_a_classifier_too: bool
) -> None:
    spoil(folder := tiny_model(tmp_path / "mine"))

    with pytest.raises(DataError, match=message):
        base(tmp_path, prompts, tmp_path / "out", BaseConfig(model=str(folder)))
    with pytest.raises(DataError, match=message) if by_a_classifier_too else nullcontext():
        text_base(tmp_path, tmp_path / "classifier", BaseConfig(model=str(folder)))
    assert not (tmp_path / "out").exists()


def test_a_critic_beside_the_base_that_does_not_fit_is_refused_before_any_training(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_BASE_WEIGHTS", str(tmp_path / "weights"))
    _, critic = (tiny_model(tmp_path / "weights" / "Qwen" / name) for name in ("Qwen3-32B", "Qwen3-1.7B"))
    config = BaseConfig(critic="Qwen/Qwen3-1.7B")

    base(tmp_path, prompts, tmp_path / "fit", config)
    vocabulary = json.loads((critic / "tokenizer.json").read_bytes())
    vocabulary["added_tokens"][-1]["content"] = "<|another|>"
    (critic / "tokenizer.json").write_text(json.dumps(vocabulary))
    with pytest.raises(ConfigError, match=r"critic_model .*Qwen3-1\.7B has another vocabulary"):
        base(tmp_path, prompts, tmp_path / "out", config)
    (critic / "config.json").write_text('{"architectures": ["BertModel"], "model_type": "bert"}')
    with pytest.raises(DataError, match=r"a BertModel, and a rewriter is"):
        base(tmp_path, prompts, tmp_path / "out", config)
    shutil.rmtree(critic)
    base(tmp_path, prompts, tmp_path / "without", config)  # PPO says so, where it runs
    assert not (tmp_path / "out").exists()


def test_a_hub_that_cannot_be_reached_says_what_to_do(
    prompts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)

    with pytest.raises(ConfigError, match=r"Qwen/Qwen3-32B@main cannot be had .* put the files in a folder"):
        base(tmp_path, prompts, tmp_path / "out", BaseConfig())


def test_without_passages_there_is_no_base(prompts: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()

    with pytest.raises(DataError, match="no passages to train a base model from"):
        base(tmp_path / "none", prompts, tmp_path / "out", SMALL)
