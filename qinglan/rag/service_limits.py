"""Tells which measurements are impossible with a RAG service, from its settings and one of its answers."""

from qinglan.rag.contract import RagData
from qinglan.rag.service_shape import RagService

NO_NEED = (
    "The RAG service scores passages against the query, not the need, and a rewrite that repeats a passage raises "
    "such a score. Rows with gold passages are rewarded by rank; PPO rewards all others by the judge alone (set "
    "ppo.reward.judge_share: 1), and the evaluation gives no score of their first passage. Let it take `need`, or "
    "label gold passages."
)
NO_NEED_NO_IDS = (
    "The RAG service scores passages against the query, not the need, and a rewrite that repeats a passage raises "
    "such a score. PPO rewards all rows by the judge alone (set ppo.reward.judge_share: 1), and the evaluation gives "
    "no score of their first passage. Let it take `need`."
)
NO_QUERY_SCORE = (
    "The RAG service sends no query_score beside its scores against the need, so production's cut "
    "(retrieval.score_threshold) is not applied, and ppo.reward.mode: seed_v1 is not possible."
)
NO_IDS = (
    "The RAG service's passages have no id: gold passages are not recognised, so nothing is measured by rank. Let it "
    "send the ids of the knowledge base, or name their path in gateway.rag.answer.id."
)
NO_CONTENT = (
    "The RAG service's passages have no text: the reward's checks for copied text and invented names, and the "
    "examiner, see none. Name its path in gateway.rag.answer.content."
)
NO_SNAPSHOT = (
    "The RAG service does not name its knowledge base (data.snapshot): a change during the run is not noticed, "
    "answers are cached for one run only, and the gate can only hold. Let it send the SHA-256 of the JSONL that it "
    "serves, or set gateway.rag.snapshot_queries, which `qinglan check-rag` proposes: a digest of their answers "
    "stands in."
)
REWRITE_AS_QUERY = (
    "The rewrite is sent as the question itself (gateway.rag.request.rewritten_query): a service that rewrites "
    "questions rewrites it once more, so what is measured is both rewrites together."
)


def lost_measurements(service: RagService, data: RagData, score_threshold: float) -> list[str]:
    """Write a sentence, with a next step, about each thing that a run with this service cannot measure or measures
    differently."""
    lost: list[str] = []
    no_ids = bool(data.recall) and not any(hit.id for hit in data.recall)
    if service.rewrite_as_query:
        lost.append(REWRITE_AS_QUERY)
    if data.scored_against == "query":
        lost.append(NO_NEED_NO_IDS if no_ids else NO_NEED)
    elif score_threshold and any(hit.query_score is None for hit in data.recall):
        lost.append(NO_QUERY_SCORE)
    if no_ids:
        lost.append(NO_IDS)
    if data.recall and not any(hit.content for hit in data.recall):
        lost.append(NO_CONTENT)
    if not data.snapshot:
        lost.append(sampled_snapshot(len(service.snapshot_queries)) if service.snapshot_queries else NO_SNAPSHOT)
    return lost


def sampled_snapshot(questions: int) -> str:
    """Write the sentence about the limit of a digest of answers, which replaces a missing snapshot of the service."""
    return (
        f"The RAG service does not name its knowledge base: a digest of its answers to {questions:,} "
        f"question{'' if questions == 1 else 's'} stands in, and a passage that none of them retrieves may change "
        "unnoticed."
    )
