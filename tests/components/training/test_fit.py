"""Bytes of SFT and PPO by phase: sums that can be checked by hand, for Qwen3-32B on four and eight A100."""

from pathlib import Path

import pytest

from components.training.ppo import fit as ppo
from components.training.ppo.config import Hardware, Lora, PpoConfig
from components.training.sft import fit as sft
from components.training.sft.config import SftConfig
from qinglan.sizing.cards import known_cards
from qinglan.sizing.constants import GB, GIB, GIGABIT, PINNED
from qinglan.sizing.ledger import Phase
from qinglan.sizing.shape import known_shapes
from tests.gpu.ppo import ppo_config
from tests.gpu.training_files import read_training_file

ACTOR, SMALL = known_shapes()["Qwen/Qwen3-32B"], known_shapes()["Qwen/Qwen3-1.7B"]
NETWORK = 100 * GIGABIT
USABLE = known_cards()["NVIDIA-A100-SXM4-80GB"].usable


def parts(phase: Phase) -> dict[str, float]:
    return {part.name: round(part.bytes / GB, 1) for part in phase.amounts}


def phases(config: PpoConfig, critic: bool = True) -> dict[str, dict[str, float]]:
    return {phase.name: parts(phase) for phase in ppo.card_phases(config, ACTOR, SMALL if critic else None, USABLE)}


def test_a_critics_update_takes_sixteen_bytes_for_each_of_its_parameters() -> None:
    update = phases(PpoConfig())["critic's update"]

    assert update["critic's weights"] == 1.7 and update["critic's AdamW"] == 3.4
    assert update["critic's weights"] + update["critic's gradients"] + update["critic's AdamW"] == pytest.approx(
        16 * SMALL.classifier(1, bias=True) / 4 / GB, abs=0.1
    )
    assert update["actor's weights"] == 16.4


def test_all_weights_of_an_actor_are_trained_in_fp32() -> None:
    config = PpoConfig(lora=Lora(rank=0), hardware=Hardware(per_node=8, offload=True), accumulation=4)
    update = phases(config)["actor's update"]

    assert [update[name] for name in ("actor's weights", "actor's gradients", "actor's AdamW")] == [16.4, 16.4, 32.8]
    assert "critic's AdamW" not in update


def test_without_a_critic_nothing_of_it_is_counted() -> None:
    config = PpoConfig(advantage="grpo", rollouts=4)
    assert "critic's update" not in phases(config, critic=False)
    assert not any("critic" in name for phase in phases(config, critic=False).values() for name in phase)


def test_the_rollout_fills_its_share_beside_what_stays_on_the_card() -> None:
    rollout = phases(PpoConfig())["rollout"]

    assert rollout["vLLM's share"] == 42.5 and rollout["actor's AdamW"] == 1.1
    assert "vLLM's share" not in phases(PpoConfig())["actor's update"]


def test_weights_on_their_way_are_there_twice() -> None:
    sending = phases(PpoConfig(hardware=Hardware(offload=True)))["weights to the rollout"]

    assert sending["actor's weights"] == 16.4 and sending["vLLM's weights"] == 16.4


def test_the_machine_holds_a_copy_of_the_base_and_of_what_waits() -> None:
    loading, sending = (parts(phase) for phase in ppo.host_phases(PpoConfig(), ACTOR, SMALL))
    assert loading["whole models"] == 65.5 and sending["copy of the base"] == 65.5

    full = PpoConfig(lora=Lora(rank=0), hardware=Hardware(per_node=8, offload=True))
    sending = parts(ppo.host_phases(full, ACTOR, SMALL)[1])
    assert sending["actor's AdamW, waiting"] == pytest.approx(32.762 * 8 * PINNED.value, abs=0.1)
    assert sending["reference"] == 65.5 and "copy of the base" not in sending


@pytest.mark.parametrize(
    ("phase", "mib"), [("weights to the rollout", 22_032), ("rollout", 23_114), ("critic's update", 9_124 + 4_548)]
)
def test_what_an_h100_held_of_one_gpu_24_is_reckoned_within_a_twentieth(
    phase: str, mib: float, tmp_path: Path
) -> None:
    """Qwen3-4B with a critic of 0.6B, by NVIDIA's own count for the processes of verl and vLLM (docs/gpu.md).

    The critic's moments, 4,548 MiB, were first made when its gradients were there.
    """
    config = ppo_config(read_training_file("one-gpu-24"), tmp_path).model_copy(update={"max_prompt_tokens": 199})
    actor, critic = known_shapes()["Qwen/Qwen3-4B"], known_shapes()["Qwen/Qwen3-0.6B"]

    reckoned = {each.name: each.bytes for each in ppo.card_phases(config, actor, critic, 79.18 * GIB)}

    assert reckoned[phase] == pytest.approx(mib * 2**20, rel=0.05)


def test_a_step_of_one_gpu_24_waits_for_the_kernels_of_its_layers_as_an_h100_did(tmp_path: Path) -> None:
    """32 parts of two rows: the adapter's update 17.4 s and more, the critic's 9.2, probabilities and values 10.4,
    weights to the rollout 7.6."""
    values = read_training_file("one-gpu-24")
    config = ppo_config(values, tmp_path).model_copy(update={"collection": 64, "batch": 64, "accumulation": 32})
    shapes = known_shapes()["Qwen/Qwen3-4B"], known_shapes()["Qwen/Qwen3-0.6B"]
    card = known_cards()["NVIDIA-H100-80GB-HBM3"]

    two_steps, three = (
        ppo.seconds(config.model_copy(update={"steps": steps}), *shapes, 128, 250, card, NETWORK) for steps in (2, 3)
    )

    assert three - two_steps == pytest.approx(17.4 + 9.2 + 10.4 + 7.6, rel=0.06)


