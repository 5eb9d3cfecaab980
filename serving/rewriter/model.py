"""The rewriter as a KServe model: it rewrites each question to one line with a backend, and applies the guards."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from kserve import InferRequest, Model
from kserve.errors import InvalidInput

from qinglan.errors import DataError, OutageError
from qinglan.lineage.release.model_verification import ModelVerification, verified_copy
from qinglan.prompts import student_messages
from qinglan.rewriter.base_weights import verify_base
from qinglan.rewriter.card import model_context, read_card, refuse_other_prompts
from qinglan.rewriter.guard import failed_guards
from qinglan.rewriter.model import GeneratedRewrite, Student, StudentPrompt, fit_prompt, load_tokenizer
from serving.kserve_app import read_payload
from serving.request_errors import QueueFull
from serving.rewriter import protocols
from serving.rewriter.backends import Backend, TransformersBackend, VllmBackend
from serving.rewriter.config import ServerConfig
from serving.rewriter.metrics import Metrics
from serving.rewriter.payload_log import PayloadLog, is_sampled, payload_record
from serving.rewriter.protocols import Instance
from serving.rewriter.request_record import CURRENT_REQUEST, current_request, write_log

HEALTH_POLL_SECONDS = 1.0
"""Seconds between two health checks of a backend in another process."""


class GuardedRewrite(NamedTuple):
    """Rewrite of one question after the guards."""

    text: str
    """Text of the model or, if a guard failed, the user's question."""

    fallback: str
    """Name of the guard that replaced the model's text; "" if none failed."""

    written: GeneratedRewrite

    def prediction(self, version: str) -> dict[str, str]:
        prediction = {"rewritten_query": self.text, "model_version": version}
        return prediction | ({"fallback": self.fallback} if self.fallback else {})


