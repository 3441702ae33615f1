"""The what-if dashboard: Streamlit draws, ``sim`` simulates, ``app.figures`` makes the figures."""
