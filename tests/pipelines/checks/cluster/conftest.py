"""No cluster but the stand-in."""

from tests.pipelines.submit.conftest import nobody_elses_cluster

__all__ = ["nobody_elses_cluster"]
