"""Fixtures and settings of every test."""

import functools
import os
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, settings

from tests.processes.forked_workers import fork_workers

# Tests read English, whatever the locale of whoever runs them.
os.environ["QINGLAN_LANG"] = "en"
# As under `make`: on a busy machine threads that wait for each other take minutes for a tiny model.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says how busy the machine is.
settings.register_profile("qinglan", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("qinglan")


@pytest.fixture(scope="session", autouse=True)
def signing_keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of the tests' own; whoever runs them keeps theirs."""
    from qinglan.lineage.signing.keys import KEYS_VARIABLE
    from qinglan.lineage.signing.trust import ensure_keys

    folder = tmp_path_factory.mktemp("keys")
    ensure_keys(folder)
    pytest.MonkeyPatch().setenv(KEYS_VARIABLE, str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def public_authorities_once() -> Iterator[None]:
    """Read the public authorities once, not for each HTTP client: 20 to 50 ms of a core."""
    import httpx
    import httpx2

    with pytest.MonkeyPatch.context() as patch:
        for library in (httpx, httpx2):
            module = library._transports.default
            patch.setattr(module, "create_ssl_context", _read_once(module.create_ssl_context))
        yield


def _read_once(create: Callable[..., ssl.SSLContext]) -> Callable[..., ssl.SSLContext]:
    usual = functools.cache(create)

    def context(
        verify: ssl.SSLContext | str | bool = True, cert: object = None, trust_env: bool = True
    ) -> ssl.SSLContext:
        own_files = trust_env and {"SSL_CERT_FILE", "SSL_CERT_DIR"} & os.environ.keys()
        if verify is not True or cert or own_files:
            return create(verify=verify, cert=cert, trust_env=trust_env)
        return usual(verify=verify, cert=cert, trust_env=trust_env)

    return context


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--write-golden", action="store_true", help="Keep a release signed by this version.")


LONG = (
    "tests/commands/demo/test_new_tenant_run.py",
    "tests/components/training/ppo/test_ppo_stage.py",
    "tests/components/training/sft/test_sft_runs.py",
    "tests/pipelines/lines/test_style.py",
    "tests/components/training/ppo/test_ppo_vllm.py",
    "tests/serving/rewriter/test_real_vllm.py",
    "tests/serving/rollout/test_loopback.py",
    "tests/components/training/ppo/test_ppo_nodes.py",
    "tests/commands/test_company_to_report.py",
    "tests/rehearsal/test_rehearse.py",
    "tests/components/evaluation/rewriter/test_engine_inference.py",
    "tests/qinglan/jobs/inside/test_ray_cluster.py",
    "tests/components/training/style/test_style_bases.py",
    "tests/examples/test_style_policy_runs.py",
)
"""Files of a minute and more: they begin first, so that at the end no worker is left alone with one."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    places = {config.rootpath / name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path, len(LONG)))


@pytest.fixture
def in_chinese(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process prints for a person who reads Chinese."""
    from qinglan.terminal import use_language

    monkeypatch.setenv("QINGLAN_LANG", "zh")
    use_language()
    yield
    monkeypatch.setenv("QINGLAN_LANG", "en")
    use_language()


@pytest.fixture(scope="module")
def forks() -> Iterator[None]:
    """Commands, steps and servers that the module's tests start are forks of a small process, without torch."""
    with _forks(models=False):
        yield


@pytest.fixture(scope="module")
def forks_with_models() -> Iterator[None]:
    with _forks(models=True):
        yield


@contextmanager
def _forks(models: bool) -> Iterator[None]:
    from tests.processes.forked_runs import fork_environment

    with patch.dict(os.environ, fork_environment(models=models)):
        yield


@pytest.fixture(scope="module", autouse=True)
def without_swift() -> Iterator[None]:
    """ms-swift changes transformers' Trainer for every later test of a process: ask it in a process of its own."""
    before = "swift" in sys.modules
    yield
    assert before or "swift" not in sys.modules, "only tests/components/training/swift_subprocess.py may import it"


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(AtOnce(config))
    fork_workers(config)


class AtOnce:
    """A failure is told when it happens: a run that is cut off has no summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self._config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            why = report.longreprtext.partition("\nE  ")[2] or report.longreprtext
            terminal.write_line(f"\n{report.nodeid} failed ({report.when})\n{why[:1500]}\n...\n{why[-500:]}")
