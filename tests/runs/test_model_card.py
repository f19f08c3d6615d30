"""The model card, and the way of a model to the hub and back."""

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

import bough
from bough.errors import UserError
from bough.inference.load import load_torch
from bough.inference.model import Model, Text
from bough.inference.torch_model import MultiTaskModel
from bough.runs import model_card
from bough.runs.run_dir import Run
from bough.training.train import train
from tests import folders, serving

TEXTS: list[Text] = ["the old tree is green", ("one leaf", "two leaf")]


@pytest.fixture(scope="module")
def run(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    rows = tiny_folder.parent / "rows"
    recipe = folders.recipe(tiny_folder, rows=rows, steps=2)
    return train(recipe, tmp_path_factory.mktemp("runs") / "one")


def alike(one: Model, two: Model) -> bool:
    """Whether both answer the same, but for the last digits."""
    found = [{t: a.plain() for t, a in answers.items()} for answers in one.predict(TEXTS)]
    return all(serving.same(a, b) for a, b in zip(found, two.predict(TEXTS), strict=True))


def parts(text: str) -> tuple[dict[str, Any], str]:
    """Front matter and body."""
    empty, front, body = text.split("---\n", 2)
    assert empty == ""
    return yaml.safe_load(front), body


# --- what it says --------------------------------------------------------------------------------


def test_a_run_writes_its_card(run: Run) -> None:
    front, body = parts((run.model / "README.md").read_text(encoding="utf-8"))
    assert front["library_name"] == "bough"
    assert front["pipeline_tag"] == "text-classification"
    assert {"bough", "multi-task"} <= set(front["tags"])
    told = [result["metrics"][0]["value"] for result in front["model-index"][0]["results"]]
    scores = run.scores["dev"]["tasks"]
    assert told == [round(own[own["metric"]], 4) for own in scores.values()]
    for name, own in scores.items():
        low, high = own["interval"]
        line = (
            f"| dev | {name} | {own['metric']} | {own[own['metric']]:.3f} | {low:.3f} to {high:.3f}"
        )
        assert line in body
    for split, own in run.environment["data"]["sentiment"].items():
        assert f"{own['rows']:,} (`sentiment-{split}.csv`)" in body
    assert f"{run.cost['parameters']:,} parameters" in body
    assert "\n".join(str(bough.load(run.folder).plan).splitlines()[1:]) in body
    for heading in ("How to use it", "What the tasks share", "Scores", "Limits"):
        assert f"\n## {heading}\n" in body


def test_the_card_is_one_to_the_hub(run: Run) -> None:
    from huggingface_hub import ModelCard

    found = ModelCard.load(run.model / "README.md")
    assert found.data.library_name == "bough"
    assert found.data.eval_results is not None
    assert {r.dataset_name for r in found.data.eval_results} == set(folders.TASKS)


def test_its_code_works(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    body = (run.model / "README.md").read_text(encoding="utf-8")
    code = body.split("```python\n")[1].split("```")[0]
    code = code.replace('"this folder, or its hub id"', repr(str(run.folder)))
    answers: list[Any] = []
    real = MultiTaskModel.predict

    def heard(self: MultiTaskModel, *asked: Any) -> Any:
        answers.append(real(self, *asked))
        return answers[-1]

    monkeypatch.setattr(MultiTaskModel, "predict", heard)
    exec(code, {})
    assert [set(found) for found in answers] == [{"sentiment"}, {"questions", "similarity"}]


def test_nothing_of_the_users_folders_is_in_the_model(run: Run, tiny_folder: Path) -> None:
    for file in ("README.md", "config.json"):
        assert str(tiny_folder.parent) not in (run.model / file).read_text(encoding="utf-8")


def test_before_the_run_is_done_there_are_no_scores(tmp_path: Path) -> None:
    serving.model().save(tmp_path)
    front, body = parts((tmp_path / "README.md").read_text(encoding="utf-8"))
    assert "model-index" not in front
    assert "None yet" in body
    assert "Training and cost" not in body


def test_one_task_of_a_model_has_a_card_of_its_own(run: Run, tmp_path: Path) -> None:
    load_torch(run).only("sentiment").save(tmp_path)
    front, body = parts((tmp_path / "README.md").read_text(encoding="utf-8"))
    assert len(front["model-index"][0]["results"]) == 1
    assert "similarity" not in body.split("## Scores")[1]


def test_the_card_of_one_task_tells_of_no_other(run: Run, tmp_path: Path) -> None:
    whole = load_torch(run)
    for name, forms in (("sentiment", {str}), ("similarity", {list})):
        one = whole.only(name)
        assert {type(example) for example in one.facts["examples"]} == forms
        body = (one.save(tmp_path / name) / "README.md").read_text(encoding="utf-8")
        count = sum(p.numel() for p in one.network.parameters())
        assert f"\n- {count:,} parameters, {4 * count / 2**20:,.0f} MiB to serve\n" in body
        assert "trained in" not in body  # that was all of it
        told = json.loads((tmp_path / name / "config.json").read_text(encoding="utf-8"))["facts"]
        assert list(told["data"]) == list(told["scores"]["dev"]["tasks"]) == [name]
        assert "raw" not in told["scores"]["dev"]  # a mean over all tasks


QUORA = {"train": {"rows": 9, "source": "Quora-train.csv"}}


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"saw_quora": True, "data": {"same": QUORA}}, True),
        (
            {"saw_quora": True, "data": {"same": {"train": {"rows": 9, "source": "mine.csv"}}}},
            False,
        ),
        ({"saw_quora": False, "data": {"same": QUORA}}, False),
    ],
)
def test_quora_scores_are_called_unclean(facts: dict[str, Any], said: bool) -> None:
    model = serving.model()
    own = {"metric": "accuracy", "accuracy": 0.9, "rows": 9, "interval": [0.8, 0.95]}
    facts = facts | {"scores": {"dev": {"tasks": {"same": own}, "raw": 0.9, "normalised": 0.9}}}
    text = model_card.write(model.plan, model.tasks, 40, facts)
    assert ("**The score of same is not clean**" in text) == said


