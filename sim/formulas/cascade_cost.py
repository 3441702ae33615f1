"""What a request costs in a cascade of two models, in units of the large one's cost."""


def routed_cost(small: float, small_share: float, router: float, large: float = 1.0) -> float:
    """A router sends ``small_share`` of the requests to the small model: c_r + q c_s + (1 - q) c_L.

    RouteLLM (Ong 2024).
    """
    return router + small_share * small + (1 - small_share) * large


def small_first_cost(small: float, kept_share: float, large: float = 1.0) -> float:
    """All are tried small, ``kept_share`` of the answers are kept: c_s + (1 - q') c_L.

    FrugalGPT (Chen 2023); the judge of the answers is part of the small model's cost.
    """
    return small + (1 - kept_share) * large
