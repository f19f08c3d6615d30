"""What is counted."""

from __future__ import annotations

import httpx

from tests.serving import JSON, run, samples


def test_counts() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        await client.post("/predict", json={"texts": ["a", ["b", "c"]]})
        await client.post("/predict", content=b"{", headers=JSON)
        for path in ("/one", "/two", "/three"):
            await client.get(path)
        await client.request("INVENTED", "/health")
        response = await client.get("/metrics")
        assert response.headers["content-type"].startswith("text/plain")
        counts = samples(response.text)
        assert counts["bough_requests_total", "POST", "/predict", "200"] == 1
        assert counts["bough_requests_total", "POST", "/predict", "400"] == 1
        assert counts["bough_requests_total", "GET", "none", "404"] == 3
        assert counts["bough_requests_total", "other", "/health", "405"] == 1
        assert counts["bough_request_seconds_count",] == 2
        assert counts["bough_pass_texts_sum",] == 2
        assert counts["bough_busy_seconds_total",] > 0
        assert counts["bough_queue_texts",] == 0
        assert counts["bough_queue_room",] == 1024
        assert all(name.startswith("bough_") for name, *_ in counts)

    run(work)
