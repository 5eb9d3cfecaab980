"""HTTP contract between the gateway and its clients: paths, headers and error types.

POST /v1/chat/completions     OpenAI's protocol; `model` is a role: "teacher", "judge" or "examiner"
POST /api/chat/general_rag    the RAG contract, limited and cached for the whole run
POST /v1/bundle               several of the two above in one message: qinglan/http/request_bundles.py
POST /v1/journal/exported     {"step","artifact"}: the step's answers are in that artifact now
GET  /v1/journal/report       calls, hits, money, rows that may have been billed twice, the model of each role
GET  /v1/journal/paid?step=   answers of a step by digest, for its provenance
GET  /v1/journal/seconds?step=&role=  seconds of each live call that a role's model answered
GET  /v1/waits                {"reason"}: why paid calls wait now; empty if the services answer
GET  /v1/prices               model and price of each role
GET  /healthz  /readyz  /metrics
"""

COMPLETIONS_PATH = "/v1/chat/completions"
PAID_PATH = "/v1/journal/paid"
REPORT_PATH = "/v1/journal/report"
SECONDS_PATH = "/v1/journal/seconds"
PRICES_PATH = "/v1/prices"
WAITS_PATH = "/v1/waits"

STEP_HEADER = "x-qinglan-step"
ROW_HEADER = "x-qinglan-row"
"""Headers with the step and the row, in percent-encoded UTF-8: a row's id may be Chinese, but a header is ASCII."""

SAMPLE_HEADER = "x-qinglan-sample"
"""Header with the number of the sample if several answers to one prompt are needed; "0" for the first."""

CALL_HEADER = "x-qinglan-call"
"""Header of an answer: the call's key in the journal."""

CACHED_HEADER = "x-qinglan-cached"
"""Header of an answer: "1" if the answer was paid for earlier."""

# error.type in the gateway's OpenAI-shaped error answers, with their status
BUDGET_EXCEEDED = "budget_exceeded"  # 402: stop, raise the budget or finish with what there is
OUTAGE = "outage"  # 503: stop, resume later
ROW_FAILED = "row_failed"  # 422: only this row; error.message says why, error.param holds what came back

# error.code of an outage that passes by itself: the gateway is being restarted
STOPPING = "stopping"
