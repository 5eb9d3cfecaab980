"""Count the reward's calls to the gateway since the training began, and the share that a cache answered."""

from collections.abc import Mapping
from typing import Any

from qinglan.reward.scorer import STEP

UsageCounts = Mapping[str, float]


class GatewayUsage:
    """Figures of a step from the gateway's counts; empty while the gateway does not answer."""

    def __init__(self, gateway_url: str) -> None:
        self._url = f"{gateway_url}/v1/journal/report"
        self._before = self._counts()

    def __call__(self) -> dict[str, float]:
        now = self._counts()
        return usage_since(self._before, now) if now else {}

    def _counts(self) -> UsageCounts:
        from qinglan.errors import OutageError
        from qinglan.http.http_client import get_json

        try:
            return usage_counts(get_json(self._url, "See the gateway's log, then run again.", timeout=5.0))
        except OutageError:
            return {}


def usage_counts(report: Mapping[str, Any]) -> UsageCounts:
    reward_rows = [row for row in report.get("by_step", ()) if row["step"] == STEP]
    return {
        "judge_answered": sum(row["answered"] for row in reward_rows),
        "judge_hits": sum(row["hits"] for row in reward_rows),
        "rag_hits": report.get("retrieval_hits", 0),
        "rag_misses": report.get("retrieval_misses", 0),
    }


def usage_since(before: UsageCounts, now: UsageCounts) -> dict[str, float]:
    """Return the calls since `before`, and the share of them that journal or cache answered."""
    new = {name: value - before.get(name, 0) for name, value in now.items()}
    judged = new["judge_answered"] + new["judge_hits"]
    retrieved = new["rag_misses"] + new["rag_hits"]
    return {
        "rag_calls": retrieved,
        "rag_hit_rate": new["rag_hits"] / retrieved if retrieved else 0.0,
        "judge_calls": judged,
        "judge_hit_rate": new["judge_hits"] / judged if judged else 0.0,
    }
