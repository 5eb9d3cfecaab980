"""The token that marks requests of the shadow: the same in both pods, from the Secret qinglan-payloads.

The shadow's requests are counted separately, as no user waits for them. Without a token, a header of any client could
remove a request from the counts by which a rollout decides.
"""

import hmac
import os
from collections.abc import Mapping

from qinglan.errors import ConfigError

SHADOW_HEADER = "x-qinglan-shadow"
"""Header of a shadow's request. Its value is the token."""
VARIABLE = "QINGLAN_SHADOW_TOKEN"
LEAST_CHARS = 32


def read_shadow_token(environment: Mapping[str, str] = os.environ) -> str:
    """The token, or "" without one; a ConfigError if it is short enough to be guessed."""
    token = environment.get(VARIABLE, "")
    if token and (len(token) < LEAST_CHARS or not (token.isascii() and token.isprintable())):
        raise ConfigError(
            f"{VARIABLE}: takes {LEAST_CHARS} or more printable ASCII characters. `openssl rand -hex 32` makes one."
        )
    return token


def is_shadow_request(header: str, token: str) -> bool:
    """True if the header's value is the token; without a token no request is the shadow's."""
    return bool(token) and hmac.compare_digest(header.encode(), token.encode())
