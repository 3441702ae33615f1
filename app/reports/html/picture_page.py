"""A picture as a page: one chart that can be zoomed, with its title, its source and its link."""

from servetwin.app.figures import Figure, title_of
from servetwin.app.reports.html.charts import POLICY, Charts
from servetwin.app.reports.html.elements import document, element
from servetwin.app.reports.pictures.talk_size import Caption
from servetwin.app.words import asset


def picture_page(figure: Figure, caption: Caption) -> str:
    """Return a page that needs no other file and no network; about 2 MB."""
    charts, title = Charts(), title_of(figure)
    head = [
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", asset("report.css")),
    ]
    body = element(
        "main",
        element("h1", title),
        element("p", id="chart-problem", class_="bad"),
        charts.place("", figure),
        element("p", caption.source, class_="quiet"),
        element("p", element("code", caption.link)) if caption.link else None,
    )
    return document(head, [body, *charts.scripts()])
