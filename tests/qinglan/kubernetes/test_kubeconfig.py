"""A kubeconfig that leads nowhere is said to, before anything is asked of a cluster."""

import logging
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client

from qinglan.errors import ConfigError
from qinglan.kubernetes.kubeconfig import load_login
from tests.servers.broken_kubeconfigs import with_plugin

TOKEN = (
    'echo "{\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",\\"kind\\":\\"ExecCredential\\",'
    '\\"status\\":{\\"token\\":\\"t\\"}}"'
)


def test_of_several_files_the_broken_one_is_named(tmp_path: Path) -> None:
    whole = with_plugin(tmp_path, TOKEN)
    (tmp_path / "other").write_text("hello")

    with pytest.raises(ConfigError, match="other: is no mapping in YAML"):
        load_login(f"{whole}:{tmp_path}/other", client.Configuration())


def test_a_plugin_that_fails_is_the_reason_and_nothing_else_is_printed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match=r"`exec` .* log in first\.$"):
        load_login(str(with_plugin(tmp_path, "echo log in first >&2; exit 3")), client.Configuration())

    assert (*capfd.readouterr(), caplog.text) == ("", "", "")


def test_a_plugins_token_is_the_login_and_others_may_log_meanwhile(tmp_path: Path) -> None:
    settings: Any = client.Configuration()
    before = list(logging.getLogger().handlers), list(logging.getLogger().filters)

    load_login(str(with_plugin(tmp_path, TOKEN)), settings)

    assert settings.api_key["authorization"] == "Bearer t"
    assert (logging.getLogger().handlers, logging.getLogger().filters) == before
