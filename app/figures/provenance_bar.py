"""What simulated time rests on, as shares of one bar."""

from collections.abc import Mapping

from app.figures.canvas import Figure, canvas

_KINDS = {
    "measured": ("#0072B2", "", "a table has that very step"),
    "interpolated": ("#5599CC", ".", "no feature beyond the largest measured"),
    "extrapolated": ("#D55E00", "x", "some feature beyond the largest measured"),
    "roofline": ("#779988", "/", "a formula; nobody measured"),
}


def provenance_bar(shares: Mapping[str, float]) -> Figure:
    """One bar of the shares of busy time by ``sim.step_times.provenance``."""
    said = ", ".join(f"{kind} {share:.1%}" for kind, share in shares.items())
    alt = f"What the simulated time rests on: {said or 'no step was run'}."
    figure = canvas("share of simulated busy time, %", "", alt)
    for kind, (colour, pattern, meaning) in _KINDS.items():
        if share := shares.get(kind, 0.0):
            figure.add_bar(
                orientation="h", y=[""], x=[100 * share], name=f"{kind}: {meaning}",
                text=f"{kind} {share:.1%}", textposition="inside", insidetextanchor="middle",
                textangle=0, hovertemplate=f"%{{x:.3g}} % {kind}<extra></extra>",
                marker={
                    "color": colour,
                    "pattern": {"shape": pattern, "fillmode": "overlay", "solidity": 0.15},
                },
            )  # fmt: skip
    figure.update_layout(
        barmode="stack", height=150, showlegend=True, uniformtext={"minsize": 11, "mode": "hide"}
    )
    figure.update_xaxes(range=[0, 100], ticksuffix=" %")
    return figure
