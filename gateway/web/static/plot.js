// Plots of a flow's results in the last hour: a small one for each key, each with a scale and a unit of its own.

import { make, makeSvg } from "/elements.js";
import { unitsElsewhere } from "/fleet.js";
import { DASH, clock, quantity } from "/format.js";
import { set } from "/graph.js";

const EVERY_MS = 10000;
const WIDTH = 300;
const HEIGHT = 64;
const PAD = 4;
const SHOWN = 12;
const SPANS = [300, 900, 3600];
const LEAST_GAP_S = 30;

export class Plots {
  constructor(flow) {
    this.flow = flow;
    this.charts = new Map();
    this.all = false;
    this.askedAt = 0;
    this.title = make("h3", {}, "Last hour");
    this.column = make("select", { "aria-label": `Column of the plots of flow ${flow}` });
    this.column.addEventListener("change", () => this.ask());
    this.grid = make("div", { class: "plots" });
    this.note = make("p", { class: "quiet small" });
    this.more = make("button", { type: "button", hidden: "" });
    this.more.addEventListener("click", () => { this.all = true; this.draw(); });
    this.element = make("div", { class: "plotted", hidden: "" },
      make("div", { class: "plot-head" }, this.title, this.column), this.grid, this.note, this.more);
  }

  // Asks for the values now and then; call it as often as you like.
  update(units) {
    this.units = units;
    if (Date.now() - this.askedAt >= EVERY_MS) this.ask();
  }

  async ask() {
    this.askedAt = Date.now();
    const column = this.column.value;
    const query = new URLSearchParams({ flow: this.flow, column });
    const answer = await fetch(`/api/plot?${query}`).catch(() => null);
    const plot = answer?.ok ? await answer.json().catch(() => null) : null;
    if (!plot || column !== this.column.value) return;
    this.plot = plot;
    this.draw();
  }

  // As the devices of that key name it: a source that captures the key's values knows which ones these are.
  unit(key) {
    const { field, keys } = this.plot;
    const values = Object.fromEntries(keys.map((name, at) => [name, key[at]]));
    const fits = ([captured, known]) => field in known && Object.entries(captured).every(([name, value]) => (values[name] ?? value) === value);
    return [...this.units, ...unitsElsewhere(this.flow)].find(fits)?.[1][field] ?? "";
  }

  draw() {
    const { plot } = this;
    this.element.hidden = plot.times.length === 0;
    if (this.element.hidden) { this.askedAt = Math.min(this.askedAt, Date.now() - EVERY_MS + 2000); return; }
    if (this.columns !== plot.columns.join()) {
      this.columns = plot.columns.join();
      this.column.replaceChildren(...plot.columns.map((name) => make("option", { value: name }, name)));
      this.column.value = plot.column;
    }
    const end = Math.max(Date.now() / 1000, plot.times.at(-1));
    const span = SPANS.find((seconds) => end - plot.times[0] <= seconds) ?? SPANS.at(-1);
    set(this.title, span === 3600 ? "Last hour" : `Last ${span / 60} minutes`);
    const lines = this.all ? plot.lines : plot.lines.slice(0, SHOWN);
    const names = lines.map((line) => JSON.stringify(line.key));
    for (const [name, chart] of this.charts) if (!names.includes(name)) { chart.element.remove(); this.charts.delete(name); }
    lines.forEach((line, at) => {
      if (!this.charts.has(names[at])) this.charts.set(names[at], new Chart(line.key.join(" · ") || this.flow));
      const chart = this.charts.get(names[at]);
      if (this.grid.children[at] !== chart.element) this.grid.insertBefore(chart.element, this.grid.children[at] ?? null);
      chart.update(plot, { ...line, unit: this.unit(line.key) }, end - span, end);
    });
    const hidden = plot.lines.length - lines.length;
    this.more.hidden = hidden === 0;
    set(this.more, `Show ${hidden} more`);
    const left = plot.left_out ? `Of ${plot.left_out}${plot.left_out >= 1000 ? " or more" : ""} other keys and columns nothing is kept: there is room for 1,000 lines on a board.` : "";
    this.note.hidden = !left;
    set(this.note, left);
  }
}

