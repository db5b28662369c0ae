// The card of OS scheduling: what this board's agent has the Linux scheduler do. Asked for only while the page is seen.

import { fill, heads, make } from "/elements.js";
import { DASH, percent, seconds, significant } from "/format.js";
import { set } from "/graph.js";

const EVERY_MS = 2000;
const LATER_MS = 15000; // without an agent
const $ = (id) => document.getElementById(id);
const COLUMNS = ["Operator", "Location", "Metric", "Priority", "Nice", "Slice", "Share", "Got", "Waited"];

export async function watch() {
  let wait = EVERY_MS;
  if (!document.hidden) {
    const answer = await fetch("/api/scheduling").catch(() => null);
    const told = answer?.ok ? await answer.json().catch(() => null) : null;
    show(told);
    if (told && !told.agent) wait = LATER_MS;
  }
  setTimeout(watch, wait);
}

function show(told) {
  $("scheduling").hidden = !told?.agent;
  if (!told?.agent) return;
  const works = told.operators !== undefined;
  set($("scheduling-state"), works ? told.policy : "not known");
  set($("scheduling-rule"), works ? summary(told) : "");
  set($("scheduling-boards"), works ? boards(told.cooperation) : "");
  $("scheduling-boards").hidden = !$("scheduling-boards").textContent;
  const problems = works ? [...told.errors, ...told.cooperation.errors] : [told.error];
  list("scheduling-problems", problems);
  list("scheduling-notes", works ? told.notes : []);
  const rows = works ? told.operators : [];
  $("scheduling-table").parentElement.hidden = rows.length === 0;
  fill($("scheduling-table").tBodies[0], rows.map(row));
}

function summary(told) {
  const rule = told.rule === told.policy ? "" : `rule ${told.rule}, `;
  return `${rule}by ${told.mechanism} every ${seconds(told.period_s)}, acted within ${seconds(told.lasted_s.action)}`;
}

function boards({ state, boards: found, span }) {
  if (state === "off") return "Cooperation with other boards is off.";
  const names = Object.entries(found).filter(([, board]) => board.shares).map(([name]) => name);
  if (!names.length) return "";
  const there = span.length ? `, whose priorities are ${significant(span[0])} to ${significant(span[1])}` : "";
  return `On one scale with ${names.join(", ")}${there}.`;
}

function row(o) {
  const metrics = Object.entries(o.metrics).map(([name, value]) => `${name} ${significant(value)}`).join(", ");
  const held = o.held === undefined ? "" : ` (held: ${percent(o.held)})`;
  return [
    [o.operator, ""], [o.location, ""], [metrics || DASH, ""], [significant(o.priority) + held, "number"],
    [significant(o.nice), "number"], [o.slice_ms === undefined ? DASH : seconds(o.slice_ms / 1000), "number"],
    [significant(o.share), "number"], [percent(o.cpu), "number"], [percent(o.waited), "number"],
  ];
}

function list(id, texts) {
  const list_ = $(id);
  list_.hidden = texts.length === 0;
  if (list_.dataset.shown === JSON.stringify(texts)) return;
  list_.dataset.shown = JSON.stringify(texts);
  list_.replaceChildren(...texts.map((text) => make("li", {}, text)));
}

$("scheduling-table").tHead.rows[0].append(...heads(COLUMNS, (_, at) => at >= 3));