def test_awkward_words_stay_what_they_are() -> None:
    model = serving.model()
    facts = {
        "encoder": "/home/me/`odd` | enc",
        "examples": ['say "hi" \\ *now* | <b>', ["one\ntwo", "three"]],
        "data": {"mood": {"train": {"rows": 1, "source": "a|b`c.csv"}}},
    }
    front, body = parts(model_card.write(model.plan, model.tasks, 40, facts))
    assert "base_model" not in front  # a folder is no name on the hub
    assert "/home/me" not in body
    assert r"- say \"hi\"" not in body
    assert r"\*now\*" in body
    compile(body.split("```python\n")[1].split("```")[0], "card", "exec")
    table = [line for line in body.splitlines() if line.startswith("|")]
    assert len({line.replace(r"\|", "").count("|") for line in table}) == 1


def test_classes_are_shown_as_they_are_called() -> None:
    model = serving.model()
    mood = model.tasks["mood"].model_copy(update={"labels": ("<b>", "*so*", "a|b", "one\ntwo")})
    body = parts(model_card.write(model.plan, {**model.tasks, "mood": mood}, 40, {}))[1]
    assert r"| one of 4: \<b\>, \*so\*, a\|b, one two |" in body


def test_scores_of_other_tasks_are_none() -> None:
    model = serving.model()
    other = {"metric": "accuracy", "accuracy": 0.9, "rows": 9}
    front, body = parts(
        model_card.write(
            model.plan, model.tasks, 40, {"scores": {"dev": {"tasks": {"other": other}}}}
        )
    )
    assert "model-index" not in front
    assert "## Scores\n\nNone yet" in body


def test_the_models_examples_can_be_answered(run: Run) -> None:
    model = load_torch(run)
    examples = model.facts["examples"]
    assert 3 <= len(examples) <= 6
    for example in examples:
        assert model.predict(example if isinstance(example, str) else tuple(example))


# --- the hub -------------------------------------------------------------------------------------


