"""Add inputs and outputs that are not KFP artifacts to a step's record, such as paid answers, prompts or the verdict.

    add_gateway_usage(step, "generate", gateway_url)
    add_prompts(step, "teacher.*")

No question or answer is recorded. Each line of the list of paid answers holds the digest of a request and the digest
of its answer.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import orjson

from qinglan.errors import OutageError
from qinglan.evaluation.gates.verdict import Verdict, verdict_bytes
from qinglan.files import digests
from qinglan.files.files import sha256_bytes, sha256_file, sha256_text
from qinglan.files.plain_files import read_plain
from qinglan.http.http_client import Client, sync_client
from qinglan.http.outages import Retries, outage_seconds
from qinglan.lineage.signing.statement import EXTERNAL_INPUT, ArtifactRef
from qinglan.lineage.steps.record import StepReport
from qinglan.lineage.trace.release_folder import VERDICT, verdict_file_name
from qinglan.lineage.trace.student_prompts import STUDENT_PROMPT
from qinglan.llm.contract import PAID_PATH, PRICES_PATH, REPORT_PATH
from qinglan.llm.host_allowlist import check_host
from qinglan.prompts import PROMPTS_FOLDER, SystemPrompt
from qinglan.rag.contract import KNOWLEDGE_BASES_PATH
from qinglan.reward.config import RewardConfig
from qinglan.rewriter.card import read_card
from qinglan.style.service_responses import STYLE_MODEL_PATH

TIMEOUT_SECONDS = 60.0
AWAY_STATUSES = {502, 503, 504}


def add_gateway_usage(step: StepReport, stage: str, gateway_url: str) -> None:
    """Add a stage's paid answers, prices and knowledge bases; raises an OutageError if the gateway is down."""
    with gateway_http(gateway_url) as http:
        paid = read_gateway(http, PAID_PATH, {"step": stage})
        prices = read_gateway(http, PRICES_PATH)
        bases = served_knowledge_bases(http)
    answers = paid.count(b"\n")
    if answers:
        cost = sum(orjson.loads(line)["cost"] for line in paid.splitlines())
        about = {"answers": answers, "cost": round(cost, 6)}
        add_supporting_file(step, "journal", f"paid-{stage}.jsonl", paid, about)
        add_supporting_file(step, "prices", f"prices-{stage}.json", prices)
    for base in bases:
        name = f"knowledge base {base['tenant_id']}/{base['kb_name']}"
        step.used.append(ArtifactRef(name, base["snapshot"], "", {EXTERNAL_INPUT: True}))


def add_prompts(step: StepReport, pattern: str, prompt: SystemPrompt = "") -> None:
    """Add the profile's prompt, or the prompt files that match the pattern if the profile sets none.

    If the profile sets prompts for some tenants, the files are added only for tenants that it does not name.
    """
    name = pattern.rstrip(".*")
    texts = prompt if isinstance(prompt, dict) else {}
    contents = {f"{name}.{tenant}": text.encode() for tenant, text in texts.items()}
    if isinstance(prompt, str) and prompt:
        contents[name] = prompt.encode()
    else:
        files = {path.stem: read_plain(path) for path in PROMPTS_FOLDER.glob(f"{pattern}.txt")}
        contents = files | contents
    for stem, content in sorted(contents.items()):
        add_supporting_file(step, f"prompt {stem}", f"prompt-{stem}.txt", content)


def add_student_prompts(step: StepReport, prompts: Mapping[str, str]) -> None:
    """Add the student's prompts by tenant. A release's card must hold the same prompts (student_prompts.py)."""
    for tenant, text in sorted(prompts.items()):
        add_supporting_file(step, f"{STUDENT_PROMPT}{tenant}", f"prompt-student.{tenant}.txt", text.encode())


def add_reward(step: StepReport, config: RewardConfig) -> None:
    """Add the reward's settings, and the digest of its style model if it has one."""
    defined = orjson.dumps(config.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)
    add_supporting_file(step, "reward", "reward.json", defined)
    if config.style is not None:
        check_host(config.style.url, "reward.style.url")
        with sync_client(config.style.url, timeout=TIMEOUT_SECONDS) as http:
            model = orjson.loads(read_gateway(http, STYLE_MODEL_PATH))["sha256"]
        step.used.append(ArtifactRef("style model", str(model), algorithm=digests.FOLDER_ALGORITHM))


