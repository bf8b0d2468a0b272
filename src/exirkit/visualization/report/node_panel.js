// All that is known of the selected node, at the right.

class NodePanel {
  constructor(selection) {
    this.selection = selection;
    this.place = byId("node");
    this.key = null;
    selection.listen((state) => this.update(state));
  }

  update(state) {
    const key = [state.method, state.stage, this.selection.from, state.node].join(" ");
    if (key === this.key) { return; }
    this.key = key;
    if (state.node === null) { fill(this.place, this.help()); return; }
    const method = this.selection.method;
    let stage = state.stage, row = method.rowOf(stage, state.node);
    if (row < 0) { stage = this.selection.from; row = method.rowOf(stage, state.node); }
    if (row < 0) { fill(this.place, element("p", {}, "This node is at another stage."), this.history(stage, state.node)); return; }
    fill(this.place, this.facts(stage, row), this.uses(stage, row), this.history(stage, state.node));
    byId("spoken").textContent = this.selection.report.line(row);
  }

  help() {
    const keys = [["\u2191 \u2193", "line"], ["n p", "next, previous change"], ["[ ]", "stage"], ["c", "changes only"], ["b", "side by side"], ["/", "search"],
      ["h", "idle stages"], ["1 to 8", "views"], ["t", "theme"], ["Esc", "let go"]];
    return [element("h3", {}, "No node selected"), element("p", { class: "dim" }, "Click a line, or move with the keys."),
      element("dl", {}, keys.map(([key, what]) => [element("dt", {}, element("kbd", {}, key)), element("dd", {}, what)]))];
  }

  facts(stage, row) {
    const report = this.selection.report, method = this.selection.method;
    const place = report.place(row), module = report.module(row), entity = report.rows.entity[row];
    const { times, gaps } = method.measured();
    const facts = [
      ["operator", report.text(row, "verb")], ["result", report.text(row, "type")], ["arguments", report.text(row, "args")],
      ["module", module && element("span", {}, linkTo(module[0] || "the model", () => finder.show(`module:${module[0]}`)), ` ${module[1]}`)],
      ["source", place && [linkTo(`${baseName(place[0])}:${place[1]}`, () => this.selection.set({ tab: "source", file: place[0], line: place[1] }), place[0]),
        ` in ${place[2]}`, element("pre", {}, place[3])]],
      ["delegate", this.delegate(entity)],
      ["memory", report.text(row, "memory")], ["graph", report.text(row, "graph")],
      ["time", times.has(entity) ? shortTime(times.get(entity)) : null],
      [report.raw.measure, gaps.has(entity) ? shortNumber(gaps.get(entity)) : null],
    ];
    return [element("h3", { id: "nodename" }, `%${report.text(row, "name")}`),
      element("p", { class: "dim" }, `at ${method.stages[stage].number} ${method.stages[stage].name}`),
      element("dl", {}, facts.filter(([, value]) => value).map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]))];
  }

  delegate(entity) {
    const part = this.selection.report.parts.get(entity);
    if (!part) { return null; }
    return element("span", { class: this.selection.report.partClass(entity) },
      linkTo(`${part.backend}, part ${part.number + 1}`, () => this.selection.node(part.call)));
  }

  uses(stage, row) {
    const { method, report } = this.selection;
    const list = (title, rows) => rows.length ? [element("h2", {}, title), element("ol", { class: "plain" }, rows.slice(0, 60).map((one) =>
      element("li", {}, linkTo(`%${report.text(one, "name")}`, () => this.selection.set({ node: report.rows.entity[one] })),
        element("span", { class: "dim" }, ` ${report.text(one, "verb")}`))),
    rows.length > 60 ? element("li", { class: "dim" }, `and ${rows.length - 60} more`) : null)] : [];
    return [...list("uses", method.inputsOf(stage, row)), ...list("used by", method.usersOf(stage, row))];
  }

  // The node at every stage at which it is, or stands for, something else than at the one before.
  history(stage, entity) {
    const { method, report } = this.selection, rows = report.rows;
    const found = traced(method, stage, entity);
    const items = [];
    let before = "";
    found.forEach((entities, at) => {
      const there = entities.map((one) => method.rowOf(at, one)).filter((row) => row >= 0);
      const text = there.join(" ");
      if (text === before && at !== stage) { return; }
      before = text;
      const by = this.rulesAt(at, there, at ? found[at - 1].map((one) => method.rowOf(at - 1, one)) : []);
      items.push(element("li", { class: at === stage ? "now" : null },
        linkTo(`${method.stages[at].number} ${method.stages[at].name}`.trim(), () => (there.length
          ? this.selection.node(rows.entity[there[0]], at) : this.selection.set({ stage: at, from: null, tab: "program" }))),
        by.map((rule) => [" by ", linkTo(rule, () => this.selection.set({ tab: "rules", rule }))]),
        there.length ? there.slice(0, 4).map((row) => element("div", {}, element("code", {}, report.line(row).slice(0, 200)))) : element("div", { class: "minus" }, "gone")));
    });
    return [element("h2", {}, "through the stages"), element("ol", { class: "plain history" }, items)];
  }

  rulesAt(stage, now, before) {
    const { method, report } = this.selection;
    const fresh = now.filter((row) => method.rowOf(stage - 1, report.rows.entity[row]) !== row);
    const gone = before.filter((row) => row >= 0 && !now.includes(row));
    const found = fresh.map((row) => madeBy(method, stage, row)).concat(gone.map((row) => takenBy(method, stage, row)));
    return [...new Set(found.filter(Boolean).map((one) => one.rule))];
  }
}
