// The program of a stage as lines, with what changed marked. Only the lines in view are elements of the page.

const LINE_HEIGHT = 20;

class ProgramView {
  constructor(selection) {
    this.selection = selection;
    this.place = byId("lines");
    this.space = byId("space");
    this.bar = byId("programbar");
    this.lines = [];
    this.key = null;
    this.hits = null;
    this.place.addEventListener("scroll", () => this.draw());
    addEventListener("resize", () => this.draw());
    selection.listen((state) => this.update(state));
  }

  update(state) {
    const key = [state.method, state.stage, this.selection.from, state.changes].join(" ");
    if (key !== this.key) {
      this.key = key;
      this.lines = this.folded(mergedLines(this.selection.method, this.selection.from, state.stage), state.changes);
      this.space.style.height = `${this.lines.length * LINE_HEIGHT}px`;
      this.place.scrollTop = 0;
      this.drawBar(state);
      const first = this.lines.findIndex((line) => line.kind !== SAME && line.kind !== undefined);
      if (state.node === null && first > 3) { this.place.scrollTop = (first - 3) * LINE_HEIGHT; }
    }
    byId("sides").checked = state.beside;
    if (state.node !== this.revealed || state.stage !== this.revealedAt) {
      this.revealed = state.node;
      this.revealedAt = state.stage;
      this.reveal();
    }
    this.draw();
  }

  // With `changes`, lines far from any change are folded into one.
  folded(lines, changes) {
    if (!changes) { return lines; }
    const near = new Uint8Array(lines.length);
    lines.forEach((line, at) => {
      if (line.kind !== SAME) { near.fill(1, Math.max(at - 3, 0), Math.min(at + 4, lines.length)); }
    });
    const found = [];
    for (let at = 0; at < lines.length;) {
      if (near[at]) { found.push(lines[at]); at += 1; continue; }
      const start = at;
      while (at < lines.length && !near[at]) { at += 1; }
      found.push({ fold: at - start });
    }
    return found;
  }

  drawBar(state) {
    const method = this.selection.method, stage = method.stages[state.stage];
    const compared = element("select", {
      id: "compared", title: "compare with another stage",
      onchange: (event) => this.selection.set({ from: event.target.value === "" ? null : Number(event.target.value) }),
    }, element("option", { value: "" }, "the stage before"), element("option", { value: -1 }, "nothing"),
    method.stages.map((one, at) => (one.counts.some(Boolean) || at === 0) && at !== state.stage
      ? element("option", { value: at }, `${one.number} ${one.name}`.trim()) : null));
    compared.value = state.from === null ? "" : String(state.from);
    fill(this.bar,
      element("b", { id: "stagename" }, stage.name), element("span", { class: "dim" }, plural(stage.nodes, "node")),
      element("label", {}, "compared with ", compared),
      element("label", { title: "c" }, element("input", {
        id: "changes", type: "checkbox", checked: state.changes,
        onchange: (event) => this.selection.set({ changes: event.target.checked }),
      }), " changes only"),
      element("label", { title: "b" }, element("input", {
        id: "sides", type: "checkbox",
        onchange: (event) => this.selection.set({ beside: event.target.checked }),
      }), " side by side"),
      element("span", { class: "doc", title: stage.doc }, stage.doc), stage.place ? element("code", {}, stage.place) : null);
  }

  positionOf(entity) {
    const entities = this.selection.report.rows.entity;
    const is = (line) => line.row !== undefined && entities[line.row] === entity;
    const at = this.lines.findIndex((line) => is(line) && line.kind !== OLD && line.kind !== REMOVED);
    return at >= 0 ? at : this.lines.findIndex(is);
  }

  reveal() {
    if (this.selection.state.node === null) { return; }
    let at = this.positionOf(this.selection.state.node);
    if (at < 0) { return; }
    const [top, height] = [this.place.scrollTop, this.place.clientHeight];
    if (at * LINE_HEIGHT < top || (at + 1) * LINE_HEIGHT > top + height) {
      this.place.scrollTop = Math.max(at * LINE_HEIGHT - height / 3, 0);
    }
  }

  draw() {
    const first = Math.max(Math.floor(this.place.scrollTop / LINE_HEIGHT) - 10, 0);
    const last = Math.min(first + Math.ceil(this.place.clientHeight / LINE_HEIGHT) + 20, this.lines.length);
    const shown = [];
    for (let at = first; at < last; at += 1) { shown.push(this.line(this.lines[at], at)); }
    fill(this.space, shown);
  }

