"""A digital twin of an LLM server: predict what a policy will do, then confirm it live."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
if not (_HERE / "sim").is_dir():
    __path__.append(str(_HERE.parent))
