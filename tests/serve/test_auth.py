"""The API key."""

from __future__ import annotations

import httpx

from tests.serving import ONE, run


def test_a_key_is_asked_for() -> None:
    async def work(client: httpx.AsyncClient) -> None:
        for path in ("/tasks", "/metrics", "/plan.svg", "/openapi.json", "/nothing"):
            response = await client.get(path)
            assert response.status_code == 401, path
            assert response.headers["www-authenticate"] == "Bearer"
        for wrong in ("", "Bearer", "Bearer wrong", "Basic secret", "Bearer sécret"):
            headers = {b"authorization": wrong.encode()}
            assert (await client.post("/predict", json=ONE, headers=headers)).status_code == 401
        response = await client.post(
            "/predict", content=b"no JSON"
        )  # the key comes before the body
        assert response.status_code == 401
        for right in ({"authorization": "bearer secret"}, {"x-api-key": "secret"}):
            assert (await client.post("/predict", json=ONE, headers=right)).status_code == 200
        for path in ("/", "/docs", "/page/page.js", "/health", "/ready"):
            assert (await client.get(path)).status_code == 200
        schema = (await client.get("/openapi.json", headers={"x-api-key": "secret"})).json()
        assert schema["paths"]["/predict"]["post"]["security"] == [{"bearer": []}, {"header": []}]
        assert "security" not in schema["paths"]["/health"]["get"]

    run(work, key="secret")
