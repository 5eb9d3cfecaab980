"""SFT's decisions: what is refused before training, the command, and what its log means."""

import os
from math import ceil
from pathlib import Path
from typing import Any

import orjson
import pytest

from components.training.base.config import BaseConfig
from components.training.base.stage import base as run_base_stage
from components.training.sft.chat_rows import read_chats, write_fitting
from components.training.sft.command import (
    Paths,
    distributed_environment,
    swift_environment,
    swift_flags,
    train_command,
)
from components.training.sft.config import SftConfig
from components.training.sft.finish import best_checkpoint
from components.training.sft.resume import resume_command as started
from components.training.sft.stage import sft
from components.training.sft.steps import training_steps, validation_interval
from components.training.sft.training_monitor import TrainingMonitor
from qinglan.errors import ConfigError, DataError, TrainingError
from qinglan.files.scratch import SCRATCH_VARIABLE, last_checkpoint
from qinglan.jobs import JobSpec, Outcome
from qinglan.models.base_reference import BY_REFERENCE_VARIABLE
from qinglan.models.base_weights import WEIGHTS_VARIABLE
from qinglan.prompts import Question, student_answer, student_messages
from qinglan.rewriter.model import fit_prompt, load_tokenizer
from tests.components.training.swift_subprocess import argument_names
from tests.components.training.verl_subprocess import ask
from tests.models.silent_training import silent_training
from tests.models.tiny_rewriter import SYSTEM, tiny_model
from tests.models.training_rows import chat, chats, write_chats

PATHS = Paths(Path("base"), Path("train.jsonl"), Path("dev.jsonl"), Path("out"))


def flags_of(config: SftConfig) -> dict[str, str]:
    words = swift_flags(config, PATHS, rows=560)
    return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}


def test_every_number_of_the_plan_reaches_ms_swift() -> None:
    """The plan's 2.2, with today's name for its --train_type."""
    plan = {
        "tuner_type": "lora", "torch_dtype": "bfloat16", "num_train_epochs": "3.0",
        "per_device_train_batch_size": "2", "per_device_eval_batch_size": "2", "learning_rate": "5e-05",
        "lora_rank": "16", "lora_alpha": "32", "target_modules": "all-linear", "gradient_accumulation_steps": "8",
        "save_total_limit": "3", "logging_steps": "10",
        "max_length": "2048", "warmup_ratio": "0.05", "dataloader_num_workers": "4", "dataset": "train.jsonl",
    }  # fmt: skip

    assert flags_of(SftConfig()).items() >= plan.items()


@pytest.mark.slow
def test_ms_swift_itself_accepts_the_command() -> None:
    """Its own parser reads every flag; an old name would end in an error after an hour of loading."""
    known = ask(argument_names, environment=os.environ)

    for config in (SftConfig(), SftConfig(tuner="full", deepspeed="zero3", gpus=8)):
        assert set(flags_of(config)) <= known


def with_text(turn: int, text: str) -> dict[str, Any]:
    """A chat, one of whose messages says this."""
    row = chat(1)
    row["messages"][turn]["content"] = text
    return row


@pytest.mark.parametrize(
    ("config", "rows", "steps", "every"),
    [
        (SftConfig(), 240, 12, 2),
        (SftConfig(), 560, 27, 4),
        (SftConfig(), 100_000, 4689, 587),
        (SftConfig(nodes=2, accumulation=4), 560, 27, 4),
        (SftConfig(), 3, 3, 1),
        (SftConfig(device="cpu", epochs=4.0, batch=32, accumulation=1, validations=3), 1800, 228, 76),
        (SftConfig(device="cpu", epochs=0.5, batch=1, accumulation=1), 5, 3, 1),
    ],
)
def test_validations_are_spread_over_the_steps_that_there_are(
    config: SftConfig, rows: int, steps: int, every: int
) -> None:
    """Enough for patience of 3 to act at the plan's 240 rows as at 100,000."""
    assert (training_steps(config, rows), validation_interval(config, rows)) == (steps, every)
    assert ceil(steps / every) <= config.validations
    flags = dict(zip((words := swift_flags(config, PATHS, rows))[::2], words[1::2], strict=True))
    assert flags["--eval_steps"] == flags["--save_steps"] == str(every)


@pytest.mark.parametrize(
    ("config", "expected"),
    [(SftConfig(), "true"), (SftConfig(checkpointing=False), "false"), (SftConfig(device="cpu"), "false")],
)
def test_activations_are_computed_again_on_a_gpu_unless_the_settings_say_otherwise(
    config: SftConfig, expected: str
) -> None:
    assert flags_of(config)["gradient_checkpointing"] == expected


