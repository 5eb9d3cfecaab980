"""KFP's REST API as kfp-server-api, generated from KFP's own definition, has it: paths, queries, bodies, answers.

The stand-in may answer nothing that is not in here, and takes nothing that is not: so it cannot drift from KFP.
"""

import inspect
import re
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import kfp_server_api
from kfp_server_api import models

SERVICES = (
    kfp_server_api.ExperimentServiceApi, kfp_server_api.HealthzServiceApi, kfp_server_api.PipelineServiceApi,
    kfp_server_api.PipelineUploadServiceApi, kfp_server_api.RunServiceApi,
)  # fmt: skip
PLAIN = {"str": str, "int": int, "float": (int, float), "bool": bool, "datetime": str, "object": object}


class Call(NamedTuple):
    method: str
    path: str
    """With {name} where an id goes."""

    answer: str
    """The model's name."""

    body: str
    """The model's name, or nothing."""

    query: frozenset[str]


@cache
def read_contract() -> dict[tuple[str, str], Call]:
    """Every call of the services that a client of runs needs, by method and path."""
    calls = [
        _call(inspect.getsource(function))
        for service in SERVICES
        for name, function in inspect.getmembers(service, inspect.isfunction)
        if name.endswith("_with_http_info")
    ]
    return {(call.method, call.path): call for call in calls}


def _call(source: str) -> Call:
    path, method = re.findall(r"'(/apis/[^']+)', '([A-Z]+)'", source)[0]
    answer = re.findall(r"response_type='(\w+)'", source)[0]
    taken = re.findall(r"body_params = local_var_params\['(\w+)'\]", source)
    body = re.findall(rf":type {taken[0]}: (\w+)", source)[0] if taken else ""
    return Call(method, path, answer, body, frozenset(re.findall(r"query_params\.append\(\('([\w.]+)'", source)))


def faults(value: Any, kind: str, where: str = "$") -> Iterator[str]:
    """Yield differences from KFP's own model of this kind: unknown fields, wrong types, unknown states."""
    if result := re.fullmatch(r"list\[(.+)\]", kind):
        if not isinstance(value, list):
            yield f"{where}: no list"
            return
        for index, item in enumerate(value):
            yield from faults(item, result[1], f"{where}[{index}]")
    elif result := re.fullmatch(r"dict\(str, (.+)\)", kind):
        if not isinstance(value, dict):
            yield f"{where}: no object"
            return
        for name, item in value.items():
            yield from faults(item, result[1], f"{where}.{name}")
    elif kind in PLAIN:
        yield from _plain_faults(value, kind, where)
    else:
        yield from _model_faults(value, getattr(models, kind), where)


def _plain_faults(value: Any, kind: str, where: str) -> Iterator[str]:
    if not isinstance(value, PLAIN[kind]) or (kind == "int" and isinstance(value, bool)):  # type: ignore[arg-type]
        yield f"{where}: {value!r} is no {kind}"
    elif kind == "datetime":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            yield f"{where}: {value!r} is no time"


def _model_faults(value: Any, model: Any, where: str) -> Iterator[str]:
    if values := getattr(model, "allowable_values", None):
        if value not in values:
            yield f"{where}: {value!r} is none of {values}"
        return
    if not isinstance(value, dict):
        yield f"{where}: no {model.__name__}"
        return
    fields = {json: model.openapi_types[name] for name, json in model.attribute_map.items()}
    for name, item in value.items():
        if name not in fields:
            yield f"{where}.{name}: {model.__name__} has no such field"
        else:
            yield from faults(item, fields[name], f"{where}.{name}")
