"""Addresses hold no key, wherever they are set, and no error repeats one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.evaluation.rewriter.config import EvaluateConfig
from components.evaluation.rewriter.student_timing import time_served
from components.training.ppo.config import PpoConfig
from pipelines.lines.config import load_config
from pipelines.submit.kfp_client import read_access
from qinglan.errors import ConfigError
from qinglan.http.addresses import address_fault, called_addresses, hide_secrets
from qinglan.lineage.steps.step_inputs import add_reward
from qinglan.llm.config import GatewayConfig, MlflowUpstream, PaidModel, RagUpstream
from qinglan.llm.host_allowlist import ALLOWED_VARIABLE, check_called_hosts
from qinglan.reward.config import RewardConfig, StyleRewardConfig
from qinglan.reward.style_client import StyleClient
from serving.rag.config import ContentConfig, RerankServiceConfig, RewriterConfig
from serving.rag.opensearch_connection import OpenSearchConfig
from serving.rewriter.config import ServerConfig
from serving.rollout.cluster.prometheus import PrometheusClient
from serving.rollout.shadow.config import ModelPair, ShadowConfig
from tests.servers.echo_servers import PRICE

SECRET = "sk-planted-0123456789"
WITH_KEYS = {
    "password": f"https://user:{SECRET}@host.example/v1",
    "user": f"https://{SECRET}@host.example/v1",
    "query": f"https://host.example/v1?api_key={SECRET}",
    "fragment": f"https://host.example/v1#{SECRET}",
    "encoded": f"https://user%3A{SECRET}@host.example",
    "no scheme": f"//user:{SECRET}@host.example",
    "other scheme": f"ftp://user:{SECRET}@host.example",
    "space": f"https://host.example/ ?key={SECRET}",
}
READERS: dict[str, Callable[[str], Any]] = {
    "paid model": lambda url: PaidModel.parse({"base_url": url, "model": "m", "price": PRICE}, "profile"),
    "rag": lambda url: RagUpstream.parse({"base_url": url}, "profile"),
    "mlflow": lambda url: MlflowUpstream.parse({"base_url": url}, "profile"),
    "gateway": lambda url: GatewayConfig.parse({"rag": {"base_url": url}}, "gateway.yaml"),
    "style reward": lambda url: StyleRewardConfig.parse({"url": url, "weight": 0.1, "wanted": ["a"]}, "profile"),
    "rewriter urls": lambda url: EvaluateConfig.parse({"rewriter_urls": {"sft": url}}, "profile"),
    "--rewriter": RewriterConfig.read,
    "--style": lambda url: ContentConfig.read(url, {}),
    "--reranker-service": lambda url: RerankServiceConfig.read(f"vllm={url},model=m"),
    "--opensearch": lambda url: OpenSearchConfig.read(url, None),
    "--backend": lambda url: ServerConfig.parse({"model": "m", "backend": url}, "serving.rewriter"),
    "--endpoint": lambda url: read_access(url, {}),
    "--prometheus": PrometheusClient,
    "--rag": lambda url: ShadowConfig.parse({"payloads": "s", "rag": url, "service": "r"}, "shadow"),
    "--canary": lambda url: ModelPair.parse({"canary": "a" * 12, "stable": "b" * 12, "url": url}, "shadow"),
}


@pytest.mark.parametrize("url", ["HTTP://127.0.0.1:9", "Https://host.example/v1"])
@pytest.mark.parametrize("reader", READERS)
def test_a_scheme_in_capitals_is_refused_before_anything_is_paid(reader: str, url: str) -> None:
    with pytest.raises(ConfigError):
        READERS[reader](url)


@pytest.mark.parametrize("kind", WITH_KEYS)
@pytest.mark.parametrize("reader", READERS)
def test_an_address_with_a_key_is_refused_and_not_repeated(reader: str, kind: str) -> None:
    with pytest.raises(ConfigError) as refused:
        READERS[reader](WITH_KEYS[kind])

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8000", "https://host.example/v1", "http://[::1]:80/", "http://rag"]
)
def test_a_plain_address_is_taken(url: str) -> None:
    assert address_fault(url) == ""


@pytest.mark.parametrize("settings", [
    {"api_key": SECRET}, {"headers": {"Authorization": f"Bearer {SECRET}"}}, {"list": [{"client_secret": SECRET}]},
    {"token": SECRET},
])  # fmt: skip
def test_a_key_among_a_models_further_settings_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="a key is in no file") as refused:
        PaidModel.parse({"model": "m", "price": PRICE, "extra_body": settings}, "profile")

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("setting", ["api_key", "apikey", "password", "secret"])
def test_a_key_under_an_unknown_setting_is_not_repeated(setting: str) -> None:
    with pytest.raises(ConfigError, match=setting) as refused:
        PaidModel.parse({"model": "m", "price": PRICE, setting: SECRET}, "profile")

    assert SECRET not in str(refused.value)


@given(st.text(st.characters(exclude_characters="/?#@\\ ", exclude_categories=("C", "Z")), min_size=9))
def test_hidden_secrets_leave_no_user_and_no_query(secret: str) -> None:
    for url in (f"http://u:{secret}@h/v1", f"http://h/v1?k={secret}", f"http://h/v1#{secret}"):
        assert secret not in hide_secrets(f"{url}")


@pytest.mark.parametrize("number", [0, -1, 70000])
def test_a_port_that_is_none_is_refused(number: int) -> None:
    assert "no http or https address" in address_fault(f"http://host:{number}")


STYLE = StyleRewardConfig(url="http://evil.example", weight=0.1, wanted=("诚实",))


def test_addresses_are_found_at_any_depth_of_a_stages_settings() -> None:
    settings = {"reward": {"style": {"url": "http://a"}, "terms": [{"u": "HTTPS://b"}]}, "name": "httpd", "n": 1}

    assert called_addresses(settings, "ppo") == {
        "ppo.reward.style.url": "http://a", "ppo.reward.terms[0].u": "HTTPS://b",
    }  # fmt: skip


@pytest.mark.parametrize("call", [
    lambda: check_called_hosts(PpoConfig(reward=RewardConfig(style=STYLE)), "ppo"),
    lambda: check_called_hosts(EvaluateConfig(rewriter_urls={"rl": "http://evil.example"}), "evaluate"),
    lambda: StyleClient(STYLE),
    lambda: time_served("http://169.254.169.254", []),
    lambda: add_reward(reported_step(), RewardConfig(style=STYLE)),
])  # fmt: skip
def test_a_stage_calls_no_host_that_the_operator_does_not_allow(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(ALLOWED_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match="is not allowed"):
        call()


def reported_step() -> Any:
    from qinglan.lineage.steps.record import StepReport

    return StepReport({}, [], [], {})


def test_a_profile_with_a_key_in_an_address_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    profile = tmp_path / "mine.yaml"
    profile.write_text(f"training: laptop\ngateway: {{rag: {{base_url: '{WITH_KEYS['query']}'}}}}\n")

    with pytest.raises(ConfigError, match="base_url") as refused:
        load_config("fivedoctors", str(profile))

    assert SECRET not in str(refused.value)
    assert sorted(tmp_path.iterdir()) == [profile]
