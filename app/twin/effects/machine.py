"""This machine as a device of the simulator: its peaks are what torch reaches here."""

from sim.shapes.hardware import Hardware


def measured_hardware(threads: int = 1) -> Hardware:
    """Return the CPU that this process runs on, with so many threads of torch.

    Measuring takes some seconds.
    """
    from engine.core.machine_rates import machine_rates

    rates = machine_rates(threads)
    return Hardware.model_validate(
        {
            "name": "this CPU",
            "peak_flops_per_s": rates.flops_per_s,
            "memory_bytes_per_s": rates.read_bytes_per_s,
            "memory_bytes": 64e9,
            "compute_units": threads,
            "link_bytes_per_s": rates.read_bytes_per_s,
            "host_link_bytes_per_s": rates.read_bytes_per_s,
            "kernel_launch_s": rates.operator_s,
            "source": f"measured here, with {threads} threads of torch",
        }
    )
