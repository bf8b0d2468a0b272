// The memory plan: arenas over time, each value where it lies while it is needed.

const KIND_COLOURS = { activation: "--activation", input: "--input", output: "--output", state: "--state" };

class MemoryTab {
  constructor(selection) {
    this.selection = selection;
    this.place = byId("view-memory");
    this.arena = 0;
    this.span = null;
    selection.listen((state) => { if (state.tab === "memory") { this.update(); } });
    addEventListener("resize", () => { if (selection.state.tab === "memory") { this.draw(); } });
  }

  update() {
    const memory = this.selection.method.memory;
    if (!memory || !memory.arenas.length) { fill(this.place, element("p", { class: "dim" }, "No memory is planned.")); this.method = null; return; }
    if (this.method !== this.selection.method) {
      this.method = this.selection.method;
      this.arena = 0;
      this.whole();
      this.build(memory);
    }
    this.draw();
  }

  build(memory) {
    const choice = element("select", { onchange: (event) => { this.arena = Number(event.target.value); this.whole(); this.draw(); } },
      memory.arenas.map((arena, at) => element("option", { value: at }, `arena ${arena.number}`)));
    this.facts = element("span", { class: "dim", id: "arenafacts" });
    this.canvas = element("canvas", { id: "memory", tabindex: 0, "aria-label": "arena over time" });
    this.tip = element("div", { id: "tip", hidden: true });
    fill(this.place, element("div", { class: "bar" }, choice, this.facts,
      element("button", { onclick: () => { this.whole(); this.draw(); } }, "whole"),
      Object.entries(KIND_COLOURS).map(([kind, colour]) => element("span", {}, element("span", { style: `color:var(${colour})` }, "\u25A0 "), kind))),
    element("div", { id: "memoryplot" }, this.canvas, this.tip));
    this.canvas.addEventListener("mousemove", (event) => this.hover(event));
    this.canvas.addEventListener("mouseleave", () => { this.tip.hidden = true; });
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.canvas.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(event); }, { passive: false });
  }

  whole() { this.span = [0, Math.max(this.method.memory.steps.length, 1)]; }

  current() {
    const { arenas, values } = this.method.memory, arena = arenas[this.arena];
    return { arena, values: values.filter((value) => value[3] === arena.number) };
  }

  zoom(event) {
    const box = this.canvas.getBoundingClientRect(), [first, last] = this.span, total = Math.max(this.method.memory.steps.length, 1);
    const at = first + ((event.clientX - box.left - 60) / (box.width - 70)) * (last - first);
    const factor = event.deltaY > 0 ? 1.25 : 0.8;
    this.span = [Math.max(at - (at - first) * factor, 0), Math.min(at + (last - at) * factor, total)];
    if (this.span[1] - this.span[0] < 2) { this.span[1] = this.span[0] + 2; }
    this.draw();
  }

  draw() {
    const { arena, values } = this.current(), canvas = this.canvas, scale = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !height) { return; }
    canvas.width = width * scale; canvas.height = height * scale;
    const paint = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
    paint.scale(scale, scale);
    const colour = (name) => style.getPropertyValue(name).trim();
    const [left, right, top, bottom] = [60, 10, 10, 26];
    const [first, last] = this.span, high = Math.max(arena.nbytes, 1);
    this.x = (step) => left + ((step - first) / (last - first)) * (width - left - right);
    this.y = (byte) => height - bottom - (byte / high) * (height - top - bottom);
    paint.fillStyle = colour("--panel");
    paint.fillRect(left, top, width - left - right, height - top - bottom);
    const chosen = this.chosenName();
    for (const value of values) {
      const [name, , kind, , offset, nbytes, spans] = value;
      for (let at = 0; at < spans.length; at += 2) {
        const [x, end] = [Math.max(this.x(spans[at]), left), Math.min(this.x(spans[at + 1] + 1), width - right)];
        if (end <= left || x >= width - right) { continue; }
        paint.fillStyle = colour(KIND_COLOURS[kind] ?? "--activation");
        const [y, below] = [this.y(offset + nbytes), this.y(offset)];
        paint.fillRect(x, y, Math.max(end - x - 0.5, 0.6), Math.max(below - y - 0.5, 0.6));
        if (chosen !== null && name.replace(/\[\d+\]$/, "") === chosen) {
          paint.strokeStyle = colour("--removed-ink"); paint.lineWidth = 2;
          paint.strokeRect(x, y, Math.max(end - x, 2), Math.max(below - y, 2));
        } else if (end - x > 46 && below - y > 12) {
          paint.fillStyle = "#10151f"; paint.font = "11px system-ui";
          paint.fillText(name, x + 3, Math.min(y + 12, below - 2), end - x - 5);
        }
      }
    }
    paint.fillStyle = colour("--dim"); paint.font = "11px system-ui"; paint.textAlign = "right";
    for (let part = 0; part <= 4; part += 1) { paint.fillText(shortBytes((high * part) / 4), left - 4, this.y((high * part) / 4) + 4); }
    paint.textAlign = "center";
    for (let part = 0; part <= 8; part += 1) {
      const step = Math.round(first + ((last - first) * part) / 8);
      paint.fillText(String(step), this.x(step), height - 8);
    }
    this.facts.textContent = `${grouped(arena.nbytes)} bytes, most needed ${grouped(arena.live_nbytes)} at instruction ${arena.at}; `
      + `without reuse ${grouped(arena.total_nbytes)}; ${plural(values.length, "value")}`;
  }

  chosenName() {
    const { state, method, report } = this.selection;
    const row = state.node === null ? -1 : method.rowOf(method.stages.length - 1, state.node);
    return row < 0 ? null : report.text(row, "name");
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect(), [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return this.current().values.find(([, , , , offset, nbytes, spans]) => {
      if (y > this.y(offset) || y < this.y(offset + nbytes)) { return false; }
      for (let at = 0; at < spans.length; at += 2) { if (x >= this.x(spans[at]) && x <= this.x(spans[at + 1] + 1)) { return true; } }
      return false;
    }) ?? null;
  }

  hover(event) {
    const value = this.under(event);
    this.tip.hidden = value === null;
    if (value === null) { return; }
    const [name, type, kind, , offset, nbytes, spans, producer] = value;
    const step = producer === null ? null : this.method.memory.steps[producer];
    fill(this.tip, element("b", {}, name), element("div", {}, `${type}, ${kind}, ${grouped(nbytes)} bytes at ${grouped(offset)}`),
      element("div", { class: "dim" }, `instructions ${spans[0]} to ${spans[spans.length - 1]}`),
      step ? element("div", { class: "dim" }, `${step[0]}${step[2] ? ` in ${step[2]}` : ""}`) : null);
    const box = this.canvas.getBoundingClientRect();
    this.tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 260)}px`;
    this.tip.style.top = `${Math.min(event.clientY - box.top + 14, box.height - 90)}px`;
  }

  click(event) {
    const value = this.under(event);
    if (value === null) { return; }
    const last = this.method.stages.length - 1;
    const row = this.method.rowNamed(last, 0, value[0].replace(/\[\d+\]$/, ""));
    if (row >= 0) { this.selection.set({ node: this.selection.report.rows.entity[row], stage: last, from: null }); }
  }
}
