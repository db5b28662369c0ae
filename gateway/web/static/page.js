// The page: one status a second by server-sent events, written into elements that stay where they are.
// Whatever comes from a gateway is text, never markup.

import { fill, make } from "/elements.js";
import { Graph, set } from "/graph.js";
import { DASH, TIME_COLUMNS, bytes, cell, count, duration, milliseconds, rate, result } from "/format.js";
import { watch as watchFleet } from "/fleet.js";
import { watch } from "/scheduling.js";

const HISTORY = 90;
const SHORTEST = 20;
const SILENT_AFTER_MS = 4000;
const RETRY_MS = 2000;
const PAGE = 20;
const INDEX_FROM = 4;
const $ = (id) => document.getElementById(id);

// ---- tiles ----

const TILES = [
  { id: "messages", title: "Messages", unit: "per second", spark: true,
    value: (s, now) => rate(now.perSecond), more: (s) => `${count(s.ingest.messages)} since the start${s.ingest.message_age_s > 10 ? `, last ${duration(s.ingest.message_age_s)} ago` : ""}` },
  { id: "rows", title: "Rows in", unit: "",
    value: (s) => count(sourceRows(s)), more: (s) => `${bytes(s.ingest.bytes)} received` },
  { id: "unacknowledged", title: "Unacknowledged", unit: "",
    value: (s) => count(s.ingest.unacknowledged), more: () => "until next commit" },
  { id: "commits", title: "Checkpoints", unit: "commits", bad: (s) => s.checkpoint.error !== "",
    value: (s) => count(s.checkpoint.commits),
    more: (s) => `last took ${milliseconds(s.checkpoint.last_ms)}${s.checkpoint.failures ? `, ${count(s.checkpoint.failures)} failed` : ""}` },
  { id: "outbox", title: "Outbox", unit: "rows", bad: (s) => part(s, "central").level === "bad",
    value: (s) => count(s.central.outbox_rows), more: (s) => `${many(s.central.outbox_batches, "batch", "es")} · ${bytes(s.central.outbox_bytes)} of ${bytes(s.central.outbox_quota_bytes)}` },
  { id: "acknowledged", title: "Acknowledged", unit: "batches",
    value: (s) => count(s.central.acknowledged),
    more: (s) => (s.central.last_ack_age_s === null ? "none yet" : `last ${duration(s.central.last_ack_age_s)} ago`) },
  { id: "drops", title: "Dropped", unit: "rows", bad: (s) => dropped(s) > 0,
    value: (s) => count(dropped(s)), more: (s) => (lostRows(s).length ? many(lostRows(s).length, "reason") : "nothing lost") },
];

const many = (n, one, ending = "s") => `${count(n)} ${one}${n === 1 ? "" : ending}`;
const sourceRows = (s) => s.flows.flatMap((f) => f.operators).filter((o) => o.type.endsWith("source"))
  .reduce((sum, o) => sum + o.rows_out, 0);
const lostRows = (s) => s.drops.filter((d) => d.lost);
const dropped = (s) => lostRows(s).reduce((sum, d) => sum + d.rows, 0);
const tiles = new Map();
const history = [];

function buildTiles() {
  for (const tile of TILES) {
    const value = make("span", { class: "value", id: `tile-${tile.id}` }, DASH);
    const more = make("p", { class: "more" }, "\u00a0");
    const box = make("div", { class: `tile tile-${tile.id}` },
      make("h2", {}, tile.title), make("p", { class: "figure" }, value, " ", make("span", { class: "unit" }, tile.unit)), more);
    if (tile.spark) box.append(sparkline());
    tiles.set(tile.id, { box, value, more });
    $("tiles").append(box);
  }
}

function sparkline() {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  for (const cls of ["area", "line"]) {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    path.setAttribute("class", cls);
    svg.append(path);
  }
  return svg;
}

