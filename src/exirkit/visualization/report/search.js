// Search in everything: nodes of this stage and of others, rules, modules, stages, lines of the model.
// `module:PATH` and `line:FILE:NUMBER` search nodes of one module or line.

class Finder {
  constructor(selection, view) {
    this.selection = selection;
    this.view = view;
    this.input = byId("search");
    this.list = byId("found");
    this.actions = [];
    this.at = 0;
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("focus", () => { if (this.input.value) { this.search(); } });
    this.input.addEventListener("keydown", (event) => this.key(event));
    document.addEventListener("mousedown", (event) => { if (!event.target.closest(".search")) { this.close(); } });
  }

  show(text) { this.input.value = text; this.input.focus(); this.search(); }

  close() { this.list.hidden = true; this.input.setAttribute("aria-expanded", "false"); }

  clear() { this.input.value = ""; this.search(); this.close(); this.input.blur(); }

  // Return a function: whether a row is searched.
  test(text) {
    const { report } = this.selection, rows = report.rows;
    const line = /^line:(.*):(\d+)$/.exec(text), module = /^module:(\S*)$/.exec(text);
    if (line) { return (row) => { const one = report.place(row); return one !== null && one[0] === line[1] && one[1] === Number(line[2]); }; }
    if (module) { return (row) => { const one = report.module(row); return one !== null && `${one[0]}.`.startsWith(module[1] ? `${module[1]}.` : "."); }; }
    const words = text.toLowerCase().split(/\s+/).filter(Boolean).map((word) => ({
      texts: report.having(word.replace(/^%/, "")),
      modules: Uint8Array.from(report.raw.modules, (one) => Number(one.join(" ").toLowerCase().includes(word))),
      places: Uint8Array.from(report.raw.places, (one) => Number(one.join(" ").toLowerCase().includes(word))),
    }));
    return (row) => words.every(({ texts, modules, places }) => texts[rows.name[row]] || texts[rows.verb[row]] || texts[rows.args[row]]
      || texts[rows.type[row]] || (rows.module[row] >= 0 && modules[rows.module[row]]) || (rows.source[row] >= 0 && places[rows.source[row]]));
  }

  // Rows whose name is searched come first, then those with such an operator.
  ranked(rows, text) {
    const { report } = this.selection, word = text.toLowerCase().replace(/^%/, "");
    const rank = (row) => {
      const name = report.text(row, "name").toLowerCase();
      if (name.includes(word)) { return name === word ? 0 : 1; }
      return report.text(row, "verb").toLowerCase().includes(word) ? 2 : 3;
    };
    return rows.map((row, at) => [rank(row), at, row]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((one) => one[2]);
  }

  search() {
    const text = this.input.value.trim(), { method, report, stage } = this.selection;
    this.actions = [];
    if (!text) { this.view.hits = null; this.view.draw(); this.close(); return; }
    const test = this.test(text), entity = report.rows.entity, items = [];
    const here = this.ranked(Array.from(method.rowsOf(stage)).filter(test), text);
    this.view.hits = new Set(here);
    const seen = new Set(here.map((row) => entity[row])), elsewhere = [];
    method.stages.forEach((one, at) => {
      if (at === stage || !(at === 0 || one.counts.some(Boolean))) { return; }
      for (const row of method.rowsOf(at)) {
        if (!seen.has(entity[row]) && test(row)) { seen.add(entity[row]); elsewhere.push([at, row]); }
      }
    });
    const special = /^(module|line):/.test(text), word = text.toLowerCase();
    const add = (title, count, entries) => {
      if (!entries.length) { return; }
      items.push(element("li", { class: "head" }, `${title} (${grouped(count)})`));
      for (const [label, note, action] of entries) {
        const number = this.actions.push(action) - 1;
        items.push(element("li", { role: "option", "data-at": number, onmousedown: (event) => { event.preventDefault(); this.run(number); } }, label, element("small", {}, note)));
      }
    };
    if (!special) {
      const rules = Object.entries(report.raw.rules).filter(([name, one]) => name.toLowerCase().includes(word) || one.doc.toLowerCase().includes(word));
      add("rules", rules.length, rules.slice(0, 8).map(([name, one]) => [name, one.doc, () => this.selection.set({ tab: "rules", rule: name })]));
      const stages = method.stages.map((one, at) => [one, at]).filter(([one]) => one.name.toLowerCase().includes(word));
      add("stages", stages.length, stages.slice(0, 8).map(([one, at]) => [`${one.number} ${one.name}`, baseName(one.pipeline), () => this.selection.set({ stage: at, from: null, tab: "program" })]));
    }
    add("nodes of this stage", here.length, here.slice(0, 100).map((row) => [report.line(row).slice(0, 160), report.module(row)?.[0] ?? "", () => this.selection.node(entity[row], stage)]));
    add("nodes of other stages", elsewhere.length, elsewhere.slice(0, 50).map(([at, row]) => [report.line(row).slice(0, 160), method.stages[at].name, () => this.selection.node(entity[row], at)]));
    if (!special) {
      const modules = report.raw.modules.filter((one) => one.join(" ").toLowerCase().includes(word));
      add("modules", modules.length, modules.slice(0, 12).map((one) => [one[0] || "the model", one[1], () => this.show(`module:${one[0]}`)]));
      const places = report.raw.places.filter((one) => one.join(" ").toLowerCase().includes(word));
      add("source", places.length, places.slice(0, 12).map((one) => [one[3], `${baseName(one[0])}:${one[1]}`, () => this.selection.set({ tab: "source", file: one[0], line: one[1] })]));
    }
    fill(this.list, items.length ? items : element("li", { class: "head" }, "nothing found"));
    this.list.hidden = false;
    this.input.setAttribute("aria-expanded", "true");
    byId("spoken").textContent = `${here.length} nodes of this stage`;
    this.mark(0);
    this.view.draw();
  }

  mark(at) {
    this.at = Math.min(Math.max(at, 0), this.actions.length - 1);
    for (const item of this.list.children) { item.setAttribute("aria-selected", item.dataset.at === String(this.at) ? "true" : "false"); }
    this.list.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  }

  run(at) { this.close(); this.input.blur(); this.actions[at]?.(); }

  key(event) {
    if (event.key === "ArrowDown") { event.preventDefault(); this.mark(this.at + 1); }
    else if (event.key === "ArrowUp") { event.preventDefault(); this.mark(this.at - 1); }
    else if (event.key === "Enter") { this.run(this.at); }
    else if (event.key === "Escape") { event.stopPropagation(); this.clear(); }
  }
}
