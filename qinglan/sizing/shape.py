"""Counts, from a decoder's shape, its parameters, the parameters of an adapter, and the elements of a token's
keys and values.

shape = read_shape(folder)          # from its config.json
shape = known_shapes()["Qwen/Qwen3-32B"]
shape.parameters                    # 32,762,123,264
"""

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from qinglan.errors import ConfigError, DataError
from qinglan.files.files import read_json_mapping

SHAPES = Path(__file__).with_name("shapes.yaml")
"""Shapes of public models, from their own config.json."""

FAMILIES = ("qwen2", "qwen3", "llama", "mistral")
"""Model types whose parameters can be counted here: decoders with gated layers, and with keys and values in
groups."""


class UncountedError(ConfigError):
    """A model of another architecture, whose memory cannot be computed here; it may fit nevertheless."""


class ModelShape(NamedTuple):
    """The sizes of a decoder's layers."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    """True if the embedding is the output layer too."""

    qkv_bias: bool
    output_bias: bool
    """True if the linear map after attention has a bias, too."""

    head_norms: bool
    """True if queries and keys have separate norms."""

    @property
    def linears(self) -> tuple[tuple[int, int], ...]:
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return (
            (self.hidden, queries), (self.hidden, keys), (self.hidden, keys), (queries, self.hidden),
            (self.hidden, self.intermediate), (self.hidden, self.intermediate), (self.intermediate, self.hidden),
        )  # fmt: skip

    @property
    def layer_parameters(self) -> int:
        biases = (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        biases += self.hidden if self.output_bias else 0
        # A norm before attention and one before the MLP; Qwen3 has norms of each head's queries and keys too
        # (transformers, modeling_qwen3.py). RMSNorm has weights and no bias.
        norms = 2 * self.hidden + (2 * self.head_dim if self.head_norms else 0)
        return sum(inputs * outputs for inputs, outputs in self.linears) + biases + norms

    @property
    def embedding(self) -> int:
        """Number of elements of the embedding; an output layer has the same number."""
        return self.vocabulary * self.hidden

    @property
    def body(self) -> int:
        """Number of parameters without an output layer."""
        return self.layers * self.layer_parameters + self.embedding + self.hidden

    @property
    def parameters(self) -> int:
        return self.body + (0 if self.tied else self.embedding)

    def classifier(self, labels: int, bias: bool) -> int:
        """Count the parameters with a head of `labels` outputs instead of the output layer; a critic has one
        output."""
        return self.body + labels * (self.hidden + bias)

    def adapter(self, rank: int) -> int:
        """Count the parameters of a LoRA adapter on all linear maps of the layers."""
        return self.layers * rank * sum(inputs + outputs for inputs, outputs in self.linears)

    @property
    def multiplied(self) -> int:
        """Number of weights of the layers by which each token is multiplied. The output layer adds `embedding` to
        it."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.linears)

    def cached(self, parallel: int = 1) -> int:
        """Count the elements of a token's keys and values in all layers, on each of `parallel` cards. The heads are
        divided among the cards; a card holds at least one head."""
        # 2: keys and values. With fewer heads than cards, vLLM repeats heads (ModelConfig.get_num_kv_heads).
        return 2 * self.layers * max(1, self.kv_heads // parallel) * self.head_dim


def shape_of(settings: dict[str, Any], where: str) -> ModelShape:
    """Read the shape from the settings in a config.json; an UncountedError if its model type is not in FAMILIES."""
    family = settings.get("model_type")
    if family not in FAMILIES:
        raise UncountedError(
            f"{where}: model_type {family!r}. Its memory is not counted: the formulas are for {', '.join(FAMILIES)}."
        )
    try:
        heads = int(settings["num_attention_heads"])
        attention_bias = family in ("qwen3", "llama") and bool(settings.get("attention_bias", False))
        return ModelShape(
            hidden=int(settings["hidden_size"]),
            intermediate=int(settings["intermediate_size"]),
            layers=int(settings["num_hidden_layers"]),
            heads=heads,
            kv_heads=int(settings.get("num_key_value_heads") or heads),
            head_dim=int(settings.get("head_dim") or settings["hidden_size"] // heads),
            vocabulary=int(settings["vocab_size"]),
            tied=bool(settings.get("tie_word_embeddings", False)),
            qkv_bias=family == "qwen2" or attention_bias,
            output_bias=attention_bias,
            head_norms=family == "qwen3",
        )
    except KeyError as error:
        raise DataError(f"{where}: has no {error}. Download the model again.") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"{where}: {error}. Download the model again.") from error


def read_shape(folder: Path) -> ModelShape:
    path = folder / "config.json"
    return shape_of(read_json_mapping(path, "Download the model again."), str(path))


@cache
def known_shapes() -> dict[str, ModelShape]:
    """Read the shapes of public models, by the names of the models."""
    import yaml

    table = yaml.safe_load(SHAPES.read_text(encoding="utf-8"))
    return {name: shape_of(settings, name) for name, settings in table.items()}
