"""A digest of what a gateway adds to the results of generate and validate.

    read_gateway_state("http://qinglan-gateway:8300")     # a digest, or a random string

Paid calls are answered from the journal, so two runs of the same questions make the same rewrites, until a role gets
another model, a knowledge base changes, or a run repeats calls that got no usable answer. On a cluster the two stages
take this digest as an input, so KFP's cache is used while it stays the same.
"""

from uuid import uuid4

import orjson

from qinglan.files.files import sha256_text
from qinglan.lineage.steps.step_inputs import gateway_http, read_gateway, served_knowledge_bases
from qinglan.llm.contract import PRICES_PATH, REPORT_PATH


def read_gateway_state(gateway_url: str) -> str:
    """Digest of models, prices, knowledge bases and the number of attempts without a usable answer.

    If the RAG service names no knowledge base by digest, its answers may change at any time. The result is then a new
    random string, which no cache knows.
    """
    with gateway_http(gateway_url) as http:
        prices = orjson.loads(read_gateway(http, PRICES_PATH))
        lost = orjson.loads(read_gateway(http, REPORT_PATH))["lost_attempts"]
        bases = served_knowledge_bases(http)
    if not bases:
        return uuid4().hex
    return sha256_text(orjson.dumps([prices, lost, bases], option=orjson.OPT_SORT_KEYS).decode())
