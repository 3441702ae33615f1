"""Every scheduler step by step: what it admits, computes and preempts, as stories in a file."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from servetwin.policies.protocols import Scheduler
from tests.support.scheduler_steps import added, scheduler_of, sequence, step

STORIES = yaml.safe_load(Path(__file__).with_name("step_stories.yaml").read_text())


@pytest.mark.parametrize("name", STORIES)
def test_the_story_goes_as_it_is_told(name: str) -> None:
    scheduler, now_s = scheduler_of(**STORIES[name].get("settings", {})), 0.0
    for place, event in enumerate(STORIES[name]["events"], 1):
        kind, *words = event.split()
        if kind == "at":
            now_s = float(words[0])
        elif kind == "+":
            added(scheduler, told(*words))
        elif kind == "-":
            gone = scheduler.abort(words[0])
            assert (gone and gone.request_id, gone and gone.held.on_host) == (words[0], False)
        else:
            assert outcome(scheduler, kind, now_s) == event, f"event {place}"


def told(name: str, *words: str) -> Any:
    """Return a sequence from its lengths and fields, ``a 10 2 priority=1``."""
    lengths = [int(word) for word in words if "=" not in word]
    fields = dict(word.split("=") for word in words if "=" in word)
    return sequence(name, *lengths, **{key: yaml.safe_load(fields[key]) for key in fields})


def outcome(scheduler: Scheduler, kind: str, now_s: float) -> str:
    """Return what there is to see: the load, the free tokens, who was dropped, or the next step."""
    if kind == "load":
        return "load {} {} {}".format(*scheduler.load())
    if kind == "free":
        return f"free {scheduler.memory.free_tokens()}"
    if kind == "dropped":
        return " ".join(["dropped", *(seq.request_id for seq, _ in scheduler.dropped)])
    return step(scheduler, now_s)
