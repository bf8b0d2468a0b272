// The stages at the left, with how much each changes.

class StageList {
  constructor(selection) {
    this.selection = selection;
    this.place = byId("stagelist");
    this.idle = byId("idle");
    this.idle.addEventListener("change", () => this.draw());
    selection.listen(() => this.draw());
  }

  shown() {
    return this.selection.method.stages.map((_, at) => at).filter((at) => this.idle.checked || this.isBusy(at));
  }

  isBusy(at) {
    const stage = this.selection.method.stages[at];
    return at === 0 || at === this.selection.stage || stage.counts.some(Boolean) || (stage.applications ?? []).length > 0;
  }

  draw() {
    const { method, state } = this.selection;
    let pipeline = null;
    const items = [];
    for (const at of this.shown()) {
      const stage = method.stages[at];
      if (stage.pipeline !== pipeline) {
        pipeline = stage.pipeline;
        if (pipeline) { items.push(element("li", { class: "pipe" }, baseName(pipeline))); }
      }
      items.push(this.item(stage, at, state));
    }
    fill(this.place, items);
    this.place.querySelector("[aria-current=true]")?.scrollIntoView({ block: "nearest" });
  }

  item(stage, at, state) {
    const [added, removed, changed, moved] = stage.counts;
    const rules = (stage.applications ?? []).length;
    const has = state.node !== null && this.selection.method.rowOf(at, state.node) >= 0;
    const counts = at === 0 ? [element("span", { class: "dim" }, plural(stage.nodes, "node"))] : [
      added ? element("span", { class: "plus" }, `+${grouped(added)}`) : null,
      removed ? element("span", { class: "minus" }, `\u2212${grouped(removed)}`) : null,
      changed ? element("span", { class: "tilde" }, `~${grouped(changed)}`) : null,
      moved ? element("span", { class: "arrow" }, `\u2195${grouped(moved)}`) : null,
      rules ? element("span", { class: "dim" }, plural(rules, "rewrite")) : null,
    ];
    return element("li", {
      class: `${this.isBusy(at) ? "" : "idle"} ${has ? "has-node" : ""}`, "aria-current": at === state.stage ? "true" : null,
      "data-stage": at, title: stage.doc,
      onclick: () => this.selection.set({ stage: at, from: null, tab: "program" }),
    }, element("div", {}, stage.number ? element("span", { class: "dim" }, `${stage.number} `) : null, stage.name),
    element("div", { class: "counts" }, counts));
  }

  step(by) {
    const shown = this.shown(), at = shown.indexOf(this.selection.stage);
    const next = shown[Math.min(Math.max(at + by, 0), shown.length - 1)];
    this.selection.set({ stage: next, from: null });
  }
}
