"""What stages and reward workers know of the gateway: its base URL and these names.

POST /v1/chat/completions     OpenAI's protocol; `model` is a role: "teacher", "judge" or "examiner"
POST /api/chat/general_rag    the RAG contract, limited and cached for the whole run
POST /v1/bundle               several of the two above in one message: qinglan/llm/request_bundles.py
POST /v1/journal/exported     {"step","artifact"}: the step's answers are in that artifact now
GET  /v1/journal/report       calls, hits, money, what may have been billed twice, who answers for each role
GET  /v1/journal/paid?step=   the answers that a step got, by digest, for its provenance
GET  /v1/prices               who answers for each role, and for what
GET  /healthz  /readyz  /metrics
"""

COMPLETIONS_PATH = "/v1/chat/completions"
PAID_PATH = "/v1/journal/paid"
PRICES_PATH = "/v1/prices"

STEP_HEADER = "x-qinglan-step"
ROW_HEADER = "x-qinglan-row"
"""Both percent-encoded UTF-8: a row's id may be Chinese, a header may not."""

SAMPLE_HEADER = "x-qinglan-sample"
"""Which of several answers to the same prompt; "0" where one is wanted."""

CALL_HEADER = "x-qinglan-call"
"""In the answer: the journal's key of the call."""

CACHED_HEADER = "x-qinglan-cached"
"""In the answer: "1" when it was paid for earlier."""

# error.type in the gateway's OpenAI-shaped error answers, with their status
BUDGET_EXCEEDED = "budget_exceeded"  # 402: stop, raise the budget or finish with what there is
OUTAGE = "outage"  # 503: stop, resume later
ROW_FAILED = "row_failed"  # 422: this row alone; error.message says why, error.param holds what came back

# error.code of an outage that passes by itself: the gateway is being restarted
STOPPING = "stopping"
