"""A run is started once, on what was checked; with a token or a service account's, behind a prefix, over TLS."""

from pathlib import Path
from typing import Any

import pytest

from pipelines.checks.checks import Check
from pipelines.checks.cluster.graph import Graph, read_graph
from pipelines.submit.kfp_client import KfpAccess, KfpClient, read_access
from pipelines.submit.start_run import (
    RunRequest,
    check_input_addresses,
    namespaces,
    open_graph,
    parse_parameters,
    profile_target,
    refuse_errors,
    submit,
)
from qinglan.errors import ConfigError, OutageError
from tests.kfp.graphs import compile_graph
from tests.kfp.stand_in import Fault, StandIn, serving
from tests.pipelines.submit.conftest import PARAMETERS
from tests.qinglan.http.test_own_authority import write_certificates

HTML = b"<html>Please log in</html>"
MINIO = b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>'


def run_request(**changes: Any) -> RunRequest:
    return RunRequest("qinglan-small", PARAMETERS, "acme", checks=False)._replace(**changes)


def test_errors_are_raised_together_and_warnings_are_printed() -> None:
    notes = list[str]()
    checks = [Check("error", "namespace", f"{name} is missing.", "Make it:", command=name) for name in ("a", "b")]

    with pytest.raises(ConfigError) as error:
        refuse_errors([Check("warning", "namespace", "Odd.", "Look."), *checks], notes.append)

    assert notes == ["note: Odd. Look."]
    assert [line.strip() for line in error.value.lines[1:]] == [
        "- a is missing.", "Make it:", "a", "- b is missing.", "Make it:", "b",
    ]  # fmt: skip


def test_a_run_is_told_its_parameters_experiment_version_and_account(server: StandIn, small: Graph) -> None:
    started = submit(KfpClient(KfpAccess(server.url)), small, run_request(name="第一次"), lambda line: None)

    [run] = server.runs.values()
    [(experiment, experiment_body)] = server.experiments.items()
    assert (run["display_name"], run["service_account"]) == ("第一次", "pipeline-runner")
    assert run["runtime_config"] == {"parameters": PARAMETERS}
    assert run["experiment_id"] == experiment and experiment_body["display_name"] == "acme"
    assert run["pipeline_version_reference"]["pipeline_version_id"] == started.version
    assert server.uploaded == [small.text]
    assert server.versions[started.version].get("description") == small.description
    assert started.page == f"{server.url}/#/runs/details/{started.run_id}"


def test_the_same_bytes_are_uploaded_once(server: StandIn, small: Graph, tmp_path: Path) -> None:
    kfp = KfpClient(KfpAccess(server.url))
    first, second = (submit(kfp, small, run_request(), lambda line: None) for _ in range(2))
    other = read_graph(compile_graph(tmp_path / "other.yaml", nodes=1))
    third = submit(kfp, other, run_request(), lambda line: None)

    assert (first.uploaded, second.uploaded, third.uploaded) == (True, False, True)
    assert first.version == second.version != third.version
    assert (len(server.pipelines), len(server.experiments), len(server.runs)) == (1, 1, 3)


@pytest.mark.parametrize(
    "spoiled", [run_request(parameters={}), run_request(parameters={"questions": "q.xlsx"}), run_request(checks=True)]
)
def test_nothing_is_sent_where_something_is_missing(server: StandIn, small: Graph, spoiled: RunRequest) -> None:
    with pytest.raises(ConfigError):
        submit(KfpClient(KfpAccess(server.url)), small, spoiled, lambda line: None)

    assert [request for request in server.heard if not request.endswith("/healthz")] == []


@pytest.mark.parametrize("status", [0, 503])
def test_a_lost_answer_to_a_start_does_not_start_twice(server: StandIn, small: Graph, status: int) -> None:
    kfp = KfpClient(KfpAccess(server.url))
    server.faults.append(Fault("/runs", status, done=True))

    started = submit(kfp, small, run_request(), lambda line: None)

    assert list(server.runs) == [started.run_id]


def test_a_start_that_nobody_knows_of_says_so(server: StandIn, small: Graph) -> None:
    kfp = KfpClient(KfpAccess(server.url))
    server.faults += [Fault("/runs", done=True), Fault("/runs")]

    with pytest.raises(OutageError, match="Whether the run has started is not known: look for 'mine'"):
        submit(kfp, small, run_request(name="mine"), lambda line: None)


