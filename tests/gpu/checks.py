"""The checks that want a GPU, on untrained weights of the plan's shapes: no hub, no data.

Each takes a machine (where it runs) and sizes, so that the same code runs tiny on a CPU in an ordinary test.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from tests.gpu.report import Measured, Result

GIB = 1024**3
LABELS = 5


class Sizes(NamedTuple):
    """How large the models are, and how much is run."""

    rewriter: dict[str, Any]
    """Qwen3's settings in config.json."""

    classifier: dict[str, Any]
    """Qwen2's."""

    tokens: int
    """Tokens of a training row."""

    steps: int
    new_tokens: int
    batches: tuple[int, ...]
    """Prompts at once."""


PLAN = Sizes(
    rewriter={
        "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
        "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True,
    },
    classifier={
        "vocab_size": 151936, "hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24,
        "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": True,
    },
    tokens=512, steps=8, new_tokens=64, batches=(1, 8, 32),
)  # fmt: skip
"""Qwen3-0.6B's and Qwen2.5-0.5B's shapes."""

SMALL: dict[str, Any] = {
    "vocab_size": 1500, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1, "head_dim": 16, "tie_word_embeddings": True,
}  # fmt: skip
DRY = Sizes(rewriter=SMALL, classifier=SMALL, tokens=32, steps=3, new_tokens=8, batches=(1, 4))
"""The same code in seconds on a CPU; its figures mean nothing."""


class Device:
    """A device of torch, with its clock and its memory."""

    def __init__(self, name: str) -> None:
        import torch

        self.name, self._torch = name, torch

    @property
    def dtype(self) -> Any:
        """bfloat16 on a GPU, float32 on a CPU, as in the trainings."""
        return self._torch.bfloat16 if self.name == "cuda" else self._torch.float32

    def autocast(self) -> AbstractContextManager[Any]:
        """Mixed precision, as the trainings have it on a GPU."""
        on_gpu = self.name == "cuda"
        return self._torch.autocast("cuda", dtype=self._torch.bfloat16) if on_gpu else nullcontext()

    def seconds(self) -> float:
        """The time now, when everything that was begun is done."""
        if self.name == "cuda":
            self._torch.cuda.synchronize()
        return time.perf_counter()

    def forget_peak(self) -> None:
        if self.name == "cuda":
            self._torch.cuda.empty_cache()
            self._torch.cuda.reset_peak_memory_stats()

    def peak_gib(self) -> float:
        """Most bytes of tensors at once since `forget_peak`; 0 on a CPU, where torch does not count them."""
        return self._torch.cuda.max_memory_allocated() / GIB if self.name == "cuda" else 0.0


def causal_model(sizes: Sizes, device: Device, seed: int = 0) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(seed)
    with torch.device(device.name):
        model = Qwen3ForCausalLM(Qwen3Config(**sizes.rewriter, bos_token_id=None, eos_token_id=2, pad_token_id=0))
    return model.to(device.dtype).eval()


def with_adapter(model: Any, rank: int, learned: bool) -> Any:
    """LoRA on all linear layers, in float32; `learned` gives it values, as after a training."""
    import torch
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear"))
    for name, weights in adapted.named_parameters():
        if learned and "lora_B" in name:
            torch.nn.init.normal_(weights, std=0.02)
    return adapted


def merge(device: Device, sizes: Sizes) -> Result:
    """Logits of merged weights beside those of base and adapter, both in the device's precision."""
    import torch

    model = with_adapter(causal_model(sizes, device), rank=16, learned=True)
    ids = torch.randint(3, sizes.rewriter["vocab_size"], (2, sizes.tokens), device=device.name)
    with torch.inference_mode():
        beside = model(input_ids=ids).logits.float()
        with model.disable_adapter():
            without = model(input_ids=ids).logits.float()
    merged = model.merge_and_unload()
    with torch.inference_mode():
        inside = merged(input_ids=ids).logits.float()
    error = float((inside - beside).pow(2).mean().sqrt() / beside.pow(2).mean().sqrt())
    effect = float((without - beside).pow(2).mean().sqrt() / beside.pow(2).mean().sqrt())
    same = float((inside.argmax(-1) == beside.argmax(-1)).float().mean())
    figures = [
        Measured("difference of logits, share of their size", error),
        Measured("the same without the adapter", effect),
        Measured("tokens that both would write", same),
    ]
    return Result("merge", error < effect / 5 and error < 0.05, figures)


def sft(device: Device, sizes: Sizes) -> Result:
    """Steps of LoRA with the plan's batch and accumulation: seconds, memory, and what `fit` says of it."""
    import torch

    from components.training.sft.config import SftConfig

    config = SftConfig(gpus=1, max_length=sizes.tokens, max_new_tokens=sizes.new_tokens)
    device.forget_peak()
    model = with_adapter(causal_model(sizes, device), config.lora_rank, learned=False).train()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    learned = [weights for weights in model.parameters() if weights.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=config.learning_rate)
    ids = torch.randint(3, sizes.rewriter["vocab_size"], (config.batch, sizes.tokens), device=device.name)
    losses, times = [], [device.seconds()]
    for _ in range(sizes.steps):
        for _ in range(config.accumulation):
            with device.autocast():
                loss = model(input_ids=ids, labels=ids).loss / config.accumulation
            loss.backward()
        torch.nn.utils.clip_grad_norm_(learned, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(loss.detach()) * config.accumulation)
        times.append(device.seconds())
    estimate = fit_gib("sft", config, {**sizes.rewriter, "model_type": "qwen3"})
    figures = step_figures(times, config.batch * config.accumulation * sizes.tokens, device.peak_gib(), estimate)
    figures += [Measured("loss of the first step", losses[0]), Measured("loss of the last step", losses[-1])]
    return Result("sft", losses[-1] < losses[0] and fits(device.peak_gib(), estimate), figures)