function drawSparkline() {
  const values = history.slice(-HISTORY);
  if (values.length < 2) return;
  const top = Math.max(1, ...values) * 1.1;
  const span = Math.max(SHORTEST, values.length);
  const first = span - values.length;
  document.querySelector(".spark").setAttribute("viewBox", `0 0 ${span - 1} 32`);
  const line = values.map((v, i) => `${first + i},${(31 - (v / top) * 30).toFixed(2)}`).join("L");
  const [area, stroke] = document.querySelectorAll(".spark path");
  stroke.setAttribute("d", `M${line}`);
  area.setAttribute("d", `M${first},32L${line}L${span - 1},32Z`);
}

// ---- header ----

// Level of a part -> class of what shows it.
const LOOK = { good: "good", idle: "", warning: "warning", bad: "bad" };
const part = (s, name) => s.health.parts.find((p) => p.part === name) ?? { level: "idle", state: "", reason: "" };

function link(id, level, text, title = "") {
  const item = $(id);
  item.className = LOOK[level];
  set(item.querySelector(".value"), text);
  item.title = title;
}

function header(s) {
  set($("gateway"), s.gateway);
  document.title = `${s.gateway} · edgert`;
  set($("facts"), `fleet ${s.fleet} · up ${duration(s.uptime_s)} · ${bytes(s.rss_bytes)} memory · ${rate(s.cpu_percent)} % CPU`);
  const { ingest, central } = s;
  const [sensors, beyond] = [part(s, "sensors"), part(s, "central")];
  link("link-sensors", sensors.level, sensors.state === "connected" ? `MQTT ${ingest.protocol} from ${ingest.broker}` : sensors.state, sensors.reason || ingest.broker);
  link("link-central", beyond.level, beyond.state === "acknowledged" ? `${central.broker} acknowledges` : beyond.state, beyond.reason || central.broker);
  const problems = s.health.parts.filter((p) => p.level === "bad" || (p.level === "warning" && p.part !== "flow"));
  const list = $("problems");
  const texts = problems.map((p) => p.text);
  if (list.dataset.shown !== texts.join("\n")) {
    list.dataset.shown = texts.join("\n");
    list.hidden = !texts.length;
    list.replaceChildren(...texts.map((text, at) => make("li", { class: LOOK[problems[at].level] }, text)));
  }
  set($("version"), `edgert ${s.version}`);
}

// ---- flows ----

