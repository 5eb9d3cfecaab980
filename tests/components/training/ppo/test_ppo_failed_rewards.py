"""A reward that cannot be given: what verl's own managers make of it, and what stops our training all the same."""

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from benchmarks.faulty_reward.handling import run_single, verl_manager
from qinglan.errors import OutageError
from qinglan.reward import reward_function
from qinglan.reward.outage import read_outage
from tests.models.tiny_rewriter import tiny_model
from tests.models.validated_rows import validated

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from qinglan.rewriter.model import load_tokenizer

    return load_tokenizer(tiny_model(tmp_path_factory.mktemp("model")))


def sample(tokenizer: Any, row: dict[str, Any]) -> dict[str, Any]:
    ids = tokenizer("虾青素 每日服用频次", add_special_tokens=False).input_ids
    return {"ids": ids, "data_source": "test", "reward_model": {"ground_truth": row["need"]}, "extra_info": row}


def test_an_outage_in_our_reward_stops_the_training_although_verls_manager_gave_0(
    tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QINGLAN_OUTAGE_SECONDS", "0")
    settings = tmp_path / "reward.json"
    settings.write_bytes(orjson.dumps({"gateway_url": "http://127.0.0.1:9", "folder": str(tmp_path / "rollouts")}))
    row = training_row()

    async def compute_score(**arguments: Any) -> dict[str, float]:
        return await reward_function.compute_score(**arguments, settings=str(settings))

    async def run() -> float:
        try:
            return await run_single(verl_manager(compute_score, tokenizer), sample(tokenizer, row))
        finally:
            await reward_function.close()

    assert asyncio.run(run()) == 0.0
    with pytest.raises(OutageError):
        raise read_outage(tmp_path / "rollouts") or AssertionError("no outage was written")


def training_row() -> dict[str, Any]:
    from qinglan.rows.training_rows import ppo_row

    row: dict[str, Any] = ppo_row(validated(), "train")["extra_info"]
    return row
