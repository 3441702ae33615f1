const text = (id) => document.getElementById(id).textContent;
// A new list each time: one that was just read may miss the change that it is listened to for.
const scheme = () => matchMedia("(prefers-color-scheme: dark)");
const { themes, charts } = JSON.parse(text("charts"));
const config = { responsive: true, displaylogo: false };
// What a chart is on paper: half of an A4 page, light.
const PAPER = { width: 340, height: 250, font: { size: 9 } };

async function unpackLibrary() {
  const bytes = Uint8Array.from(atob(text("library")), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(plain).text();
  document.head.append(script);
}

function drawOne(id, theme, size) {
  const { template, colours } = themes[theme];
  const { data, layout } = recoloured(charts[id], colours);
  return Plotly.react(id, data, { ...layout, ...size, template }, config);
}

// One chart after the other, so that the page can be read and scrolled meanwhile.
async function draw() {
  for (const id of Object.keys(charts)) {
    await drawOne(id, scheme().matches ? "dark" : "light", {});
    await new Promise((go) => setTimeout(go));
  }
}

function drawOnPaper() {
  const isPrinted = (id) => !document.getElementById(id).closest(".screen");
  Object.keys(charts).filter(isPrinted).forEach((id) => drawOne(id, "light", PAPER));
}

unpackLibrary()
  .then(() => {
    scheme().addEventListener("change", draw);
    addEventListener("beforeprint", drawOnPaper);
    addEventListener("afterprint", draw);
    return draw();
  })
  .catch((error) => {
    document.getElementById("chart-problem").textContent =
      `The charts cannot be drawn in this browser (${error}); the tables are complete.`;
  });
