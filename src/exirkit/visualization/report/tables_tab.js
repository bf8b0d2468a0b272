// Tables: sizes, times, gaps; the source of the model; and what the report is of.

class TablesTab {
  constructor(selection) {
    this.selection = selection;
    selection.listen((state) => {
      if (state.tab === "sizes") { this.sizes(); }
      if (state.tab === "times") { this.measures("times", "time", shortTime); }
      if (state.tab === "gaps") { this.measures("gaps", this.selection.report.raw.measure, shortNumber); }
      if (state.tab === "source") { this.source(state); }
      if (state.tab === "about") { this.about(); }
    });
  }

  // Calls by operator and by module, now and at the stage before.
  sizes() {
    const { method, report, stage, from } = this.selection;
    const count = (at, key) => {
      const found = new Map();
      for (const row of at < 0 ? [] : method.rowsOf(at)) {
        const name = key(row);
        if (name !== null) { found.set(name, (found.get(name) ?? 0) + 1); }
      }
      return found;
    };
    const table = (title, key, search) => {
      const [now, before] = [count(stage, key), count(from, key)];
      const rows = [...new Set([...now.keys(), ...before.keys()])].map((name) => [name, now.get(name) ?? 0, before.get(name) ?? 0]);
      return [element("h3", {}, title), sortedTable([
        { name: title.slice(3), value: (row) => row[0], show: (row) => linkTo(row[0] || "the model", () => finder.show(search(row[0]))) },
        { name: "nodes", number: true, value: (row) => row[1], show: (row) => grouped(row[1]) },
        { name: "before", number: true, value: (row) => row[2], show: (row) => grouped(row[2]) },
        { name: "difference", number: true, value: (row) => row[1] - row[2], show: (row) => (row[1] === row[2] ? "" : `${row[1] > row[2] ? "+" : "\u2212"}${Math.abs(row[1] - row[2])}`) },
      ], rows, 1)];
    };
    fill(byId("view-sizes"), element("p", { class: "dim" }, `at ${method.stages[stage].name}`),
      this.bytes(), table("by operator", (row) => (report.text(row, "verb") === "graph" ? null : report.text(row, "verb")), (name) => name),
      table("by module", (row) => { const one = report.module(row); return one && one[0]; }, (name) => `module:${name}`));
  }

  bytes() {
    const sizes = this.selection.report.raw.sizes;
    if (!sizes) { return null; }
    return Object.entries(sizes).flatMap(([title, entries]) => {
      const total = entries.reduce((sum, [, nbytes]) => sum + nbytes, 0) || 1;
      const shades = ["--activation", "--input", "--output", "--state", "--bar"];
      return [element("h3", {}, `bytes of constants ${title}`),
        element("div", { class: "tree" }, entries.filter(([, nbytes]) => nbytes > 0).slice(0, 40).map(([name, nbytes], at) => element("div", {
          style: `flex:${nbytes / total} 1 0;background:var(${shades[at % shades.length]})`, title: `${name}: ${grouped(nbytes)} bytes`,
        }, `${name} ${shortBytes(nbytes)}`))),
        sortedTable([
          { name: title.slice(3), value: (row) => row[0] },
          { name: "bytes", number: true, value: (row) => row[1], show: (row) => grouped(row[1]) },
          { name: "share", number: true, value: (row) => row[1], show: (row) => `${((100 * row[1]) / total).toFixed(1)} %` },
          { name: "constants", number: true, value: (row) => row[2] },
          { name: "calls", number: true, value: (row) => row[3] },
        ], entries, 1)];
    });
  }

