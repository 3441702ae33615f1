"""What is left of a device's memory, and how many tokens fit."""

from pathlib import Path

import pytest
import torch

from servetwin.engine.kv import room
from servetwin.engine.kv.room import no_room, require_room, room_bytes
from servetwin.workloads.errors import EngineError

CPU = torch.device("cpu")


def test_a_machine_has_room_and_no_more_than_its_container(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    everything = room_bytes(CPU)
    assert everything is not None
    assert everything > 0
    limit = tmp_path / "memory.max"
    held = 4096 * int(Path("/proc/self/statm").read_text().split()[1])
    limit.write_text(f"{held + 3_000_000_000}\n")
    monkeypatch.setattr(room, "_LIMITS", (limit, tmp_path / "missing"))
    found = room_bytes(CPU)
    assert found is not None
    assert found == pytest.approx(3_000_000_000, rel=0.1)
    limit.write_text("max\n")
    unlimited = room_bytes(CPU)
    assert unlimited is not None
    assert unlimited >= everything - 10_000_000


def test_what_never_fits_is_refused_with_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "room_bytes", lambda _: 1000)
    require_room("KV tokens", 10, 100, CPU)
    with pytest.raises(
        EngineError, match=r"^no room for 11 KV tokens \(0\.0 GB\) on cpu: at most 1"
    ):
        require_room("KV tokens", 11, 100, CPU)
    monkeypatch.setattr(room, "room_bytes", lambda _: None)
    require_room("KV tokens", 11, 100, CPU)
    assert str(no_room("KV tokens", 11, 100, CPU)).endswith("on cpu: ask for fewer")
