"""A cluster's own volume claims are compared with what a run keeps on them, and not with this repository's."""

import pytest

from pipelines.checks.cluster.cluster_reader import _claim_bytes
from pipelines.checks.sizing.check import check_fit, volume_bytes
from pipelines.lines.config import load_config
from qinglan.errors import ConfigError
from qinglan.sizing.constants import GB, GIB


def test_a_profile_knows_the_bytes_of_each_of_its_claims() -> None:
    on_gpus, on_cpu = (load_config("fivedoctors", "gpt", training=name) for name in ("a100x4", "laptop"))

    volumes = volume_bytes(on_gpus)

    assert set(volumes) == {"qinglan-scratch", "qinglan-base-weights"}
    assert volumes["qinglan-base-weights"] > 60 * GB
    assert volume_bytes(on_cpu) == {}


def test_a_volume_smaller_than_the_manifests_say_is_the_clusters_to_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.checks.sizing.needs.claimed_bytes", lambda name: float(GIB))
    config = load_config("fivedoctors", "gpt", training="a100x4")

    check_fit(config, volumes=False)
    with pytest.raises(ConfigError, match=r"run needs .* of scratch volume"):
        check_fit(config)


@pytest.mark.parametrize(
    ("capacity", "requested", "size"),
    [
        ({"storage": "2Ti"}, {"storage": "1Gi"}, 2 * 1024 * GIB),
        (None, {"storage": "500G"}, 500 * GB),
        (None, None, 0),
    ],
)
def test_a_claim_is_as_large_as_its_volume_or_as_requested(
    capacity: dict[str, str] | None, requested: dict[str, str] | None, size: float
) -> None:
    claim = {"status": {"capacity": capacity}, "spec": {"resources": {"requests": requested}}}

    assert _claim_bytes(claim) == size
