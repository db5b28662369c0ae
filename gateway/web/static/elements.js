// Elements and rows of tables. Text stays text, never markup.

import { set } from "/graph.js";

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// `rows`: of [text, class] per cell.
export function fill(body, rows) {
  rows.forEach((row, at) => {
    const line = body.rows[at] ?? body.insertRow();
    row.forEach(([text, cls], column) => {
      const td = line.cells[column] ?? line.insertCell();
      if (td.className !== cls) td.className = cls;
      set(td, text);
    });
    while (line.cells.length > row.length) line.deleteCell(-1);
  });
  while (body.rows.length > rows.length) body.deleteRow(-1);
}