class FlowView {
  constructor(flow) {
    const id = `flow-${flow.name}`;
    const scroll = (label, ...inside) => make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...inside);
    this.state = make("span", { class: "badge" });
    this.version = make("span", { class: "quiet" });
    this.description = make("p", { class: "quiet description" });
    this.gap = make("p", { class: "gap" });
    this.reason = make("p", { class: "reason" });
    this.sample = make("p", { class: "sample" });
    this.offset = 0;
    this.name = flow.name;
    this.newer = make("button", { type: "button" }, "Previous");
    this.older = make("button", { type: "button" }, "Next");
    this.place = make("span");
    this.pager = make("p", { class: "pager", hidden: "" }, this.newer, this.older, this.place);
    this.newer.addEventListener("click", () => this.turn(-PAGE));
    this.older.addEventListener("click", () => this.turn(PAGE));
    this.graphHost = scroll(`Graph of flow ${flow.name}`);
    this.latestHead = make("tr");
    this.latestBody = make("tbody");
    this.latest = scroll(`Latest results of flow ${flow.name}`, make("table", {}, make("thead", {}, this.latestHead), this.latestBody));
    this.noLatest = make("p", { class: "quiet" }, "No results yet. A window's rows appear when it closes.");
    this.latestTitle = make("h3", {}, "Latest results");
    this.figures = make("tbody");
    const columns = ["Operator", "Type", "Rows in", "Rows out", "Rows/s", "Queue", "Queue size", "Busy", "Detail"];
    this.element = make("section", { class: "card flow", id, "aria-labelledby": `${id}-title` },
      make("div", { class: "flow-head" }, make("h2", { id: `${id}-title` }, flow.name), this.state, this.version),
      this.description, this.gap, this.reason, this.sample, this.graphHost,
      this.latestTitle, this.noLatest, this.latest, this.pager,
      make("details", {}, make("summary", {}, "All figures per operator"),
        scroll(`Figures per operator of flow ${flow.name}`, make("table", {}, make("thead", {},
          make("tr", {}, ...columns.map((c, i) => make("th", { scope: "col", class: i >= 2 && i <= 7 ? "number" : "" }, c)))), this.figures))));
  }

  update(flow) {
    const { level, state, reason } = flow.condition;
    set(this.state, state);
    this.state.className = `badge ${LOOK[level]}`;
    const repeated = flow.delivery === "at-least-once" ? `, at least once: ${count(flow.rows_repeated)} rows repeated` : "";
    set(this.version, [`version ${flow.version}${repeated}`, ...FlowView.ages(flow), flow.dropped ? `${count(flow.dropped)} dropped` : "nothing dropped"].join(" · "));
    set(this.reason, level === "idle" ? "" : reason);
    this.reason.className = `reason ${LOOK[level]}`;
    this.reason.hidden = !this.reason.textContent;
    const bad = flow.malformed;
    this.sample.hidden = !bad || level === "good" || level === "idle";
    if (bad) set(this.sample, `Malformed payload ${duration(bad.age_s)} ago on ${bad.topic}: ${bad.beginning}`);
    set(this.description, flow.description);
    set(this.gap, flow.gap ?? "");
    this.gap.hidden = !flow.gap;
    const structure = JSON.stringify([flow.operators.map((o) => [o.name, o.type]), flow.edges]);
    if (structure !== this.structure) {
      this.structure = structure;
      this.graphHost.replaceChildren();
      this.graph = new Graph(this.graphHost, flow);
    }
    this.graph.update(flow);
    const ships = flow.latest_total > 0 || flow.operators.some((o) => o.type.endsWith("ship"));
    this.latestTitle.hidden = !ships;
    this.show(flow, ships);
    fill(this.figures, flow.operators.map((o) => [
      [o.name, ""], [o.type, ""], [count(o.rows_in), "number"], [count(o.rows_out), "number"], [rate(o.rate_in), "number"],
      [count(o.queue_rows), "number"], [bytes(o.queue_bytes), "number"], [`${o.busy_s.toFixed(2)} s`, "number"], [o.detail, ""]]));
  }

  static ages(flow) {
    const { row_age_s: row, result_age_s: last } = flow.recent ?? {};
    return [row > 10 ? `last row ${duration(row)} ago` : "", last > 10 ? `last result ${duration(last)} ago` : ""].filter(Boolean);
  }

  turn(by) {
    this.offset = Math.max(0, this.offset + by);
    if (this.last) this.show(this.last, true);
  }

  // The status holds the first page of the newest window; another is asked for.
  async show(flow, ships) {
    this.last = flow;
    if (this.offset >= flow.latest_kept) this.offset = 0;
    let { latest, latest_kept: kept, latest_total: total } = flow;
    const offset = this.offset;
    if (offset > 0) {
      const answer = await fetch(`/api/results?flow=${encodeURIComponent(this.name)}&offset=${offset}&limit=${PAGE}`).catch(() => null);
      if (!answer?.ok || offset !== this.offset) return;
      ({ latest, latest_kept: kept, latest_total: total } = await answer.json());
    }
    this.pager.hidden = total <= PAGE;
    this.newer.disabled = offset === 0;
    this.older.disabled = offset + latest.length >= kept || latest.length < PAGE;
    const end = kept < total ? ` (the first ${count(kept)} are kept)` : "";
    set(this.place, `${count(offset + 1)} to ${count(offset + latest.length)} of ${count(total)} in the newest window${end}`);
    this.showLatest(latest, ships);
  }

  showLatest(shipped, ships) {
    const rows = shipped.map(result);
    this.noLatest.hidden = rows.length > 0 || !ships;
    this.latest.hidden = rows.length === 0;
    const found = new Set(rows.flatMap((row) => Object.keys(row)));
    const columns = [...found].filter((column) => column !== "time" || !found.has("window_start"));
    const numeric = columns.map((column) => !TIME_COLUMNS.has(column) && rows.every((row) => row[column] === null || typeof row[column] === "number"));
    const key = JSON.stringify([columns, numeric]);
    if (key !== this.columns) {
      this.columns = key;
      this.latestHead.replaceChildren(...columns.map((c, i) => make("th", { scope: "col", class: numeric[i] ? "number" : "" }, c)));
    }
    fill(this.latestBody, rows.map((row) => columns.map((c, i) => [cell(c, row[c]), numeric[i] ? "number" : ""])));
  }
}

