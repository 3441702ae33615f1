"""The what-if dashboard: Streamlit draws, ``sim`` computes, ``app.figures`` makes the figures."""
