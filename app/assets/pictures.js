// Saves a chart of this page as a picture: drawn once more at the size of a talk, in this browser.
(() => {
  if (window.servetwinPictures) return;  // Streamlit may put the script into the page again
  const { src, dataset } = document.currentScript;
  const themes = JSON.parse(dataset.themes);
  const pngWidthPx = Number(dataset.pngWidth);
  const types = { svg: "image/svg+xml", png: "image/png" };
  let loading;

  function library() {
    loading ??= new Promise((loaded, failed) => {
      const script = document.createElement("script");
      script.src = new URL("plotly.min.js", src);
      script.onload = () => loaded(window.Plotly);
      script.onerror = () => { loading = undefined; failed(new Error("plotly.js is not there")); };
      document.head.append(script);
    });
    return loading;
  }

  const escaped = (text) =>
    text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/"/g, "%22");

  // The address of this page; of a long one the beginning is seen, and an SVG links to all of it.
  function linked(letters) {
    const { href } = location;
    const shown = href.length > letters ? `${href.slice(0, letters - 3)}...` : href;
    return `<a href="${escaped(href)}">${escaped(shown)}</a>`;
  }

  function merged(under, over) {
    if (over === null || typeof over !== "object" || Array.isArray(over)) return over;
    const found = { ...under };
    for (const [key, value] of Object.entries(over)) found[key] = merged(found[key], value);
    return found;
  }

  // What is drawn is the chart as it stands: zoomed in, with the lines that the legend shows.
  function picture(chart, { layout, letters }, theme) {
    const { template, colours } = themes[theme];
    const drawn = recoloured({ data: chart.data, layout: chart.layout }, colours);
    const sized = merged(drawn.layout, layout);
    const { subtitle } = sized.title;
    subtitle.text = subtitle.text.replace("{link}", () => linked(letters));
    return { data: drawn.data, layout: { ...sized, template }, config: {} };
  }

  // Streamlit fetches what draws a chart when the first one comes: a click may be earlier.
  async function chartOf(key) {
    for (let looks = 0; looks < 1200; looks++) {
      const chart = document.querySelector(`.st-key-${CSS.escape(key)} .js-plotly-plot`);
      if (chart?.data) return chart;
      await new Promise((look) => setTimeout(look, 50));
    }
    throw new Error("the chart is not drawn");
  }

  async function save({ chart: key, picture: asked, name }, { kind, theme }) {
    const chart = await chartOf(key);
    const drawn = picture(chart, JSON.parse(asked), theme);
    const { width, height } = drawn.layout;
    const scale = kind === "png" ? pngWidthPx / width : 1;
    const options = { format: kind, width, height, scale, imageDataOnly: true };
    const content = await (await library()).toImage(drawn, options);
    const bytes = kind === "svg" ? content : Uint8Array.from(atob(content), (c) => c.charCodeAt(0));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes], { type: types[kind] }));
    link.download = `${name}-${theme}.${kind}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
  }

  document.addEventListener("click", async ({ target }) => {
    const button = target.closest?.("[data-chart] button");
    if (!button) return;
    // Streamlit may draw the buttons anew meanwhile: what is said goes to those that are there.
    const { ...place } = button.closest("[data-chart]").dataset;
    const { ...wanted } = button.dataset;
    const say = (text) => {
      const said = document.querySelector(`[data-chart="${CSS.escape(place.chart)}"] output`);
      if (said) said.textContent = text;
    };
    say("drawing ...");
    try {
      await save(place, wanted);
      say("saved");
    } catch (error) {
      say(`not saved: ${error.message}`);
    }
  });
  window.servetwinPictures = true;
  document.documentElement.classList.add("pictures-ready");  // the buttons work: show them
})();
