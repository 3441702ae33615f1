"""How much memory a device has left, and how many tokens fit it."""

from pathlib import Path

import torch

from servetwin.workloads.errors import EngineError

# Limits of a container, in version 2 and 1 of control groups.
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))


def room_bytes(device: torch.device) -> int | None:
    """Return the memory that this process could still fill; None where nothing says.

    On the CPU that is the memory of the machine or the container without what the process holds:
    what others hold now may be free later.
    """
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + reserved)
    try:
        known = Path("/proc/meminfo").read_text().split()
        resident = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    total = int(known[known.index("MemTotal:") + 1]) * 1024
    return min([total, *_container_limits()]) - resident * 4096


def require_room(name: str, tokens: int, token_bytes: int, device: torch.device) -> None:
    """Raise ``EngineError`` with the number of tokens that would fit, where ``tokens`` do not."""
    room = room_bytes(device)
    if room is not None and tokens * token_bytes > room:
        raise no_room(name, tokens, token_bytes, device)


def no_room(name: str, tokens: int, token_bytes: int, device: torch.device) -> EngineError:
    """Return the error for a memory of ``tokens`` tokens that cannot be had."""
    room = room_bytes(device)
    fits = "ask for fewer" if room is None else f"at most {max(0, room // token_bytes)} would fit"
    needed = tokens * token_bytes / 1e9
    return EngineError(f"no room for {tokens} {name} ({needed:.1f} GB) on {device}: {fits}")


def _container_limits() -> list[int]:
    limits = []
    for path in _LIMITS:
        try:
            text = path.read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return limits
