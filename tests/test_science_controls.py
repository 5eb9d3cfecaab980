"""The controls of `benchmarks.science` measure what their names say."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.science import runs
from qinglan.files.scratch import SCRATCH_VARIABLE, scratch_folder
from qinglan.rewriter.card import RewriterCard, read_card, write_card


def test_the_control_of_shuffled_rewards_is_what_they_trained_and_not_the_model_that_ppo_hands_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(sft_model: Path, rows: Path, model: Path, *rest: Any) -> None:
        (scratch_folder("ppo", "this training") / "best" / "actor").mkdir(parents=True)
        model.mkdir(parents=True)
        write_card(model, RewriterCard(stage="ppo", max_new_tokens=8))

    def export(actor: Path, sft_model: Path, folder: Path, card: RewriterCard) -> None:
        write_card(folder, card)
        (folder / "weights").write_text(f"of {actor.relative_to(tmp_path / 'out')}")

    monkeypatch.setenv(SCRATCH_VARIABLE, "the run's own")
    monkeypatch.setattr(runs, "gateway", lambda *arguments: nullcontext(""))
    monkeypatch.setattr(runs, "ppo", train)
    monkeypatch.setattr(runs, "export_checkpoint", export)
    config: Any = SimpleNamespace(ppo=None)

    model = runs.shuffled_rewards(config, tmp_path / "run", tmp_path / "out")

    assert (model / "weights").read_text().startswith("of scratch/ppo/")
    assert (model / "weights").read_text().endswith("/best/actor")
    assert read_card(model).stage == "ppo"