  measures(key, title, show) {
    const { method, report } = this.selection, place = byId(`view-${key}`);
    const raw = method.raw[key];
    if (!raw.length) {
      fill(place, element("p", { class: "dim" }, `No ${title} was given. exirkit report takes a file with --${key}.`));
      return;
    }
    const last = method.stages.length - 1, total = raw.reduce((sum, one) => sum + one[2], 0) || 1, most = Math.max(...raw.map((one) => one[2]), 1e-300);
    const rows = raw.map(([instruction, node, value, note]) => {
      const step = instruction === null ? null : method.memory?.steps[instruction];
      const name = node ?? step?.[1] ?? null;
      const row = name === null ? -1 : method.rowNamed(last, 0, name);
      return { instruction, name, row, value, note, operator: row >= 0 ? report.text(row, "verb") : step?.[0] ?? "", module: row >= 0 ? report.module(row)?.[0] ?? "" : "" };
    });
    const groups = (by) => {
      const found = new Map();
      for (const row of rows) { found.set(row[by], (found.get(row[by]) ?? 0) + row.value); }
      return [...found];
    };
    const share = { name: "share", number: true, value: (row) => row.value, show: (row) => `${((100 * row.value) / total).toFixed(1)} %` };
    const grouping = (by) => [element("h3", {}, `by ${by}`), sortedTable([
      { name: by, value: (row) => row[0], show: (row) => row[0] || "none" }, { name: title, number: true, value: (row) => row[1], show: (row) => show(row[1]) },
      { name: "share", number: true, value: (row) => row[1], show: (row) => `${((100 * row[1]) / total).toFixed(1)} %` }], groups(by), 1)];
    fill(place, element("h3", {}, key === "times" ? `${show(total)} altogether` : `${plural(rows.length, "node")}`),
      key === "times" ? [grouping("operator"), grouping("module")] : null,
      element("h3", {}, "by instruction"), sortedTable([
        { name: "instruction", number: true, value: (row) => row.instruction ?? -1, show: (row) => (row.instruction === null ? "" : String(row.instruction)) },
        { name: "node", value: (row) => row.name ?? "", show: (row) => (row.row < 0 ? row.name ?? "" : linkTo(`%${row.name}`, () => this.selection.node(report.rows.entity[row.row], last))) },
        { name: "operator", value: (row) => row.operator }, { name: "module", value: (row) => row.module },
        { name: title, number: true, value: (row) => row.value, show: (row) => show(row.value) },
        ...(key === "times" ? [share] : []),
        { name: "", value: (row) => row.value, show: (row) => element("span", { class: "meter", style: `width:${Math.max((120 * row.value) / most, 0)}px` }) },
        { name: "note", value: (row) => row.note },
      ], rows, 4));
  }

  source(state) {
    const { method, report, stage } = this.selection, place = byId("view-source"), files = report.raw.files;
    const counts = new Map();
    for (const row of method.rowsOf(stage)) {
      const one = report.place(row);
      if (one) { const key = `${one[1]} ${one[0]}`; counts.set(key, (counts.get(key) ?? 0) + 1); }
    }
    const names = [...new Set([...Object.keys(files), ...report.raw.places.map((one) => one[0])])].sort();
    const file = names.includes(state.file) ? state.file : names[0];
    if (file === undefined) { fill(place, element("p", { class: "dim" }, "No node says which line it comes from.")); return; }
    const known = new Map(report.raw.places.filter((one) => one[0] === file).map((one) => [one[1], one[3]]));
    const lines = files[file] !== undefined ? files[file].split("\n").map((text, at) => [at + 1, text]) : [...known].sort((a, b) => a[0] - b[0]);
    const choice = element("select", { onchange: (event) => this.selection.set({ file: event.target.value, line: null }) },
      names.map((name) => element("option", { value: name, selected: name === file }, name)));
    const shown = lines.map(([number, text]) => {
      const count = counts.get(`${number} ${file}`) ?? 0;
      return element("div", {
        class: `${number === state.line ? "here" : ""} ${count ? "some" : ""}`, title: count ? `${plural(count, "node")} at this stage` : null,
        onclick: count ? () => finder.show(`line:${file}:${number}`) : null,
      }, element("span", { class: "n" }, String(number)), element("span", { class: "c" }, count ? `${count}` : ""), text);
    });
    fill(place, element("div", { class: "bar" }, choice, files[file] === undefined ? element("span", { class: "dim" }, "the file is not in this report; only lines of nodes are shown") : null,
      element("span", { class: "dim" }, "a click on a line searches its nodes")), element("pre", { id: "sourcelines" }, shown));
    place.querySelector(".here")?.scrollIntoView({ block: "center" });
  }

  about() {
    const raw = this.selection.report.raw;
    fill(byId("view-about"),
      raw.failure.length ? [element("h3", {}, "The lowering failed"), raw.failure.map((one) => element("pre", { class: "failure" }, one))] : null,
      element("h3", {}, "Report"), element("dl", {}, Object.entries(raw.facts).map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])),
      element("h3", {}, "Methods"), sortedTable([
        { name: "method", value: (one) => one.name }, { name: "stages", number: true, value: (one) => one.stages.length },
        { name: "nodes exported", number: true, value: (one) => one.stages[0].nodes }, { name: "nodes lowered", number: true, value: (one) => one.stages[one.stages.length - 1].nodes },
        { name: "instructions", number: true, value: (one) => one.memory?.steps.length ?? 0 },
        { name: "rewrites", number: true, value: (one) => one.stages.reduce((sum, stage) => sum + (stage.applications ?? []).length, 0) },
      ], this.selection.report.methods));
  }
}
