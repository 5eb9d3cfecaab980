"""Compare the model servers on loopback with the releases that the rollout requested."""

from pathlib import Path

from commands.audit.live_service import VERSION_METRIC, unmatched_versions
from qinglan.errors import AlteredError, OutageError
from qinglan.lineage.release.release_address import parse_release_uri
from qinglan.lineage.trace.release_folder import MODEL, read_release_statement
from qinglan.terminal import say
from standins.rollout_local.object_files import ObjectFiles
from standins.rollout_local.releases import fetch_release
from standins.rollout_local.service import SERVICE_NAME, parse_status, service_snapshot

ANSWER_SECONDS = 10.0


def show_live(folder: Path) -> None:
    """Print the release and the reported version of each server with users; AlteredError if they differ."""
    service = ObjectFiles(folder).read(SERVICE_NAME)
    status = parse_status(service)
    say(f"Live, asked at {status.url}:")
    for uri, share in service_snapshot(service).traffic.items():
        claim = read_release_statement(fetch_release(uri, folder))
        digests = {part.name: part.digest for part in claim.statement.made}
        counts, answers = _versions(status.server(uri).url)
        if faults := unmatched_versions({*counts, answers}, {digests[MODEL]: claim.name}):
            raise AlteredError(f"{uri}: {faults[0].why}. Find out who put it there.")
        digest = parse_release_uri(uri).digest
        say(
            f"  ✓ {share} % of the users: release {digest[:12]}, of model {digests[MODEL][:12]}; its server counts "
            f"as {', '.join(counts)} and answers as {answers}"
        )


def _versions(url: str) -> tuple[tuple[str, ...], str]:
    """Read the versions in the server's /metrics, and the version that it names in an answer."""
    import httpx2

    from qinglan.http.http_client import sync_client

    try:
        with sync_client(url, timeout=ANSWER_SECONDS) as http:
            counts = http.get("/metrics").raise_for_status().text
            question = {"instances": [{"query": "一天吃几次", "tenant_id": _tenant(counts)}]}
            answer = http.post("/v1/models/rewriter:predict", json=question).raise_for_status()
        return tuple(sorted(set(VERSION_METRIC.findall(counts)))), str(
            answer.json()["predictions"][0]["model_version"]
        )
    except (httpx2.HTTPError, ValueError, LookupError, TypeError) as error:
        raise OutageError(
            f"{url}: could not be asked what it is ({type(error).__name__}). Look at its log."
        ) from error


def _tenant(metrics: str) -> str:
    """Take the first tenant in the server's metrics, which is one that its model was trained for."""
    return metrics.partition('qinglan_rewriter_questions_total{tenant="')[2].partition('"')[0]
