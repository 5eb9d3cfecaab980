"""The style model as a KServe model: it returns labels and probabilities of texts, by the evaluation's code."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kserve import InferRequest, Model

from qinglan.lineage.release.model_verification import verified_copy
from qinglan.style.labels import format_training_text
from qinglan.style.model import EngineName, StyleModel
from qinglan.style.predict import Prediction, predictions
from serving.dynamic_batcher import DynamicBatcher
from serving.kserve_app import read_payload
from serving.request_errors import QueueFull
from serving.style import protocols
from serving.style.metrics import Metrics

MAX_BATCH = 64
"""Highest number of texts in a batch. A batch takes two forward passes, each with texts of similar length."""

WARM_UP = format_training_text("一天吃几次？", "请按标签服用。")


class KServeStyleModel(Model):  # type: ignore[misc]
    """KServe model of a style model that is verified against its release. Its version is the start of its digest."""

    def __init__(self, name: str, folder: Path, engine: EngineName, queue: int, trust: Path | None = None) -> None:
        super().__init__(name)
        self._folder, self._engine, self._queue, self._trust = folder, engine, queue, trust
        self.digest = self.version = ""

    def load(self) -> bool:
        with verified_copy(self._folder, trust=self._trust) as (copy, proof):
            if proof.state == "unproven":
                logging.getLogger("serving.style").warning(proof.summary)
            self._model = StyleModel.load(copy, self._engine)
        self._batches = DynamicBatcher[str, Prediction](self._answer, MAX_BATCH)
        self.digest, self.version = proof.model_digest, proof.version
        self.metrics = Metrics(self.version, lambda: self._batches.waiting)
        self._model.predict([WARM_UP])  # the first answer of a process is slow: no user should wait for it
        self.ready = True
        return True

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        if isinstance(payload, InferRequest):  # V2; otherwise V1
            return protocols.answer_v2(payload, await self.ask(protocols.read_v2(payload)), self.version)
        answers = await self.ask(protocols.read_v1(read_payload(payload, headers)))
        return {"predictions": [self.versioned(answer) for answer in answers]}

    async def ask(self, texts: Sequence[str]) -> list[Prediction]:
        """Answer each text. Raises QueueFull if too many wait; an empty queue accepts a request of any size."""
        waiting = self._batches.waiting
        if waiting and waiting + len(texts) > self._queue:
            raise QueueFull(f"{waiting} texts wait already, of {self._queue} at most. Ask again.")
        return await self._batches.ask(texts)

    def versioned(self, answer: Prediction) -> dict[str, Any]:
        return {**answer, "model_version": self.version}

    def get_input_types(self) -> list[dict[str, Any]]:
        return protocols.INPUT_TENSORS

    def get_output_types(self) -> list[dict[str, Any]]:
        return protocols.output_tensors(len(self._model.labels.labels))

    def _answer(self, texts: Sequence[str]) -> list[Prediction]:
        # Tokenizing also runs in this thread, because on the event loop a long text would delay health checks.
        ids = self._model.encode(texts)
        answers = predictions(self._model.probabilities_of(ids), self._model.labels.names)
        cut = sum(len(tokens) >= self._model.card.max_length for tokens in ids)
        self.metrics.answered([answer["predicted_label"] for answer in answers], cut)
        return answers
