// The operator graph of one flow as SVG: drawn once per structure, then only its numbers change.

import { layout } from "/layout.js";
import { count, rate } from "/format.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTHS = { most: 256, usual: 184, least: 128, step: 4 };
const LETTER = 8.3;
const HEIGHT = 92;
const PHONE = 800;
const PAD = 3;
const BAR = { x: 12, y: 76, height: 5 };

// More than a second's worth of rows waits: busy. Many times that, or half a queue's usual 4 MiB budget: congested.
const BUSY_ROWS = 200;
const CONGESTED_ROWS = 5000;
const CONGESTED_BYTES = 2 * 1024 * 1024;
const FULL_ROWS = 50000;

export function pressure(operator) {
  const rows = operator.queue_rows ?? 0;
  if ((operator.queue_bytes ?? 0) >= CONGESTED_BYTES || rows >= CONGESTED_ROWS) return "congested";
  return rows >= BUSY_ROWS && rows > (operator.rate_in ?? 0) ? "busy" : "calm";
}

function make(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const clip = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// The number of a copy ("minute#3") is what tells it from the others, so it stays.
function clipName(name, length) {
  const at = name.lastIndexOf("#");
  return at < 0 ? clip(name, length) : clip(name.slice(0, at), length - (name.length - at)) + name.slice(at);
}

export class Graph {
  constructor(host, flow) {
    this.host = host;
    this.flow = flow;
    this.plan = "";
    this.edges = [];
    this.nodes = new Map();
    new ResizeObserver(() => this.fit()).observe(host);
    this.fit();
  }

  // Lays the graph out from left to right, with the widest boxes that fit. A phone gets it downwards; where even the
  // narrowest boxes do not fit, the graph scrolls inside its own frame.
  fit() {
    const room = this.host.clientWidth - 2 * PAD;
    if (room <= 0) return;
    const names = this.flow.operators.map((o) => o.name);
    const at = (width, down) => {
      const gap = Math.round(width / 4.4);
      const size = { width, height: HEIGHT, alongGap: down ? 30 : gap, acrossGap: down ? 14 : 20 };
      return { size, down, ...layout(names, this.flow.edges, size, down) };
    };
    const longest = Math.max(...names.map((name) => name.length)) * LETTER + 24;
    const most = Math.min(WIDTHS.most, Math.max(WIDTHS.usual, longest));
    const best = (down) => {
      let plan = at(most, down);
      for (let width = most; plan.width > room && width > WIDTHS.least; width -= WIDTHS.step) plan = at(width - WIDTHS.step, down);
      return plan;
    };
    let plan = best(false);
    if (plan.width > room && room < PHONE) plan = best(true);
    const key = `${plan.down} ${plan.size.width}`;
    if (key === this.plan) return;
    this.plan = key;
    this.draw(plan);
    this.update(this.flow);
  }

  draw(plan) {
    const { size } = plan;
    const [width, height] = [plan.width + 2 * PAD, plan.height + 2 * PAD];
    const arrow = `arrow-${this.flow.name}`;
    const svg = make("svg", {
      class: "graph", role: "group", "aria-label": `Operators of flow ${this.flow.name}`,
      viewBox: `${-PAD} ${-PAD} ${width} ${height}`, width, height,
    });
    svg.append(make("defs", {}, make("marker", {
      id: arrow, viewBox: "0 0 8 8", refX: 1, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto",
      markerUnits: "userSpaceOnUse",
    }, make("path", { d: "M0 0 8 4 0 8z", class: "arrow" }))));
    this.edges = plan.paths.map((d, at) => {
      const path = make("path", { d, class: "edge", "marker-end": `url(#${arrow})` });
      path.dataset.from = this.flow.edges[at][0];
      svg.append(path);
      return path;
    });
    this.nodes.clear();
    for (const operator of this.flow.operators) svg.append(this.node(operator, plan.boxes.get(operator.name), size));
    this.host.replaceChildren(svg);
  }

  node(operator, { x, y }, size) {
    const { name } = operator;
    const text = (cls, at, value, more = {}) => make("text", { class: cls, x: 12, y: at, ...more }, value);
    const rows = text("rate", 51, "");
    const waiting = text("waiting", 70, "");
    const letters = Math.floor((size.width - 24) / LETTER);
    const bar = make("rect", { class: "bar", x: BAR.x, y: BAR.y, height: BAR.height, rx: 2.5, width: 0 });
    const title = make("title", {});
    const group = make("g", { class: "node", transform: `translate(${x} ${y})`, tabindex: 0, role: "img" },
      title,
      make("rect", { class: "box", width: size.width, height: size.height, rx: 9 }),
      text("title", 22, clipName(name, letters)), text("type", 36, clip(operator.gateway ? `on ${operator.gateway}` : operator.type.replaceAll("_", " "), letters + 3)), rows, waiting,
      make("rect", { class: "track", x: BAR.x, y: BAR.y, height: BAR.height, rx: 2.5, width: size.width - 24 }), bar);
    group.dataset.operator = name;
    this.nodes.set(name, { group, title, rows, waiting, bar, length: size.width - 24 });
    return group;
  }

  update(flow) {
    this.flow = flow;
    for (const operator of flow.operators) {
      const node = this.nodes.get(operator.name);
      if (!node) continue;
      const level = pressure(operator);
      const queued = operator.queue_rows;
      set(node.rows, `${rate(operator.rate_in)} rows/s`);
      set(node.waiting, `${level === "calm" ? "queue" : level} ${count(queued)}`);
      node.group.setAttribute("class", `node ${level}`);
      node.bar.setAttribute("width", Math.min(1, Math.log1p(queued ?? 0) / Math.log1p(FULL_ROWS)) * node.length);
      const where = operator.gateway ? ` on ${operator.gateway}` : "";
      const words = `${operator.name}, ${operator.type}${where}: ${rate(operator.rate_in)} rows per second, ` +
        `${count(queued)} waiting, ${level}${operator.detail ? `; ${operator.detail}` : ""}`;
      node.group.setAttribute("aria-label", words);
      set(node.title, words);
    }
    const busy = new Set(flow.operators.filter((o) => o.rate_in > 0).map((o) => o.name));
    for (const edge of this.edges) edge.classList.toggle("active", busy.has(edge.dataset.from));
  }
}

export function set(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
