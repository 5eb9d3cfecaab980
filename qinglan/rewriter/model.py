"""Loads a rewriter model's folder and writes rewrites. Evaluation and serving share this code.

    model.safetensors, config.json, tokenizer files     as transformers loads them
    rewriter.json                                       RewriterCard: its prompts, its parents

student = Student.load(Path("runs/.../files/rl_model"))
student.write([row, ...])[0].text
"""

import hashlib
import time
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import DataError, TrainingError
from qinglan.models.own_memory import copy_to_memory
from qinglan.models.references import refuse_foreign_files
from qinglan.models.whole_model import load_whole, words_for_broken
from qinglan.prompts import Message, PromptInput, parse_user_message, student_messages
from qinglan.rewriter.card import RewriterCard, read_card, refuse_other_prompts
from qinglan.rewriter.decoding import Sampling, decode, left_padded
from qinglan.rows.chat_history import later_parts
from qinglan.text.text import one_line


class GeneratedRewrite(NamedTuple):
    """One rewrite, with its tokens and its time."""

    text: str
    prompt_tokens: int
    new_tokens: int
    cut: bool
    """True if it reached the token limit without an end token."""

    seconds: float
    """Seconds that the rewrite's batch took."""


class StudentPrompt(NamedTuple):
    """A prompt as messages, text and token ids."""

    messages: list[Message]
    text: str
    ids: list[int]
    trimmed: bool = False
    """True if turns of its history were left out."""

    @property
    def tokens(self) -> int:
        return len(self.ids)


class Student:
    """A trained rewriter in memory, on a GPU if the machine has one."""

    def __init__(self, model: Any, tokenizer: Any, card: RewriterCard) -> None:
        self.model, self.tokenizer, self.card = model, tokenizer, card

    @classmethod
    def load(cls, folder: Path) -> "Student":
        """Load the model from the folder's safetensors. Pickles are not loaded, because they could run code."""
        import torch
        from transformers import AutoModelForCausalLM

        card = read_card(folder)
        refuse_other_prompts(folder, card)
        refuse_foreign_files(folder)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        dtype = "auto" if device == "cuda" else torch.float32
        model = copy_to_memory(load_whole(AutoModelForCausalLM, folder, dtype=dtype).to(device))
        return cls(model.eval(), load_tokenizer(folder), card)

    def messages(self, prompt_input: PromptInput) -> list[Message]:
        """Build the prompt's messages, which are the same in training, rollout and serving."""
        return student_messages(prompt_input, self.card.system_prompts.get(prompt_input.tenant_id, ""))

    def prompt(self, prompt_input: PromptInput) -> StudentPrompt:
        """Build the prompt that the model gets, up to the beginning of the answer."""
        return self._fitted(self.messages(prompt_input))

    def write(self, rows: Sequence[PromptInput]) -> list[GeneratedRewrite]:
        return self.write_messages([self.messages(row) for row in rows])

    def write_messages(self, prompts: Sequence[list[Message]]) -> list[GeneratedRewrite]:
        return self.write_prompts([self._fitted(messages) for messages in prompts])

    def write_prompts(self, prompts: Sequence[StudentPrompt]) -> list[GeneratedRewrite]:
        import torch

        started = time.perf_counter()
        ids, mask = left_padded(
            [prompt.ids for prompt in prompts], self.tokenizer.pad_token_id, self.model.device
        )  # fmt: skip
        with torch.inference_mode():
            output = self.model.generate(
                input_ids=ids, attention_mask=mask,
                max_new_tokens=self.card.max_new_tokens, do_sample=False, temperature=None, top_p=None, top_k=None,
                # The value is the same in verl's rollout and in vLLM; the folder's generation_config.json must not
                # change it.
                repetition_penalty=1.0,
                eos_token_id=self.tokenizer.eos_token_id, pad_token_id=self.tokenizer.pad_token_id,
            )  # fmt: skip
        generated = output[:, ids.shape[1] :].tolist()
        seconds = time.perf_counter() - started
        return [self._written(new, prompt.tokens, seconds) for new, prompt in zip(generated, prompts, strict=True)]

    def sample(
        self, prompts: Sequence[list[Message]], count: int, seed: int, temperature: float = 1.0
    ) -> list[list[str]]:
        """Write `count` sampled rewrites of each prompt, as one batch. A prompt's random draws do not depend on the
        other prompts."""
        import numpy as np

        fitted = [self._fitted(messages) for messages in prompts]
        most, draws = self.card.max_new_tokens, []
        for prompt in fitted:
            key = int.from_bytes(hashlib.sha256(f"{seed} {prompt.text}".encode()).digest()[:8])
            draws.append(np.random.default_rng(key).random((count, most)))
        written = decode(
            self.model, [prompt.ids for prompt in fitted for _ in range(count)], most, self.tokenizer.eos_token_id,
            self.tokenizer.pad_token_id, Sampling(temperature), np.concatenate(draws),
        )  # fmt: skip
        rewrites = [self._written(row.ids, 0, 0.0).text for row in written]
        return [rewrites[start : start + count] for start in range(0, len(rewrites), count)]

    def _fitted(self, messages: list[Message]) -> StudentPrompt:
        budget = self.card.prompt_tokens(self.model.config.max_position_embeddings)
        return fit_prompt(self.tokenizer, messages, budget)

    def _written(self, ids: list[int], prompt: int, seconds: float) -> GeneratedRewrite:
        end = self.tokenizer.eos_token_id
        cut = end not in ids
        ids = ids if cut else ids[: ids.index(end)]
        text = one_line(self.tokenizer.decode(ids, skip_special_tokens=True))
        return GeneratedRewrite(text, prompt, len(ids) + (not cut), cut, seconds)


