"""PPO's settings: what does not fit together is named, and what is written for hydra comes back from it."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.training.ppo.config import PpoConfig
from components.training.ppo.launch import verl_environment
from components.training.ppo.overrides import _hydra_literal
from pipelines.lines.config import TRAINING
from qinglan.config import load_yaml
from qinglan.errors import ConfigError


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"advantage": "grpo"}, "rollouts"),
        ({"collection": 100}, "multiple of batch"),
        ({"batch": 32, "accumulation": 32}, "^ppo: batch 32 .* 4 cards x accumulation 32.* or take 1 of them$"),
        ({"hardware": {"tensor_parallel": 3}}, "tensor_parallel"),
        ({"clipp": 0.2}, "clipp"),
        ({"advantage": "grpo", "rollouts": 2, "critic_model": "Qwen/Qwen3-1.7B"}, "grpo has no critic"),
    ],
)
def test_settings_that_do_not_fit_together_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PpoConfig.parse(changes, "ppo")


def test_threads_on_a_cpu_are_a_setting() -> None:
    configs = [PpoConfig.parse(load_yaml(TRAINING / f"{name}.yaml")["ppo"], name) for name in ("laptop", "cpu")]

    for name in ("OMP_NUM_THREADS", "TQ_NUM_THREADS"):
        assert [verl_environment(config)[name] for config in configs] == ["1", "8"]


@pytest.mark.parametrize(
    ("values", "prompts", "steps", "every"),
    [
        ({}, 560, 20, 2),
        ({}, 300, 10, 1),
        ({}, 100_000, 3900, 390),
        ({"rollouts": 4}, 560, 80, 8),
        ({"steps": 48, "validations": 4}, 1800, 48, 12),
        ({"steps": 25}, 560, 25, 3),
        ({"steps": 3}, 560, 3, 1),
    ],
)
def test_checkpoints_are_spread_over_the_steps_that_there_are(
    values: dict[str, Any], prompts: int, steps: int, every: int
) -> None:
    config = PpoConfig.parse(values, "ppo").with_steps(prompts)

    assert (config.steps, config.every) == (steps, every)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@given(st.text() | st.text("\\'0a "))
@example("\\0")
@example("\\'\\\\")
def test_any_text_comes_back_from_hydras_grammar_as_it_was(text: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    if "${" in text or text.strip() != text or not text.isprintable():
        return  # no path of ours
    assert OverridesParser.create().parse_override(f"key={_hydra_literal(text)}").value() == text
