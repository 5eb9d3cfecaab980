"""The original plan's way to a reward (its 3.3 and 3.4), as it is written there, for comparison alone.

One thing is changed, so that both sides ask the same models: the teacher's rewrite is at hand, as it is for us.
"""

import asyncio
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx
from openai import OpenAI

from qinglan.prompts import JUDGE_FORMAT, judge_messages
from qinglan.reward.config import RewardConfig
from qinglan.reward.episode import Prompt, TrainingPrompt
from qinglan.reward.terms import seed_v1


class Trainer:
    """Scores one episode after the other: a judge that blocks, and a new HTTP client for each retrieval."""

    def __init__(self, judge_url: str, rag_url: str, model: str) -> None:
        self._openai = OpenAI(api_key="none", base_url=judge_url)
        self._rag_url, self._model = rag_url, model

    async def rewards(self, episodes: Sequence["Rollout"]) -> list[float]:
        return [await self.episode(prompt, rewrite) for prompt, rewrite in episodes]

    async def episode(self, prompt: Prompt, rewrite: str) -> float:
        student, teacher = await asyncio.gather(
            *(self._call_rag(query, prompt) for query in (rewrite, prompt.teacher_rewrite))
        )
        judge, judge_teacher = (self._score(prompt, text) for text in (rewrite, prompt.teacher_rewrite))
        return seed_v1.compute_reward(judge, judge_teacher, student, teacher, RewardConfig(mode="seed_v1"))

    def _score(self, prompt: Prompt, rewrite: str) -> float:
        messages: Any = judge_messages(prompt, rewrite)
        shape: Any = JUDGE_FORMAT
        response = self._openai.chat.completions.create(model=self._model, messages=messages, response_format=shape)
        return float(json.loads(response.choices[0].message.content or "")["综合得分"]) / 5.0

    async def _call_rag(self, rewritten: str, prompt: Prompt) -> list[float]:
        async with httpx.AsyncClient(timeout=30.0) as client:
            payload = {
                "query": prompt.question, "rewritten_query": rewritten, "tenant_id": prompt.tenant_id,
                "kb_name": "default", "top_k": 5,
            }  # fmt: skip
            response = await client.post(f"{self._rag_url}/api/chat/general_rag", json=payload)
            recall = response.json().get("data", {}).get("recall", [])
            return [hit.get("reranker_score", 0) for hit in recall]


class Rollout(NamedTuple):
    prompt: TrainingPrompt
    rewrite: str
