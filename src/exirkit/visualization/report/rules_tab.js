// The rules that were applied: what each says, and where it was applied.

class RulesTab {
  constructor(selection) {
    this.selection = selection;
    this.place = byId("view-rules");
    this.key = null;
    selection.listen((state) => { if (state.tab === "rules") { this.update(state); } });
  }

  update(state) {
    const key = `${state.method} ${state.rule}`;
    if (key === this.key) { return; }
    this.key = key;
    const method = this.selection.method;
    const counts = new Map();
    method.stages.forEach((_, at) => {
      for (const one of method.applications(at).listed) {
        if (!counts.has(one.rule)) { counts.set(one.rule, []); }
        counts.get(one.rule).push(one);
      }
    });
    const names = [...counts.keys()].sort((a, b) => counts.get(b).length - counts.get(a).length || (a < b ? -1 : 1));
    const chosen = counts.has(state.rule) ? state.rule : names[0];
    const list = names.map((name) => element("li", { "aria-current": name === chosen ? "true" : null },
      linkTo(name, () => this.selection.set({ rule: name })), element("span", { class: "dim" }, ` ${counts.get(name).length}`)));
    fill(this.place, element("div", {}, element("h3", {}, plural(names.length, "rule")), element("ol", { class: "plain" }, list),
      this.rejections(method)),
    element("div", {}, chosen ? this.rule(chosen, counts.get(chosen)) : element("p", {}, "No rule was applied in this method.")));
  }

  rule(name, applications) {
    const one = this.selection.report.raw.rules[name] ?? { doc: "", text: "", file: "", links: [] };
    return [element("h3", { id: "rulename" }, name), element("p", {}, one.doc),
      element("p", { class: "dim" }, [one.kind, one.exact === false ? "within a tolerance" : "exact", one.file ? `${one.file}:${one.line}` : ""].filter(Boolean).join(" \u00b7 ")),
      element("pre", { id: "ruletext" }, one.text),
      one.links?.length ? element("ul", {}, one.links.map((link) => element("li", {}, link))) : null,
      element("h2", {}, plural(applications.length, "application")),
      element("ol", { class: "plain", id: "applications" }, applications.slice(0, 500).map((each) => this.application(each))),
      applications.length > 500 ? element("p", { class: "dim" }, `and ${applications.length - 500} more`) : null];
  }

  application(one) {
    const { method, report } = this.selection;
    const named = (name, stage) => {
      const row = method.rowNamed(stage, one.graph, name);
      return row < 0 ? element("span", { class: "dim", title: "made and replaced within this stage" }, `%${name}`)
        : linkTo(`%${name}`, () => this.selection.node(report.rows.entity[row], one.stage));
    };
    const joined = (names, stage) => names.flatMap((name, at) => (at ? [", ", named(name, stage)] : [named(name, stage)]));
    return element("li", {}, element("span", { class: "dim" }, `${method.stages[one.stage].number} ${method.stages[one.stage].name} #${one.number} `),
      joined(one.before, one.stage - 1), " \u2192 ", one.after.length ? joined(one.after, one.stage) : element("span", { class: "dim" }, "what was there"),
      one.bindings.length ? element("details", {}, element("summary", { class: "dim" }, "bindings"), element("code", {}, one.bindings.join("; "))) : null);
  }

  rejections(method) {
    const texts = this.selection.report.texts;
    const found = method.stages.flatMap((stage, at) => (stage.rejections ?? []).map((one) => ({ at, one })));
    const all = method.stages.reduce((sum, stage) => sum + (stage.rejected ?? 0), 0);
    if (!all) { return null; }
    return element("details", {}, element("summary", { class: "dim" }, `${plural(all, "match")} not rewritten`.replace("matchs", "matches")),
      element("ol", { class: "plain" }, found.slice(0, 300).map(({ at, one: [rule, graph, node, reason] }) => {
        const row = method.rowNamed(at, graph, texts[node]);
        return element("li", {}, texts[rule], " ", row < 0 ? `%${texts[node]}` : linkTo(`%${texts[node]}`, () =>
          this.selection.node(this.selection.report.rows.entity[row], at)), element("span", { class: "dim" }, ` ${texts[reason]}`));
      })));
  }
}