const views = new Map();

// Many flows: a line of links at the top, so that none has to be looked for.
function index(s) {
  const list = $("index").firstElementChild;
  $("index").hidden = s.flows.length < INDEX_FROM;
  const key = JSON.stringify(s.flows.map((f) => [f.name, f.condition.level, f.condition.state]));
  if (list.dataset.shown === key) return;
  list.dataset.shown = key;
  list.replaceChildren(...s.flows.map((f) => make("li", { class: LOOK[f.condition.level] },
    make("a", { href: `#flow-${f.name}` }, make("span", { class: "dot", "aria-hidden": "true" }), f.name,
      make("span", { class: "quiet" }, f.condition.state)))));
}

function flows(s) {
  index(s);
  for (const [name, view] of views) {
    if (!s.flows.some((flow) => flow.name === name)) { view.element.remove(); views.delete(name); }
  }
  s.flows.forEach((flow, at) => {
    if (!views.has(flow.name)) views.set(flow.name, new FlowView(flow));
    const view = views.get(flow.name);
    if ($("flows").children[at] !== view.element) $("flows").insertBefore(view.element, $("flows").children[at] ?? null);
    view.update(flow);
  });
  $("no-flows").hidden = s.flows.length > 0;
  set($("flows-topic"), `edgert/v1/${s.fleet}/${s.gateway}/flows/NAME`);
}

function drops(s) {
  $("no-drops").hidden = s.drops.length > 0;
  $("drops").parentElement.hidden = s.drops.length === 0;
  const unseen = s.ingest.broker_drops_unseen;
  $("drops-unseen").hidden = !unseen;
  set($("drops-unseen"), `What the sensors' broker drops is not known: ${unseen}.`);
  const sorted = [...s.drops].sort((a, b) => b.rows - a.rows);
  fill($("drops").tBodies[0], sorted.map((d) => [[d.flow || DASH, ""], [d.operator || DASH, ""], [d.reason, ""], [count(d.rows), "number"]]));
}

// ---- the stream ----

let last = null;
let lastAt = 0;

function show(s) {
  const perSecond = s.ingest.rate;
  if (perSecond !== null) history.push(perSecond);
  if (history.length > HISTORY) history.shift();
  last = s;
  lastAt = Date.now();
  document.body.classList.remove("waiting", "stale");
  link("link-page", "good", "live");
  header(s);
  for (const tile of TILES) {
    const { box, value, more } = tiles.get(tile.id);
    set(value, tile.value(s, { perSecond }));
    set(more, tile.more(s));
    box.classList.toggle("attention", Boolean(tile.bad?.(s)));
  }
  drawSparkline();
  flows(s);
  drops(s);
}

function lost() {
  if (last !== null) document.body.classList.add("stale");
  link("link-page", "bad", "disconnected — retrying", last ? `Last seen ${new Date(lastAt).toLocaleTimeString("en-GB")}` : "");
}

function connect() {
  const events = new EventSource("/api/events");
  const silence = setInterval(() => { if (Date.now() - lastAt > SILENT_AFTER_MS) lost(); }, 1000);
  events.onmessage = (event) => show(JSON.parse(event.data));
  events.onerror = () => {
    lost();
    if (events.readyState !== EventSource.CLOSED) return;
    clearInterval(silence);
    setTimeout(connect, RETRY_MS);
  };
}

buildTiles();
connect();
watch();
watchFleet();