def style(device: Device, sizes: Sizes) -> Result:
    """Steps of the product's own training of a classifier with the plan's batch: seconds, memory, and `fit`."""
    import numpy as np
    import torch
    from transformers import Qwen2Config, Qwen2ForSequenceClassification

    from components.training.style.config import StyleConfig
    from components.training.style.dataset import StyleDataset, one_hot
    from components.training.style.stage import weighted_loss
    from components.training.style.trainer import Watch, fit

    config = StyleConfig(device="cuda" if device.name == "cuda" else "cpu", max_length=sizes.tokens, epochs=1)
    rng, rows = np.random.default_rng(0), config.batch * sizes.steps
    labels = [int(label) for label in rng.integers(0, LABELS, rows)]
    ids = rng.integers(3, sizes.classifier["vocab_size"], (rows, sizes.tokens)).tolist()
    data = StyleDataset(ids, one_hot(labels, LABELS, 0.0))
    torch.manual_seed(0)
    device.forget_peak()
    with torch.device(device.name):
        model = Qwen2ForSequenceClassification(Qwen2Config(**sizes.classifier, num_labels=LABELS, pad_token_id=0))
    times: list[float] = []
    plain = weighted_loss(labels, LABELS, weighted=True)

    def clocked(logits: Any, targets: Any) -> Any:
        if logits.requires_grad:
            times.append(device.seconds())
        return plain(logits, targets)

    with TemporaryDirectory() as folder:
        few = StyleDataset(ids[: config.batch], data.targets[: config.batch])
        watch = Watch("The style training on this machine", Path(folder))
        _, metrics = fit("style", model.float(), 0, data, few, clocked, config, Path(folder) / "checkpoints", watch)
    losses = [row["loss"] for row in metrics if "loss" in row]
    estimate = fit_gib("style", config, {**sizes.classifier, "model_type": "qwen2"})
    figures = step_figures(times, config.batch * sizes.tokens, device.peak_gib(), estimate)
    finite = all(np.isfinite(losses)) and len(losses) > 0
    return Result("style", finite and fits(device.peak_gib(), estimate), figures)


def rewriter(device: Device, sizes: Sizes) -> Result:
    """The rewriter's backend in this process: tokens a second by prompts at once, and texts as alone."""
    from components.training.base.config import TinyConfig
    from components.training.base.tokenizer import train_tokenizer
    from qinglan.rewriter.card import RewriterCard
    from qinglan.rewriter.model import Student, StudentPrompt

    texts = [f"第{number}个问题：一天吃几粒？饭前还是饭后吃？孕妇可以吃吗？" for number in range(max(sizes.batches))]
    tokenizer = train_tokenizer(texts, TinyConfig())
    card = RewriterCard(stage="sft", max_new_tokens=sizes.new_tokens)
    student = Student(causal_model(sizes, device), tokenizer, card)
    rendered = [f"<|im_start|>user\n{text * (1 + number % 3)}<|im_end|>\n" for number, text in enumerate(texts)]
    prompts = [StudentPrompt([], text, tokenizer(text, add_special_tokens=False).input_ids) for text in rendered]
    student.write_prompts(prompts[:1])  # the first call of a process is slow
    written, figures = {}, []
    for size in sizes.batches:
        started = device.seconds()
        answers = [
            answer for at in range(0, len(prompts), size) for answer in student.write_prompts(prompts[at : at + size])
        ]
        seconds = device.seconds() - started
        written[size] = [(answer.text, answer.new_tokens) for answer in answers]
        tokens = sum(answer.new_tokens for answer in answers)
        figures.append(Measured(f"tokens a second, {size} at once", tokens / seconds))
    alone = written[sizes.batches[0]]
    for size in sizes.batches[1:]:
        same = sum(answer == other for answer, other in zip(alone, written[size], strict=True)) / len(alone)
        figures.append(Measured(f"texts as alone, {size} at once", same))
    return Result("rewriter", all(len(answers) == len(prompts) for answers in written.values()), figures)


CHECKS: dict[str, Callable[[Device, Sizes], Result]] = {
    "merge": merge, "sft": sft, "rewriter": rewriter, "style": style,
}  # fmt: skip


def step_figures(times: Sequence[float], tokens: int, peak: float, estimate: float | None) -> list[Measured]:
    """Seconds a step without the first, which warms up, and memory beside what `fit` computes."""
    steps = [later - before for before, later in itertools.pairwise(times)][1:]
    middle = statistics.median(steps)
    figures = [Measured("seconds a step", middle), Measured("tokens a second", tokens / middle)]
    figures += [Measured("peak memory, GiB", peak)] if peak else []
    return [*figures, Measured("peak memory by fit, GiB", estimate)] if estimate else figures


def fits(peak: float, estimate: float | None) -> bool:
    """Tell if `fit` promised at least what was measured, and not the double of it."""
    return not peak or not estimate or peak <= estimate <= 2 * peak + 1


FIT = {"sft": "card_phases", "style": "style_phases"}
"""By stage, the function of its fit.py that counts a card's bytes."""


def fit_gib(stage: str, config: Any, settings: dict[str, Any]) -> float | None:
    """The tensors' bytes that `qinglan fit` computes for a card; None where it is not here."""
    try:
        phases = getattr(import_module(f"components.training.{stage}.fit"), FIT[stage])
        shape_of = import_module("qinglan.sizing.shape").shape_of
    except ModuleNotFoundError:
        return None
    largest = max(phases(config, shape_of(settings, stage)), key=lambda phase: phase.bytes)
    return float(sum(amount.bytes for amount in largest.amounts if amount.name not in ("CUDA", "fragments"))) / GIB