def add_critic(step: StepReport, model: Path) -> None:
    """Add the critic's base model if the trained model's card names one, since it is not the actor's base model."""
    if critic := read_card(model).parents.get("critic_model"):
        step.used.append(ArtifactRef("critic_model", critic, "", {EXTERNAL_INPUT: True}, digests.FOLDER_ALGORITHM))


def add_file(step: StepReport, name: str, path: Path | None) -> None:
    """Add the digest of a file that the profile names. Its text is left out, since it may be personal."""
    if path is not None:
        step.used.append(ArtifactRef(name, sha256_file(path), "", {EXTERNAL_INPUT: True}))


def add_supporting_file(
    step: StepReport, name: str, file: str, content: bytes, about: dict[str, Any] | None = None
) -> None:
    """Add a file to the lineage, where an auditor can read it."""
    step.used.append(ArtifactRef(name, sha256_bytes(content), "", {EXTERNAL_INPUT: True, **(about or {})}))
    step.papers[file] = content


def add_verdict(step: StepReport, verdict: Verdict) -> None:
    """Add the verdict as an output of the step, and its text as a supporting file."""
    content = verdict_bytes(verdict)
    step.outputs.append(ArtifactRef(VERDICT, sha256_bytes(content)))
    step.papers[verdict_file_name(sha256_bytes(content))] = content


def gateway_http(gateway_url: str) -> Client:
    """Return a client of the run's gateway without a size limit, since the list of paid answers may be long."""
    return sync_client(gateway_url, timeout=TIMEOUT_SECONDS, largest=None)


def served_knowledge_bases(http: Client) -> list[dict[str, Any]]:
    """Return the knowledge bases that the RAG service lists with a digest; a company's own service may list none."""
    try:
        response = _get(http, KNOWLEDGE_BASES_PATH)
    except httpx2.HTTPError as error:
        raise _gateway_outage(http, KNOWLEDGE_BASES_PATH, error) from error
    if 400 <= response.status_code < 500:
        return []
    if response.status_code != 200:
        raise _gateway_outage(http, KNOWLEDGE_BASES_PATH, f"status {response.status_code}")
    listed = response.json().get("knowledge_bases", [])
    return [base for base in listed if base.get("snapshot")]


def read_gateway(http: Client, path: str, parameters: dict[str, str] | None = None) -> bytes:
    """Return the body of the gateway's response; raises an OutageError if the request fails."""
    try:
        response = _get(http, path, parameters).raise_for_status()
    except httpx2.HTTPError as error:
        raise _gateway_outage(http, path, error) from error
    return response.content


def _get(http: Client, path: str, parameters: dict[str, str] | None = None) -> httpx2.Response:
    """Request a path of the gateway. An outage is waited out for the configured time, since the stage's finished work
    could be lost if the request failed."""

    def is_away(error: Exception) -> bool:
        return isinstance(error, httpx2.TransportError | httpx2.HTTPStatusError)

    retries = Retries(f"Gateway {str(http.base_url).rstrip('/')}", is_away, attempts=1, seconds=outage_seconds())
    for attempt in retries.attempts():
        with attempt:
            response = http.get(path, params=parameters)
            if response.status_code in AWAY_STATUSES:
                response.raise_for_status()
    retries.answered()
    return response


def _gateway_outage(http: Client, path: str, why: object) -> OutageError:
    return OutageError(
        f"{str(http.base_url).rstrip('/')}{path}: the gateway does not say what was used ({why}). "
        "Run the stage again: what was paid for is in its journal."
    )


def read_gateway_state(gateway_url: str) -> str:
    """Return a digest of models, prices, knowledge bases and the number of attempts without a usable answer.

    Paid calls are answered from the journal, so while this digest stays the same, a run of the same questions makes
    the same rewrites, and KFP's cache may replace `generate` and `validate`. If the RAG service names no knowledge
    base by digest, its answers may change at any time: the result is then a new random string, which no cache has.
    """
    with gateway_http(gateway_url) as http:
        prices = orjson.loads(read_gateway(http, PRICES_PATH))
        lost = orjson.loads(read_gateway(http, REPORT_PATH))["lost_attempts"]
        bases = served_knowledge_bases(http)
    if not bases:
        return uuid4().hex
    return sha256_text(orjson.dumps([prices, lost, bases], option=orjson.OPT_SORT_KEYS).decode())
