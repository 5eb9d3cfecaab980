"""The state of a gateway, as far as it decides what generate and validate make of the same inputs.

    read_gateway_state("http://qinglan-gateway:8300")     # a digest, or a word that never comes again

The journal answers what was paid for, so two runs of the same questions make the same rewrites. That ends where a
role has another model, a knowledge base other bytes, or where calls failed, which another run sends again. On a
cluster the two stages take this digest as an input, and so KFP's cache may answer for them.
"""

from uuid import uuid4

import httpx
import orjson

from qinglan.files import sha256_text
from qinglan.lineage.step_inputs import TIMEOUT_SECONDS, read_gateway, served_knowledge_bases
from qinglan.llm.contract import PRICES_PATH, REPORT_PATH


def read_gateway_state(gateway_url: str) -> str:
    """Digest of models, prices, knowledge bases and the number of failed calls.

    A RAG service that names no knowledge base by digest may answer otherwise tomorrow: then it is unique.
    """
    with httpx.Client(base_url=gateway_url, timeout=TIMEOUT_SECONDS, trust_env=False) as http:
        prices = orjson.loads(read_gateway(http, PRICES_PATH))
        failed = orjson.loads(read_gateway(http, REPORT_PATH))["failed"]
        bases = served_knowledge_bases(http)
    if not bases:
        return uuid4().hex
    return sha256_text(orjson.dumps([prices, failed, bases], option=orjson.OPT_SORT_KEYS).decode())
