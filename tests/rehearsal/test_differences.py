"""A rehearsal changes what it prints, and nothing else."""

from pathlib import Path

import pytest

from tests.rehearsal.__main__ import PROFILES, main
from tests.rehearsal.differences import (
    Difference,
    _leaves,
    command_differences,
    serving_differences,
    setting_differences,
)
from tests.rehearsal.rehearse import DEVICE, SIZES, STAGES, Rehearsal

STORES = {"register.store", "deploy.store"}
FOLLOWS_IN_SFT = {
    "command", "--learning_rate", "--num_train_epochs", "--eval_steps", "--save_steps", "--gradient_checkpointing",
    "--deepspeed", "--use_cpu",
    *(f"environment {name}" for name in (
        "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE", "QINGLAN_WORLD_SIZE")),
}  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES)
def test_only_the_listed_settings_differ(profile: str, tmp_path: Path) -> None:
    rehearsal = Rehearsal(profile, tmp_path, 60)

    names = {difference.name for difference in setting_differences(rehearsal.there(), rehearsal.here(), STAGES)}

    assert names <= {name for settings in (SIZES, DEVICE) for name, _ in _leaves(settings)} | STORES
    assert {"sft.device", "ppo.hardware.device", "ppo.hardware.plugin", *STORES} <= names


@pytest.mark.parametrize("profile", PROFILES)
def test_the_command_of_sft_differs_in_what_a_cpu_has_not(profile: str, tmp_path: Path) -> None:
    rehearsal = Rehearsal(profile, tmp_path, 60)

    different = command_differences(rehearsal.there(), rehearsal.here(), "sft")

    assert {difference.name for difference in different} <= FOLLOWS_IN_SFT
    [command] = [difference for difference in different if difference.name == "command"]
    assert command.there.endswith("-m swift.cli.main sft") and command.here.endswith("-m swift.cli.sft")


@pytest.mark.parametrize("profile", PROFILES)
def test_the_runtime_is_served_by_its_own_options_but_for_one_process_and_folders(
    profile: str, tmp_path: Path
) -> None:
    different = serving_differences(Rehearsal(profile, tmp_path, 60).there())

    names = {difference.name for difference in different}
    assert names - {"--lora-modules", "--base"} == {
        "command",
        "--tensor-parallel-size",
        "--model",
        "--host",
        "--port",
    }
    [command] = [difference for difference in different if difference.name == "command"]
    assert command.here.removesuffix(" --enforce-eager").split()[3:] == command.there.split()[3:]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nope"], "no profile nope. There are: a100-multinode"), (["--until", "nope"], "invalid choice: 'nope'")],
)
def test_an_unknown_profile_or_step_is_an_error_that_lists_those_there_are(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_difference_reads_from_there_to_here() -> None:
    assert str(Difference("sft.gpus", 4, None)) == "sft.gpus: 4 -> -"
