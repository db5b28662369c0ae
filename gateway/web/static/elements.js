// Elements and rows of tables. Text stays text, never markup.

import { DASH } from "/format.js";
import { set } from "/graph.js";

const SVG = "http://www.w3.org/2000/svg";

export function make(tag, attributes = {}, ...children) {
  return finish(document.createElement(tag), attributes, children);
}

export function makeSvg(tag, attributes = {}, ...children) {
  return finish(document.createElementNS(SVG, tag), attributes, children);
}

function finish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const heads = (columns, isNumber) =>
  columns.map((column, at) => make("th", { scope: "col", class: isNumber(column, at) ? "number" : "" }, column));

// `rows`: of [text, class] per cell. Each cell knows its column's name, which a phone shows beside the value.
export function fill(body, rows) {
  const names = [...body.parentElement.tHead.rows[0].cells].map((head) => head.textContent);
  rows.forEach((row, at) => {
    const line = body.rows[at] ?? body.insertRow();
    row.forEach(([text, cls], column) => {
      const td = line.cells[column] ?? line.insertCell();
      const look = text === DASH ? `${cls} none` : cls;
      if (td.className !== look) td.className = look;
      if (td.dataset.label !== names[column]) td.dataset.label = names[column];
      set(td, text);
    });
    while (line.cells.length > row.length) line.deleteCell(-1);
  });
  while (body.rows.length > rows.length) body.deleteRow(-1);
}

export const many = (text, n, ending = "s") => `${text}${n === 1 ? "" : ending}`;

// Level of a part -> class of what shows it.
export const LOOK = { good: "good", idle: "", warning: "warning", bad: "bad" };
