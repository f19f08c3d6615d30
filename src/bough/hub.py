"""The Hugging Face hub: files fetched from it, and what it says when it cannot do as asked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bough.errors import UserError, shorten

FILES = [
    "config.json",
    "tokenizer.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*.safetensors",
    "modules.json",  # of a sentence encoder, and where it is said how its vectors are read
    "*_Pooling/config.json",
]
OLD_FILES = ["pytorch_model.bin"]  # fetched only where there is no safetensors file


@contextmanager
def asking_the_hub(failed: str) -> Iterator[None]:
    """What goes wrong inside is a UserError: what failed, and the reason."""
    from huggingface_hub import errors

    # Of what it asks the hub with; that was requests once, and is httpx or httpx2 now, whose errors
    # are no OSErrors.
    http_error: type[Exception] = errors.HTTPError  # type: ignore[attr-defined]
    try:
        yield
    except (http_error, errors.HFValidationError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        if isinstance(error, errors.LocalEntryNotFoundError):  # its words are of its own settings
            reason = "which cannot be reached, or is turned off by HF_HUB_OFFLINE"
        raise UserError(f"{failed} ({reason[:200]})") from None


def from_hub(name: str, what: str) -> Path:
    """The hub's files of this encoder or model, from the cache or fetched."""
    from huggingface_hub import snapshot_download

    failed = f"{what} {shorten(name)} is neither a folder here nor could it be fetched from the hub"
    with asking_the_hub(failed):
        folder = Path(snapshot_download(name, allow_patterns=FILES))
        if not any(folder.glob("*.safetensors")):
            folder = Path(snapshot_download(name, allow_patterns=OLD_FILES))
        return folder
