"""The shadow asks nobody without the token by which the rewriter tells its questions from users'."""

import pytest

from qinglan.errors import ConfigError
from qinglan.kubernetes.shadow_token import VARIABLE
from serving.rollout.shadow.canary_client import CanaryClient


def test_a_shadow_without_a_token_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE)

    with pytest.raises(ConfigError, match=f"{VARIABLE} is not set"):
        CanaryClient("rewriter", "", 1.0)
