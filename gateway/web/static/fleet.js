// The card of the fleet: boards around this one, as far away as their round trips are long, and what runs on each.

import { fill, make } from "/elements.js";
import { DASH, bytes, cell, count, milliseconds, percent, significant } from "/format.js";
import { set } from "/graph.js";

const EVERY_MS = 5000;
const LATER_MS = 15000; // without an agent
const SVG = "http://www.w3.org/2000/svg";
const CENTRE = { x: 320, y: 200 };
const RADIUS = { least: 62, most: 165 };
const WIDE = 1.5;
const RINGS = 3;
const NAME = 18;
const $ = (id) => document.getElementById(id);
const COLUMNS = ["Board", "State", "Round trip", "Estimated", "Load", "Cores", "Needs now", "As predicted", "In 3 min", "Runs"];
const TEXTS = ["Board", "State", "Runs", "Time", "From", "To", "Reason"];
const MOVES = ["Time", "From", "To", "Reason", "Pause", "Sent", "Rows delayed"];

export async function watch() {
  let wait = EVERY_MS;
  if (!document.hidden) {
    const answer = await fetch("/api/fleet").catch(() => null);
    const told = answer?.ok ? await answer.json().catch(() => null) : null;
    show(told);
    if (told && !told.agent) wait = LATER_MS;
  }
  setTimeout(watch, wait);
}

function show(told) {
  $("fleet").hidden = !told?.agent;
  if (!told?.agent) return;
  const members = told.members ?? [];
  const alive = members.filter((m) => m.state === "alive").length;
  set($("fleet-state"), told.members ? `${alive} of ${members.length} alive` : "not known");
  $("fleet-state").className = `badge ${told.members && alive === members.length ? "good" : "warning"}`;
  set($("fleet-rule"), told.members ? `${told.fleet}, ${many(Object.keys(told.flows).length, "flow")} over its boards` : "");
  const problem = told.error ?? told.flows_error ?? "";
  $("fleet-problem").hidden = problem === "";
  set($("fleet-problem"), problem);
  const runs = operators(told.flows ?? {});
  draw(members, runs);
  $("fleet-table").parentElement.hidden = members.length === 0;
  fill($("fleet-table").tBodies[0], members.map((m) => row(m, runs, told.loads?.[m.gateway] ?? {})));
  const moves = [...(told.moves ?? [])].reverse();
  $("fleet-moves").parentElement.hidden = moves.length === 0;
  fill($("fleet-moves").tBodies[0], moves.map(move));
}

// Of the scarcer resource, as a part of what operators may use.
const need = (load) => percent(load && Math.max(load.cpu, load.link));

function move(m) {
  const made = m.to !== null;
  return [
    [cell("time", m.at), ""], [m.from, ""], [m.to ?? "stays", ""], [m.reason, "reason-of-move"],
    [made ? milliseconds(m.pause_s * 1000) : DASH, "number"],
    [made ? bytes(m.ahead_bytes + m.paused_bytes) : DASH, "number"], [made ? count(m.rows_delayed) : DASH, "number"],
  ];
}

const many = (n, one) => `${count(n)} ${one}${n === 1 ? "" : "s"}`;
const trip = (m) => m.measured_ms ?? m.estimated_ms;

// Board -> "flow/operator" of what runs there.
function operators(flows) {
  const found = new Map();
  for (const [flow, { assignment = {} }] of Object.entries(flows)) {
    for (const [operator, board] of Object.entries(assignment)) {
      found.set(board, [...(found.get(board) ?? []), `${flow}/${operator}`]);
    }
  }
  return found;
}

function row(m, runs, { load, load_predicted_before: before, load_predicted: ahead }) {
  return [
    [m.self ? `${m.gateway} (this board)` : m.gateway, ""], [m.state, ""],
    [m.self ? DASH : milliseconds(m.measured_ms), "number"], [m.self ? DASH : milliseconds(m.estimated_ms), "number"],
    [significant(m.load?.load), "number"], [significant(m.board?.cores), "number"],
    [need(load), "number"], [need(before), "number"], [need(ahead), "number"],
    [(runs.get(m.gateway) ?? []).join(", ") || DASH, ""],
  ];
}

// The distance from the centre is the round trip from this board; the direction is that of the coordinates, spread so
// that names do not lie on each other.
function draw(members, runs) {
  const own = members.find((m) => m.self);
  const others = members.filter((m) => !m.self);
  $("fleet-map").toggleAttribute("hidden", !own || others.length === 0);
  if (!own) return;
  const longest = Math.max(...others.map((m) => trip(m) ?? 0), 0.1);
  const shapes = [];
  for (let ring = 1; ring <= RINGS; ring += 1) {
    const r = radius(longest * ring / RINGS, longest);
    shapes.push(shape("ellipse", { class: "ring", cx: CENTRE.x, cy: CENTRE.y, rx: r * WIDE, ry: r }));
    shapes.push(label("scale", CENTRE.x, CENTRE.y - r - 4, milliseconds(longest * ring / RINGS)));
  }
  const around = others.map((m) => [direction(own, m), m]).sort(([a], [b]) => a - b).map(([, m]) => m);
  around.forEach((m, at) => {
    const angle = (at + 0.5) / around.length * 2 * Math.PI;
    const r = radius(trip(m) ?? longest, longest);
    const x = CENTRE.x + r * Math.sin(angle) * WIDE;
    const y = CENTRE.y - r * Math.cos(angle);
    shapes.push(shape("line", { class: "reach", x1: CENTRE.x, y1: CENTRE.y, x2: x, y2: y }));
    shapes.push(...board(m, x, y, runs));
  });
  shapes.push(...board(own, CENTRE.x, CENTRE.y, runs));
  $("fleet-map").replaceChildren(...shapes);
}

const radius = (ms, longest) => RADIUS.least + (RADIUS.most - RADIUS.least) * Math.min(1, ms / longest);

function direction(own, m) {
  const [ax = 0, ay = 0] = own.coordinate ?? [];
  const [bx = 0, by = 0] = m.coordinate ?? [];
  return Math.atan2(bx - ax, by - ay);
}

function board(m, x, y, runs) {
  const here = runs.get(m.gateway) ?? [];
  const circle = shape("circle", { class: `board ${m.self ? "own" : m.state}`, cx: x, cy: y, r: 9 });
  circle.append(shape("title", {}, `${m.gateway}, ${m.state}${here.length ? `: ${here.join(", ")}` : ""}`));
  const name = m.gateway.length > NAME ? `${m.gateway.slice(0, NAME - 1)}…` : m.gateway;
  return [circle, label("name", x, y - 14, name), label("runs", x, y + 24, here.length ? many(here.length, "operator") : m.state)];
}

const label = (cls, x, y, text) => shape("text", { class: cls, x, y }, text);

function shape(tag, attributes, text = "") {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(text);
  return element;
}

for (const [table, columns] of [["fleet-table", COLUMNS], ["fleet-moves", MOVES]]) {
  $(table).tHead.rows[0].append(
    ...columns.map((c) => make("th", { scope: "col", class: TEXTS.includes(c) ? "" : "number" }, c)));
}
