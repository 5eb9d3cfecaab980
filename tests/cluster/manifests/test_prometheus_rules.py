"""Prometheus' own tool reads our rules and our dashboard's queries, and plays the rules' examples through."""

import shutil
import subprocess
from pathlib import Path

import orjson
import yaml

from tests.cluster.build.binaries import binary
from tests.manifests.manifest_objects import MANIFESTS, objects

MONITORING = MANIFESTS / "monitoring"
OF_GRAFANA = {"$__rate_interval": "5m", "$namespace": "qinglan"}


def promtool(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(binary("promtool")), *arguments], cwd=folder, text=True, capture_output=True, timeout=300
    )


def write_rules(folder: Path) -> list[dict[str, object]]:
    groups = objects(MONITORING / "rules.yaml")[0]["spec"]["groups"]
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": groups}))
    return [rule for group in groups for rule in group["rules"]]


def test_the_rules_are_prometheus_rules(tmp_path: Path) -> None:
    rules = write_rules(tmp_path)
    checked = promtool("check", "rules", "--lint-fatal", "rules.yml", folder=tmp_path)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"{len(rules)} rules found" in checked.stdout


def test_every_example_comes_out_as_it_says(tmp_path: Path) -> None:
    write_rules(tmp_path)
    shutil.copy(MONITORING / "rules_test.yaml", tmp_path / "rules_test.yml")
    tested = promtool("test", "rules", "rules_test.yml", folder=tmp_path)

    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_dashboards_queries_are_promql(tmp_path: Path) -> None:
    panels = orjson.loads((MONITORING / "dashboard.json").read_bytes())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets") or ()]
    for name, value in OF_GRAFANA.items():
        queries = [query.replace(name, value) for query in queries]
    rules = [{"record": f"panel:number{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    checked = promtool("check", "rules", "--lint=none", "panels.yml", folder=tmp_path)

    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len(queries) > 20 and not [query for query in queries if "$" in query]
