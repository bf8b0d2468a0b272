"use strict";

// What is shown of one arena: which steps and bytes, and where they are on the canvas.
const MARGIN = { left: 78, right: 14, top: 14, bottom: 96 };
const LIVE_HEIGHT = 56;
const SHADES = [0, 0.22, -0.16];
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

function shortBytes(nbytes) {
  let unit = 0;
  while (nbytes >= 1024 && unit < UNITS.length - 1) { nbytes /= 1024; unit += 1; }
  return `${Number(nbytes.toFixed(unit ? 1 : 0))} ${UNITS[unit]}`;
}

function exactBytes(nbytes) {
  return nbytes.toLocaleString("en-US");
}

// One arena of one method, with what drawing and filtering ask for often.
class Panel {
  constructor(method, arena) {
    this.method = method;
    this.arena = arena;
    this.steps = Math.max(method.steps.length, 1);
    this.height = Math.max(arena.nbytes, arena.limit ?? 0, 1);
    this.values = method.values.filter((value) => value.arena === arena.number);
    for (const value of this.values) {
      const step = value.producer === null ? null : method.steps[value.producer];
      value.step = step;
      value.length = value.spans[value.spans.length - 1][1] - value.spans[0][0];
      value.words = [value.name, value.type, value.kind, step?.text, step?.source, step?.module]
        .filter(Boolean).join(" ").toLowerCase();
    }
    // Long lives behind short ones: where values share bytes, the one that took the place over is to be seen.
    this.drawn = [...this.values].sort((a, b) => b.length - a.length || a.value - b.value);
    this.byTime = [...this.values].sort((a, b) => a.spans[0][0] - b.spans[0][0] || a.offset - b.offset);
    this.live = this.liveBytes();
  }

  liveBytes() {
    const changes = new Float64Array(this.steps + 1);
    for (const value of this.values) {
      for (const [first, last] of value.spans) { changes[first] += value.nbytes; changes[last + 1] -= value.nbytes; }
    }
    let sum = 0;
    return Array.from(changes.subarray(0, this.steps), (change) => (sum += change));
  }

  liveAt(step) {
    return this.values.filter((value) => value.spans.some(([first, last]) => first <= step && step <= last))
      .sort((a, b) => b.nbytes - a.nbytes || a.offset - b.offset);
  }
}

// The part of a panel that is in view; x in steps, y in bytes.
class View {
  constructor(panel) {
    this.panel = panel;
    this.whole();
  }

  whole() {
    [this.x0, this.x1, this.y0, this.y1] = [0, this.panel.steps, 0, this.panel.height * 1.02];
  }

  zoom(factor, x, y, alongX = true, alongY = true) {
    if (alongX) { this.x0 = x - (x - this.x0) * factor; this.x1 = x + (this.x1 - x) * factor; }
    if (alongY) { this.y0 = y - (y - this.y0) * factor; this.y1 = y + (this.y1 - y) * factor; }
    this.keepInside();
  }

  move(steps, nbytes) {
    this.x0 += steps; this.x1 += steps; this.y0 += nbytes; this.y1 += nbytes;
    this.keepInside();
  }

  show(value, tight) {
    const first = value.spans[0][0], last = value.spans[value.spans.length - 1][1] + 1;
    const wide = Math.max((last - first) * 1.6, 8), high = value.nbytes * 2.2;
    const top = value.offset + value.nbytes;
    const seen = first >= this.x0 && last <= this.x1 && value.offset >= this.y0 && top <= this.y1;
    if (tight || !seen) {
      const x = (first + last) / 2, y = value.offset + value.nbytes / 2;
      const w = tight ? wide : Math.max(wide, this.x1 - this.x0), h = tight ? high : Math.max(high, this.y1 - this.y0);
      [this.x0, this.x1, this.y0, this.y1] = [x - w / 2, x + w / 2, y - h / 2, y + h / 2];
      this.keepInside();
    }
  }

  keepInside() {
    [this.x0, this.x1] = held(this.x0, this.x1, this.panel.steps, 2);
    [this.y0, this.y1] = held(this.y0, this.y1, this.panel.height * 1.02, 16);
  }
}

