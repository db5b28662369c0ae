// How numbers, sizes, times and cells of rows are written. No locale surprises: always 1,234.5.

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const one = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const figures = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 5 });

const four = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });

export const DASH = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  if (!known(value)) return DASH;
  if (Math.abs(value) < 1e6) return whole.format(value);
  const [size, unit] = Math.abs(value) < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return `${(value / size).toFixed(2)} ${unit}`;
}

export function rate(value) {
  if (!known(value)) return DASH;
  return value !== 0 && Math.abs(value) < 99.95 ? one.format(value) : count(value);
}

export function bytes(value) {
  if (!known(value)) return DASH;
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (value >= 1000 && at < units.length - 1) { value /= 1000; at += 1; }
  return `${at === 0 || value >= 10 ? whole.format(value) : one.format(value)} ${units[at]}`;
}

export function duration(seconds) {
  if (!known(seconds)) return DASH;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const parts = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const from = parts.findIndex(([size]) => seconds >= size);
  return parts.slice(from, from + 2).map(([size, unit], index) => {
    const left = index === 0 ? seconds : seconds % parts[from][0];
    return `${Math.floor(left / size)} ${unit}`;
  }).join(" ");
}

export function milliseconds(value) {
  if (!known(value)) return DASH;
  return value < 1000 ? `${value < 10 ? one.format(value) : whole.format(value)} ms` : `${one.format(value / 1000)} s`;
}

export function seconds(value) {
  return known(value) && value >= 1 ? `${significant(value)} s` : milliseconds(known(value) ? value * 1000 : undefined);
}

export function percent(part) {
  return known(part) ? `${whole.format(part * 100)} %` : DASH;
}

export function significant(value) {
  return known(value) ? figures.format(value) : DASH;
}

const TIMELY = /(^|_)(time|timestamp|ts|start|started|end|ended|at|since|until|seen|date)(_|$)/i;
const EARLIEST = 9e8;
const LATEST = 4.2e9;

// A number that is a moment, in seconds since the epoch, by its size (1998 to 2103) and the name of its column.
export const isTime = (column, value) => known(value) && value > EARLIEST && value < LATEST && TIMELY.test(column);

// One cell of a row. Times are in the reader's own time zone, with the date only if it is not today's.
export function cell(value, timely = false) {
  if (value === null || value === undefined) return DASH;
  if (known(value) && timely) return moment(value);
  if (known(value)) return Number.isInteger(value) ? whole.format(value) : figures.format(value);
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function moment(seconds) {
  const date = new Date(seconds * 1000);
  if (Number.isNaN(date.getTime())) return String(seconds);
  if (date.toDateString() === new Date().toDateString()) return clock(seconds);
  const two = (n) => String(n).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(seconds)}`;
}

export const clock = (seconds, exact = true) =>
  new Date(seconds * 1000).toLocaleTimeString("en-GB", exact ? {} : { hour: "2-digit", minute: "2-digit" });

// The reader's time zone, as short as it has a name.
export const zone = () =>
  new Intl.DateTimeFormat("en-GB", { timeZoneName: "short" }).formatToParts().find((part) => part.type === "timeZoneName")?.value ?? "local";

// Units as SenML names them, for people.
const UNITS = { Cel: "°C", degC: "°C", K: "K", "%RH": "% RH", "/": "", count: "", deg: "°", lx: "lx", Ohm: "Ω", m2: "m²", m3: "m³" };
const PREFIXED = new Set(["Hz", "B", "B/s", "bit", "bit/s", "W", "Wh", "V", "A", "J", "Pa", "g"]);
const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];

// A value with its unit: 21.3 °C, 1.8 GHz.
export function quantity(value, unit = "") {
  if (!known(value)) return DASH;
  const shown = UNITS[unit] ?? unit;
  const [size, prefix] = PREFIXED.has(unit) ? PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ""] : [1, ""];
  const scale = size === 1e4 ? 1e3 : size;
  const number = Math.abs(value) >= 1e6 && scale === 1 ? count(value) : four.format(value / scale);
  return shown ? `${number} ${prefix}${shown}`.trim() : number;
}

// A shipped row holds what merges (a mean as count and sum); people read the mean. Other fields stay as they are.
export function result(row) {
  const shown = {};
  for (const [name, value] of Object.entries(row)) {
    const [, base, part] = /^(.+)__(count|sum|mean|m2)$/.exec(name) ?? [];
    const n = row[`${base}__count`];
    if (base === undefined || n === undefined) shown[name] = value;
    else if (part === "sum") shown[base] = n ? value / n : null;
    else if (part === "m2") shown[base] = n > 1 ? value / (n - 1) : null;
  }
  return shown;
}
