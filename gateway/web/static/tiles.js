// The tiles: what sensors send and what becomes of it; the engine's own figures are folded away.

import { make, makeSvg, many } from "/elements.js";
import { DASH, bytes, count, duration, milliseconds, rate } from "/format.js";
import { set } from "/graph.js";

const HISTORY = 90;
const SHORTEST = 20;
const LATELY = "in the last 15 min";

const lostRows = (s) => s.drops.filter((d) => d.lost);
const dropped = (s) => lostRows(s).reduce((sum, d) => sum + d.rows, 0);
const sum = (s, value) => s.flows.reduce((total, flow) => total + (value(flow) ?? 0), 0);
const sourceRows = (s) => sum(s, (flow) => flow.operators.filter((o) => o.type.endsWith("source"))
  .reduce((rows, o) => rows + o.rows_out, 0));
const ago = (age) => (age === null || age === undefined ? "" : age < 2 ? "last just now" : `last ${duration(age)} ago`);
const youngest = (ages) => Math.min(...ages.filter((age) => age !== null && age !== undefined));
const lastResult = (s) => youngest(s.flows.map((flow) => flow.recent?.result_age_s));
const silent = (s) => s.devices?.silent ?? null;
export const part = (s, name) => s.health.parts.find((p) => p.part === name) ?? { level: "idle", state: "", reason: "" };

const SENSORS = [
  { id: "messages", title: "Messages", unit: "per second", spark: true, value: (s) => rate(s.ingest.rate),
    more: (s) => [`${count(s.ingest.messages)} since the start`, s.ingest.message_age_s > 10 ? ago(s.ingest.message_age_s) : ""].filter(Boolean).join(", ") },
  { id: "devices", title: "Devices", unit: LATELY, value: (s) => count(s.devices?.lately ?? null),
    more: (s) => (s.devices ? "heard by flows with windows" : "counted where a flow with windows has its source") },
  { id: "silent", title: "Silent", unit: "devices", attention: (s) => silent(s) > 0, value: (s) => count(silent(s)),
    more: (s) => (silent(s) ? s.devices.named.map(([name, age]) => `${name} for ${duration(age)}`).join(", ")
      : s.devices ? "of those heard since the start" : DASH) },
  { id: "results", title: "Results", unit: "rows", value: (s) => count(sum(s, (flow) => flow.rows_shipped)),
    more: (s) => (Number.isFinite(lastResult(s)) ? ago(lastResult(s)) : "none yet") },
  { id: "drops", title: "Dropped", unit: "rows", attention: (s) => dropped(s) > 0, value: (s) => count(dropped(s)),
    more: (s) => (lostRows(s).length ? `for ${lostRows(s).length} ${many("reason", lostRows(s).length)}, see below` : "nothing lost") },
];

const ENGINE = [
  { id: "rows", title: "Rows in", unit: "", value: (s) => count(sourceRows(s)), more: (s) => `${bytes(s.ingest.bytes)} received` },
  { id: "unacknowledged", title: "Unacknowledged", unit: "messages", value: (s) => count(s.ingest.unacknowledged),
    more: () => "until the next checkpoint" },
  { id: "commits", title: "Checkpoints", unit: "", attention: (s) => s.checkpoint.error !== "", value: (s) => count(s.checkpoint.commits),
    more: (s) => `last took ${milliseconds(s.checkpoint.last_ms)}${s.checkpoint.failures ? `, ${count(s.checkpoint.failures)} failed` : ""}` },
  { id: "outbox", title: "Outbox", unit: "rows", attention: (s) => part(s, "central").level === "bad",
    value: (s) => count(s.central.outbox_rows),
    more: (s) => `${bytes(s.central.outbox_bytes)} of ${bytes(s.central.outbox_quota_bytes)}` },
  { id: "acknowledged", title: "Acknowledged", unit: "batches", value: (s) => count(s.central.acknowledged),
    more: (s) => (s.central.last_ack_age_s === null ? "none yet" : ago(s.central.last_ack_age_s)) },
  { id: "process", title: "Memory", unit: "", value: (s) => bytes(s.rss_bytes), more: (s) => `${rate(s.cpu_percent)} % CPU` },
];

const built = new Map();
const rates = [];

export function build(sensors, engine) {
  for (const [host, tiles] of [[sensors, SENSORS], [engine, ENGINE]]) {
    for (const tile of tiles) {
      const value = make("span", { class: "value", id: `tile-${tile.id}` }, DASH);
      const more = make("p", { class: "more" }, "\u00a0");
      const box = make("div", { class: `tile tile-${tile.id}` },
        make("h2", {}, tile.title), make("p", { class: "figure" }, value, " ", make("span", { class: "unit" }, tile.unit)), more);
      if (tile.spark) box.append(sparkline());
      built.set(tile, { box, value, more });
      host.append(box);
    }
  }
}

export function update(s) {
  if (s.ingest.rate !== null) rates.push(s.ingest.rate);
  if (rates.length > HISTORY) rates.shift();
  for (const [tile, { box, value, more }] of built) {
    set(value, tile.value(s));
    set(more, tile.more(s));
    box.classList.toggle("attention", Boolean(tile.attention?.(s)));
  }
  drawSparkline();
}

function sparkline() {
  return makeSvg("svg", { preserveAspectRatio: "none", class: "spark", "aria-hidden": "true" },
    ...["area", "line"].map((cls) => makeSvg("path", { class: cls })));
}

function drawSparkline() {
  if (rates.length < 2) return;
  const top = Math.max(1, ...rates) * 1.1;
  const span = Math.max(SHORTEST, rates.length);
  const first = span - rates.length;
  document.querySelector(".spark").setAttribute("viewBox", `0 0 ${span - 1} 32`);
  const line = rates.map((v, i) => `${first + i},${(31 - (v / top) * 30).toFixed(2)}`).join("L");
  const [area, stroke] = document.querySelectorAll(".spark path");
  stroke.setAttribute("d", `M${line}`);
  area.setAttribute("d", `M${first},32L${line}L${span - 1},32Z`);
}

