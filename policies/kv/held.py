"""What a sequence holds of a KV memory, as the memory notes it."""


class Held:
    """Notes of memories about a sequence; each reads and writes its own.

    Paged: ``blocks`` are reserved (decodes that grow on demand may hold more), of which a prefix
    index keeps the first ``keyed_blocks``.
    Contiguous: ``region_tokens`` is the length of the reserved region. Host: ``loaded_tokens`` of
    the prompt come from there with the last admission; ``on_host`` says that the sequence was
    preempted and its keys and values are kept there. Adapters: that of the last admission is loaded
    in the time of ``adapter_tokens`` positions over the host link.
    """

    __slots__ = (
        "adapter_tokens", "blocks", "keyed_blocks", "loaded_tokens", "on_host", "region_tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.adapter_tokens = 0
        self.blocks = self.keyed_blocks = self.region_tokens = self.loaded_tokens = 0
        self.on_host = False
