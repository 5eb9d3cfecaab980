"""Rows that a student learns from: a chat for SFT, a prompt for PPO. Each row names its RowKind."""

from collections.abc import Mapping
from typing import Any, Literal

from qinglan.prompts import SystemPrompt, student_answer, student_messages
from qinglan.rows.rows import Question, Rewrite, Split, ValidatedRewrite

WITHOUT_FURTHER = "without_further_rows"
"""Name of a folder beside the rows for SFT, which is written only if the teacher wrote further rows. It holds the
other rows (train.jsonl, dev.jsonl), and the dev prompts that decide if training is better without the further rows
(dev.parquet)."""

RowKind = Literal["sheet", "hindsight", "pseudo"]
"""sheet: a question of the sheet, with the teacher's rewrite. hindsight: a question of the sheet, with a rewrite by a
teacher that saw the relevant passage. pseudo: a question that a teacher wrote from a passage, with its rewrite."""


def sft_row(
    row: Rewrite, split: Split, top1_score: float, system_prompt: SystemPrompt = "", kind: RowKind = "sheet"
) -> dict[str, Any]:
    """Build one chat: the prompt as in serving, and the teacher's rewrite as the answer."""
    return {
        "messages": [*student_messages(row, system_prompt), student_answer(row.rewritten_query)],
        "metadata": {
            "id": row.id, "conversation_id": row.conversation_id, "tenant_id": row.tenant_id, "split": split,
            "top1_score": top1_score, "source": row.teacher, "call": row.call, "kind": kind,
        },
    }  # fmt: skip


def ppo_row(
    row: ValidatedRewrite, split: Split, system_prompt: SystemPrompt = "", kind: RowKind = "sheet"
) -> dict[str, Any]:
    """Build one prompt in verl's format. Its `extra_info` holds what the reward needs, so that nothing is requested
    twice."""
    return {
        "data_source": f"qinglan/{row.tenant_id}",
        "prompt": student_messages(row, system_prompt),
        "ability": "query-rewriting",
        "reward_model": {"style": "rule", "ground_truth": row.need},
        "extra_info": {
            "id": row.id, "conversation_id": row.conversation_id, "tenant_id": row.tenant_id, "split": split,
            "question": row.question, "user_profile": row.user_profile,
            "history_summary": row.history_summary, "need": row.need, "gold": list(row.gold),
            "labels": [label.model_dump() for label in row.labels],
            "snapshot": row.snapshot, "reranker": row.reranker, "accepted": row.accepted,
            "teacher": row.teacher, "call": row.call,
            "teacher_rewrite": row.rewritten_query, "scored_against": row.scored_against, "kind": kind,
            "retrieved_with": row.retrieved_with.model_dump(mode="json"),
            "teacher_retrieval": row.rewritten.model_dump(mode="json"),
            "plain_retrieval": row.plain.model_dump(mode="json"),
        },
    }  # fmt: skip


def question_of(extra_info: Mapping[str, Any]) -> Question:
    return Question.model_validate({name: extra_info[name] for name in Question.model_fields})
