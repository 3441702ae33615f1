"""This machine as a device of the simulator: its peaks are what torch and the engine reach here."""

from servetwin.sim.catalogue.hardware import Hardware


def measured_hardware(threads: int = 1, ways: int = 1) -> Hardware:
    """Return the CPU that this process runs on, with so many threads of torch.

    Where ``ways`` processes share a model, their messages are measured too. It takes some seconds.
    """
    from servetwin.engine.core.machine_rates import machine_rates

    rates = machine_rates(threads)
    return Hardware.model_validate(
        {
            "link_bytes_per_s": rates.read_bytes_per_s,
            **(_link() if ways > 1 else {}),
            "name": "this CPU",
            "peak_flops_per_s": rates.flops_per_s,
            "memory_bytes_per_s": rates.read_bytes_per_s,
            "memory_bytes": 64e9,
            "compute_units": threads,
            "host_link_bytes_per_s": rates.read_bytes_per_s,
            "kernel_launch_s": rates.operator_s,
            "source": f"measured here, with {threads} threads of torch",
        }
    )


def _link() -> dict[str, float]:
    """Return what joins processes of tensor parallelism."""
    from servetwin.engine.parallel.link_rates import link_rates

    link = link_rates()
    return {"link_latency_s": link.latency_s, "link_bytes_per_s": link.bytes_per_s}
