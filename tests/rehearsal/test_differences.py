"""A rehearsal changes what it prints, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qinglan.files.scratch import SCRATCH_VARIABLE
from tests.rehearsal.__main__ import PROFILES, main
from tests.rehearsal.differences import (
    Difference,
    _leaves,
    command_differences,
    other_differences,
    serving_differences,
    setting_differences,
)
from tests.rehearsal.rehearse import DEVICE, POD_MODULES, SIZES, STAGES, Rehearsal, same_end

STORES = {"register.store", "deploy.store"}
PROCESSES = {"ppo.hardware.per_node", "ppo.hardware.tensor_parallel"}
FOLLOWS_IN_SFT = {
    "command", "--learning_rate", "--num_train_epochs", "--eval_steps", "--save_steps", "--gradient_checkpointing",
    "--use_cpu",
    *(f"environment {name}" for name in (
        "OMP_NUM_THREADS", "OMP_WAIT_POLICY", "CUDA_VISIBLE_DEVICES", "DS_ACCELERATOR", "NPROC_PER_NODE",
        "QINGLAN_WORLD_SIZE")),
}  # fmt: skip


@pytest.mark.parametrize("profile", PROFILES)
def test_only_the_listed_settings_differ(profile: str, tmp_path: Path) -> None:
    rehearsal = Rehearsal(profile, tmp_path, 60)

    names = {
        difference.name for difference in setting_differences(rehearsal.profile_config(), rehearsal.here(), STAGES)
    }

    assert names <= {name for settings in (SIZES, DEVICE) for name, _ in _leaves(settings)} | STORES | PROCESSES
    assert {"sft.device", "ppo.hardware.device", "ppo.hardware.plugin", *STORES} <= names


@pytest.mark.parametrize("profile", PROFILES)
def test_the_command_of_sft_differs_in_what_a_cpu_has_not(profile: str, tmp_path: Path) -> None:
    rehearsal = Rehearsal(profile, tmp_path, 60)

    different = command_differences(rehearsal.profile_config(), rehearsal.here(), "sft")

    assert {difference.name for difference in different} <= FOLLOWS_IN_SFT
    commands = [(command.profile, command.here) for command in different if command.name == "command"]
    profile_sft = rehearsal.profile_config().sft
    under_torchrun_here_too = profile_sft.nodes > 1 or profile_sft.deepspeed is not None
    one_process_there_too = profile_sft.processes == 1
    assert len(commands) == (not under_torchrun_here_too and not one_process_there_too)
    assert all(
        profile.endswith("-m swift.cli.main sft") and here.endswith("-m swift.cli.sft") for profile, here in commands
    )


@pytest.mark.parametrize("profile", PROFILES)
def test_the_runtime_is_served_by_its_own_options_but_for_size_patience_and_folders(
    profile: str, tmp_path: Path
) -> None:
    different = serving_differences(Rehearsal(profile, tmp_path, 60).profile_config())

    names = {difference.name for difference in different}
    assert names - {"--lora-modules", "--base"} == {
        "command",
        "--tensor-parallel-size",
        "--max-num-seqs",
        "--deadline-seconds",
        "--model",
        "--host",
        "--port",
    }
    [command] = [difference for difference in different if difference.name == "command"]
    assert command.here.removesuffix(" --enforce-eager").split()[3:] == command.profile.split()[3:]


def test_the_end_is_not_repeated_for_profiles_whose_later_commands_and_model_files_are_alike(tmp_path: Path) -> None:
    rehearsals = [Rehearsal(profile, tmp_path / profile, 60) for profile in PROFILES]

    alike = {
        (first.profile, second.profile)
        for number, second in enumerate(rehearsals)
        for first in rehearsals[:number]
        if same_end(first, second)
    }

    lora = ["a100x4", "a100x8", "a100-multinode"]
    assert alike == {(first, second) for number, second in enumerate(lora) for first in lora[:number]}


@pytest.mark.slow
def test_a_step_with_a_job_of_several_machines_starts_its_pods_here(tmp_path: Path) -> None:
    code = (
        "from components.training.kubeflow import job_runner as it; print(type(it.job_runner('cpu', None)).__name__)"
    )
    environment = {**os.environ, "PYTHONPATH": str(POD_MODULES), SCRATCH_VARIABLE: str(tmp_path)}

    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "LoopbackRunner"


def test_several_machines_stay_several(tmp_path: Path) -> None:
    rehearsal = Rehearsal("a100-multinode", tmp_path, 60)

    profile, here = rehearsal.profile_config(), rehearsal.here()

    assert (here.sft.nodes, here.ppo.hardware.nodes) == (profile.sft.nodes, profile.ppo.hardware.nodes) == (2, 2)
    assert here.ppo.hardware.per_node == 1
    assert any("2 processes here" in line for line in other_differences(profile, 60))


@pytest.mark.parametrize(
    ("profile", "most", "settings"), [("a100x8", 4, (4, 4)), ("a100-multinode", 4, (2, 2)), ("one-gpu-24", 4, (1, 1))]
)
def test_ppo_has_as_many_processes_as_the_command_line_says_where_the_file_has_the_cards(
    profile: str, most: int, settings: tuple[int, int], tmp_path: Path
) -> None:
    hardware = Rehearsal(profile, tmp_path, 60, most).here().ppo.hardware

    assert (hardware.per_node, hardware.tensor_parallel) == settings


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nope"], "no profile nope. There are: a100x4, a100x8"), (["--until", "nope"], "invalid choice: 'nope'")],
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