class KServeRewriter(Model):  # type: ignore[misc]
    """KServe model of the rewriter. Its version is the first 12 characters of the digest of the model's folder."""

    def __init__(self, config: ServerConfig) -> None:
        super().__init__(config.name)
        self.config, self._in_process = config, config.backend == "transformers"

    def load(self) -> bool:
        """Verify the model against its release, then load it. A model in this process is also warmed up."""
        with verified_copy(self.config.model, weights=self._in_process, trust=self.config.trust) as (copy, proof):
            self._load(copy, proof)
        self.ready = self._in_process
        return self.ready

    def _load(self, folder: Path, proof: ModelVerification) -> None:
        """Load everything from the model's verified copy, which is removed afterwards."""
        self.version, self.card = proof.version, read_card(folder)
        refuse_other_prompts(folder, self.card)
        if not self.card.system_prompts:
            raise DataError(f"{folder}: trained for no tenant, so nobody could ask it. Serve what sft or ppo wrote.")
        base = verify_base(self.config.base, folder) if self.config.base else ""
        self._tokenizer = load_tokenizer(folder)  # for the event loop; the student has another one in its thread
        self._longest = self._context = model_context(folder)
        self.metrics = Metrics(self.version, self.card.system_prompts, lambda: self.backend.waiting)
        self.backend: Backend
        if self._in_process:
            from transformers.utils import logging

            logging.disable_progress_bar()  # the log is lines of JSON
            student = Student.load(folder)
            student.write([self._warm_up()])  # the first answer of a process is slow: no user should wait for it
            self.backend = TransformersBackend(student)
        else:
            self.backend = VllmBackend(self.config.backend, self.config.name, self.card.max_new_tokens)
        path = self.config.payload_log
        self._payloads = PayloadLog(path, self.metrics.payload) if path else None
        loaded = {"version": self.version, "proof": proof.summary, "backend": self.config.backend}
        write_log({"event": "loaded", **loaded, **({"base": base} if base else {})})

    async def watch(self) -> None:
        """Set `ready` again and again to the health of a separate backend.

        Before `ready` becomes True, a warm-up question must succeed.
        """
        while not self._in_process:
            ready = await self.backend.is_ready() and (self.ready or await self._warm())
            if ready != self.ready:
                write_log({"event": "ready" if ready else "not ready", "version": self.version})
            self.ready = ready
            await asyncio.sleep(HEALTH_POLL_SECONDS)

    async def _warm(self) -> bool:
        """Read the backend's context limit and send a warm-up question. Returns False if the backend fails."""
        try:
            async with asyncio.timeout(self.config.deadline_seconds):
                limit = await self.backend.context_tokens()
                self._context = min(self._longest, limit or sys.maxsize)
                await self.backend.write([self._prompt(self._warm_up(), "")])
        except (TimeoutError, OutageError):
            return False
        return True

    async def healthy(self) -> bool:
        """Return `ready` for health probes. For a question it is True, because the question's answer shows the
        problem."""
        return CURRENT_REQUEST.get() is not None or self.ready

    def close(self) -> None:
        """Close the payload log. Call this after the last answer."""
        if self._payloads:
            self._payloads.close()

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        if isinstance(payload, InferRequest):  # V2; otherwise V1
            answers = await self.answer(protocols.read_v2(payload))
            predictions = [answer.prediction(self.version) for answer in answers]
            return protocols.answer_v2(payload, predictions, self.version)
        answers = await self.answer(protocols.read_v1(read_payload(payload, headers)))
        return {"predictions": [answer.prediction(self.version) for answer in answers]}

    async def answer(self, instances: Sequence[Instance]) -> list[GuardedRewrite]:
        """Rewrite each question. Raises QueueFull if too many wait, or an OutageError if the backend fails.

        An empty queue accepts a request of any size.
        """
        prompts = [self._prompt(instance, f"instances[{number}]") for number, instance in enumerate(instances)]
        record = current_request()
        record.questions, record.trimmed = len(instances), sum(prompt.trimmed for prompt in prompts)
        waiting = self.backend.waiting
        if waiting and waiting + len(prompts) > self.config.queue:
            raise QueueFull(f"{waiting} questions wait already, of {self.config.queue} at most. Ask again.")
        outcome, answers = "late", list[GuardedRewrite]()
        try:
            written = await self.backend.write(prompts)
            answers = [self._guarded(*pair) for pair in zip(instances, written, strict=True)]
            outcome = "answered"
            if not record.shadow:
                self.metrics.trimmed(record.trimmed)
        except OutageError:
            outcome = "failed"
            raise
        finally:
            self._keep(instances, answers, outcome)
        return answers

    def get_input_types(self) -> list[dict[str, Any]]:
        return protocols.INPUT_TENSORS

    def get_output_types(self) -> list[dict[str, Any]]:
        return protocols.OUTPUT_TENSORS

    def _prompt(self, instance: Instance, where: str) -> StudentPrompt:
        """Build the same prompt as in training, without the oldest turns of a long history.

        Raises InvalidInput for an unknown tenant, or if the prompt is too long even without a history.
        """
        systems = self.card.system_prompts
        if instance.tenant_id not in systems:
            # The error does not tell the caller the names of the model's tenants.
            raise InvalidInput(f"{where}: this model was trained for other tenants, not for {instance.tenant_id!r}.")
        messages = student_messages(instance, systems[instance.tenant_id])
        prompt = fit_prompt(self._tokenizer, messages, self.card.prompt_tokens(self._context))
        if prompt.tokens > (longest := self._context - self.card.max_new_tokens):
            raise InvalidInput(
                f"{where}: {prompt.tokens} tokens without any history; the model reads {longest} at most."
            )
        return prompt

    def _guarded(self, instance: Instance, written: GeneratedRewrite) -> GuardedRewrite:
        guards, record = failed_guards(instance, written.text, written.cut), current_request()
        record.guards += guards
        record.prompt_tokens += written.prompt_tokens
        record.written_tokens += written.new_tokens
        if not record.shadow:
            self.metrics.answered(instance.tenant_id, guards, written.prompt_tokens, written.new_tokens)
        return GuardedRewrite(instance.query if guards else written.text, guards[0] if guards else "", written)

    def _keep(self, instances: Sequence[Instance], answers: Sequence[GuardedRewrite], outcome: str) -> None:
        log, request_id = self._payloads, current_request().request_id
        if log is None or current_request().shadow or not is_sampled(request_id, log.config.share):
            return
        about = {"request_id": request_id, "version": self.version, "outcome": outcome}
        for number, instance in enumerate(instances):
            text, fallback = (answers[number].text, answers[number].fallback) if answers else ("", "")
            log.add(payload_record(instance, text, log.config.text, **about, fallback=fallback))

    def _warm_up(self) -> Instance:
        return Instance(query="一天吃几次", tenant_id=next(iter(self.card.system_prompts)))
