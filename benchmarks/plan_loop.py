"""The original plan's data preparation (its 1.2 to 1.4), as it is written there, for comparison alone.

Two things are changed so that both sides do the same work: it calls the same stand-ins, and it retrieves with
the plain question too, as our validation does.
"""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import httpx
import pandas
from openai import AsyncOpenAI

SYSTEM = "你是保健品领域的专业Query改写专家。"


async def generate(questions: Path, output: Path, teacher_url: str, model: str, max_concurrent: int = 10) -> None:
    client = AsyncOpenAI(api_key="none", base_url=teacher_url)
    frame = pandas.read_excel(questions)
    semaphore = asyncio.Semaphore(max_concurrent)

    async def rewrite(row: Any) -> dict[str, Any]:
        async with semaphore:
            query = row["问题"]
            profile, history = row.get("用户画像", ""), row.get("历史摘要", "")
            content = f"原始查询: {query}\n用户画像: {profile}\n历史摘要: {history}"
            content += "\n\n请改写这个查询，使其更适合知识库检索。只返回改写后的查询，不要其他内容。"
            response = await client.chat.completions.create(
                model=model,
                messages=[{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}],
                temperature=0.3,
                max_tokens=200,
            )
            rewritten = (response.choices[0].message.content or "").strip()
            return {"original_query": query, "rewritten_query": rewritten, "history_summary": history}

    results = await asyncio.gather(*(rewrite(row) for _, row in frame.iterrows()))
    pandas.DataFrame(results).to_excel(output, index=False)


async def validate(rewrites: Path, output: Path, rag_url: str, tenant_id: str) -> None:
    frame = pandas.read_excel(rewrites)
    results = []
    async with httpx.AsyncClient(timeout=30.0) as client:
        for _, row in frame.iterrows():
            for query in (row["original_query"], row["rewritten_query"]):
                payload = {
                    "query": row["original_query"], "rewritten_query": query, "tenant_id": tenant_id,
                    "kb_name": "default", "top_k": 5, "score_threshold": 0.5,
                }  # fmt: skip
                response = await client.post(f"{rag_url}/api/chat/general_rag", json=payload)
                recall = response.json().get("data", {}).get("recall", [])
            top1 = recall[0].get("reranker_score", 0) if recall else 0
            results.append({**row.to_dict(), "recall_count": len(recall), "top1_score": top1, "success": True})
    pandas.DataFrame(results).to_excel(output, index=False)


def convert(validated: Path, output: Path, threshold: float) -> None:
    frame = pandas.read_excel(validated)
    good = frame["success"] & (frame["top1_score"] >= threshold) & frame["rewritten_query"].notna()
    samples = [
        {
            "messages": [
                {"role": "system", "content": "你是保健品领域的Query改写专家..."},
                {"role": "user", "content": f"原始查询: {row['original_query']}\n\n请改写。"},
                {"role": "assistant", "content": row["rewritten_query"]},
            ],
            "metadata": {"top1_score": float(row["top1_score"]), "source": "gpt5_teacher"},
        }
        for _, row in frame[good].iterrows()
    ]
    random.shuffle(samples)
    output.mkdir(parents=True, exist_ok=True)
    sizes = int(len(samples) * 0.8), int(len(samples) * 0.1)
    splits = {"train": samples[: sizes[0]], "val": samples[sizes[0] : sum(sizes)], "test": samples[sum(sizes) :]}
    for name, rows in splits.items():
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (output / f"{name}.jsonl").write_text(text, encoding="utf-8")
