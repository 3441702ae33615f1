"""Host memory for sequences that were swapped out (vLLM, SOSP 2023, section 4.5)."""

from policies.config import PolicyConfig
from policies.sequence import Sequence


class HostMemory:
    """``config.host_kv_tokens`` of room; a sequence is kept as a whole or not at all."""

    def __init__(self, config: PolicyConfig) -> None:
        self._free_tokens = config.host_kv_tokens

    def store(self, seq: Sequence) -> bool:
        """Keep the computed tokens of a sequence; False, and nothing changed, without room."""
        if seq.computed_tokens > self._free_tokens:
            return False
        self._free_tokens -= seq.computed_tokens
        seq.on_host = True
        return True

    def fetch(self, seq: Sequence) -> None:
        """The sequence leaves: it is back on the device, or gone."""
        self._free_tokens += seq.computed_tokens
        seq.on_host = False
