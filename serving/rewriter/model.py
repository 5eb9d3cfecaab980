"""The student as a KServe model: questions in, one line each out, written by the code that evaluation measured."""

from pathlib import Path
from typing import Any

from kserve import Model
from kserve.errors import InvalidInput
from pydantic import Field, ValidationError

from qinglan.config import Config, Name, explain
from qinglan.lineage.digests import digest
from qinglan.rewriter import Student, Written, load_tokenizer, render
from serving.batches import Batches
from serving.kserving import payload_of

MOST_TOGETHER = 32
MOST_INSTANCES = 256


class Instance(Config):
    """One question, as the RAG service sends it."""

    query: str = Field(min_length=1, max_length=4000, pattern=r"\S")
    user_profile: str = Field(default="", max_length=4000)
    history_summary: str = Field(default="", max_length=20000)
    tenant_id: Name

    @property
    def question(self) -> str:
        """Its name in prompts."""
        return self.query


class Rewriter(Model):  # type: ignore[misc]
    """Loads a release's model folder; its version is the folder's digest."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name)
        self._folder = folder
        self.version = ""

    def load(self) -> bool:
        self._student = Student.load(self._folder)
        self._tokenizer = load_tokenizer(self._folder)  # the event loop's own; the student's is in its thread
        self._longest = self._student.model.config.max_position_embeddings - self._student.card.max_new_tokens
        self._batches = Batches[Instance, Written](self._student.write, MOST_TOGETHER)
        self.version = digest(self._folder)[:12]
        self._student.write([self._warm_up()])  # the first answer of a process is slow: nobody should wait for it
        self.ready = True
        return True

    async def predict(self, payload: dict[str, Any], headers: Any = None, response_headers: Any = None) -> Any:
        instances = self._read(payload_of(payload, headers))
        written = await self._batches.ask(instances)
        return {"predictions": [{"rewritten_query": one.text, "model_version": self.version} for one in written]}

    def _read(self, payload: Any) -> list[Instance]:
        given = payload.get("instances") if isinstance(payload, dict) else None
        if not isinstance(given, list) or not 0 < len(given) <= MOST_INSTANCES:
            raise InvalidInput(f'Send application/json: {{"instances": [...]}} with 1 to {MOST_INSTANCES} questions.')
        return [self._instance(number, values) for number, values in enumerate(given)]

    def _instance(self, number: int, values: Any) -> Instance:
        try:
            instance = Instance.model_validate(values)
        except ValidationError as error:
            raise InvalidInput(f"instances[{number}]: {explain(error, given=False)}") from None
        known = self._student.card.system_prompts
        if instance.tenant_id not in known:
            raise InvalidInput(
                f"instances[{number}]: this model was trained for {', '.join(known) or 'nobody'}, "
                f"not for {instance.tenant_id!r}."
            )
        text = render(self._tokenizer, self._student.messages(instance))
        if (length := len(self._tokenizer(text, add_special_tokens=False).input_ids)) > self._longest:
            raise InvalidInput(f"instances[{number}]: {length} tokens; the model reads {self._longest} at most.")
        return instance

    def _warm_up(self) -> Instance:
        return Instance(query="一天吃几次", tenant_id=next(iter(self._student.card.system_prompts)))
