"""Reads keys of paid models from the environment. It is not in upstream.py, which imports a large library."""

import os

from qinglan.errors import ConfigError
from qinglan.llm.config import PaidModel
from qinglan.llm.host_allowlist import is_local


def read_api_key(model: PaidModel, role: str) -> str:
    """Read the key from the environment; a service on this machine needs none."""
    key = os.environ.get(model.api_key_env, "").strip()
    if key:
        return key
    if is_local(model.base_url):
        return "none"
    raise ConfigError(
        f"{role}: no key for {model.base_url}. Set the environment variable {model.api_key_env}; nothing was sent."
    )
