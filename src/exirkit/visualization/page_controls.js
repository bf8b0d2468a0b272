// The page: what is chosen, and what mouse, keyboard and fields do to it.
const element = (id) => document.getElementById(id);
const memoryMap = JSON.parse(element("memory-map").textContent);
const panels = memoryMap.methods.flatMap((method) => method.arenas.map((arena) => new Panel(method, arena)));
const canvas = element("plot");
const drawing = new Drawing(canvas);
const chosen = { view: null, hovered: null, selected: null, cursor: null, matching: new Set(), hiddenKinds: new Set() };
let drag = null;
let waiting = false;

function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (chosen.view) drawing.draw(chosen.view, chosen);
  });
}

function facts(list, entries) {
  list.replaceChildren(...entries.filter(([, text]) => text !== null && text !== undefined && text !== "").flatMap(([name, text]) => {
    const term = document.createElement("dt"), detail = document.createElement("dd");
    term.textContent = name;
    detail.textContent = text;
    return [term, detail];
  }));
}

function life(value) {
  return value.spans.map(([first, last]) => (first === last ? `${first}` : `${first} to ${last}`)).join(", ");
}

function valueFacts(value) {
  const readers = value.readers.length > 6 ? `${value.readers.slice(0, 6).join(", ")} ...` : value.readers.join(", ");
  return [
    ["name", value.name], ["type", value.type], ["kind", value.kind], ["operator", value.step?.text],
    ["source", value.step?.source], ["module", value.step?.module],
    ["bytes", `${exactBytes(value.nbytes)} (${shortBytes(value.nbytes)})`],
    ["place", `${exactBytes(value.offset)} to ${exactBytes(value.offset + value.nbytes)}`],
    ["needed", `${life(value)}`], ["read at", readers],
  ];
}

function showArena() {
  const { arena, method } = chosen.view.panel;
  facts(element("arena"), [
    ["size", `${exactBytes(arena.nbytes)} (${shortBytes(arena.nbytes)})`],
    ["live at most", exactBytes(arena.live_nbytes)],
    ["lower bound", exactBytes(arena.lower_bound)],
    ["waste", exactBytes(Math.max(arena.nbytes - arena.lower_bound, 0))],
    ["limit", arena.limit === null ? null : exactBytes(arena.limit)],
    ["without reuse", exactBytes(arena.total_nbytes)],
    ["fullest at", `${arena.at}: ${method.steps[arena.at]?.text ?? "no instruction"}`],
    ["values", String(chosen.view.panel.values.length)],
  ]);
}

function showValue() {
  const value = chosen.selected ?? chosen.hovered;
  element("hint").hidden = Boolean(value);
  facts(element("value"), value ? valueFacts(value) : []);
}

function showStep(step) {
  const panel = chosen.view.panel;
  const live = panel.liveAt(step), sum = live.reduce((total, value) => total + value.nbytes, 0);
  element("atstep").textContent = `live at ${step}: ${shortBytes(sum)} in ${live.length}`;
  element("live").replaceChildren(...live.slice(0, 40).map((value) => {
    const item = document.createElement("li"), button = document.createElement("button");
    for (const [name, text] of [["name", value.name], ["size", shortBytes(value.nbytes)]]) {
      const part = document.createElement("span");
      part.className = name;
      part.textContent = text;
      button.append(part);
    }
    button.addEventListener("click", () => select(value));
    item.append(button);
    return item;
  }));
}

function select(value) {
  chosen.selected = value;
  if (value) {
    chosen.view.show(value, false);
    element("spoken").textContent = valueFacts(value).filter(([, text]) => text).map((pair) => pair.join(" ")).join(", ");
    showStep(value.spans[0][0]);
  }
  showValue();
  redraw();
}

function tell(value, x, y) {
  const tip = element("tip");
  tip.hidden = !value;
  if (!value) return;
  const name = document.createElement("b");
  name.textContent = value.name;
  const lines = [
    value.type, value.step?.text, value.step?.source, value.step?.module && `module ${value.step.module}`,
    `${exactBytes(value.nbytes)} bytes at ${exactBytes(value.offset)}`, `${value.kind}, needed from ${life(value)}`,
  ].filter(Boolean).map((text) => {
    const line = document.createElement("small");
    line.textContent = text;
    return line;
  });
  tip.replaceChildren(name, ...lines);
  const stage = element("stage").getBoundingClientRect();
  tip.style.left = `${Math.max(Math.min(x + 14, stage.width - tip.offsetWidth - 6), 0)}px`;
  tip.style.top = `${y + 18 + tip.offsetHeight > stage.height ? Math.max(y - tip.offsetHeight - 10, 0) : y + 18}px`;
}