def test_full_tuning_has_no_adapter() -> None:
    assert not {"lora_rank", "lora_alpha", "target_modules"} & set(flags_of(SftConfig(tuner="full")))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (SftConfig(), {"QINGLAN_WORLD_SIZE": "4", "NPROC_PER_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}),
        (SftConfig(nodes=2), {"QINGLAN_WORLD_SIZE": "8", "NPROC_PER_NODE": "4", "CUDA_VISIBLE_DEVICES": "0,1,2,3"}),
        (SftConfig(device="cpu", nodes=2), {"QINGLAN_WORLD_SIZE": "2", "NPROC_PER_NODE": "1"}),
        (SftConfig(device="cpu"), {"QINGLAN_WORLD_SIZE": "1"}),
        (SftConfig(gpus=1), {"QINGLAN_WORLD_SIZE": "1", "CUDA_VISIBLE_DEVICES": "0"}),
        (SftConfig(gpus=1, nodes=2), {"QINGLAN_WORLD_SIZE": "2", "NPROC_PER_NODE": "1", "CUDA_VISIBLE_DEVICES": "0"}),
        (
            SftConfig(gpus=1, deepspeed="zero3"),
            {"QINGLAN_WORLD_SIZE": "1", "NPROC_PER_NODE": "1", "CUDA_VISIBLE_DEVICES": "0"},
        ),
        (SftConfig(device="cpu", deepspeed="zero3"), {"QINGLAN_WORLD_SIZE": "1", "NPROC_PER_NODE": "1"}),
    ],
)
def test_so_many_processes_must_train_together_and_torchrun_starts_several(
    config: SftConfig, expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert distributed_environment(config) == expected
    command = train_command(config, PATHS, rows=560)
    assert command.environment.items() >= expected.items()
    # torchrun waits for the machine's full name at each of its events: a single process is started without torchrun.
    assert ("swift.cli.main" in command.argv) == ("NPROC_PER_NODE" in expected) != ("swift.cli.sft" in command.argv)
    assert ("CUDA_VISIBLE_DEVICES" in swift_environment(config)) == (config.device == "cpu")


@pytest.mark.parametrize(
    ("visible", "gpus", "cards"),
    [
        ("", 1, "0"),
        ("3", 1, "3"),
        ("3,5", 1, "3"),
        ("GPU-a,GPU-b,GPU-c", 2, "GPU-a,GPU-b"),
        ("3", 2, "0,1"),  # too few: the launching step sees none, and its pods have theirs
        ("4,5,6,7", 4, "4,5,6,7"),
    ],
)
def test_a_training_sees_as_many_cards_as_its_settings_say(
    visible: str, gpus: int, cards: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One process that saw eight would spread the model over them, or train a copy on each."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    assert distributed_environment(SftConfig(gpus=gpus))["CUDA_VISIBLE_DEVICES"] == cards


def test_threads_on_a_cpu_are_a_setting_and_no_machines() -> None:
    configs = SftConfig(device="cpu"), SftConfig(device="cpu", threads=8), SftConfig()

    assert [swift_environment(config)["OMP_NUM_THREADS"] for config in configs] == ["2", "8", "1"]


def test_a_job_is_started_by_the_same_command_at_each_attempt(tmp_path: Path) -> None:
    """Its checkpoint is looked up where it runs: a job with another command would not be found again."""
    paths = PATHS._replace(output=tmp_path)
    first = train_command(SftConfig(nodes=2), paths, rows=560)
    assert started(tmp_path, ["swift"]) == ["swift"]

    (tmp_path / "checkpoint-9").mkdir()
    (tmp_path / "checkpoint-9" / "trainer_state.json").write_text("{}")

    assert train_command(SftConfig(nodes=2), paths, rows=560) == first
    assert started(tmp_path, ["swift"]) == ["swift", "--resume_from_checkpoint", str(tmp_path / "checkpoint-9")]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"packing": True}, "packing"),
        ({"max_length": 128}, "max_length 128 has no room for a prompt beside max_new_tokens 150"),
    ],
)
def test_settings_that_cannot_work_together_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SftConfig.parse(values, "sft")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "no rows to learn from"),
        ([chat(1) | {"messages": chat(1)["messages"][:2]}], "train.jsonl:1: a chat is system, user and an assistant"),
        ([chat(1), chat(2, answer=" ")], "train.jsonl:2: .*with an empty answer"),
        ([chat(1), chat(2, system="另一个")], "train.jsonl:2: another system prompt than the rows of 'fivedoctors'"),
        ([{"text": "x"}], "train.jsonl:1: no chat row"),
        ([with_text(1, "问<|im_end|>")], "train.jsonl:1: the user's text holds < or"),
        ([with_text(2, "[INST] 答")], "train.jsonl:1: the assistant's text holds < or"),
    ],
)
def test_rows_that_teach_nothing_are_named(tmp_path: Path, rows: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_chats(write_chats(tmp_path / "train.jsonl", rows))


def test_each_tenants_prompt_is_taken_from_its_rows(tmp_path: Path) -> None:
    rows = [chat(1), chat(2, tenant="chengla", system="你是教育领域的专家")]

    result = read_chats(write_chats(tmp_path / "train.jsonl", rows))

    assert result.system_prompts == {"fivedoctors": SYSTEM, "chengla": "你是教育领域的专家"}


@pytest.mark.parametrize(
    ("chats", "ids", "where"),
    [
        ([chat(1), chat(2, answer="很长" * 200)], [1], ["train.jsonl:2"]),
        ([chat(1, answer="很长" * 200), chat(2)], [2], ["train.jsonl:1"]),
        ([chat(2), chat(1, answer="很长" * 200), chat(3, answer="很长" * 9)], [2, 3], ["train.jsonl:2"]),
        ([chat(1), chat(2)], [1, 2], []),
    ],
)  # fmt: skip
def test_a_row_that_is_too_long_is_left_out_and_named(
    tmp_path: Path, chats: list[dict[str, Any]], ids: list[int], where: list[str]
) -> None:
    tokenizer = load_tokenizer(tiny_model(tmp_path / "model"))
    path = write_chats(tmp_path / "train.jsonl", chats)

    fitted = write_fitting(tokenizer, path, tmp_path / "out.jsonl", SftConfig(device="cpu", max_length=256))

    assert (fitted.rows, [row.where for row in fitted.too_long]) == (len(ids), where)
    written = [orjson.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines()]
    assert [int(row["metadata"]["id"]) for row in written] == ids
    assert all("tokens without any history, and sft.max_length is 256" in row.detail for row in fitted.too_long)


def test_rows_that_are_all_too_long_are_an_error_and_those_that_fit_stay_to_the_byte(tmp_path: Path) -> None:
    tokenizer, config = load_tokenizer(tiny_model(tmp_path / "model")), SftConfig(device="cpu", max_length=256)
    long = write_chats(tmp_path / "long.jsonl", [chat(1, answer="很长" * 200)])
    path = write_chats(tmp_path / "train.jsonl", [chat(1), chat(2)])

    with pytest.raises(DataError, match=r"all 1 rows are longer than sft.max_length without any history"):
        write_fitting(tokenizer, long, tmp_path / "out.jsonl", config)
    assert write_fitting(tokenizer, path, tmp_path / "out.jsonl", config).trimmed == 0
    assert (tmp_path / "out.jsonl").read_bytes() == path.read_bytes()


def test_the_student_learns_a_long_conversation_as_it_will_be_served(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tiny_model(tmp_path / "model"))
    question = Question("fivedoctors", "那它一天吃几次", "老人", " ".join(f"用户：第{at}句话" for at in range(40)))
    long = chat(1) | {"messages": [*student_messages(question), student_answer("每日服用频次")]}
    path = write_chats(tmp_path / "train.jsonl", [long, chat(2)])
    config = SftConfig(device="cpu", max_length=256)

    assert write_fitting(tokenizer, path, tmp_path / "out.jsonl", config).trimmed == 1

    first, second = (orjson.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().splitlines())
    served = fit_prompt(tokenizer, student_messages(question), config.max_prompt_tokens)
    assert first == long | {"messages": [*served.messages, long["messages"][2]]} != long and second == chat(2)


def test_a_gpu_that_is_wanted_and_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="settings of sft need 4 GPUs, and this machine shows"):
        sft(tmp_path, chats(tmp_path / "chats"), tmp_path / "model", tmp_path / "log", SftConfig())


