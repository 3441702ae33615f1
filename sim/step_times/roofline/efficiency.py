"""The share of a data sheet's peaks that real kernels achieve, and its uncertainty."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import hypot, inf
from statistics import median

import numpy as np

from servetwin.sim.catalogue.versions import of_version
from servetwin.sim.step_times.protocol import FloatArray
from servetwin.workloads.program.package import shipped_json

# How far from its bounds a search begins.
_INSIDE = 1e-6


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Achieved shares of the peaks, the knee between them, and the overhead of a step.

    An operator that computes for t_c and moves bytes for t_m takes (t_c^p + t_m^p)^(1/p) with p =
    ``knee``: near the ridge measured curves are smoother than max() (p = inf). ``overhead_s`` is
    spent once a step (scheduling, sampling, messages), ``sequence_s`` for each of its sequences,
    ``chunk_s`` for each chunk of a prompt.

    ``compute_spread``, ``memory_spread`` (relative) and ``overhead_spread`` are how far a real
    engine may be from that: one standard deviation of the log. They make the interval of a
    roofline prediction; a calibration replaces them by measurement.
    """

    compute: float = 0.65
    memory: float = 0.8
    overhead_s: float = 1e-3
    knee: float = 2.0
    compute_spread: float = 0.15
    memory_spread: float = 0.1
    overhead_spread: float = 0.4
    sequence_s: float = 0.0
    chunk_s: float = 0.0
    attention: float = 1.0
    """The FLOP/s of attention, relative to those of matrix products."""
    experts: float | None = 1.0
    """Those of experts, relative to matrix products; None: by kernel tables (``expert_share``)."""

    def seconds(self, compute_s: float, memory_s: float) -> float:
        """Return the time of one operator from both its times at the peaks of the data sheet."""
        return p_norm(compute_s / self.compute, memory_s / self.memory, self.knee)

    def drawn(self, rng: np.random.Generator) -> "Efficiency":
        """Draw an engine within the spread."""
        compute, memory, overhead = np.exp(
            rng.standard_normal(3) * (self.compute_spread, self.memory_spread, self.overhead_spread)
        ).tolist()
        host = ("overhead_s", "sequence_s", "chunk_s")
        return replace(
            self, compute=min(1.0, self.compute * compute), memory=min(1.0, self.memory * memory),
            **{name: getattr(self, name) * overhead for name in host},
        )  # fmt: skip

    def __str__(self) -> str:
        """Return the shares of all operators, and the seconds of the host."""
        host = {"step": self.overhead_s, "sequence": self.sequence_s, "chunk": self.chunk_s}
        times = (f"{1e3 * s:.3g} ms a {of}" for of, s in host.items() if s or of == "step")
        return f"{self.compute:.0%} of FLOP/s, {self.memory:.0%} of bandwidth, {', '.join(times)}"

    def is_certain(self) -> bool:
        """Return whether every draw is the same."""
        return not (self.compute_spread or self.memory_spread or self.overhead_spread)


DEFAULT = Efficiency()
# The data sheet itself: no overhead, a sharp knee.
IDEAL = Efficiency(1.0, 1.0, 0.0, inf, 0.0, 0.0, 0.0)


_SERVED = shipped_json("sim/catalogue/efficiencies.json")
# The server whose efficiency a device has where none is named.
USUAL = "vllm"


def served_efficiency(backend: str, device: str, version: str | None = None) -> Efficiency:
    """Return what a version of a server reaches on a device (``sim/catalogue/efficiencies.json``).

    Fitted on published runs; a server or a device that is not there gets the default, one without
    a version what the newest reaches.
    """
    terms = of_version(_SERVED["servers"].get(backend, [{}]), version)
    shares = _SERVED["devices"].get(device)
    if not (terms and shares):
        return DEFAULT
    achieved = replace(DEFAULT, **{name: v for name, v in terms.items() if name != "until"})
    return replace(
        achieved,
        compute=min(1.0, achieved.compute * shares.get("compute", 1.0)),
        memory=min(1.0, achieved.memory * shares.get("memory", 1.0)),
        chunk_s=achieved.chunk_s * shares.get("host", 1.0),
    )


def expert_share(form: str, device: str, width: float) -> float:
    """Return the share of the peak that experts in a format reach on a device: S w / (w + w0).

    ``width`` w is that of an expert on one device. S is fitted to kernel tables of vLLM, the median
    of all devices for one without tables; other formats are turned to bf16, as gptq is.
    """
    shares, half_width = _SERVED["experts"]["shares"], _SERVED["experts"]["half_width"]
    by_device = shares.get(form, shares["gptq"])
    share = by_device.get(device) or median(by_device.values())
    return float(share * width / (width + half_width))


def p_norm(a: float, b: float, p: float) -> float:
    """Return (a^p + b^p)^(1/p), the larger where p is infinite."""
    if p == 2:
        return hypot(a, b)
    if p == inf or not a or not b:
        return max(a, b)
    most = max(a, b)
    return float(most * ((a / most) ** p + (b / most) ** p) ** (1 / p))


def fit_efficiency(
    seconds: Callable[[Efficiency], FloatArray],
    measured_s: FloatArray,
    bounds: tuple[Efficiency, Efficiency],
    starts: Sequence[Efficiency],
    *,
    smooth: float,
    evaluations: int | None = None,
) -> Efficiency:
    """Return the efficiency with which ``seconds`` are nearest to measured ones, without spread.

    Nearest by least absolute relative deviations; those below ``smooth`` count as squares. The best
    of the searches from all ``starts``. What attention reaches is fitted where ``bounds`` differ.
    """
    from scipy.optimize import least_squares

    unit_s = float(measured_s.min())  # an overhead cannot be much longer than the shortest time
    free = 5 if bounds[0].attention < bounds[1].attention else 4

    def vector(e: Efficiency) -> FloatArray:
        overhead = e.overhead_s / unit_s
        logs = [np.log(share) for share in (e.compute, e.memory, e.attention)]
        return np.array([*logs[:2], overhead, e.knee, logs[2]])[:free]

    def efficiency(x: FloatArray) -> Efficiency:
        compute, memory = np.exp(x[:2]).tolist()
        attention = float(np.exp(x[4])) if free == 5 else bounds[0].attention
        return replace(
            IDEAL, compute=compute, memory=memory, overhead_s=float(x[2]) * unit_s,
            knee=float(x[3]), attention=attention,
        )  # fmt: skip

    low, high = map(vector, bounds)
    searches = [
        least_squares(
            lambda x: seconds(efficiency(x)) / measured_s - 1,
            np.clip(vector(start), low + _INSIDE, high - _INSIDE),
            bounds=(low, high),
            loss="soft_l1",
            f_scale=smooth,
            max_nfev=evaluations,
        )
        for start in starts
    ]
    return efficiency(min(searches, key=lambda search: float(search.cost)).x)
