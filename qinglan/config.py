"""Base class of all settings: objects are frozen, unknown fields are errors, and each default is defined once."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from qinglan.documents import parse_yaml
from qinglan.errors import ConfigError
from qinglan.http.addresses import SECRET_FIELD, hide_secrets

Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[int, Field(gt=0)]
Seed = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""Seed that all generators accept: numpy refuses negative seeds, and transformers refuses more than 32 bits."""

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
"""Name of a tenant or knowledge base, safe in a path, a URL and a Kubernetes label."""

TENANT_MODEL = r"^[a-z0-9][a-z0-9_-]{0,62}/[a-z0-9][a-z0-9_-]{0,62}$"
"""Pattern of a release's name, such as fivedoctors/rewriter."""


UNKNOWN_FIELD = "Extra inputs are not permitted"
"""Message of pydantic about a field that a model does not have."""


class Config(BaseModel):
    """Base class of settings. Objects are frozen, and a misspelt field in a file is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    @classmethod
    def parse(cls, values: Any, where: str) -> Self:
        """Validate `values` as settings. A ConfigError names their source `where`, each wrong field and its fault."""
        return parse_as(cls, values, where)

    def changes(self) -> dict[str, Any]:
        """Return the settings that differ from the defaults, as plain data. `parse` turns them into an equal
        configuration."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude_none=True)


Model = TypeVar("Model", bound=BaseModel)


def parse_as(model: type[Model], values: Any, where: str) -> Model:
    try:
        return model.model_validate(values)
    except ValidationError as error:
        explanation = explain_validation_error(error).replace(UNKNOWN_FIELD, "there is no such setting")
        raise ConfigError(f"{where}: {explanation}{_similar_names(model, error)}") from error


def explain_validation_error(error: ValidationError, show_input: bool = True) -> str:
    """Describe each wrong field by its name, its fault and the rejected value. `show_input=False` leaves the value
    out, for example a user's text."""
    items = error.errors(include_url=False)
    first = [item for item in items if not any(_is_copy(item, other) for other in items)]
    return "; ".join(_explain(item, show_input) for item in first)


def _is_copy(item: ErrorDetails, other: ErrorDetails) -> bool:
    """True if `item` only repeats the error `other`, because the wrong setting of `other` was copied to a deeper
    path."""
    path, shared = item["loc"], other["loc"]
    same = item["msg"] == other["msg"] and item["input"] == other["input"]
    return same and len(shared) < len(path) and path[-len(shared) :] == shared


def _similar_names(model: type[BaseModel], error: ValidationError) -> str:
    """For each unknown setting, suggest a similar name, or the same name at a deeper path; otherwise list all
    names."""
    unknown = [item["loc"] for item in error.errors(include_url=False) if item["type"] == "extra_forbidden"]
    hints = []
    for *path, name in unknown:
        inner = _model_at(model, path)
        if inner is None:
            continue
        names = list(_fields(inner))
        if near := get_close_matches(str(name), names, 1):
            hints.append(f" Did you mean `{near[0]}`?")
        elif below := min(_paths_below(inner, str(name)), key=lambda path: path.count("."), default=""):
            hints.append(f" Did you mean `{'.'.join([*map(str, path), below])}`?")
        else:
            hints.append(f" There are: {', '.join('.'.join([*map(str, path), each]) for each in names)}.")
    return ("." if hints else "") + "".join(dict.fromkeys(hints))


def _fields(model: type[BaseModel]) -> dict[str, Any]:
    """Return the type of each setting of a class, by the setting's name in a file."""
    return {field.alias or key: field.annotation for key, field in model.model_fields.items()}


def _paths_below(model: type[BaseModel], name: str) -> Iterator[str]:
    """Yield the dotted path of each setting called `name` in the classes that are nested in a settings class."""
    for key, annotation in _fields(model).items():
        inner = _inner_model(annotation)
        if inner is not None:
            if name in _fields(inner):
                yield f"{key}.{name}"
            yield from (f"{key}.{path}" for path in _paths_below(inner, name))


def _model_at(model: type[BaseModel], path: Sequence[int | str]) -> type[BaseModel] | None:
    """Return the settings class at a path, which may lead through lists and mappings; None if it leads to no such
    class."""
    at: Any = model
    for part in path:
        if isinstance(at, type) and issubclass(at, BaseModel):
            at = _inner_model(_fields(at).get(str(part)))
    return at if isinstance(at, type) and issubclass(at, BaseModel) else None


def _inner_model(annotation: Any) -> type[BaseModel] | None:
    """Return the settings class inside an annotation such as `dict[str, Pod]` or `DeployConfig | None`; None without
    one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_inner_model, get_args(annotation))), None)


def _explain(item: ErrorDetails, show_input: bool) -> str:
    """Describe one wrong field by its name, its fault and, if `show_input` is set, its value.

    The value is left out if it may hold a secret, and if the fault comes from a check of several settings, because
    the message of such a check names them itself.
    """
    field, value, message = ".".join(map(str, item["loc"])), item["input"], item["msg"].removeprefix("Value error, ")
    if item["type"] == "tuple_type":
        example = f", such as [{value}]" if show_input and isinstance(value, str) else ""
        message = f"Input should be a list{example}"
    elif item["type"] == "model_type":
        message = "Input should be a mapping of settings"
    elif item["type"] == "path_type":
        message = "Input should be a path"
    is_check = item["type"] == "value_error" and isinstance(value, (dict, BaseModel))
    holds_secret = SECRET_FIELD.search(field) or (
        isinstance(value, (dict, list, BaseModel)) and SECRET_FIELD.search(str(value))
    )
    if show_input and not is_check and not holds_secret and item["type"] != "missing":
        message += f" (given: {hide_secrets(str(value))[:80]!r})"
    if field:
        return f"{field}: {message}"
    return message if is_check else f"(the whole): {message}"


def load_yaml(path: Path) -> dict[str, Any]:
    """Read a YAML file, which must hold a mapping or be empty. A ConfigError names a file that cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file. See pipelines/configs for the profiles there are.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not readable as YAML: byte {error.start} is not UTF-8.") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Name a file of YAML.") from error
    return yaml_mapping(text, str(path))


def yaml_mapping(text: str, where: str) -> dict[str, Any]:
    """Parse a YAML text that must hold a mapping; an empty text gives an empty mapping."""
    values = parse_yaml(text, where)
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: expected a mapping of settings, found {type(values).__name__}.")
    return values


REPLACED = frozenset({"gpu_nodes"})
"""Names of mappings that `merge_settings` replaces as a whole. If it merged two node selectors, a node would need the
labels of both."""


def merge_settings(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """Merge `over` into a copy of `under`, level by level. Mappings named in REPLACED are replaced as a whole."""
    out = dict(under)
    for name, value in over.items():
        both = name not in REPLACED and isinstance(value, dict) and isinstance(out.get(name), dict)
        out[name] = merge_settings(out[name], value) if both else value
    return out
