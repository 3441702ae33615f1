// Shows the answers of whatIf: one server under a load, chosen by five lists and a slider.
const LISTS = ["models", "gpus", "lengths", "servers", "slos"];
const [TTFT_P50, TTFT_P99, TPOT_P50, TPOT_P99, TOKENS, SHARES] = [0, 1, 2, 3, 4, 5];
const WANTED = 0.99;
const at = (id) => document.getElementById(`wi-${id}`);
const chosen = (list) => whatIf[list][at(list).value];

function duration(seconds) {
  if (seconds === null) return "none";
  return seconds < 1 ? `${figure(1000 * seconds)} ms` : `${figure(seconds)} s`;
}

function figure(value) {
  return Number(value.toPrecision(4)).toLocaleString("en");
}

// 99.96 % of the requests are not all of them.
function percent(share) {
  return `${(Math.floor(1000 * share + 1e-9) / 10).toFixed(1)} %`;
}

function limits(slo) {
  const seconds = (text) => parseFloat(text) / (text.endsWith("ms") ? 1000 : 1);
  return slo.split(",").map((part) => seconds(part.split("=")[1]));
}

function curveOf() {
  return whatIf.curves[LISTS.slice(0, 4).map((list) => at(list).value).join("-")];
}

function generated(lengths, rate) {
  return `servetwin workload generate --requests ${whatIf.counts[rate]} --rate ${whatIf.rates[rate]} \\
    --prompt-tokens ${lengths.prompt} \\
    --output-tokens ${lengths.output} --out load.jsonl`;
}

function commands(curve, rate) {
  const server = `load.jsonl --gpu ${chosen("gpus").id} \\\n    --server '${curve.start}'`;
  return [
    generated(chosen("lengths"), rate),
    `servetwin replay ${server}`,
    `servetwin sweep ${server} --slo ${chosen("slos").slo}`,
  ].join("\n");
}

function verdict(curve, point, rate) {
  const load = `${whatIf.rates[rate]} requests per second`;
  if (curve.problem) return ["impossible", `Not possible: ${curve.problem}.`];
  if (!point) {
    const share = curve.points.at(-1)[SHARES + Number(at("slos").value)];
    const held = `${percent(share)} of the requests are inside ${chosen("slos").name}`;
    const last = whatIf.rates[curve.points.length - 1];
    return ["missed", `Overloaded: already at ${last} requests per second only ${held}.`];
  }
  const share = point[SHARES + Number(at("slos").value)];
  const held = share >= WANTED;
  const words = `${percent(share)} of the requests are inside ${chosen("slos").name} at ${load}`;
  return [held ? "held" : "missed", `${held ? "Holds" : "Missed"}: ${words}.`];
}

function figures(point, model, gpu) {
  const cost = model.gpus * whatIf.prices[gpu.id];
  const rows = point ? [
    ["p99 TTFT", duration(point[TTFT_P99])], ["p50 TTFT", duration(point[TTFT_P50])],
    ["p99 TPOT", duration(point[TPOT_P99])], ["p50 TPOT", duration(point[TPOT_P50])],
    ["Output", `${figure(point[TOKENS])} tokens/s`],
  ] : [];
  rows.push(["Cost", `$${cost.toFixed(2)} per hour, ${model.gpus} x ${gpu.id}`]);
  return rows.map(([name, value], n) => `<div${n || !point ? "" : ' class="first"'}><dt>${name}</dt><dd>${value}</dd></div>`).join("");
}

function table(curve) {
  const head = ["requests/s", "p50 TTFT", "p99 TTFT", "p99 TPOT", "inside the limits"];
  const rows = curve.points.map((point, rate) => [
    whatIf.rates[rate], duration(point[TTFT_P50]), duration(point[TTFT_P99]),
    duration(point[TPOT_P99]), percent(point[SHARES + Number(at("slos").value)]),
  ]);
  const cells = (row) => `<tr>${row.map((cell) => `<td>${cell}</td>`).join("")}</tr>`;
  const heads = head.map((name) => `<th scope="col">${name}</th>`).join("");
  return `<table><thead><tr>${heads}</tr></thead><tbody>${rows.map(cells).join("")}</tbody></table>`;
}