class Chart {
  constructor(name) {
    this.name = name;
    this.value = make("span", { class: "now" });
    this.area = makeSvg("path", { class: "area" });
    this.line = makeSvg("path", { class: "line" });
    this.cursor = makeSvg("line", { class: "cursor", y1: 0, y2: HEIGHT });
    this.svg = makeSvg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img" }, this.area, this.line, this.cursor);
    this.top = make("span", { class: "top" });
    this.bottom = make("span", { class: "bottom" });
    this.from = make("span");
    this.to = make("span");
    this.element = make("figure", { class: "plot" },
      make("figcaption", {}, make("span", { class: "key", title: name }, name), this.value),
      make("div", { class: "canvas" }, this.svg, this.top, this.bottom), make("div", { class: "axis", "aria-hidden": "true" }, this.from, this.to));
    this.svg.addEventListener("pointermove", (event) => this.point(event));
    this.svg.addEventListener("pointerleave", () => this.say());
  }

  update(plot, line, start, end) {
    const points = plot.times.map((time, at) => [time, line.values[at]]).filter(([time, value]) => value !== null && time >= start);
    const values = points.map(([, value]) => value);
    let [low, high] = [Math.min(...values), Math.max(...values)];
    if (low === high) { const room = Math.abs(low) * 0.05 || 1; [low, high] = [low - room, high + room]; }
    const x = (time) => Math.round((time - start) / (end - start) * WIDTH * 10) / 10;
    const y = (value) => Math.round((PAD + (high - value) / (high - low) * (HEIGHT - 2 * PAD)) * 10) / 10;
    Object.assign(this, { points, unit: line.unit, start, end, x });
    const runs = runsOf(points);
    const path = (run) => run.map(([time, value]) => `${x(time)},${y(value)}`).join("L");
    this.line.setAttribute("d", runs.map((run) => `M${path(run)}${run.length === 1 ? "h0.01" : ""}`).join(""));
    this.area.setAttribute("d", runs.filter((run) => run.length > 1).map((run) => `M${x(run[0][0])},${HEIGHT}L${path(run)}L${x(run.at(-1)[0])},${HEIGHT}Z`).join(""));
    set(this.top, values.length ? quantity(high, line.unit) : "");
    set(this.bottom, values.length ? quantity(low, line.unit) : "");
    set(this.from, clock(start, false));
    set(this.to, clock(end, false));
    const words = values.length ? `${this.name}: from ${quantity(Math.min(...values), line.unit)} to ${quantity(Math.max(...values), line.unit)}, newest ${quantity(values.at(-1), line.unit)}` : `${this.name}: no value in this time`;
    this.svg.setAttribute("aria-label", words);
    if (!this.pointed) this.say();
  }

  // The value at a time; by default the newest.
  say(point = null) {
    this.pointed = point !== null;
    const [time, value] = point ?? this.points?.at(-1) ?? [null, null];
    set(this.value, value === null ? DASH : `${point ? `${clock(time)}  ` : ""}${quantity(value, this.unit)}`);
    this.cursor.setAttribute("visibility", point ? "visible" : "hidden");
    if (point) for (const end of ["x1", "x2"]) this.cursor.setAttribute(end, this.x(time));
  }

  point(event) {
    if (!this.points?.length) return;
    const box = this.svg.getBoundingClientRect();
    const time = this.start + (event.clientX - box.left) / box.width * (this.end - this.start);
    this.say(this.points.reduce((best, one) => (Math.abs(one[0] - time) < Math.abs(best[0] - time) ? one : best)));
  }
}

// Points between which no value is missing: a line over a silent hour would be untrue.
function runsOf(points) {
  const gaps = points.slice(1).map(([time], at) => time - points[at][0]).sort((a, b) => a - b);
  const longest = Math.max(LEAST_GAP_S, 2.5 * (gaps[Math.floor(gaps.length / 2)] ?? 0));
  const runs = [];
  for (const point of points) {
    if (runs.length && point[0] - runs.at(-1).at(-1)[0] <= longest) runs.at(-1).push(point);
    else runs.push([point]);
  }
  return runs;
}
