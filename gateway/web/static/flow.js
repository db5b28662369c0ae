// The card of one flow: a line while it is folded; open, its graph, plots and newest results.

import { LOOK, fill, heads, make } from "/elements.js";
import { elsewhere, pageOf } from "/fleet.js";
import { DASH, bytes, cell, count, duration, isTime, rate, result, zone } from "/format.js";
import { Graph, set } from "/graph.js";
import { Plots } from "/plot.js";

const PAGE = 20;
const COLUMNS = ["Operator", "Runs on", "Type", "Rows in", "Rows out", "Rows/s", "Queue", "Queue size", "Busy", "Detail"];
const TEXTS = new Set(["Operator", "Runs on", "Type", "Detail"]);
const scroll = (label, ...inside) => make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label }, ...inside);

export class FlowView {
  constructor(name, onToggle) {
    const id = `flow-${name}`;
    this.name = name;
    this.state = make("span", { class: "badge" });
    this.figures = make("span", { class: "quiet figures" });
    this.description = make("span", { class: "quiet description" });
    this.reason = make("span", { class: "reason", hidden: "" });
    this.gap = make("span", { class: "gap", hidden: "" });
    this.body = make("div", { class: "body" });
    this.element = make("details", { class: "card flow", id },
      make("summary", {}, make("span", { class: "flow-head" }, make("h2", {}, name), this.state, this.description, this.figures),
        this.gap, this.reason), this.body);
    this.element.addEventListener("toggle", () => onToggle(this));
  }

  // What stands in its line.
  update(flow) {
    const { level, state, reason } = flow.condition;
    set(this.state, state);
    this.state.className = `badge ${LOOK[level]}`;
    set(this.figures, line(flow));
    set(this.description, flow.state === "failed" ? "" : flow.description);
    set(this.gap, flow.gap ?? "");
    this.gap.hidden = !flow.gap;
    set(this.reason, level === "idle" ? "" : reason);
    this.reason.className = `reason ${LOOK[level]}`;
    this.reason.hidden = !this.reason.textContent;
    if (flow.edges && this.element.open) {
      this.inside ??= new FlowBody(this.name, this.body);
      this.inside.update(flow);
    }
  }
}

function line(flow) {
  const sources = elsewhere(flow).operators.filter((o) => o.type.endsWith("source"));
  const rates = sources.map((o) => o.rate_in);
  const { row_age_s: row, result_age_s: last } = flow.recent ?? {};
  return [
    sources.length ? `${rates.includes(null) ? DASH : rate(rates.reduce((a, b) => a + b, 0))} messages/s` : "",
    flow.devices?.silent ? `${count(flow.devices.silent)} of ${count(flow.devices.silent + flow.devices.lately)} devices silent` : "",
    flow.rows_shipped ? `${count(flow.rows_shipped)} results` : "",
    row > 10 ? `last row ${duration(row)} ago` : "",
    last > 10 ? `last result ${duration(last)} ago` : "",
    flow.dropped ? `${count(flow.dropped)} dropped` : "nothing dropped",
  ].filter(Boolean).join(" · ");
}

class FlowBody {
  constructor(name, host) {
    this.name = name;
    this.offset = 0;
    this.about = make("p", { class: "quiet small" });
    this.sample = make("p", { class: "sample" });
    this.boards = make("p", { class: "quiet small boards", hidden: "" });
    this.newer = make("button", { type: "button" }, "Previous");
    this.older = make("button", { type: "button" }, "Next");
    this.place = make("span");
    this.pager = make("p", { class: "pager", hidden: "" }, this.newer, this.older, this.place);
    this.newer.addEventListener("click", () => this.turn(-PAGE));
    this.older.addEventListener("click", () => this.turn(PAGE));
    this.graphHost = scroll(`Graph of flow ${name}`);
    this.plots = new Plots(name);
    this.latestHead = make("tr");
    this.latestBody = make("tbody");
    this.latest = scroll(`Latest results of flow ${name}`, make("table", { class: "stack" }, make("thead", {}, this.latestHead), this.latestBody));
    this.noLatest = make("p", { class: "quiet" });
    this.latestTitle = make("h3", {}, "Latest results");
    this.figures = make("tbody");
    host.append(this.about, this.sample, this.graphHost, this.boards, this.plots.element, this.latestTitle, this.noLatest, this.latest, this.pager,
      make("details", {}, make("summary", {}, "All figures per operator"),
        scroll(`Figures per operator of flow ${name}`, make("table", { class: "stack" },
          make("thead", {}, make("tr", {}, ...heads(COLUMNS, (column) => !TEXTS.has(column)))), this.figures))));
  }