@pytest.mark.parametrize(
    ("changes", "seconds"),
    [
        # All but one of eight parts of 65.5 GB cross: in 32 parts of a batch twice, 8 times once for the old
        # probabilities and for the reference's, and once to the rollout; the adapter's gradients, 2.1 GB, 32 times.
        ({}, (32 * (2 * 65.52 + 2.15) + 2 * 8 * 65.52 + 65.52) * 7 / 8 / 12.5),
        ({"ppo_epochs": 1}, (8 * (2 * 65.52 + 2.15) + 2 * 8 * 65.52 + 65.52) * 7 / 8 / 12.5),
        ({"accumulation": 4}, (64 * (2 * 65.52 + 2.15) + 2 * 16 * 65.52 + 65.52) * 7 / 8 / 12.5),
    ],
)
def test_a_step_on_two_nodes_waits_for_all_weights_in_each_part_of_a_batch(
    changes: dict[str, int], seconds: float
) -> None:
    config = PpoConfig(advantage="grpo", rollouts=2, accumulation=2, hardware=Hardware(nodes=2), steps=2)
    config = config.model_copy(update=changes)
    card = known_cards()["NVIDIA-A100-SXM4-80GB"]

    one_step, two_steps = (
        ppo.seconds(config.model_copy(update={"steps": steps}), ACTOR, None, 560, 250, card, NETWORK)
        for steps in (1, 2)
    )

    # The rest is answers, prompts and the transfer on each machine, which no network decides.
    assert 50 < two_steps - one_step - seconds < 80


def test_on_one_node_no_byte_crosses_the_network() -> None:
    card = known_cards()["NVIDIA-A100-SXM4-80GB"]
    trainings = [
        [ppo.seconds(PpoConfig(), ACTOR, ACTOR, 560, 250, card, network) for network in (1.0, NETWORK)],
        [sft.seconds(SftConfig(), ACTOR, 560, 250, card, network) for network in (1.0, NETWORK)],
    ]

    assert all(slow == fast for slow, fast in trainings)


@pytest.mark.parametrize(
    ("config", "gigabytes"),
    [
        (SftConfig(nodes=2), 27 * 2 * 4 * 0.134),  # gradients of the adapter, in fp32, summed for all
        (SftConfig(nodes=2, tuner="full", deepspeed="zero2"), 27 * 2 * 2 * 32.76),
        (SftConfig(nodes=2, tuner="full", deepspeed="zero3"), 420 * (2 * 2 + 2) * 32.76),
    ],
)
def test_sft_on_two_nodes_exchanges_gradients_and_with_zero3_all_weights(config: SftConfig, gigabytes: float) -> None:
    assert sft.crossing_bytes(config, ACTOR, 420, 27) / GB == pytest.approx(gigabytes, rel=0.01)


def test_more_parts_of_a_batch_take_less_memory() -> None:
    few, many = (phases(PpoConfig(accumulation=parts))["actor's update"]["logits and loss"] for parts in (2, 16))

    assert few == pytest.approx(8 * many, rel=0.05)


def test_held_activations_take_the_room_and_save_the_second_forward_pass() -> None:
    card = known_cards()["NVIDIA-A100-SXM4-80GB"]
    again, held = (SftConfig(gpus=1, max_length=1024, checkpointing=value) for value in (True, False))

    [[computed], [stored]] = (sft.card_phases(config, known_shapes()["Qwen/Qwen3-8B"]) for config in (again, held))
    seconds = [sft.seconds(config, ACTOR, 56_000, 250, card, NETWORK) for config in (again, held)]

    assert (parts(computed)["layers' inputs"], parts(stored)["activations"]) == (0.6, 17.3)
    assert seconds[1] / seconds[0] == pytest.approx(2 / 3, rel=0.06)


def test_an_adapter_beside_a_whole_base_is_on_every_card() -> None:
    [step] = sft.card_phases(SftConfig(), ACTOR)

    held = parts(step)
    assert held["base weights"] == 65.5
    adapter = ACTOR.adapter(16) / GB
    assert held["adapter and its gradients"] == pytest.approx(8 * adapter, abs=0.1)
    assert held["AdamW"] == pytest.approx(8 * adapter, abs=0.1)
    [sharded] = sft.card_phases(SftConfig(deepspeed="zero3"), ACTOR)
    assert parts(sharded)["base weights"] == 16.4


def test_zero3_shares_all_that_a_training_of_all_weights_holds() -> None:
    [step] = sft.card_phases(SftConfig(tuner="full", deepspeed="zero3", gpus=8), ACTOR)

    held = parts(step)
    names = ("weights", "gradients", "AdamW", "fp32 copy of the weights")
    assert sum(held[name] for name in names) == pytest.approx(16 * ACTOR.parameters / 8 / GB, abs=0.2)


def test_a_card_alone_needs_no_room_for_others() -> None:
    [alone] = sft.card_phases(SftConfig(gpus=1), ACTOR)

    assert "NCCL" not in parts(alone) and "gradients to be summed" not in parts(alone)
    assert "NCCL" in parts(sft.card_phases(SftConfig(), ACTOR)[0])
