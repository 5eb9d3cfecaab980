"""SFT as it really runs: ms-swift on a CPU, killed and resumed, with LoRA merged, with the serving prompt."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from components.training.sft.config import SftConfig
from components.training.sft.stage import SftCounts, sft
from qinglan.errors import TrainingError
from qinglan.lineage.digests import digest
from qinglan.prompts import Message
from qinglan.rewriter import Student, load_tokenizer, read_card, render
from tests.tiny import tiny_model
from tests.training_rows import chat, chats

pytestmark = pytest.mark.slow

SMALL = SftConfig(
    device="cpu", tuner="full", model_type="qwen3", template="chatml", dtype="float32", epochs=16.0, batch=8,
    eval_batch=16, accumulation=1, learning_rate=2e-2,
    max_length=256, evaluate_every=12, patience=0, log_every=4, workers=0,
    max_new_tokens=24,
)  # fmt: skip


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QINGLAN_SCRATCH", str(tmp_path / "scratch"))
    return tiny_model(tmp_path / "base", stage="base")


def train(base: Path, out: Path, config: SftConfig) -> SftCounts:
    return sft(base, chats(out.parent / "chats"), out / "model", out / "log", config)


def metrics(out: Path) -> list[dict[str, float]]:
    return [orjson.loads(line) for line in (out / "log" / "metrics.jsonl").read_bytes().splitlines()]


def test_it_learns_is_tried_and_is_not_done_twice(base: Path, tmp_path: Path) -> None:
    counts = train(base, tmp_path / "a", SMALL)
    again = train(base, tmp_path / "b", SMALL)

    losses = [row["eval_loss"] for row in metrics(tmp_path / "a") if "eval_loss" in row]
    assert losses[-1] < losses[0] / 2
    assert (counts.rows, counts.steps, counts.reused) == (48, 96, 0)
    assert again == counts._replace(reused=1)
    assert digest(tmp_path / "a" / "model") == digest(tmp_path / "b" / "model")
    assert read_card(tmp_path / "a" / "model").parents["base_model"] == digest(base)
    assert "<svg" in (tmp_path / "a" / "log" / "curve.svg").read_text()
    assert Student.load(tmp_path / "a" / "model").write_messages([chat(1)["messages"][:2]])[0].text


TRAIN = """
import sys
from pathlib import Path
from components.training.sft.config import SftConfig
from components.training.sft.stage import sft

base, chats, out, config = sys.argv[1:]
sft(Path(base), Path(chats), Path(out) / "model", Path(out) / "log", SftConfig.model_validate_json(config))
"""


def test_a_training_that_is_killed_goes_on_and_ends_at_the_same_loss(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(base, tmp_path / "whole", SMALL)
    monkeypatch.setenv("QINGLAN_SCRATCH", str(tmp_path / "scratch2"))
    words = [base, tmp_path / "chats", tmp_path / "killed", SMALL.model_dump_json()]
    child = psutil.Popen([sys.executable, "-c", TRAIN, *map(str, words)], stdout=subprocess.DEVNULL)
    wait_for(lambda: list(tmp_path.glob("scratch2/sft/*/checkpoints/checkpoint-12/trainer_state.json")))
    orphans = child.children(recursive=True)
    child.kill()
    child.wait()
    assert not (tmp_path / "killed" / "model").exists()

    resumed = train(base, tmp_path / "killed", SMALL)

    assert orphans and not any(process.is_running() for process in orphans), "what it left behind was ended first"
    steps = [row["step"] for row in metrics(tmp_path / "killed")]
    log = (tmp_path / "killed" / "log" / "train.log").read_text(errors="replace")
    assert "resume_from_checkpoint" in log and max(steps) == 96
    assert resumed.eval_loss == pytest.approx(whole.eval_loss, rel=0.05)


def test_lora_is_trained_and_merged_and_the_two_say_the_same(base: Path, tmp_path: Path) -> None:
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    train(base, tmp_path / "a", SMALL.model_copy(update={"tuner": "lora", "learning_rate": 2e-2}))

    model = tmp_path / "a" / "model"
    ids = torch.tensor([load_tokenizer(model)(render(load_tokenizer(model), chat(3)["messages"][:2])).input_ids])
    own = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = own(ids).logits
    with_adapter = PeftModel.from_pretrained(own, model / "adapter").eval()(ids).logits
    merged = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)(ids).logits
    assert (merged - with_adapter).abs().max() < 1e-3
    assert (merged - before).abs().max() > 0.1


def test_a_loss_without_bounds_ends_with_a_word_and_not_with_a_model(base: Path, tmp_path: Path) -> None:
    wild = SMALL.model_copy(update={"learning_rate": 1e30, "log_every": 1})

    with pytest.raises(TrainingError, match=r"Lower sft.learning_rate"):
        train(base, tmp_path / "a", wild)

    assert not (tmp_path / "a" / "model").exists()


@pytest.mark.parametrize("template", ["chatml", "qwen3"])
def test_training_and_serving_see_the_same_prompt_to_the_byte(base: Path, template: str) -> None:
    """ms-swift renders for training, the tokenizer's own template for verl and serving."""
    from swift.model import get_processor
    from swift.template import get_template

    if template == "qwen3":
        tokenizer = load_tokenizer(base)
        tokenizer.chat_template = QWEN3
        tokenizer.save_pretrained(base)
    processor = get_processor(str(base), model_type="qwen3")
    swift = get_template(processor, template_type=template, enable_thinking=False)
    swift.set_mode("train")
    row: dict[str, Any] = {"messages": chat(5)["messages"]}
    asked: list[Message] = row["messages"][:2]

    encoded = swift.encode(row)

    served = load_tokenizer(base)
    prompt = served(render(served, asked), add_special_tokens=False).input_ids
    assert encoded["input_ids"][: len(prompt)] == prompt
    answer = served.decode(encoded["input_ids"][len(prompt) :])
    assert answer == row["messages"][2]["content"] + "<|im_end|>\n"


QWEN3 = (
    "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)
"""What Qwen3's own template does with these messages."""


def wait_for(condition: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