// p99 TTFT against the rate, both in logarithms, with the limit and the load of today.
function drawing(curve, rate) {
  const points = curve.points.map((p, n) => [whatIf.rates[n], p[TTFT_P99]]).filter((p) => p[1]);
  if (!points.length) return "";
  const [limit] = limits(chosen("slos").slo), all = [limit, ...points.map((p) => p[1])];
  const [low, high] = [Math.min(...all) / 1.6, Math.max(...all) * 1.6];
  const [least, most] = [whatIf.rates[0], whatIf.rates.at(-1)];
  const x = (v) => 80 + 536 * Math.log(v / least) / Math.log(most / least);
  const y = (v) => 250 - 225 * Math.log(v / low) / Math.log(high / low);
  const path = points.map(([r, v], n) => `${n ? "L" : "M"}${x(r).toFixed(1)} ${y(v).toFixed(1)}`);
  const today = points.find(([r]) => r === whatIf.rates[rate]);
  const ticks = [0.01, 0.1, 1, 10, 100, 1000].filter((v) => v > low && v < high);
  const said = points.map(([r, v]) => `${duration(v)} at ${r}/s`).join(", ");
  return `<svg class="diagram" viewBox="0 0 640 300" role="img" aria-label="p99 TTFT: ${said}; ` +
    `the limit is ${duration(limit)}"><g class="scale">` +
    ticks.map((v) => `<path d="M80 ${y(v)}H616"/><text x="38" y="${y(v)}">${duration(v)}</text>`)
      .join("") +
    whatIf.rates.filter((_, n) => n % 2 === 0)
      .map((r) => `<text x="${x(r)}" y="268">${r}</text>`).join("") + "</g>" +
    `<path class="limit" d="M80 ${y(limit)}H616"/>` +
    `<path class="curve" d="${path.join("")}"/>` +
    `<text class="halo start" x="86" y="${y(limit) - 14}">limit ${duration(limit)}</text>` +
    points.map(([r, v]) => `<circle cx="${x(r)}" cy="${y(v)}" r="3"/>`).join("") +
    `<path class="today" d="M${x(whatIf.rates[rate])} 25V250"/>` +
    (today ? `<circle class="now" cx="${x(today[0])}" cy="${y(today[1])}" r="7"/>` : "") +
    `<text x="348" y="290">requests per second</text><text class="start" x="8" y="12">p99 TTFT</text></svg>`;
}

function show() {
  const curve = curveOf(), rate = Number(at("rates").value), point = curve.points[rate];
  const [kind, words] = verdict(curve, point, rate);
  const load = `${whatIf.rates[rate]} requests/s`;
  at("rate").textContent = load;
  at("rates").setAttribute("aria-valuetext", load);
  at("verdict").className = kind;
  at("verdict").textContent = words;
  at("figures").innerHTML = figures(point, chosen("models"), chosen("gpus"));
  at("curve").innerHTML = drawing(curve, rate);
  at("table").innerHTML = table(curve);
  at("start").textContent = curve.start;
  at("commands").textContent = commands(curve, rate);
  at("evidence").textContent = `Step times: ${curve.evidence ?? "none"}. ${whatIf.about}.`;
  const values = [...LISTS, "rates"].map((list) => at(list).value);
  history.replaceState(null, "", `#${values.join("-")}`);
}

// A link ends in the places of the five choices and of the slider: #0-1-2-0-0-4.
function choose() {
  const linked = /^#\d+(-\d+){5}$/.test(location.hash) ? location.hash.slice(1).split("-") : [];
  LISTS.forEach((list, number) => {
    at(list).value = whatIf[list][linked[number]] ? Number(linked[number]) : 0;
  });
  at("rates").value = linked[5] ?? 4;
  show();
}

for (const list of LISTS) {
  at(list).replaceChildren(...whatIf[list].map(({ name }, number) => new Option(name, number)));
}
at("rates").max = whatIf.rates.length - 1;
for (const list of [...LISTS, "rates"]) at(list).addEventListener("input", show);
addEventListener("hashchange", choose);
choose();
