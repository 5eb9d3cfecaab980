"""Calls and cache hits reach verl's own metrics, which every tracker gets."""

from types import ModuleType, SimpleNamespace
from typing import Any

import orjson
import pytest

from components.training.ppo.metrics import parse_step
from components.training.ppo.plugin import reward_terms
from tests.servers.echo_servers import Reply, Scripted, running


def report(answered: int, hits: int, misses: int) -> Reply:
    by_step = [{"step": "reward", "answered": answered, "hits": hits}]
    return Reply(200, orjson.dumps({"by_step": by_step, "retrieval_hits": hits, "retrieval_misses": misses}))


@pytest.mark.parametrize("has_gateway", [True, False])
def test_a_step_has_the_gateways_calls_before_verl_logs_it(
    monkeypatch: pytest.MonkeyPatch, has_gateway: bool
) -> None:
    class PPOTrainer:
        agent_loop_manager = SimpleNamespace(figures=([{"score": 1.0}], {"seconds_unhidden": 0.0}))

        def _compute_metrics(self, batch: Any, metrics: dict[str, Any]) -> None:
            metrics["timing_s/adv"] = 1.0

    monkeypatch.setattr(reward_terms, "summarise_rollouts", lambda terms: {})
    module, metrics = ModuleType("trainer_base"), dict[str, Any]()
    module.PPOTrainer = PPOTrainer  # type: ignore[attr-defined]
    with running(Scripted(report(1, 0, 2), report(4, 3, 7))) as url:
        monkeypatch.setenv(reward_terms.GATEWAY_VARIABLE, url if has_gateway else "")
        reward_terms.log_reward_terms(module)
        module.PPOTrainer()._compute_metrics(None, metrics)

    step = parse_step({"step": 1, "data": metrics}, {})
    calls = (step.get("rag_calls"), step.get("judge_calls"), step.get("judge_hit_rate"))
    assert calls == ((8.0, 6.0, 0.5) if has_gateway else (None, None, None))