def render_prompt(tokenizer: Any, messages: list[Message]) -> str:
    """Render messages as text, with thinking turned off, in the same way for training and serving.

    If the text is much longer than its messages, a DataError is raised, because a template that prints a message
    hundreds of times would fill the memory.
    """
    from qinglan.models.chat_template_work import MAX_LENGTH

    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    most = MAX_LENGTH + 2 * sum(len(message["content"]) for message in messages)
    if len(text) > most:
        raise DataError(
            f"The chat template makes {len(text):,} characters of a conversation for which {most:,} are enough for "
            "any. Take the template of the base model."
        )
    return text


def fit_prompt(tokenizer: Any, messages: list[Message], budget: int) -> StudentPrompt:
    """Render a prompt; if it has more than `budget` tokens, the oldest turns of its history are left out.

    Training, evaluation and serving call this. Question and profile are never shortened: if they exceed the budget,
    the prompt does too, and the caller decides what to do.
    """
    prompt = _counted(tokenizer, messages)
    if prompt.tokens <= budget:
        return prompt
    question, _ = parse_user_message(messages[-1]["content"])
    system = messages[0]["content"]
    if not question.history_summary or student_messages(question, system) != messages:
        return prompt

    def shorter(history: str) -> StudentPrompt:
        return _counted(tokenizer, student_messages(question._replace(history_summary=history), system))

    # Shorter histories have fewer tokens, so the longest one that fits is found by bisection. The last part is "".
    parts = later_parts(question.history_summary)
    first = bisect_left(parts, True, hi=len(parts) - 1, key=lambda part: shorter(part).tokens <= budget)
    return shorter(parts[first])._replace(trimmed=True)


def _counted(tokenizer: Any, messages: list[Message]) -> StudentPrompt:
    text = render_prompt(tokenizer, messages)
    return StudentPrompt(messages, text, tokenizer(text, add_special_tokens=False).input_ids)


def unusable_answer(written: Sequence[GeneratedRewrite]) -> str | None:
    """Return the first answer of a model whose answers are all empty or all cut off; None for any other model."""
    if not any(rewrite.text for rewrite in written) or all(rewrite.cut for rewrite in written):
        return written[0].text[:60]
    return None


def refuse_unusable(answer: str | None, advice: str) -> None:
    if answer is not None:
        raise TrainingError(f"The trained model answers nothing usable, such as {answer!r}. {advice}")


def refuse_lossy_tokenizer(tokenizer: Any, messages: list[Message], where: str) -> None:
    """Raise a DataError unless the tokenizer turns a prompt into ids and back into the same text. Some tokenizers
    load under a wrong class, and then give no ids."""
    text = render_prompt(tokenizer, messages)
    ids = tokenizer(text, add_special_tokens=False).input_ids
    if not ids or tokenizer.decode(ids) != text:
        raise DataError(
            f"{where}: its tokenizer ({type(tokenizer).__name__}) turns a prompt of {len(text)} characters into "
            f"{len(ids)} ids that read {tokenizer.decode(ids)[:40]!r}. Save it under the class that it was made with."
        )


def load_tokenizer(folder: Path) -> Any:
    """Load the folder's tokenizer. It fails if two threads use it at once, so each thread needs its own."""
    from transformers import AutoTokenizer

    with words_for_broken(folder):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
