"use strict";

// Elements and numbers as text. Whatever comes from a program becomes text nodes only, never markup.

function element(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) { continue; }
    if (name === "class") { made.className = value; }
    else if (name.startsWith("on")) { made.addEventListener(name.slice(2), value); }
    else { made.setAttribute(name, value === true ? "" : value); }
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) { made.append(child); }
  }
  return made;
}

function byId(id) { return document.getElementById(id); }

function fill(place, ...children) {
  place.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
}

function linkTo(text, action, title) {
  return element("button", { class: "link", onclick: action, title }, text);
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

function shortBytes(nbytes) {
  let unit = 0;
  while (nbytes >= 1024 && unit < UNITS.length - 1) { nbytes /= 1024; unit += 1; }
  return `${Number(nbytes.toFixed(unit ? 1 : 0))} ${UNITS[unit]}`;
}

function grouped(number) { return number.toLocaleString("en-US"); }

function plural(count, noun) { return `${grouped(count)} ${noun}${count === 1 ? "" : "s"}`; }

function shortTime(nanoseconds) {
  if (nanoseconds < 1e3) { return `${Number(nanoseconds.toPrecision(3))} ns`; }
  if (nanoseconds < 1e6) { return `${Number((nanoseconds / 1e3).toPrecision(3))} \u00b5s`; }
  return `${Number((nanoseconds / 1e6).toPrecision(4))} ms`;
}

function shortNumber(number) { return number === 0 ? "0" : Number(number.toPrecision(4)).toString(); }

function baseName(path) { return path.slice(Math.max(path.lastIndexOf("/"), path.lastIndexOf("\\")) + 1); }

// A table that is sorted by a click on the head of a column. Columns: {name, value(row), show(row), number}.
function sortedTable(columns, rows, sorting) {
  let by = sorting ?? 0, falling = columns[by].number === true;
  const body = element("tbody");
  const draw = () => {
    const value = columns[by].value;
    const ordered = rows.map((row, at) => [row, at]).sort(([a, i], [b, j]) => {
      const [left, right] = [value(a), value(b)];
      const order = left < right ? -1 : left > right ? 1 : 0;
      return (falling ? -order : order) || i - j;
    });
    fill(body, ordered.slice(0, 1000).map(([row]) => element("tr", {}, columns.map((column) =>
      element("td", { class: column.number ? "num" : null }, (column.show ?? column.value)(row))))));
  };
  const head = element("tr", {}, columns.map((column, at) => element("th", {
    class: column.number ? "num" : null,
    onclick: () => { falling = by === at ? !falling : column.number === true; by = at; draw(); },
  }, column.name)));
  draw();
  return element("table", {}, element("thead", {}, head), body,
    rows.length > 1000 ? element("caption", {}, `the first 1,000 of ${grouped(rows.length)}`) : null);
}
