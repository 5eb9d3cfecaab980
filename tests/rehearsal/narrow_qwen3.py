"""Qwen3-32B made narrow and shallow: its own config.json, tokenizer layout, special tokens and chat template.

The files are laid out as the published model's. The weights are random, then taught for a few seconds to end an
answer: every step after this one refuses a model that never does.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qinglan.prompts import Message
from tests.models.qwen3 import CHAT_TEMPLATE, CONFIG

NARROW: dict[str, Any] = {
    "transformers_version": "4.51.0",
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "max_window_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 8,
}  # fmt: skip
"""All that differs from Qwen3-32B's config.json. Eight heads for keys and values, as in the real one: tensor
parallelism divides them. Heads keep their 128 dimensions: vLLM has no attention on a CPU for 16 of them."""

MERGED_TOKENS = 151_643
"""Byte-level tokens come first; special tokens begin at this id."""

SPECIAL_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>",
)  # fmt: skip
NOT_SPECIAL = SPECIAL_TOKENS[14:]
"""Added tokens that decoding does not drop."""

WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen splits a text before it joins bytes."""

GENERATION = {
    "bos_token_id": 151643, "do_sample": True, "eos_token_id": [151645, 151643], "pad_token_id": 151643,
    "temperature": 0.6, "top_k": 20, "top_p": 0.95,
}  # fmt: skip
"""Its generation_config.json: who serves it greedily has to say so."""

LEARNED_TOKENS = 3_000
STEPS, BATCH, RATE = 80, 16, 5e-3

Chat = list[Message]


def write_narrow_qwen3(
    folder: Path, chats: Sequence[Chat], steps: int = STEPS, seed: int = 0, tied: bool = False
) -> Path:
    """The model's folder; the tokenizer and the short training read these chats.

    `tied`: input and output share their embeddings, as in Qwen3 up to 4B.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, [turn["content"] for chat in chats for turn in chat])
    config = {**CONFIG, **NARROW, "tie_word_embeddings": tied}
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION, indent=2), encoding="utf-8")
    write_weights(folder, config, chats, steps, seed)
    return folder


def write_tokenizer(folder: Path, texts: Sequence[str]) -> None:
    """A byte-level tokenizer with Qwen's ids: few learned tokens, names without use up to the special tokens."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

    learned = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), behavior="isolated")
    learned.pre_tokenizer = pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(False, use_regex=False)])
    learned.normalizer = normalizers.NFC()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=LEARNED_TOKENS, initial_alphabet=alphabet, show_progress=False)
    learned.train_from_iterator(texts, trainer)
    described = json.loads(learned.to_str())["model"]
    vocabulary: dict[str, int] = described["vocab"]
    vocabulary |= {f"<unused {number}>": number for number in range(len(vocabulary), MERGED_TOKENS)}
    merges = [tuple(pair) for pair in described["merges"]]
    whole = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    whole.normalizer, whole.pre_tokenizer = learned.normalizer, learned.pre_tokenizer
    whole.decoder = decoders.ByteLevel()
    whole.add_tokens([AddedToken(t, special=t not in NOT_SPECIAL, normalized=False) for t in SPECIAL_TOKENS])
    whole.save(str(folder / "tokenizer.json"))
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(map(" ".join, merges)) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(), indent=2), encoding="utf-8")


def tokenizer_config() -> dict[str, Any]:
    added = {
        str(MERGED_TOKENS + at): {
            "content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
            "special": token not in NOT_SPECIAL,
        }
        for at, token in enumerate(SPECIAL_TOKENS)
    }  # fmt: skip
    return {
        "add_bos_token": False, "add_prefix_space": False, "added_tokens_decoder": added,
        "additional_special_tokens": [*SPECIAL_TOKENS[1:14]], "bos_token": None, "chat_template": CHAT_TEMPLATE,
        "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "model_max_length": 131072, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
    }  # fmt: skip