def test_a_token_is_read_anew_for_each_request(small: Graph, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    with serving(StandIn(token="first")) as server:
        kfp = KfpClient(read_access(server.url, {"KF_PIPELINES_SA_TOKEN_PATH": str(token)}))
        kfp.many_users()
        server.token = "second"
        token.write_text("second")
        kfp.many_users()

    assert len(server.heard) == 2


def test_behind_a_prefix_with_a_token_and_a_namespace(small: Graph) -> None:
    with serving(StandIn(token="secret", prefix="/pipeline", many_users=True)) as server:
        kfp = KfpClient(
            read_access(f"{server.url}/", {"KFP_TOKEN": "secret", "KFP_UI_ENDPOINT": "https://kf.example/pipeline/"})
        )
        started = submit(kfp, small, run_request(namespace="team"), lambda line: None)

        assert started.page == f"https://kf.example/pipeline/#/runs/details/{started.run_id}"
        assert {request["namespace"] for request in (*server.pipelines.values(), *server.experiments.values())} == {
            "team"
        }
        with pytest.raises(ConfigError, match="has many users: give yours with --namespace"):
            submit(kfp, small, run_request(), lambda line: None)


DENIED = (
    b'{"code":7,"message":"PermissionDenied: User \'a@b\' is not authorized with reason: '
    b" (request: &ResourceAttributes{Namespace:team,Verb:create,Group:pipelines.kubeflow.org,Version:v1beta1,"
    b'Resource:runs,Subresource:,Name:,}): Unauthorized access"}'
)
"""KFP's words (its resource_manager.go), with the calls that led there."""


@pytest.mark.parametrize(
    ("fault", "kind", "message"),
    [
        (Fault("", 401), ConfigError, "KFP_TOKEN"),
        (Fault("", 302, headers={"location": "https://login.example"}), ConfigError, "KFP_TOKEN"),
        (Fault("", 403, DENIED), ConfigError, "User 'a@b' is not authorized"),
        (Fault("", 403, b"RBAC: access denied", "text/plain"), ConfigError, "--namespace"),
        (Fault("", 403, MINIO, "application/xml"), ConfigError, "not KFP's answer"),
        (Fault("", 404, HTML, "text/html"), ConfigError, "/pipeline"),
        (Fault("", 200, HTML, "text/html"), ConfigError, "answers 200 with a page"),
        (Fault("", 400, b'{"code":3,"message":"wrong"}'), ConfigError, "said 400 (wrong)"),
        (Fault("", 500, b'{"code":13,"message":"db"}'), OutageError, "said 500 (db)"),
        (Fault("", 429), OutageError, "said 429"),
        (Fault(""), OutageError, "no answer from"),
    ],
)
def test_every_refusal_says_what_to_do(server: StandIn, fault: Fault, kind: type[Exception], message: str) -> None:
    server.faults.append(fault)

    with pytest.raises(kind) as error:
        KfpClient(KfpAccess(server.url)).many_users()

    assert message in str(error.value)
    assert len(server.heard) == 1  # nobody was led on to a login page


def test_a_token_that_does_not_count_is_not_shown(server: StandIn) -> None:
    server.token = "right"

    with pytest.raises(ConfigError, match="Your token is not valid") as error:
        KfpClient(read_access(server.url, {"KFP_TOKEN": "hunter2"})).many_users()

    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    ("endpoint", "environment", "message"),
    [
        ("", {}, "Where is KFP"),
        ("kubeflow.example.com", {}, "no http or https address"),
        ("ftp://kf", {}, "no http or https address"),
        ("https://me:secret@kf", {}, "an address holds no user and password"),
        ("https://kf", {"KFP_TOKEN_FILE": "/none/token"}, "/none/token"),
    ],
)
def test_a_wrong_way_to_kfp_is_explained(endpoint: str, environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        KfpClient(read_access(endpoint, environment))

    assert message in str(error.value)
    assert "secret" not in str(error.value)


def test_a_certificate_counts_only_where_its_signer_is_known(tmp_path: Path) -> None:
    write_certificates(tmp_path)
    pair, authority = tmp_path / "server.pem", tmp_path / "authority.pem"
    with serving(StandIn(), tls=(pair, pair)) as server:
        assert not KfpClient(read_access(server.url, {"SSL_CERT_FILE": str(authority)})).many_users()
        with pytest.raises(ConfigError, match=r"is not trusted.*Set SSL_CERT_FILE"):
            KfpClient(read_access(server.url, {})).many_users()


@pytest.mark.parametrize(
    ("line", "tenant"), [("teleport", ""), ("rewriter", ""), ("style", "acme"), ("rewriter", "style")]
)
def test_a_line_that_cannot_be_compiled_is_refused(line: str, tenant: str) -> None:
    with pytest.raises(ConfigError):
        profile_target(line, tenant, "", "")


def test_a_compiled_graph_takes_no_tenant() -> None:
    with pytest.raises(ConfigError, match=r"x\.yaml is compiled: tenant"):
        open_graph("x.yaml", ("", "acme"))


@pytest.mark.parametrize("address", ["q.xlsx", "://", "ftp://x/y", "https://host/q.xlsx", "s3://", "s3://bucket/"])
def test_an_address_that_kfp_fetches_nothing_from_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=f"--knowledge-base {address}: "):
        check_input_addresses({"knowledge_base": address})


def test_a_parameter_without_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match="--set questions"):
        parse_parameters(["questions"])


def test_pods_are_where_kfp_puts_them() -> None:
    assert namespaces(False, "") == ("", "kubeflow")
    assert namespaces(False, "kfp") == ("", "kfp")
    assert namespaces(True, "team") == ("team", "team")
