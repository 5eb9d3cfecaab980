import pytest

from qinglan.errors import ConfigError
from qinglan.llm.host_allowlist import ALLOWED_VARIABLE, check_host


def allowed(url: str) -> bool:
    try:
        check_host(url, "teacher.base_url")
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8100/v1", "http://localhost/v1", "http://[::1]:8100", "http://127.8.9.1"]
)
def test_this_machine_is_always_allowed(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.delenv(ALLOWED_VARIABLE, raising=False)
    assert allowed(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com/v1",
        "http://169.254.169.254/latest/meta-data",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://localhost.example.com/v1",
        "http://127.0.0.1.example.com/v1",
        "http://2130706433/v1",
        "http://0.0.0.0/v1",
        "https://api.example.org:8443/v1",
    ],
)
def test_another_host_is_refused_until_the_operator_allows_it(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv(ALLOWED_VARIABLE, "other.example.com, api.example.org:443")
    with pytest.raises(ConfigError, match=r"teacher\.base_url: host .* is not allowed.*QINGLAN_ALLOWED_HOSTS"):
        check_host(url, "teacher.base_url")


@pytest.mark.parametrize(
    "url", ["https://api.example.com/v1", "https://API.example.com:9/v1", "https://api.example.org/v1"]
)
def test_a_host_or_a_host_with_its_port_can_be_allowed(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv(ALLOWED_VARIABLE, "API.example.com, api.example.org:443")
    assert allowed(url)
