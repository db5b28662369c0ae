// The page: one status a second by server-sent events, written into elements that stay where they are.
// Whatever comes from a gateway is text, never markup. A page that nobody sees asks for nothing.

import { LOOK, fill, make } from "/elements.js";
import { watch as watchFleet } from "/fleet.js";
import { build as buildFlows, update as updateFlows, whole } from "/flows.js";
import { DASH, bytes, count, duration, rate } from "/format.js";
import { set } from "/graph.js";
import { watch as watchScheduling } from "/scheduling.js";
import { build as buildTiles, part, update as updateTiles } from "/tiles.js";

const SILENT_AFTER_MS = 4000;
const RETRY_MS = 2000;
const PROBLEMS = 8;
const $ = (id) => document.getElementById(id);

// ---- header ----

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
  problems(s);
  set($("version"), `edgert ${s.version}`);
}

function problems(s) {
  const found = s.health.parts.filter((p) => p.level === "bad" || (p.level === "warning" && p.part !== "flow"));
  const list = $("problems");
  const key = JSON.stringify(found);
  if (list.dataset.shown === key) return;
  list.dataset.shown = key;
  list.hidden = !found.length;
  const lines = found.slice(0, PROBLEMS).map((p) => make("li", { class: LOOK[p.level] },
    ...(p.part === "flow" ? [make("a", { href: `#flow-${encodeURIComponent(p.name)}` }, `flow ${p.name}`), p.text.slice(`flow ${p.name}`.length)] : [p.text])));
  if (found.length > PROBLEMS) lines.push(make("li", {}, `and ${count(found.length - PROBLEMS)} more`));
  list.replaceChildren(...lines);
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

let lastAt = 0;
let events = null;

function show(s) {
  lastAt = Date.now();
  document.body.classList.remove("waiting", "stale");
  link("link-page", "good", "live");
  header(s);
  updateTiles(s);
  updateFlows(s);
  drops(s);
}

function lost() {
  if (lastAt) document.body.classList.add("stale");
  link("link-page", "bad", "disconnected — retrying", lastAt ? `Last seen ${new Date(lastAt).toLocaleTimeString("en-GB")}` : "");
}

// Asks for the flows that are open, whole, and for a line of each other one.
function connect() {
  events?.close();
  events = null;
  if (document.hidden) return;
  const query = new URLSearchParams([["whole", ""], ...whole().map((name) => ["whole", name])]);
  const stream = events = new EventSource(`/api/events?${query}`);
  stream.onmessage = (event) => { if (stream === events) show(JSON.parse(event.data)); };
  stream.onerror = () => {
    if (stream !== events) return;
    lost();
    if (stream.readyState === EventSource.CLOSED) setTimeout(() => { if (stream === events) connect(); }, RETRY_MS);
  };
}

setInterval(() => { if (!document.hidden && Date.now() - lastAt > SILENT_AFTER_MS) lost(); }, 1000);
document.addEventListener("visibilitychange", connect);
buildTiles($("tiles"), $("engine-tiles"));
buildFlows(connect);
connect();
watchScheduling();
watchFleet();
