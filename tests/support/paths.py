"""Where the repository and the shared data are."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SAMPLE = ROOT / "workloads" / "scenarios" / "sample.jsonl"
KERNEL_PROFILES = ROOT / "tests" / "support" / "kernel_profiles"
OF_KERNELS = str(KERNEL_PROFILES / "llama-3.1-8b-h100-vllm.json")
"""A profile that was fitted to kernel tables."""
SHEET_PROFILE = str(ROOT / "tests" / "support" / "llama-3-8b-h100.json")
"""A profile that was computed from data sheets."""
SHARED = ROOT.parent / "shared"
TRACES = SHARED / "traces"
GPU_RUNS = SHARED / "gpu"
