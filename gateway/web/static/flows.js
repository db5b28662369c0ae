// The flows: what needs a look first, folded where there are many, with a search.

import { LOOK, make, many } from "/elements.js";
import { count } from "/format.js";
import { FlowView } from "/flow.js";
import { set } from "/graph.js";

const OPEN_UP_TO = 3;
const SEARCH_FROM = 4;
const SHOWN = 40;
const ORDER = { bad: 0, warning: 1, good: 2, idle: 2 };
const LEVELS = [["", "All"], ["bad", "Bad"], ["warning", "Warnings"], ["good", "Running"], ["idle", "Idle"]];
const KEPT = "edgert-open-flows";
const $ = (id) => document.getElementById(id);

const views = new Map();
const buttons = new Map();
let level = "";
let all = false;
let last = null;
let open = new Set(JSON.parse(sessionStorage.getItem(KEPT) ?? "[]"));
let first = sessionStorage.getItem(KEPT) === null;
let changed = () => {};

// The flows that are open, whose operators and results the page wants.
export const whole = () => [...open];

// `onOpen` is called when other flows are open than before.
export function build(onOpen) {
  changed = onOpen;
  for (const [name, title] of LEVELS) {
    const button = make("button", { type: "button", "aria-pressed": name === level }, title);
    button.addEventListener("click", () => { level = name; arrange(); });
    buttons.set(name, button);
    $("levels").append(button);
  }
  $("search").addEventListener("input", () => arrange());
  $("more-flows").addEventListener("click", () => { all = true; arrange(); });
  $("fold").addEventListener("click", () => { for (const view of views.values()) view.element.open = false; });
  addEventListener("hashchange", reveal);
}

// A link to a flow opens it.
function reveal() {
  const view = views.get(decodeURIComponent(location.hash).replace(/^#flow-/, ""));
  if (!view) return;
  view.element.open = true;
  if (view.element.hidden) { level = ""; all = true; $("search").value = ""; arrange(); }
  view.element.scrollIntoView();
}

function toggled(view) {
  if (view.element.open === open.has(view.name)) return;
  open = new Set([...views.values()].filter((each) => each.element.open).map((each) => each.name));
  sessionStorage.setItem(KEPT, JSON.stringify([...open]));
  changed();
}

export function update(s) {
  const isFirst = last === null;
  last = s;
  for (const [name, view] of views) {
    if (!s.flows.some((flow) => flow.name === name)) { view.element.remove(); views.delete(name); }
  }
  for (const flow of s.flows) {
    if (!views.has(flow.name)) {
      const view = new FlowView(flow.name, toggled);
      views.set(flow.name, view);
      view.element.open = first ? s.flows.length <= OPEN_UP_TO : open.has(flow.name);
    }
    views.get(flow.name).update(flow);
  }
  first &&= s.flows.length === 0;
  arrange();
  if (isFirst && location.hash) reveal();
  $("no-flows").hidden = s.flows.length > 0;
  set($("flows-topic"), `edgert/v1/${s.fleet}/${s.gateway}/flows/NAME`);
}

function arrange() {
  if (!last) return;
  const words = $("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (flow) => {
    const text = `${flow.name} ${flow.description} ${flow.condition.state} ${flow.condition.reason}`.toLowerCase();
    return (!level || flow.condition.level === level) && words.every((word) => text.includes(word));
  };
  const flows = [...last.flows].sort((a, b) => ORDER[a.condition.level] - ORDER[b.condition.level]);
  const fitting = flows.filter(fits);
  const shown = new Set((all ? fitting : fitting.slice(0, SHOWN)).map((flow) => flow.name));
  let at = $("flows").firstElementChild;
  for (const { name } of flows) {
    const { element } = views.get(name);
    element.hidden = !shown.has(name);
    if (at === element) at = at.nextElementSibling;
    else $("flows").insertBefore(element, at);
  }
  const searched = last.flows.length >= SEARCH_FROM;
  $("finder").hidden = !searched;
  for (const [name, title] of LEVELS) {
    const n = name ? flows.filter((flow) => flow.condition.level === name).length : flows.length;
    const button = buttons.get(name);
    button.hidden = n === 0 && level !== name;
    button.className = LOOK[name] ?? "";
    button.setAttribute("aria-pressed", name === level);
    set(button, `${title} ${count(n)}`);
  }
  $("fold").hidden = open.size === 0;
  set($("found"), words.length || level ? `${count(fitting.length)} of ${count(flows.length)} ${many("flow", flows.length)}` : "");
  $("more-flows").hidden = fitting.length <= shown.size;
  set($("more-flows"), `Show ${count(fitting.length - shown.size)} more flows`);
}