def test_the_log_is_read_as_it_grows(tmp_path: Path) -> None:
    log, observed = tmp_path / "logging.jsonl", list[tuple[int, int]]()
    live = silent_training("sft", lambda step, total, note="": observed.append((step, total)))
    watch = TrainingMonitor(log, live)
    assert watch() is False

    log.write_text('{"loss": 4.4, "global_step/max_steps": "1/20"}\n{"eval_loss": 2.0, "global_')
    watch()
    with log.open("a") as file:
        file.write(
            'step/max_steps": "10/20"}\n{"train_runtime": 3.0, "train_loss": 2, "global_step/max_steps": "20/20"}\n'
        )
    watch()

    assert observed == [(1, 20), (10, 20)]
    assert [row.get("eval_loss") for row in watch.metrics] == [None, 2.0]


class Diverging:
    """A training whose log says what ms-swift's says of a loss without bounds, until it is stopped."""

    remote = False

    def attaches(self, spec: JobSpec) -> bool:
        return False

    def run(self, spec: JobSpec, log: Path, on_line: Any = None, stop: Any = None) -> Outcome:
        checkpoints = log.parents[1] / "checkpoints"
        checkpoints.mkdir()
        with (checkpoints / "logging.jsonl").open("w") as file:
            for step, value in enumerate(("4.4", "NaN", "NaN"), 1):
                file.write(f'{{"loss": {value}, "grad_norm": {value}, "global_step/max_steps": "{step}/9"}}\n')
                file.flush()
                if stop():
                    return Outcome(-15)
        raise AssertionError("nobody stopped it")


