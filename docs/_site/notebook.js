// Draws the figures of a notebook in the colours of the page, again when these change.
function drawFigures() {
  const theme = themes[document.body.dataset.mdColorScheme] ?? themes.default;
  figures.forEach(({ data, layout }, number) => {
    const template = structuredClone(theme);
    template.layout.paper_bgcolor = template.layout.plot_bgcolor = "rgba(0,0,0,0)";
    const place = `notebook-figure-${number}`;
    Plotly.react(place, data, { ...layout, template }, { responsive: true, displaylogo: false });
  });
}
drawFigures();
new MutationObserver(drawFigures).observe(document.body, {
  attributes: true, attributeFilter: ["data-md-color-scheme"],
});
