"""What a server decides: batching, KV memory, prefix sharing, preemption, refusal."""