def test_a_loss_without_bounds_ends_with_a_word_and_not_with_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SCRATCH_VARIABLE, str(tmp_path / "scratch"))
    inputs = tiny_model(tmp_path / "base", stage="base"), chats(tmp_path / "chats")
    config = SftConfig(device="cpu", tuner="full", max_length=256)

    with pytest.raises(TrainingError, match=r"loss is nan at step 2: .* The setting is sft\.learning_rate"):
        sft(*inputs, tmp_path / "model", tmp_path / "log", config, Diverging())

    assert not (tmp_path / "model").exists()


class Recording:
    """A runner of jobs on other machines that keeps the command, and whose job fails."""

    remote = True

    def __init__(self) -> None:
        self.argv: list[str] = []

    def attaches(self, spec: JobSpec) -> bool:
        return False

    def run(self, spec: JobSpec, log: Path, on_line: Any = None, stop: Any = None) -> Outcome:
        self.argv = [str(word) for word in spec.command.argv]
        log.write_text("ended")
        return Outcome(1)


@pytest.mark.slow
def test_the_pods_of_a_job_read_a_base_that_is_handed_on_by_reference_from_its_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ((SCRATCH_VARIABLE, "scratch"), (WEIGHTS_VARIABLE, "weights"), (BY_REFERENCE_VARIABLE, "1")):
        monkeypatch.setenv(name, str(tmp_path / value))
    volume, rows = tiny_model(tmp_path / "weights" / "Qwen3"), chats(tmp_path / "chats")
    run_base_stage(tmp_path / "kb", tmp_path / "prompts", tmp_path / "reference", BaseConfig(model="Qwen3"))
    config, trained = SftConfig(device="cpu", tuner="full", max_length=256), []

    for base in (tmp_path / "reference", volume):
        runner = Recording()
        with pytest.raises(TrainingError):
            sft(base, rows, tmp_path / "model", tmp_path / "log", config, runner)
        trained.append(runner.argv[runner.argv.index("--model") + 1])

    copies = list((tmp_path / "scratch" / "inputs").glob("*/Qwen3"))
    assert trained == [str(volume), str(copies[0])], "what is no reference is copied to where the pods see it"


def test_a_half_written_checkpoint_is_not_gone_on_from(tmp_path: Path) -> None:
    for step, state in ((9, "{}"), (10, "{}"), (20, ""), (30, '{"log_history": [{"st'), (40, None)):
        (tmp_path / f"checkpoint-{step}").mkdir()
        if state is not None:
            (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(state)

    result = last_checkpoint(tmp_path)

    assert result is not None and result.name == "checkpoint-10"
    assert last_checkpoint(tmp_path / "none") is None


def test_the_best_checkpoint_is_the_one_that_the_last_ones_state_names(tmp_path: Path) -> None:
    for step, best in ((12, "checkpoint-12"), (24, "checkpoint-12")):
        (tmp_path / f"checkpoint-{step}").mkdir()
        state = orjson.dumps({"best_model_checkpoint": f"/elsewhere/{best}"})
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_bytes(state)

    assert best_checkpoint(tmp_path) == tmp_path / "checkpoint-12"
    (tmp_path / "checkpoint-12" / "trainer_state.json").unlink()
    (tmp_path / "checkpoint-12").rmdir()
    with pytest.raises(TrainingError, match="no best checkpoint"):
        best_checkpoint(tmp_path)
