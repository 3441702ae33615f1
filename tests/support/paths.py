"""Where the repository and the shared data are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SAMPLE = ROOT / "workloads" / "scenarios" / "sample.jsonl"
SHARED = ROOT.parent / "shared"
TRACES = SHARED / "traces"
GPU_RUNS = SHARED / "gpu"
