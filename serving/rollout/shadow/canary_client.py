"""Request rewrites from the canary. An answer of another model version, as from a wrong tag route, is refused."""

from urllib.parse import urlsplit

import httpx2
import orjson

from qinglan.errors import ConfigError
from qinglan.http.http_client import async_client
from qinglan.kubernetes.shadow_token import SHADOW_HEADER, VARIABLE, read_shadow_token
from qinglan.text.text import is_blank
from serving.rollout.shadow.config import ModelPair
from serving.rollout.shadow.metrics import PairFailure
from serving.rollout.shadow.payload_log import LoggedQuestion

MAX_QUERY_CHARS = 4000
"""Longest query in characters that the RAG service accepts."""


class CanaryClient:
    """Client of the canary's server, with one connection pool for all canaries of the service."""

    def __init__(self, model: str, ingress: str, deadline_seconds: float) -> None:
        self._path, self._ingress = f"/v1/models/{model}:predict", ingress.rstrip("/")
        self._deadline, self._token = deadline_seconds, read_shadow_token()
        if not self._token:
            raise ConfigError(
                f"{VARIABLE} is not set: the rewriter would count the shadow's questions as users'. Put the same "
                "token into the environment of both; `openssl rand -hex 32` makes one."
            )
        self._http = async_client(timeout=deadline_seconds)

    async def aclose(self) -> None:
        await self._http.aclose()

    async def rewrite(self, question: LoggedQuestion, pair: ModelPair) -> str:
        """Request the canary's rewrite, as a user would get it. Raises a PairFailure if there is none."""
        instance = {
            "query": question.question,
            "user_profile": question.user_profile,
            "history_summary": question.history_summary,
            "tenant_id": question.tenant,
        }
        headers = {"content-type": "application/json", SHADOW_HEADER: self._token}
        if self._ingress:  # Knative and Istio route by the Host header, so its name need not resolve here
            headers["host"] = urlsplit(pair.url).netloc
        url = (self._ingress or pair.url.rstrip("/")) + self._path
        try:
            response = await self._http.post(url, content=orjson.dumps({"instances": [instance]}), headers=headers)
        except httpx2.TimeoutException as error:
            raise PairFailure("canary_late", f"no answer within {self._deadline:g} s") from error
        except httpx2.HTTPError as error:
            raise PairFailure("canary_unreachable", str(error) or type(error).__name__) from error
        if response.status_code != 200:
            raise PairFailure("canary_refused", f"status {response.status_code}")
        return read_rewrite(response.content, pair.canary)


def read_rewrite(content: bytes, version: str) -> str:
    """Read the rewrite from an answer. Raises a PairFailure if it has no text or comes from another version."""
    try:
        [prediction] = orjson.loads(content)["predictions"]
        text, answered_version = prediction["rewritten_query"], prediction["model_version"]
    except (orjson.JSONDecodeError, LookupError, TypeError, ValueError) as error:
        raise PairFailure("canary_malformed") from error
    if answered_version != version:
        raise PairFailure("other_version", f"version {str(answered_version)[:12]!r} answered, not {version}")
    if not isinstance(text, str) or is_blank(text) or len(text) > MAX_QUERY_CHARS:
        raise PairFailure("canary_malformed", "no line of text")
    return text
