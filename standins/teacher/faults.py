"""Faulty responses like those of real paid services."""

import asyncio

from fastapi import Response

FAULTS = ("limited", "broken", "html", "no choices", "cut short", "silence")
JSON = "application/json"


async def fault_response(fault: str, silence: float) -> Response:
    if fault == "limited":
        error = (
            b'{"error":{"message":"Rate limit reached.","type":"requests","param":null,"code":"rate_limit_exceeded"}}'
        )
        return Response(error, 429, media_type=JSON, headers={"retry-after": "1"})
    if fault == "html":
        return Response(b"<html><body><h1>Bad gateway</h1></body></html>", 200, media_type="text/html")
    if fault == "no choices":
        return Response(b'{"id":"chatcmpl-0","object":"chat.completion","choices":null}', 200, media_type=JSON)
    if fault == "cut short":
        return Response(b'{"id":"chatcmpl-0","object":"chat.completion","choices":[{"ind', 200, media_type=JSON)
    if fault == "silence":
        await asyncio.sleep(silence)
    error = b'{"error":{"message":"The server had an error.","type":"server_error","param":null,"code":null}}'
    return Response(error, 500, media_type=JSON)
