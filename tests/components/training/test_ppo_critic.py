"""The critic begins with the policy's weights and values of 0."""

from pathlib import Path

from components.training.ppo.critic import prepare_critic
from tests.tiny import tiny_model


def test_a_critic_values_everything_at_nothing_before_it_has_learned(tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoModelForTokenClassification

    model = tiny_model(tmp_path / "model")
    folder = prepare_critic(model, tmp_path / "critic")

    critic = AutoModelForTokenClassification.from_pretrained(folder, num_labels=1, dtype=torch.float32)

    ids = torch.tensor([[3, 4, 5]])
    assert critic(ids).logits.abs().max() == 0
    own = dict(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).model.named_parameters())
    borrowed = dict(critic.model.named_parameters())
    assert own.keys() == borrowed.keys()
    assert all(torch.equal(own[name], borrowed[name]) for name in own)


def test_preparing_again_changes_nothing(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")

    first = sorted(path.name for path in prepare_critic(model, tmp_path / "critic").iterdir())

    assert sorted(path.name for path in prepare_critic(model, tmp_path / "critic").iterdir()) == first
    assert "model.safetensors" not in first