def write_weights(folder: Path, values: dict[str, Any], chats: Sequence[Chat], steps: int, seed: int) -> None:
    """Random weights in bfloat16, of which the used rows were trained for some seconds.

    The training knows the used tokens alone, and one that stands for all others: the logarithm of their number is
    added to its logit, so that they stay as unlikely together as they would in a training of the whole vocabulary.
    """
    import torch
    from transformers import AutoTokenizer, Qwen3Config, Qwen3ForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    examples = [encode(tokenizer, chat) for chat in chats]
    used = sorted({token for ids, _ in examples for token in ids} | {MERGED_TOKENS, MERGED_TOKENS + 2})
    config = Qwen3Config(**values)
    torch.manual_seed(seed)
    small = Qwen3ForCausalLM(Qwen3Config(**{**values, "vocab_size": len(used) + 1, **NO_IDS}))
    small_examples = [(rows(ids, used), answer) for ids, answer in examples]
    train(small, small_examples, config.vocab_size - len(used), steps, seed)
    whole = Qwen3ForCausalLM(config)
    state, learned = whole.state_dict(), small.state_dict()
    for name, tensor in learned.items():
        if name in ("model.embed_tokens.weight", "lm_head.weight"):
            state[name][:] = tensor[-1]
            state[name][used] = tensor[:-1]
        else:
            state[name].copy_(tensor)
    whole.to(torch.bfloat16).save_pretrained(folder, save_original_format=False)
    (folder / "config.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
    (folder / "generation_config.json").write_text(json.dumps(GENERATION, indent=2), encoding="utf-8")


NO_IDS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def encode(tokenizer: Any, chat: Chat) -> tuple[list[int], int]:
    """The chat's tokens as serving renders them, and where the answer begins."""
    from qinglan.rewriter.model import render_prompt

    prompt = tokenizer(render_prompt(tokenizer, chat[:-1]), add_special_tokens=False).input_ids
    answer = tokenizer(chat[-1]["content"] + "<|im_end|>", add_special_tokens=False).input_ids
    return [*prompt, *answer], len(prompt)


def rows(ids: Sequence[int], used: Sequence[int]) -> list[int]:
    place = {token: row for row, token in enumerate(used)}
    return [place[token] for token in ids]


def train(model: Any, examples: Sequence[tuple[list[int], int]], rest: int, steps: int, seed: int) -> None:
    """Train on the answers; `others` is the number of tokens that the last one stands for."""
    import random

    import torch

    rng, optimizer = random.Random(seed), torch.optim.AdamW(model.parameters(), lr=RATE)
    more = torch.zeros(model.config.vocab_size)
    more[-1] = float(torch.log(torch.tensor(float(rest))))
    for _ in range(steps):
        batch = [rng.choice(examples) for _ in range(BATCH)]
        longest = max(len(ids) for ids, _ in batch)
        ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _ in batch])
        labels = torch.full_like(ids, -100)
        for row, (tokens, answer) in enumerate(batch):
            labels[row, answer : len(tokens)] = ids[row, answer : len(tokens)]
        answered = labels[:, 1:] != -100
        logits = model.lm_head(model.model(input_ids=ids).last_hidden_state[:, :-1][answered]) + more
        loss = torch.nn.functional.cross_entropy(logits, labels[:, 1:][answered])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


CRITIC = {"hidden_size": 32, "intermediate_size": 96, "num_hidden_layers": 1, "max_window_layers": 1}
"""Differences of a smaller model of the family; its embeddings are tied, as Qwen3's small ones are."""


def write_critic(folder: Path, base: Path, seed: int = 1) -> None:
    """A smaller model with random weights and the tokenizer of `base`."""
    import shutil

    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    shutil.copytree(base, folder, ignore=shutil.ignore_patterns("*.safetensors"), dirs_exist_ok=True)
    values = {**CONFIG, **NARROW, **CRITIC, "tie_word_embeddings": True}
    torch.manual_seed(seed)
    Qwen3ForCausalLM(Qwen3Config(**values)).to(torch.bfloat16).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(values, indent=2), encoding="utf-8")