  line(line, at) {
    const style = `top:${at * LINE_HEIGHT}px`;
    if (line.fold) {
      return element("div", { class: "row gap", style, onclick: () => this.selection.set({ changes: false }) },
        `\u00b7\u00b7\u00b7 ${plural(line.fold, "line")} without changes \u00b7\u00b7\u00b7`);
    }
    const report = this.selection.report, { row, kind } = line, rows = report.rows;
    const entity = rows.entity[row], state = this.selection.state;
    const classes = ["row", KIND_NAMES[kind], entity === state.node ? "selected" : "", this.hits?.has(row) ? "hit" : ""];
    classes.push(report.partClass(entity));
    const place = report.place(row);
    return element("div", {
      class: classes.join(" "), style, "data-entity": entity, role: "option", "aria-selected": entity === state.node ? "true" : "false",
      title: place ? `${baseName(place[0])}:${place[1]}  ${place[3]}` : null,
      onclick: () => this.selection.set({ node: entity }),
    }, element("span", { class: "n" }, String(at + 1)), element("span", { class: "m" }, KIND_MARKS[kind]),
    element("span", { class: "t" }, this.words(line)), this.badge(line), kind === OLD || kind === REMOVED ? null : this.measure(entity));
  }

  words({ row, kind }) {
    const report = this.selection.report;
    const [name, verb, type] = [report.text(row, "name"), report.text(row, "verb"), report.text(row, "type")];
    if (verb === "graph") { return [element("i", {}, `graph ${name}`)]; }
    const indent = report.rows.graph[row] ? "    " : "";
    return [indent, element("b", {}, `%${name}`), type ? element("span", { class: "ty" }, `: ${type}`) : null, " = ",
      element("span", { class: "op" }, verb), "(", this.references(row, kind), ")", this.memory(row)];
  }

  memory(row) {
    const memory = this.selection.report.text(row, "memory");
    return memory ? element("span", { class: "dim" }, `  # ${memory}`) : null;
  }

  // Arguments, in which names of nodes are links.
  references(row, kind) {
    const report = this.selection.report, method = this.selection.method, graph = report.rows.graph[row];
    const stage = kind === REMOVED || kind === OLD ? this.selection.from : this.selection.stage;
    return report.text(row, "args").split(/(%[^\s,\])}:]+)/).map((part) => {
      const found = part.startsWith("%") ? method.rowNamed(stage, graph, part.slice(1)) : -1;
      if (found < 0) { return part; }
      const entity = report.rows.entity[found];
      return element("span", {
        class: entity === this.selection.state.node ? "ref same" : "ref",
        onclick: (event) => { event.stopPropagation(); this.selection.set({ node: entity }); },
      }, part);
    });
  }

  // The rule that made, changed or removed a line.
  badge({ row, kind }) {
    if (kind === SAME || kind === OLD || this.selection.state.from !== null) { return null; }
    const { method, stage } = this.selection;
    const one = kind === REMOVED ? takenBy(method, stage, row) : madeBy(method, stage, row) ?? takenBy(method, stage, row);
    if (!one) { return null; }
    return element("span", {
      class: "rule", title: `application ${one.number}: ${one.before.join(", ")} \u2192 ${one.after.join(", ")}`,
      onclick: (event) => { event.stopPropagation(); this.selection.set({ tab: "rules", rule: one.rule }); },
    }, one.rule);
  }

  measure(entity) {
    const { times, gaps } = this.selection.method.measured();
    const time = times.get(entity), gap = gaps.get(entity);
    const parts = [];
    if (time !== undefined) {
      const most = Math.max(...times.values());
      parts.push(element("span", { class: "num" }, shortTime(time)),
        element("span", { class: "heat", style: `width:${Math.round((time / most) * 100)}%` }));
    }
    if (gap !== undefined) { parts.push(element("span", { class: "num" }, `gap ${shortNumber(gap)}`)); }
    return parts;
  }

  step(by) {
    const entities = this.selection.report.rows.entity;
    let at = this.selection.state.node === null ? -1 : this.positionOf(this.selection.state.node);
    do { at += by; } while (at >= 0 && at < this.lines.length && (this.lines[at].row === undefined || this.lines[at].kind === OLD));
    if (at >= 0 && at < this.lines.length) { this.selection.set({ node: entities[this.lines[at].row] }); }
  }

  // Go to the next line that has changed.
  stepChange(by) {
    const entities = this.selection.report.rows.entity;
    const from = this.selection.state.node === null ? -1 : this.positionOf(this.selection.state.node);
    for (let at = from + by; at >= 0 && at < this.lines.length; at += by) {
      const { kind, row } = this.lines[at];
      if (row !== undefined && kind !== SAME && kind !== OLD) { this.selection.set({ node: entities[row] }); return; }
    }
  }
}