// Keep a range within 0 and the end, neither wider than that nor narrower than the least.
function held(low, high, end, least) {
  const wide = Math.min(Math.max(high - low, Math.min(least, end)), end);
  const start = Math.min(Math.max((low + high - wide) / 2, 0), end - wide);
  return [start, start + wide];
}

function marks(low, high, most, binary) {
  const factors = binary ? [2] : [2, 2.5, 2];
  let step = 1;
  for (let index = 0; (high - low) / step > most; index += 1) step *= factors[index % factors.length];
  const found = [];
  for (let mark = Math.ceil(low / step) * step; mark <= high; mark += step) found.push(mark);
  return found;
}

function shaded(colour, by) {
  const parts = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const to = by > 0 ? 255 : 0;
  return `rgb(${parts.map((part) => Math.round(part + (to - part) * Math.abs(by))).join(" ")})`;
}

class Drawing {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.readColours();
  }

  readColours() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(`--${name}`).trim();
    this.colours = Object.fromEntries(["ink", "dim", "line", "panel", "mark", "label", "live", "edge"].map((name) => [name, colour(name)]));
    this.fills = Object.fromEntries(
      ["activation", "input", "output", "state"].map((kind) => [kind, SHADES.map((by) => shaded(colour(kind), by))]),
    );
  }

  fit() {
    const ratio = window.devicePixelRatio || 1;
    const { width, height } = this.canvas.getBoundingClientRect();
    this.canvas.width = Math.max(Math.round(width * ratio), 1);
    this.canvas.height = Math.max(Math.round(height * ratio), 1);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.width = Math.max(width - MARGIN.left - MARGIN.right, 1);
    this.height = Math.max(height - MARGIN.top - MARGIN.bottom, 1);
  }

  x(view, step) { return MARGIN.left + (step - view.x0) / (view.x1 - view.x0) * this.width; }
  y(view, byte) { return MARGIN.top + (view.y1 - byte) / (view.y1 - view.y0) * this.height; }
  step(view, x) { return view.x0 + (x - MARGIN.left) / this.width * (view.x1 - view.x0); }
  byte(view, y) { return view.y1 - (y - MARGIN.top) / this.height * (view.y1 - view.y0); }

  draw(view, { matching, hovered, selected, cursor }) {
    const { context, colours } = this;
    const panel = view.panel;
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colours.panel;
    context.fillRect(MARGIN.left, MARGIN.top, this.width, this.height);
    this.axes(view);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, MARGIN.top, this.width, this.height);
    context.clip();
    for (const value of panel.drawn) this.rectangle(view, value, matching.has(value));
    for (const value of panel.drawn) if (matching.has(value)) this.label(view, value);
    this.levels(view);
    for (const value of [hovered, selected]) if (value) this.outline(view, value, value === selected);
    context.restore();
    this.profile(view, cursor);
    this.canvas.dataset.view = JSON.stringify([view.x0, view.x1, view.y0, view.y1]);
  }

  spans(view, value, draw) {
    const top = this.y(view, value.offset + value.nbytes), bottom = this.y(view, value.offset);
    if (bottom < MARGIN.top || top > MARGIN.top + this.height) return;
    for (const [first, last] of value.spans) {
      if (last + 1 < view.x0 || first > view.x1) continue;
      const left = this.x(view, first);
      draw(left, top, Math.max(this.x(view, last + 1) - left, 1), Math.max(bottom - top, 1));
    }
  }

  rectangle(view, value, matches) {
    const { context } = this;
    context.globalAlpha = matches ? 1 : 0.13;
    context.fillStyle = this.fills[value.kind][value.value % SHADES.length];
    context.strokeStyle = this.colours.edge;
    this.spans(view, value, (left, top, width, height) => {
      context.fillRect(left, top, width, height);
      if (width > 3 && height > 3) context.strokeRect(left, top, width, height);
    });
    context.globalAlpha = 1;
  }

  label(view, value) {
    const { context } = this;
    this.spans(view, value, (left, top, width, height) => {
      const from = Math.max(left, MARGIN.left), wide = Math.min(left + width, MARGIN.left + this.width) - from - 8;
      const size = shortBytes(value.nbytes), name = this.fitting(value.name, wide);
      if (!name || height < 13) return;
      const upper = Math.max(top, MARGIN.top), lower = Math.min(top + height, MARGIN.top + this.height);
      if (lower - upper < 13) return;
      context.fillStyle = this.colours.label;
      context.fillText(name, from + 4, (upper + lower) / 2 + 4);
      if (lower - upper > 30 && this.fitting(size, wide) === size) context.fillText(size, from + 4, (upper + lower) / 2 + 17);
    });
  }

  // As much of a name as there is room for; nothing if that says nothing.
  fitting(name, room) {
    if (room < 24) return "";
    const width = this.context.measureText(name).width;
    if (width <= room) return name;
    const letters = Math.floor(name.length * room / width) - 1;
    return letters < 3 ? "" : `${name.slice(0, letters)}…`;
  }

  outline(view, value, strong) {
    const { context } = this;
    context.strokeStyle = this.colours.ink;
    context.lineWidth = strong ? 2.5 : 1.5;
    this.spans(view, value, (left, top, width, height) => context.strokeRect(left, top, width, height));
    context.lineWidth = 1;
  }

  line(x0, y0, x1, y1, colour, dash) {
    const { context } = this;
    context.strokeStyle = colour;
    context.setLineDash(dash ?? []);
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
    context.setLineDash([]);
  }

  axes(view) {
    const { context, colours } = this;
    const right = MARGIN.left + this.width, foot = MARGIN.top + this.height + LIVE_HEIGHT;
    context.fillStyle = colours.dim;
    context.textAlign = "right";
    for (const mark of marks(view.y0, view.y1, this.height / 60, true)) {
      this.line(MARGIN.left, this.y(view, mark), right, this.y(view, mark), colours.line);
      context.fillText(shortBytes(mark), MARGIN.left - 8, this.y(view, mark) + 4);
    }
    context.fillText("live", MARGIN.left - 8, foot - 4);
    context.fillText("instruction", MARGIN.left - 8, foot + 20);
    context.textAlign = "center";
    for (const mark of marks(view.x0, view.x1, this.width / 70)) context.fillText(String(mark), this.x(view, mark), foot + 20);
    context.textAlign = "left";
  }

  // The lower bound, the instruction that needs most, and the limit.
  levels(view) {
    const { arena } = view.panel;
    const right = MARGIN.left + this.width, bottom = MARGIN.top + this.height;
    const level = (nbytes, colour, text) => {
      const y = this.y(view, nbytes);
      this.line(MARGIN.left, y, right, y, colour, [5, 4]);
      this.context.fillStyle = colour;
      this.context.textAlign = "right";
      this.context.fillText(text, right - 6, y + (y < MARGIN.top + 16 ? 13 : -4));
      this.context.textAlign = "left";
    };
    level(arena.lower_bound, this.colours.mark, `bound ${shortBytes(arena.lower_bound)}`);
    if (arena.limit !== null) level(arena.limit, this.colours.ink, `limit ${shortBytes(arena.limit)}`);
    const x = this.x(view, arena.at + 0.5);
    this.line(x, MARGIN.top, x, bottom, this.colours.mark, [5, 4]);
  }

  profile(view, cursor) {
    const { context, colours } = this;
    const top = MARGIN.top + this.height + 6, base = MARGIN.top + this.height + LIVE_HEIGHT;
    const live = view.panel.live, most = Math.max(...live, 1);
    context.fillStyle = colours.live;
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, top, this.width, base - top);
    context.clip();
    const last = Math.min(Math.ceil(view.x1), live.length);
    for (let step = Math.max(Math.floor(view.x0), 0); step < last; step += 1) {
      const left = this.x(view, step), high = (base - top) * live[step] / most;
      context.fillRect(left, base - high, this.x(view, step + 1) - left + 0.6, high);
    }
    context.restore();
    if (cursor !== null) {
      const x = this.x(view, cursor + 0.5);
      this.line(x, MARGIN.top, x, base, colours.dim, [2, 3]);
    }
  }

  // The value in front at a place of the canvas.
  hit(view, x, y) {
    const step = Math.floor(this.step(view, x)), byte = this.byte(view, y);
    if (x < MARGIN.left || x > MARGIN.left + this.width || y < MARGIN.top || y > MARGIN.top + this.height) return null;
    return view.panel.drawn.findLast((value) => byte >= value.offset && byte < value.offset + value.nbytes
      && value.spans.some(([first, last]) => first <= step && step <= last)) ?? null;
  }
}