class Hub(BaseHTTPRequestHandler):
    """As much of the hub's interface as making, filling and reading a repository takes."""

    repos: dict[str, dict[str, bytes]]
    private: dict[str, bool]
    asked: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            out = b""
            while size := int(self.rfile.readline(), 16):
                out += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return out
        return self.rfile.read(int(self.headers.get("content-length", 0)))

    def answer(self, content: Any, code: int = 200, **headers: str) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def do_POST(self) -> None:
        body = self.body()
        self.asked.append(f"POST {self.path}")
        url = f"http://{self.headers['host']}"
        if self.headers.get("authorization") != "Bearer hf_test":
            self.answer({"error": "who are you"}, 401)
        elif self.path == "/api/repos/create":
            told = json.loads(body)
            name = "/".join(filter(None, [told.get("organization"), told["name"]]))
            self.repos.setdefault(name, {})
            self.private[name] = bool(told.get("private") or told.get("visibility") == "private")
            self.answer({"url": f"{url}/{name}"})
        elif self.path == "/api/validate-yaml":
            self.answer({"warnings": [], "errors": []})
        elif "/preupload/" in self.path:
            files = [file["path"] for file in json.loads(body)["files"]]
            told = [
                {"path": f, "uploadMode": "regular", "shouldIgnore": False, "oid": None}
                for f in files
            ]
            self.answer({"files": told})
        elif "/commit/" in self.path:
            name = self.path.split("/api/models/")[1].split("/commit/")[0]
            for line in body.splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    content = base64.b64decode(entry["value"]["content"])
                    self.repos[name][entry["value"]["path"]] = content
            oid = "1" * 40
            self.answer({"commitUrl": f"{url}/{name}/commit/{oid}", "commitOid": oid})
        else:
            self.answer({"error": "no such thing"}, 404)

    def do_GET(self) -> None:
        self.asked.append(f"GET {self.path}")
        path = self.path.split("?")[0]
        for name, files in self.repos.items():
            if path.startswith(f"/api/models/{name}/tree/"):
                told = [
                    {
                        "type": "file",
                        "path": f,
                        "size": len(data),
                        "oid": hashlib.sha1(data).hexdigest(),
                    }
                    for f, data in files.items()
                ]
                self.answer(told)
                return
            if path.startswith(f"/api/models/{name}"):
                siblings = [{"rfilename": file} for file in files]
                self.answer({"id": name, "modelId": name, "sha": "1" * 40, "siblings": siblings})
                return
            start = f"/{name}/resolve/"
            if path.startswith(start):
                file = path.removeprefix(start).split("/", 1)[1]
                etag = f'"{hashlib.sha256(files[file]).hexdigest()}"'
                self.answer(files[file], etag=etag, x_repo_commit="1" * 40)
                return
        self.answer({"error": "no such repository"}, 404, x_error_code="RepoNotFound")

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Hub]]:
    """A hub on this machine, and a cache of its own."""
    from huggingface_hub import constants

    Own = type("Own", (Hub,), {"repos": {}, "private": {}, "asked": []})  # noqa: N806
    with ThreadingHTTPServer(("127.0.0.1", 0), Own) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)  # this hub can be reached
        monkeypatch.setattr(constants, "ENDPOINT", url)
        monkeypatch.setattr(
            constants,
            "HUGGINGFACE_CO_URL_TEMPLATE",
            url + "/{repo_id}/resolve/{revision}/{filename}",
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_TELEMETRY", True)
        yield Own
        server.shutdown()
        thread.join()


def test_to_the_hub_and_back(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    model = serving.model(examples=["the old tree"])
    address = model.push_to_hub("me/moods", private=True, token="hf_test")
    assert address.endswith("/me/moods")
    assert hub.private == {"me/moods": True}
    files = hub.repos["me/moods"]
    assert set(files) == {"README.md", "config.json", "model.safetensors", "tokenizer.json"}
    assert parts(files["README.md"].decode())[0]["library_name"] == "bough"

    back = bough.load("me/moods")
    assert alike(back, model)
    digest = hashlib.sha256(files["model.safetensors"]).hexdigest()
    assert back.facts == model.facts | {"sha256": digest}
    assert digest in files["README.md"].decode()

    # Once it is in the cache no network is needed.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    before = len(hub.asked)
    again = bough.load("me/moods")
    assert alike(again, model)
    assert len(hub.asked) == before


def test_a_second_push_replaces_the_first(hub: type[Hub]) -> None:
    serving.model().push_to_hub("me/moods", token="hf_test")
    model = serving.model("full")
    model.push_to_hub("me/moods", token="hf_test")
    assert bough.load("me/moods").plan == model.plan


def test_what_the_hub_refuses_is_said(hub: type[Hub]) -> None:
    with pytest.raises(UserError, match=r"could not be put on the hub as 'me/moods' \(.*401"):
        serving.model().push_to_hub("me/moods", token="hf_wrong")
    with pytest.raises(UserError, match=r"could not be put on the hub as 'not a/name/at all'"):
        serving.model().push_to_hub("not a/name/at all", token="hf_test")
    with pytest.raises(UserError, match=r"model 'me/nothing' is neither a folder here nor"):
        bough.load("me/nothing")


def test_a_hub_out_of_reach_is_said(hub: type[Hub], monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    with socket.socket() as closed:  # its port is taken, and nobody listens
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setattr(constants, "ENDPOINT", url)
        with pytest.raises(UserError, match="could not be put on the hub as 'me/moods'") as caught:
            serving.model().push_to_hub("me/moods", token="hf_test")
        assert "\n" not in str(caught.value)
        with pytest.raises(UserError, match=r"model 'me/nothing' .*which cannot be reached"):
            bough.load("me/nothing")


def test_a_model_in_a_cache_laid_out_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    model = serving.model()
    home = tmp_path / "models--me--moods"
    model.save(home / "snapshots" / ("2" * 40))
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text("2" * 40, encoding="utf-8")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert alike(bough.load("me/moods"), model)
