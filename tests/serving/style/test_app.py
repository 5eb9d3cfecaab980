"""The style service: three protocols, one answer; what cannot be answered says why, and no text is written down."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from qinglan.files.digests import digest
from qinglan.style.labels import format_training_text
from qinglan.style.model import StyleModel
from tests.serving.model_servers import Served

pytestmark = pytest.mark.slow

V1, V2, PLAIN = "/v1/models/style:predict", "/v2/models/style/infer", "/predict"
TEXTS = [format_training_text("一天吃几次" * times, "请按标签服用" * (9 - times)) for times in range(1, 9)]
SECRET = "密语"
JSON = {"content-type": "application/json"}


def v1(served: Served, texts: list[str]) -> list[dict[str, Any]]:
    answer = served.http.post(V1, json={"instances": [{"text": text} for text in texts]})
    result: list[dict[str, Any]] = answer.raise_for_status().json()["predictions"]
    return result


def tensor(texts: list[str], **changes: Any) -> dict[str, Any]:
    return {"name": "text", "datatype": "BYTES", "shape": [len(texts)], "data": texts, **changes}


def probabilities(answers: Any) -> list[float]:
    return [value for answer in answers for value in answer["probabilities"].values()]


def test_three_protocols_give_the_answer_that_evaluation_measures(served: Served) -> None:
    expected = StyleModel.load(served.folder).predict(TEXTS)

    first = v1(served, TEXTS)
    second = served.http.post(V2, json={"inputs": [tensor(TEXTS)]}).json()
    plain = served.http.post(PLAIN, json={"text": TEXTS[0]}).json()

    assert probabilities(first) == pytest.approx(probabilities(expected), abs=1e-6)
    assert [item["predicted_label"] for item in first] == [item["predicted_label"] for item in expected]
    assert [item["confidence"] for item in first] == [max(item["probabilities"].values()) for item in first]
    by_name = {output["name"]: output for output in second["outputs"]}
    assert by_name["labels"]["data"] == list(expected[0]["probabilities"])
    assert by_name["probabilities"]["shape"] == [8, 5]
    assert by_name["probabilities"]["data"] == pytest.approx(probabilities(expected), abs=1e-6)
    assert by_name["predicted_label"]["data"] == [item["predicted_label"] for item in expected]
    assert by_name["confidence"]["data"] == pytest.approx([item["confidence"] for item in expected], abs=1e-6)
    assert plain.keys() == first[0].keys()
    assert probabilities([plain]) == pytest.approx(probabilities(expected[:1]), abs=1e-6)
    versions = {second["model_version"], plain["model_version"], *(item["model_version"] for item in first)}
    assert versions == {digest(served.folder)[:12]}


def test_question_and_answer_are_put_in_the_training_form(served: Served) -> None:
    parts = {"question": "孕妇能吃吗？", "answer": "先问医生。"}

    answer = served.http.post(V1, json={"instances": [parts, {**parts, "answer": ""}]}).json()["predictions"]

    texts = [format_training_text(parts["question"], parts["answer"]), format_training_text(parts["question"], "")]
    assert probabilities(answer) == pytest.approx(probabilities(v1(served, texts)), abs=1e-6)
    assert served.http.post(PLAIN, json=parts).json()["probabilities"] == pytest.approx(answer[0]["probabilities"])


def test_the_plans_own_call_has_its_text_in_the_address(served: Served) -> None:
    plain = served.http.post(PLAIN, json={"text": TEXTS[0]}).json()

    assert served.http.post(PLAIN, params={"text": TEXTS[0]}).json() == plain
    for parameters in ({"text": ""}, {"text": "x", "more": SECRET}):
        refused = served.http.post(PLAIN, params=parameters)
        assert (refused.status_code, SECRET in refused.text) == (400, False)


def test_texts_asked_together_get_the_answers_they_get_alone(served: Served) -> None:
    alone = [v1(served, [text])[0] for text in TEXTS]
    batches = served.counted("qinglan_style_batch_texts_count")

    with ThreadPoolExecutor(24) as pool:
        together = list(pool.map(lambda text: v1(served, [text])[0], TEXTS * 8))

    assert probabilities(together) == pytest.approx(probabilities(alone * 8), abs=1e-5)
    assert len({round(item["confidence"], 4) for item in alone}) == 8
    assert served.counted("qinglan_style_batch_texts_count") - batches < 64


def test_a_text_longer_than_the_model_reads_is_cut_as_in_training_and_counted(served: Served) -> None:
    long = "请按标签服用。" * 2000
    before = served.counted("qinglan_style_texts_cut_total")

    result = v1(served, [long, "短"])

    assert probabilities(result[:1]) == pytest.approx(
        probabilities(StyleModel.load(served.folder).predict([long])), abs=1e-5
    )
    assert served.counted("qinglan_style_texts_cut_total") == before + 1


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (V1, {"instances": []}, "0 texts: send 1 to 256"),
        (V1, {"instances": [{"text": SECRET}] * 257}, "257 texts: send 1 to 256"),
        (V1, {"texts": [SECRET]}, '"instances"'),
        (V1, {"instances": SECRET}, "instances"),
        (V1, {"instances": [{"text": SECRET}, {"text": " \n"}]}, "instances[1].text: empty"),
        (V1, {"instances": [{"text": SECRET}, {"text": 7}]}, "instances[1].text: not a text"),
        (V1, {"instances": [{"text": SECRET}, SECRET]}, "instances[1]: give"),
        (V1, {"instances": [{"question": SECRET}]}, "instances[0]: give"),
        (V1, {"instances": [{"question": "", "answer": SECRET}]}, "instances[0].question: empty"),
        (V1, {"instances": [{"text": SECRET, SECRET: 1}]}, "instances[0]: give"),
        (PLAIN, {"text": ""}, "body.text: empty"),
        (PLAIN, {"txt": SECRET}, "body: give"),
        (PLAIN, [SECRET], "body: give"),
        (V2, {"inputs": [tensor([SECRET, " "])]}, "inputs[0].data[1]: empty"),
        (V2, {"inputs": [tensor([SECRET], name=SECRET)]}, 'named "text"'),
        (V2, {"inputs": [tensor([SECRET], datatype="FP32")]}, "datatype BYTES"),
        (V2, {"inputs": [tensor([SECRET]), tensor([SECRET])]}, "give one"),
        (V2, {"inputs": [tensor([SECRET], shape=[3])]}, "shape and data"),
        (V2, {"inputs": [tensor([SECRET] * 257)]}, "257 texts"),
        (V2, {"inputs": [tensor([SECRET] * 2, data=[SECRET, 7])]}, "inputs[0].data[1]: not a text"),
        (V2, {"inputs": [{"name": SECRET}]}, "shape: Field required"),
        (V2, {"inputs": [tensor(["短"])], "outputs": [{"name": "x"}]}, "Unexpected inference output"),
    ],
)
def test_a_refused_request_names_the_field_and_the_reason(served: Served, path: str, body: Any, message: str) -> None:
    answer = served.http.post(path, json=body)

    assert answer.status_code == 400
    assert message in answer.json()["error"]
    assert SECRET not in answer.text


@pytest.mark.parametrize("path", [V1, V2, PLAIN])
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b'{"text": ', JSON, 400),
        (b"", JSON, 400),
        (b"null", JSON, 400),
        (b'{"text": "\xff"}', JSON, 400),
        (b"[" * 100_000, JSON, 400),
        (b'{"text": "\\ud800"}', JSON, 400),
        (f'{{"text": "{SECRET}"}}'.encode(), {"content-type": "text/plain"}, 400),
        (b'{"inputs": []}' + b"\x01", {**JSON, "inference-header-content-length": "x"}, 400),
        (b'{"text": "' + b"x" * 1_000_000 + b'"}', JSON, 413),
    ],
)
def test_a_body_that_is_no_question_is_refused(
    served: Served, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = served.http.post(path, content=body, headers=headers)

    assert answer.status_code == status
    assert answer.json()["error"]


def test_half_a_character_in_a_tensor_is_refused(served: Served) -> None:
    body = b'{"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["\\ud800"]}]}'

    answer = served.http.post(V2, content=body, headers=JSON)

    assert (answer.status_code, "half a character" in answer.text) == (400, True)


def test_a_content_type_may_name_its_charset(served: Served) -> None:
    headers = {"content-type": "application/json; charset=utf-8"}

    for path, body in ((V1, b'{"instances": [{"text": "a"}]}'), (PLAIN, b'{"text": "a"}')):
        assert served.http.post(path, content=body, headers=headers).status_code == 200


def test_metrics_count_what_was_asked_and_what_was_answered(served: Served) -> None:
    [result] = v1(served, [TEXTS[0]])
    version = digest(served.folder)[:12]
    kinds = (("v1", "answered"), ("plain", "refused"), ("v2", "too_large"))

    def counts() -> list[float]:
        name = "qinglan_style_requests_total"
        requests = [
            served.counted(name, protocol=protocol, outcome=outcome, version=version) for protocol, outcome in kinds
        ]
        texts = served.counted("qinglan_style_texts_total", predicted_label=result["predicted_label"])
        return [*requests, texts, served.counted("qinglan_style_seconds_count", protocol="v1", version=version)]

    before = counts()
    v1(served, [TEXTS[0]] * 3)
    served.http.post(PLAIN, json={"text": ""})
    served.http.post(V2, content=b"x" * 1_000_001, headers=JSON)
    served.http.post(f"/v1/models/{SECRET}:predict", json={})

    assert [after - count for after, count in zip(counts(), before, strict=True)] == [1, 1, 1, 3, 1]
    assert served.counted("qinglan_style_texts_waiting") == 0
    assert SECRET not in served.http.get("/metrics").text


def test_no_text_that_was_sent_is_in_the_log(served: Served) -> None:
    served.http.post(V1, json={"instances": [{"text": SECRET}, {"text": ""}]})

    log = served.log.read_text()

    assert "refused: instances[1].text: empty" in log
    assert SECRET not in log
    assert "Traceback" not in log


def test_the_service_says_which_bytes_answer(served: Served) -> None:
    output = served.http.get("/model").json()

    assert output == {"name": "style", "sha256": digest(served.folder)}
    assert v1(served, TEXTS[:1])[0]["model_version"] == output["sha256"][:12]
