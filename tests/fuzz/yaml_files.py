"""Fuzz files of settings and of measured times: ``python -m tests.fuzz.yaml_files --minutes 10``.

They are scenarios, profiles, and the files of a bundle of layer times.
"""

import gzip
import json
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, partial
from importlib import resources
from pathlib import Path

import numpy as np

from servetwin.app.scenario.files.scenario_file import parse_scenario
from servetwin.sim.step_times.profile import load_profile
from servetwin.sim.step_times.tables.layer_bundle import read_layer_bundle
from servetwin.sim.step_times.tables.published_tables import PhaseTable
from tests.fuzz.campaign import command_line
from tests.fuzz.readings import Kind, check_of, draw_of, written
from tests.support.layer_bundles import write_bundle

_SCENARIOS = (
    b"workload:\n  requests: 40\n  rate_per_s: 2.5\npolicies:\n  max_seqs: 8\nseed: 3\n",
    b"deployment: {model: llama-3-8b, gpu: h100}\ncluster: {replicas: 2}\npreset: vllm-v1\n",
)
_ODD_SCENARIO = b"a: &a [1, 2]\nb: [*a, *a]\nc: {d: 1:30:00, e: .inf, f: 2001-01-01}\n"
_PHASES = (
    b"model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time\n"
    b"m,h,1,128,1,64,20,9\nm,h,1,512,1,64,40,10\nm,h,1,128,2,64,30,11\nm,h,1,512,2,64,70,12\n",
)


def _profile() -> bytes:
    """Return the shipped profile of a CPU with a few draws and factors of noise."""
    found = json.loads(
        resources.files("servetwin.sim").joinpath("profiles/base-cpu.json").read_text()
    )
    for fit in found["layouts"].values():
        fit["draws"], fit["noise"] = fit["draws"][:2], fit["noise"][:5]
    return json.dumps(found).encode()


@cache
def _bundle() -> Mapping[str, bytes]:
    """Return the files of a bundle of layer times, by their place in it."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_bundle(Path(folder), decodes=0.2, mixed=0.4)
        files = [file for file in root.rglob("*") if file.is_file()]
        return {str(file.relative_to(root)).removesuffix(".gz"): _plain(file) for file in files}


def _plain(file: Path) -> bytes:
    data = file.read_bytes()
    return gzip.decompress(data) if file.suffix == ".gz" else data


def _read_scenario(data: bytes) -> None:
    parse_scenario(data, "s.yaml")


def _read_profile(path: Path) -> None:
    profile = load_profile(str(path))
    profile.policy_config()
    for layout in profile.layouts:
        fit = profile.step_time(layout)
        fit.drawn(np.random.default_rng(0))
        fit.noise_factors()
        profile.source(layout)


def _read_in_bundle(name: str, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for known, text in {**_bundle(), name: data}.items():
            path = Path(folder) / known
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(text)
        read_layer_bundle(Path(folder))


KINDS = {
    "scenario": Kind(_SCENARIOS, _read_scenario),
    "scenario of odd YAML": Kind([_ODD_SCENARIO], _read_scenario),
    "profile": Kind([_profile()], written(_read_profile, "p.json")),
    "phases": Kind(_PHASES, written(PhaseTable.read)),
    **{
        f"bundle {name}": Kind([data], partial(_read_in_bundle, name))
        for name, data in _bundle().items()
    },
}
"""By what is read."""

draw, check = draw_of(KINDS), check_of(KINDS)


if __name__ == "__main__":
    sys.exit(command_line("yaml_files", draw, check))