  update(flow) {
    flow = elsewhere(flow);
    const repeated = flow.delivery === "at-least-once" ? `at least once: ${count(flow.rows_repeated)} rows repeated` : flow.delivery?.replaceAll("-", " ");
    set(this.about, [`Version ${flow.version}`, repeated].filter(Boolean).join(" · "));
    const bad = flow.malformed;
    this.sample.hidden = !bad || ["good", "idle"].includes(flow.condition.level);
    if (bad) set(this.sample, `Malformed payload ${duration(bad.age_s)} ago on ${bad.topic}: ${bad.beginning}`);
    const structure = JSON.stringify([flow.operators.map((o) => [o.name, o.type, o.gateway]), flow.edges]);
    if (structure !== this.structure) {
      this.structure = structure;
      this.graphHost.replaceChildren();
      this.graph = flow.operators.length ? new Graph(this.graphHost, flow) : null;
    }
    this.graph?.update(flow);
    this.showBoards(flow);
    const ship = flow.operators.find((o) => o.type.endsWith("ship"));
    const ships = flow.latest_total > 0 || Boolean(ship);
    this.latestTitle.hidden = !ships;
    this.show(flow, ships, ship?.gateway ?? "");
    if (ships && !ship?.gateway) this.plots.update(flow.units ?? []);
    fill(this.figures, flow.operators.map((o) => [
      [o.name, ""], [o.gateway ?? "this board", ""], [o.type.replaceAll("_", " "), ""], [count(o.rows_in), "number"], [count(o.rows_out), "number"],
      [rate(o.rate_in), "number"], [count(o.queue_rows), "number"], [bytes(o.queue_bytes), "number"],
      [o.busy_s === null ? DASH : `${o.busy_s.toFixed(2)} s`, "number"], [o.detail, ""]]));
  }

  // Operators of other boards: whose figures these are, and the way to those boards' own pages.
  showBoards(flow) {
    const there = new Map();
    for (const o of flow.operators) if (o.gateway) there.set(o.gateway, [...(there.get(o.gateway) ?? []), o]);
    this.boards.hidden = there.size === 0;
    const key = JSON.stringify([...there].map(([board, of]) => [board, pageOf(board), of.map((o) => o.name), of[0].rate_in === null]));
    if (key === this.boardsShown) return;
    this.boardsShown = key;
    const parts = [...there].flatMap(([board, of]) => [
      " ", of.map((o) => o.name).join(", "), " on ", linkTo(board),
      of[0].rate_in === null ? ", whose figures are not known here." : ", with that board's figures.",
    ]);
    this.boards.replaceChildren("Runs elsewhere:", ...parts);
  }

  turn(by) {
    this.offset = Math.max(0, this.offset + by);
    if (this.last) this.show(this.last, true, "");
  }

  // The status holds the first page of the newest window; another is asked for.
  async show(flow, ships, from) {
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
    this.noLatest.hidden = latest.length > 0 || !ships;
    const key = `${from} ${from && pageOf(from)}`;
    if (key !== this.fromShown) {
      this.fromShown = key;
      this.noLatest.replaceChildren(...(from ? ["Results of this flow leave from ", linkTo(from), ", whose page has them."] : ["No results yet. A window's rows appear when it closes."]));
    }
    this.showLatest(latest, new Set(flow.times ?? []));
  }

  showLatest(shipped, times) {
    const rows = shipped.map(result);
    this.latest.hidden = rows.length === 0;
    const found = new Set(rows.flatMap((row) => Object.keys(row)));
    const columns = [...found].filter((column) => column !== "time" || !found.has("window_start"));
    const timely = columns.map((column) => times.has(column) || rows.every((row) => row[column] === null || isTime(column, row[column])));
    const numeric = columns.map((column, i) => !timely[i] && rows.every((row) => row[column] === null || typeof row[column] === "number"));
    const key = JSON.stringify([columns, numeric, timely, zone()]);
    if (key !== this.columns) {
      this.columns = key;
      this.latestHead.replaceChildren(...heads(columns.map((c, i) => `${c.replaceAll("_", " ")}${timely[i] ? ` (${zone()})` : ""}`), (_, i) => numeric[i]));
    }
    fill(this.latestBody, rows.map((row) => columns.map((c, i) => [cell(row[c], timely[i]), numeric[i] ? "number" : ""])));
  }
}

function linkTo(board) {
  const page = pageOf(board);
  return page ? make("a", { href: page }, board) : make("strong", {}, board);
}
