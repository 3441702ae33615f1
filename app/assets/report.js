const text = (id) => document.getElementById(id).textContent;
const dark = matchMedia("(prefers-color-scheme: dark)");
const { templates, charts } = JSON.parse(text("charts"));
const config = { responsive: true, displaylogo: false };

async function unpackLibrary() {
  const bytes = Uint8Array.from(atob(text("library")), (letter) => letter.charCodeAt(0));
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(plain).text();
  document.head.append(script);
}

function draw() {
  const template = templates[dark.matches ? "dark" : "light"];
  for (const [id, { data, layout }] of Object.entries(charts)) {
    Plotly.react(id, data, { ...layout, template }, config);
  }
}

unpackLibrary()
  .then(() => {
    draw();
    dark.addEventListener("change", draw);
  })
  .catch((error) => {
    document.getElementById("chart-problem").textContent =
      `The charts cannot be drawn in this browser (${error}); the tables are complete.`;
  });
