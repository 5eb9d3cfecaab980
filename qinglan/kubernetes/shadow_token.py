"""Token that marks the requests of a rollout's shadow (serving/rollout/shadow).

The model server and the shadow read the token from the Secret qinglan-payloads. The server counts requests of the
shadow separately, because no user waits for them. Without a token, any client could send the
header and so remove its request from the counts that decide a rollout.
"""

import hmac
import os
from collections.abc import Mapping

from qinglan.errors import ConfigError

SHADOW_HEADER = "x-qinglan-shadow"
"""Header of the shadow's requests; its value is the token."""
VARIABLE = "QINGLAN_SHADOW_TOKEN"
LEAST_CHARS = 32


def read_shadow_token(environment: Mapping[str, str] = os.environ) -> str:
    """Read the shadow's token; "" if none is set. Raises a ConfigError if the token is short enough to be guessed."""
    token = environment.get(VARIABLE, "")
    if token and (len(token) < LEAST_CHARS or not (token.isascii() and token.isprintable())):
        raise ConfigError(
            f"{VARIABLE}: takes {LEAST_CHARS} or more printable ASCII characters. `openssl rand -hex 32` makes one."
        )
    return token


def is_shadow_request(header: str, token: str) -> bool:
    """True if the header's value is the token. If no token is set, no request counts as the shadow's."""
    return bool(token) and hmac.compare_digest(header.encode(), token.encode())
