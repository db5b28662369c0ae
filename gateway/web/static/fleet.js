// The card of the fleet: boards around this one, as far away as their round trips are long, and what runs on each.

import { fill, heads, makeSvg } from "/elements.js";
import { DASH, bytes, count, milliseconds, moment, percent, significant, zone } from "/format.js";
import { set } from "/graph.js";

const EVERY_MS = 5000;
const LATER_MS = 15000; // without an agent
const HEIGHT = 400;
const NARROW = 340;
const BROAD = 640;
const RADIUS = { least: 62, most: 165 };
const WIDEST = 1.5;
const RINGS = 3;
const NAME = 18;
const $ = (id) => document.getElementById(id);
const COLUMNS = ["Board", "State", "Round trip", "Estimated", "Load", "Cores", "Needs now", "As predicted", "In 3 min", "Runs"];
const TEXTS = ["Board", "State", "Runs", "Time", "From", "To", "Reason"];
const MOVES = ["Time", "From", "To", "Reason", "Pause", "Sent", "Rows delayed"];
const LOOPBACK = /^(localhost$|127\.|::1$|\[::1\]$)/;
const ANY = new Set(["", "0.0.0.0", "::"]);
const HOST = /^[A-Za-z0-9.:_-]+$/;
const UNKNOWN = { rows_in: null, rows_out: null, rate_in: null, queue_rows: null, queue_bytes: null, busy_s: null };

let known = null;

// A flow with the figures that other boards tell of their operators; where they tell none, with no figures: this
// gateway's own would be zeros that mean nothing.
export function elsewhere(flow) {
  const operators = flow.operators.map((o) =>
    (o.gateway ? { ...o, ...UNKNOWN, ...known?.boards?.[o.gateway]?.flows?.[flow.name]?.[o.name] } : o));
  return { ...flow, operators };
}

// Units that devices name to other boards.
export const unitsElsewhere = (flow) => Object.values(known?.boards ?? {}).flatMap((board) => board.units?.[flow] ?? []);

// The address of a board's page; empty where this browser may not reach it.
export function pageOf(board) {
  const page = known?.boards?.[board]?.page;
  const address = String(known?.members?.find((m) => m.gateway === board)?.address?.[0] ?? "");
  if (!page) return "";
  const host = ANY.has(page.host) ? address : page.host;
  const here = LOOPBACK.test(location.hostname) && LOOPBACK.test(address);
  if (!HOST.test(host) || (LOOPBACK.test(host) && !here)) return "";
  return `//${host.includes(":") ? `[${host}]` : host}:${page.port}/`;
}

export async function watch() {
  let wait = EVERY_MS;
  if (!document.hidden) {
    const answer = await fetch("/api/fleet").catch(() => null);
    const told = answer?.ok ? await answer.json().catch(() => null) : null;
    known = told?.members ? told : null;
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
    [moment(m.at), ""], [m.from, ""], [m.to ?? "stays", ""], [m.reason, "reason-of-move"],
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
// that names do not lie on each other. A narrow window has a narrow map, whose letters stay as large.
function draw(members, runs) {
  const own = members.find((m) => m.self);
  const others = members.filter((m) => !m.self);
  const map = $("fleet-map");
  map.toggleAttribute("hidden", !own || others.length === 0);
  if (!own) return;
  const width = Math.max(NARROW, Math.min(BROAD, map.parentElement.clientWidth - 36));
  map.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  const centre = { x: width / 2, y: HEIGHT / 2 };
  const wide = Math.min(WIDEST, (width / 2 - 60) / RADIUS.most);
  const longest = Math.max(...others.map((m) => trip(m) ?? 0), 0.1);
  const shapes = [];
  for (let ring = 1; ring <= RINGS; ring += 1) {
    const r = radius(longest * ring / RINGS, longest);
    shapes.push(makeSvg("ellipse", { class: "ring", cx: centre.x, cy: centre.y, rx: r * wide, ry: r }));
    shapes.push(label("scale", centre.x, centre.y - r - 4, milliseconds(longest * ring / RINGS)));
  }
  const around = others.map((m) => [direction(own, m), m]).sort(([a], [b]) => a - b).map(([, m]) => m);
  around.forEach((m, at) => {
    const angle = (at + 0.5) / around.length * 2 * Math.PI;
    const r = radius(trip(m) ?? longest, longest);
    const x = centre.x + r * Math.sin(angle) * wide;
    const y = centre.y - r * Math.cos(angle);
    shapes.push(makeSvg("line", { class: "reach", x1: centre.x, y1: centre.y, x2: x, y2: y }));
    shapes.push(...board(m, x, y, runs));
  });
  shapes.push(...board(own, centre.x, centre.y, runs));
  map.replaceChildren(...shapes);
}

const radius = (ms, longest) => RADIUS.least + (RADIUS.most - RADIUS.least) * Math.min(1, ms / longest);

function direction(own, m) {
  const [ax = 0, ay = 0] = own.coordinate ?? [];
  const [bx = 0, by = 0] = m.coordinate ?? [];
  return Math.atan2(bx - ax, by - ay);
}

function board(m, x, y, runs) {
  const here = runs.get(m.gateway) ?? [];
  const circle = makeSvg("circle", { class: `board ${m.self ? "own" : m.state}`, cx: x, cy: y, r: 9 },
    makeSvg("title", {}, `${m.gateway}, ${m.state}${here.length ? `: ${here.join(", ")}` : ""}`));
  const name = m.gateway.length > NAME ? `${m.gateway.slice(0, NAME - 1)}…` : m.gateway;
  const page = pageOf(m.gateway);
  const title = label("name", x, y - 14, name);
  return [circle, page ? makeSvg("a", { href: page }, title) : title, label("runs", x, y + 24, here.length ? many(here.length, "operator") : m.state)];
}

const label = (cls, x, y, text) => makeSvg("text", { class: cls, x, y }, text);

for (const [table, columns] of [["fleet-table", COLUMNS], ["fleet-moves", MOVES]]) {
  $(table).tHead.rows[0].append(...heads(columns, (column) => !TEXTS.includes(column)));
}
$("fleet-moves").tHead.rows[0].cells[0].textContent = `Time (${zone()})`;
