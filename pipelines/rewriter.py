"""The graph of the rewriter's data line; laptop and cluster run this same function.

questions, knowledge base -> generate -> validate -> convert -> SFT rows, PPO parquet, locked test
"""

from typing import Any

from kfp import dsl

from components.data.convert.component import convert
from components.data.generate.component import generate
from components.data.validate.component import validate

STAGES = {"generate": generate, "validate": validate, "convert": convert}


def _import(uri: Any) -> Any:
    # No display name: the 2.17 back end looks an importer up by its task name, and records the display name.
    return dsl.importer(artifact_uri=uri, artifact_class=dsl.Dataset, reimport=True).output


@dsl.pipeline(name="qinglan-rewriter")
def rewriter(
    questions_uri: str,
    knowledge_base_uri: str,
    gateway_url: str,
    generate_config: dict,  # type: ignore[type-arg]
    validate_config: dict,  # type: ignore[type-arg]
    convert_config: dict,  # type: ignore[type-arg]
) -> None:
    """From a spreadsheet of questions to training files.

    Args:
        questions_uri: The spreadsheet (.xlsx) or JSONL of questions, in the object store.
        knowledge_base_uri: The JSONL that the RAG service serves; its digest is checked against the answers.
        gateway_url: The run's gateway, the only way to the paid models and to the RAG.
        generate_config: GenerateConfig as JSON; at least {"tenant_id": "..."}.
        validate_config: ValidateConfig as JSON; {} takes the defaults.
        convert_config: ConvertConfig as JSON; {} takes the defaults.
    """
    questions = _import(questions_uri)
    knowledge_base = _import(knowledge_base_uri)
    generated = generate(questions=questions, gateway_url=gateway_url, config=generate_config)
    checked = validate(
        rewrites=generated.outputs["rewrites"],
        knowledge_base=knowledge_base,
        gateway_url=gateway_url,
        config=validate_config,
    )
    # The gateway's journal, not KFP's cache, remembers paid answers: the cache key knows nothing of the teacher.
    generated.set_caching_options(False)
    checked.set_caching_options(False)
    convert(validated=checked.outputs["validated"], config=convert_config)


def alone(stage: str, inputs: dict[str, str], parameters: dict[str, Any]) -> Any:
    """A graph of one stage, fed from artifacts that are there already."""

    @dsl.pipeline(name=f"qinglan-{stage}")
    def graph() -> None:
        artifacts = {name: _import(uri) for name, uri in inputs.items()}
        STAGES[stage](**artifacts, **parameters)

    return graph
