"""Address of a release in a store, by digest. It is the storageUri of an InferenceService.

ReleaseAddress("s3://qinglan/fivedoctors", digest).uri     s3://qinglan/fivedoctors/releases/<digest>
parse_release_uri(uri).digest
"""

import re
from typing import NamedTuple

from qinglan.errors import ConfigError
from qinglan.store.store import RELEASES

ADAPTER = "/model/adapter"
RELEASE_URI = re.compile(rf"(?P<store>[^@?#]+)/{RELEASES}/(?P<digest>[0-9a-f]{{64}})(?P<adapter>{ADAPTER})?")


class ReleaseAddress(NamedTuple):
    store: str
    digest: str
    adapter: bool = False
    """True if the server has the base model, so that the merged weights stay in the store."""

    @property
    def uri(self) -> str:
        return f"{self.store}/{RELEASES}/{self.digest}{ADAPTER if self.adapter else ''}"


def parse_release_uri(uri: str) -> ReleaseAddress:
    """Parse an address; raises a ConfigError if it does not name a release by its digest."""
    match = RELEASE_URI.fullmatch(uri)
    if match is None:
        raise ConfigError(
            f"{uri}: names no release by its digest. A model is served from STORE/{RELEASES}/<64 hex digits>, with "
            f"{ADAPTER} behind it where merged weights stay in the store."
        )
    return ReleaseAddress(match["store"], match["digest"], match["adapter"] is not None)
