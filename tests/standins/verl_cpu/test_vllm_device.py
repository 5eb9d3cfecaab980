"""verl on a CPU as on GPUs: no setting of GPUs is changed unsaid, and a sleeping vLLM loses what a GPU's does."""

from types import SimpleNamespace
from typing import Any

import pytest

from components.training.ppo import gpus
from components.training.ppo.config import PpoConfig
from standins.verl_cpu import vllm_device
from standins.verl_cpu.vllm_patches import load, offload_model, offload_optimizer, sleep, wake_up


@pytest.mark.parametrize("changes", [{}, {"lora": {"rank": 0}}, {"advantage": "grpo", "rollouts": 2}])
def test_every_setting_of_gpus_holds_and_the_rest_is_printed(changes: dict[str, Any]) -> None:
    hardware = {"device": "cpu", "plugin": vllm_device.__name__, "dtype": "float32"}
    config = PpoConfig.parse({"hardware": hardware, **changes}, "ppo")
    sent, for_gpus = vllm_device.overrides(config), gpus.overrides(config)

    assert for_gpus.items() <= sent.items()
    assert sent.keys() - for_gpus.keys() == vllm_device.cpu_differences(config).keys()


def sleeper() -> SimpleNamespace:
    import torch

    model = torch.nn.BatchNorm1d(2)
    return SimpleNamespace(model_runner=SimpleNamespace(model=model, kv_caches=[torch.ones(3)]))


def test_a_worker_that_slept_wakes_with_its_buffers_and_without_its_weights() -> None:
    worker = sleeper()
    sleep(worker, level=2)
    model = worker.model_runner.model
    assert all(tensor.isnan().all() for tensor in (model.weight, model.bias, model.running_var))

    wake_up(worker, ["weights"])
    assert model.running_var.tolist() == [1, 1] and model.weight.isnan().all()

    model.weight.data.fill_(1)
    with pytest.raises(RuntimeError, match=r"without its weights: bias \(1 in all\)"):
        wake_up(worker, ["kv_cache"])
    model.bias.data.fill_(0)
    wake_up(worker, ["kv_cache"])
    assert worker.model_runner.kv_caches[0].tolist() == [0, 0, 0]


def test_an_offloaded_model_and_its_optimizer_compute_nothing_until_they_are_loaded() -> None:
    import torch

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    load(model)
    step()
    offload_model(model)
    assert model.state_dict()["weight"].shape == (1, 2), "it is read as from a machine's memory"
    with pytest.raises(RuntimeError, match="Linear computes while it is offloaded"):
        step()
    load(model)
    offload_optimizer(optimizer)
    with pytest.raises(RuntimeError, match="AdamW computes while it is offloaded"):
        step()
    load(optimizer)
    step()
