"""Load a login to a cluster from a kubeconfig, or from the pod in which this process runs."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qinglan.documents import parse_yaml
from qinglan.errors import ConfigError


def load_login(path: str, settings: Any) -> None:
    """Fill a client's settings from a kubeconfig; if `path` is empty, from the pod's ServiceAccount."""
    from kubernetes import config
    from yaml import YAMLError

    source = f"KUBECONFIG {path}" if path else "this pod"
    try:
        with _captured_plugin_errors() as failures:
            if path:
                _check_form(path)
                config.load_kube_config(path, client_configuration=settings)
            else:
                config.load_incluster_config(client_configuration=settings)
    except ConfigError:
        raise
    except (config.ConfigException, OSError, YAMLError) as error:
        raise ConfigError(f"{source}: {_line(error)}.") from error
    except Exception as error:  # the library takes any mapping for a kubeconfig, and raises errors of many kinds
        raise ConfigError(f"{source}: is no kubeconfig ({type(error).__name__}: {_line(error)}).") from error
    if failures:
        raise ConfigError(f"{source}: the plugin under `exec` gave no login: {_line('; '.join(failures))}.")


def _check_form(path: str) -> None:
    """Check that every file of a kubeconfig is a mapping in YAML, because the library does not check it."""
    for part in (Path(part).expanduser() for part in path.split(os.pathsep) if part):
        if not part.exists():
            continue  # kubectl ignores a missing file, too
        try:
            read = parse_yaml(part.read_text(encoding="utf-8"), f"KUBECONFIG {part}")
        except UnicodeDecodeError as error:
            raise ConfigError(f"KUBECONFIG {part}: not readable as YAML: {_line(error)}.") from error
        if not isinstance(read, dict):
            raise ConfigError(f"KUBECONFIG {part}: {'is empty' if read is None else 'is no mapping in YAML'}.")


@contextmanager
def _captured_plugin_errors() -> Iterator[list[str]]:
    """Collect the errors of login plugins, which the library only logs."""
    root, failures, handler = logging.getLogger(), list[str](), logging.NullHandler()

    def collect(record: logging.LogRecord) -> bool:
        if record.module != "kube_config":
            return True
        message = record.getMessage()
        # On a terminal the plugin writes its error there, and the library finds no text.
        failures.append("what it said is above" if "NoneType" in message else message)
        return False

    root.addFilter(collect)
    root.addHandler(handler)  # without a handler, the first record would install one that prints
    try:
        yield failures
    finally:
        root.removeHandler(handler)
        root.removeFilter(collect)


def _line(value: object) -> str:
    return " ".join(str(value).split()).rstrip(".")
