// What is shown now: method, stage, compared stage, node, tab. It is in the address, so that links and "back" work.

class Selection {
  constructor(report) {
    this.report = report;
    this.listeners = [];
    this.state = { method: 0, stage: 0, from: null, node: null, tab: "program", changes: false, beside: false, rule: null, file: null, line: null };
  }

  get method() { return this.report.methods[this.state.method]; }

  get stage() { return this.state.stage; }

  // The stage that the present one is compared with: the one before, unless another was chosen.
  get from() { return this.state.from ?? this.state.stage - 1; }

  start() {
    const last = this.method.stages.length - 1;
    this.state.stage = Math.max(this.method.stages.findIndex((stage, at) => at > 0 && stage.counts.some(Boolean)), 0) || last;
    this.read();
    addEventListener("popstate", () => { this.read(); this.tell(); });
    this.tell();
  }

  listen(listener) { this.listeners.push(listener); }

  tell() { for (const listener of this.listeners) { listener(this.state); } }

  set(changes) {
    const before = this.address();
    if ("method" in changes && changes.method !== this.state.method) {
      const count = this.report.methods[changes.method].stages.length;
      Object.assign(this.state, { node: null, from: null, stage: Math.min(this.state.stage, count - 1) });
    }
    Object.assign(this.state, changes);
    if (this.address() !== before) { history.pushState(null, "", this.address()); }
    this.tell();
  }

  // Show a node at a stage, or the nearest stage that has it.
  node(entity, stage = this.stage, more = {}) {
    let at = stage;
    if (this.method.rowOf(at, entity) < 0 && !(at === this.stage && this.method.rowOf(this.from, entity) >= 0)) {
      const count = this.method.stages.length;
      const near = Array.from({ length: count }, (_, one) => one).sort((a, b) => Math.abs(a - stage) - Math.abs(b - stage));
      at = near.find((one) => this.method.rowOf(one, entity) >= 0) ?? stage;
    }
    this.set({ node: entity, stage: at, tab: "program", ...(at === this.stage ? {} : { from: null }), ...more });
  }

  address() {
    const { method, stage, from, node, tab, changes, beside, rule, file, line } = this.state;
    const parts = new URLSearchParams({ m: method, s: stage, t: tab });
    for (const [key, value] of Object.entries({ f: from, n: node, r: rule, p: file, l: line })) {
      if (value !== null) { parts.set(key, value); }
    }
    if (changes) { parts.set("c", 1); }
    if (beside) { parts.set("b", 1); }
    return `#${parts}`;
  }

  read() {
    const parts = new URLSearchParams(location.hash.slice(1));
    const number = (key, least, most, other) => {
      const value = parts.has(key) ? Number(parts.get(key)) : NaN;
      return Number.isInteger(value) && value >= least && value <= most ? value : other;
    };
    const state = this.state;
    state.method = number("m", 0, this.report.methods.length - 1, state.method);
    state.stage = number("s", 0, this.method.stages.length - 1, state.stage);
    state.from = number("f", -1, this.method.stages.length - 1, null);
    state.node = number("n", 0, 1e9, null);
    state.line = number("l", 0, 1e9, null);
    state.tab = TABS.some(([name]) => name === parts.get("t")) ? parts.get("t") : state.tab;
    state.changes = parts.has("c");
    state.beside = parts.has("b");
    state.rule = parts.get("r");
    state.file = parts.get("p");
  }
}

const TABS = [
  ["program", "Program"], ["rules", "Rules"], ["memory", "Memory"], ["sizes", "Sizes"], ["times", "Times"], ["gaps", "Gap"],
  ["source", "Source"], ["about", "About"],
];
