// The stage that is compared, at the left of the program: what stands there for the selected node is marked and in view.

class BesideView {
  constructor(selection, view) {
    this.selection = selection;
    this.view = view;
    this.place = byId("beside");
    this.space = byId("besidespace");
    this.rows = [];
    this.same = new Set();
    this.key = null;
    this.place.addEventListener("scroll", () => this.draw());
    addEventListener("resize", () => this.draw());
    selection.listen((state) => this.update(state));
  }

  update(state) {
    const { method, from } = this.selection;
    this.place.hidden = !state.beside || from < 0;
    if (this.place.hidden) { return; }
    const key = [state.method, from].join(" ");
    if (key !== this.key) {
      this.key = key;
      this.rows = method.rowsOf(from);
      this.space.style.height = `${this.rows.length * LINE_HEIGHT}px`;
      this.place.scrollTop = 0;
      this.marked = null;
    }
    const marked = [key, state.stage, state.node].join(" ");
    if (marked !== this.marked) {
      this.marked = marked;
      this.same = new Set(state.node === null ? [] : this.standing(state.node));
      this.reveal();
    }
    this.draw();
  }

  // The nodes of the compared stage that a node is, or stands for.
  standing(node) {
    const { method, stage, from } = this.selection;
    const at = [stage, from].find((one) => method.rowOf(one, node) >= 0);
    return at === undefined ? [] : traced(method, at, node)[from];
  }

  reveal() {
    const entities = this.selection.report.rows.entity;
    const at = this.rows.findIndex((row) => this.same.has(entities[row]));
    const [top, height] = [this.place.scrollTop, this.place.clientHeight];
    if (at >= 0 && (at * LINE_HEIGHT < top || (at + 1) * LINE_HEIGHT > top + height)) {
      this.place.scrollTop = Math.max(at * LINE_HEIGHT - height / 3, 0);
    }
  }

  draw() {
    if (this.place.hidden) { return; }
    const entities = this.selection.report.rows.entity;
    const first = Math.max(Math.floor(this.place.scrollTop / LINE_HEIGHT) - 10, 0);
    const last = Math.min(first + Math.ceil(this.place.clientHeight / LINE_HEIGHT) + 20, this.rows.length);
    const shown = [];
    for (let at = first; at < last; at += 1) {
      const row = this.rows[at], entity = entities[row];
      shown.push(element("div", {
        class: `row ${this.same.has(entity) ? "selected" : ""} ${this.selection.report.partClass(entity)}`, style: `top:${at * LINE_HEIGHT}px`, "data-entity": entity,
        onclick: () => this.selection.set({ node: entity }),
      }, element("span", { class: "n" }, String(at + 1)), element("span", { class: "t" }, this.view.words({ row, kind: OLD }))));
    }
    fill(this.space, shown);
  }
}