function filter() {
  const words = element("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const { values } = chosen.view.panel;
  chosen.matching = new Set(values.filter(
    (value) => !chosen.hiddenKinds.has(value.kind) && words.every((word) => value.words.includes(word)),
  ));
  const all = chosen.matching.size === values.length;
  element("matches").textContent = all ? `${values.length} values` : `${chosen.matching.size} of ${values.length}`;
  redraw();
}

function openPanel(index) {
  if (!panels.length) return;
  chosen.view = new View(panels[index]);
  chosen.hovered = chosen.selected = chosen.cursor = null;
  tell(null);
  showArena();
  showValue();
  showStep(panels[index].arena.at);
  filter();
}

function walk(by) {
  const values = chosen.view.panel.byTime.filter((value) => chosen.matching.has(value));
  if (!values.length) return;
  const at = values.indexOf(chosen.selected);
  select(values[at < 0 ? (by > 0 ? 0 : values.length - 1) : (at + by + values.length) % values.length]);
}

function goToPeak() {
  const { panel } = chosen.view, wide = Math.max(Math.min(panel.steps, 24), 2);
  [chosen.view.x0, chosen.view.x1] = [panel.arena.at + 0.5 - wide / 2, panel.arena.at + 0.5 + wide / 2];
  [chosen.view.y0, chosen.view.y1] = [0, panel.height * 1.02];
  chosen.view.keepInside();
  showStep(panel.arena.at);
  redraw();
}

function zoomMiddle(factor) {
  const { view } = chosen;
  view.zoom(factor, (view.x0 + view.x1) / 2, (view.y0 + view.y1) / 2);
  redraw();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  drawing.readColours();
  redraw();
}

function letGo() {
  element("filter").value = "";
  select(null);
  filter();
}

const moved = (x, y) => () => {
  const { view } = chosen;
  view.move((view.x1 - view.x0) * x, (view.y1 - view.y0) * y);
  redraw();
};
const KEYS = {
  ArrowLeft: moved(-0.12, 0), ArrowRight: moved(0.12, 0), ArrowUp: moved(0, 0.12), ArrowDown: moved(0, -0.12),
  "+": () => zoomMiddle(0.7), "=": () => zoomMiddle(0.7), "-": () => zoomMiddle(1 / 0.7),
  0: () => { chosen.view.whole(); redraw(); },
  n: () => walk(1), p: () => walk(-1), m: goToPeak,
  Enter: () => { if (chosen.selected) { chosen.view.show(chosen.selected, true); redraw(); } },
  Escape: letGo,
};

document.addEventListener("keydown", (event) => {
  if (!chosen.view || event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input, select");
  if (event.key === "Escape" && typing) { letGo(); canvas.focus(); return; }
  if (typing || (event.target.matches("button") && event.key === "Enter")) return;
  if (event.key === "/") { event.preventDefault(); element("filter").focus(); return; }
  if (event.key === "t") { element("theme").click(); return; }
  const deed = KEYS[event.key];
  if (deed) { event.preventDefault(); deed(); }
});

canvas.addEventListener("pointermove", (event) => {
  if (!chosen.view) return;
  const { offsetX: x, offsetY: y } = event, { view } = chosen;
  if (drag) {
    drag.far = drag.far || Math.hypot(x - drag.startX, y - drag.startY) > 4;
    view.move((drag.x - x) / drawing.width * (view.x1 - view.x0), (y - drag.y) / drawing.height * (view.y1 - view.y0));
    [drag.x, drag.y] = [x, y];
    tell(null);
    redraw();
    return;
  }
  const value = drawing.hit(view, x, y), step = Math.floor(drawing.step(view, x));
  const inside = x >= MARGIN.left && step >= 0 && step < view.panel.steps;
  if (inside && step !== chosen.cursor && !chosen.selected) showStep(step);
  [chosen.hovered, chosen.cursor] = [value, inside ? step : null];
  tell(value, x, y);
  if (!chosen.selected) showValue();
  redraw();
});
canvas.addEventListener("pointerleave", () => { chosen.hovered = chosen.cursor = null; tell(null); redraw(); });
canvas.addEventListener("pointerdown", (event) => {
  drag = { x: event.offsetX, y: event.offsetY, startX: event.offsetX, startY: event.offsetY, far: false };
  canvas.setPointerCapture(event.pointerId);
  canvas.classList.add("dragged");
});
canvas.addEventListener("pointerup", (event) => {
  const clicked = drag && !drag.far;
  drag = null;
  canvas.classList.remove("dragged");
  if (clicked && chosen.view) select(drawing.hit(chosen.view, event.offsetX, event.offsetY));
});
canvas.addEventListener("pointercancel", () => { drag = null; canvas.classList.remove("dragged"); });
canvas.addEventListener("wheel", (event) => {
  if (!chosen.view) return;
  event.preventDefault();
  const factor = Math.exp(Math.max(Math.min(event.deltaY || event.deltaX, 240), -240) / 400), { view } = chosen;
  view.zoom(factor, drawing.step(view, event.offsetX), drawing.byte(view, event.offsetY), !event.altKey, !event.shiftKey);
  redraw();
}, { passive: false });
canvas.addEventListener("dblclick", (event) => {
  if (!chosen.view) return;
  chosen.view.zoom(0.5, drawing.step(chosen.view, event.offsetX), drawing.byte(chosen.view, event.offsetY));
  redraw();
});

element("filter").addEventListener("input", () => { if (chosen.view) filter(); });
element("panel").addEventListener("change", (event) => openPanel(Number(event.target.value)));
element("nearer").addEventListener("click", () => KEYS["+"]());
element("farther").addEventListener("click", () => KEYS["-"]());
element("whole").addEventListener("click", () => KEYS[0]());
element("peak").addEventListener("click", goToPeak);
element("theme").addEventListener("click", () => {
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});

for (const kind of ["input", "activation", "output", "state"]) {
  const label = document.createElement("label"), box = document.createElement("input"), patch = document.createElement("i");
  box.type = "checkbox";
  box.checked = true;
  patch.style.background = `var(--${kind})`;
  box.addEventListener("change", () => {
    chosen.hiddenKinds[box.checked ? "delete" : "add"](kind);
    if (chosen.view) filter();
  });
  label.append(box, " ", patch, kind);
  element("kinds").append(label);
}
panels.forEach((panel, index) => {
  const name = `${panel.method.name}, arena ${panel.arena.number}: ${shortBytes(panel.arena.nbytes)}`;
  element("panel").append(new Option(name, String(index)));
});
new ResizeObserver(() => { drawing.fit(); redraw(); }).observe(canvas);
setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
drawing.fit();
openPanel(0);
if (!panels.length) element("hint").textContent = "This program plans no memory.";
