// The document of the page: texts, rows, stages. A stage is kept as its difference from the one before; the rows of a
// stage are put together when they are first asked for.

async function readDocument() {
  const packed = byId("data").textContent;
  const letters = atob(packed);
  const bytes = new Uint8Array(letters.length);
  for (let at = 0; at < letters.length; at += 1) { bytes[at] = letters.charCodeAt(at); }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

const PART_COLORS = 6;

class Report {
  constructor(raw) {
    this.raw = raw;
    this.texts = raw.texts;
    this.rows = {};
    for (const [name, column] of Object.entries(raw.rows)) { this.rows[name] = Int32Array.from(column); }
    this.methods = raw.methods.map((method) => new Method(this, method));
    this.lowered = null;
    // Which call of a delegate a node is a part of, or is: from entity to its number and backend.
    this.parts = new Map();
    raw.delegates.forEach(([call, backend, inside], number) => {
      for (const entity of [call, ...inside]) { this.parts.set(entity, { number, backend, call }); }
    });
  }

  // The color of the part that a backend was given.
  partClass(entity) {
    const part = this.parts.get(entity);
    return part ? `part part${part.number % PART_COLORS}` : "";
  }

  text(row, column) { return this.texts[this.rows[column][row]]; }

  place(row) { const at = this.rows.source[row]; return at < 0 ? null : this.raw.places[at]; }

  module(row) { const at = this.rows.module[row]; return at < 0 ? null : this.raw.modules[at]; }

  // One line of the text form, without types: what is compared and searched.
  line(row) {
    const [name, verb, args] = [this.text(row, "name"), this.text(row, "verb"), this.text(row, "args")];
    return verb === "graph" ? `graph ${name}` : `%${name} = ${verb}(${args})`;
  }

  // For each text, whether it has a word in it.
  having(word) {
    this.lowered ??= this.texts.map((text) => text.toLowerCase());
    return Uint8Array.from(this.lowered, (text) => (text.includes(word) ? 1 : 0));
  }
}

class Method {
  constructor(report, raw) {
    this.report = report;
    this.raw = raw;
    this.name = raw.name;
    this.stages = raw.stages;
    this.memory = raw.memory;
    this.kept = [];
    this.indexes = [];
    this.applied = [];
    this.measures = null;
  }

  rowsOf(stage) {
    if (stage < 0) { return new Int32Array(0); }
    let from = stage;
    while (from >= 0 && !this.kept[from]) { from -= 1; }
    for (let at = from + 1; at <= stage; at += 1) {
      this.kept[at] = patched(at ? this.kept[at - 1] : new Int32Array(0), this.stages[at].delta, this.stages[at].nodes);
    }
    return this.kept[stage];
  }

  // Where every node of a stage stands, by its number and by its name.
  index(stage) {
    if (!this.indexes[stage]) {
      const rows = this.rowsOf(stage), { entity, graph, name } = this.report.rows;
      const byEntity = new Map(), byName = new Map();
      rows.forEach((row, at) => {
        byEntity.set(entity[row], at);
        byName.set(`${graph[row]} ${this.report.texts[name[row]]}`, at);
      });
      this.indexes[stage] = { rows, byEntity, byName, users: null };
    }
    return this.indexes[stage];
  }

  rowOf(stage, entity) {
    if (stage < 0) { return -1; }
    const { rows, byEntity } = this.index(stage);
    return byEntity.has(entity) ? rows[byEntity.get(entity)] : -1;
  }

  rowNamed(stage, graph, name) {
    if (stage < 0) { return -1; }
    const { rows, byName } = this.index(stage);
    const at = byName.get(`${graph} ${name}`);
    return at === undefined ? -1 : rows[at];
  }

  namesIn(row) { return this.report.text(row, "args").match(/%[^\s,\])}:]+/g)?.map((word) => word.slice(1)) ?? []; }

  inputsOf(stage, row) {
    const graph = this.report.rows.graph[row];
    return [...new Set(this.namesIn(row))].map((name) => this.rowNamed(stage, graph, name)).filter((found) => found >= 0);
  }

  usersOf(stage, row) {
    const index = this.index(stage);
    if (!index.users) {
      index.users = new Map();
      for (const user of index.rows) {
        for (const source of this.inputsOf(stage, user)) {
          if (!index.users.has(source)) { index.users.set(source, []); }
          index.users.get(source).push(user);
        }
      }
    }
    return index.users.get(row) ?? [];
  }

  // Applications of rules at a stage, and which of them touch which names.
  applications(stage) {
    if (!this.applied[stage]) {
      const texts = this.report.texts;
      const listed = (this.stages[stage]?.applications ?? []).map(([rule, number, graph, before, after, bindings]) => ({
        stage, rule: texts[rule], number, graph, before: before.map((at) => texts[at]), after: after.map((at) => texts[at]),
        bindings: bindings.map((at) => texts[at]),
      }));
      const made = new Map(), taken = new Map();
      // A graph is named by its number in rows, and by the text in applications; both are numbers of texts.
      for (const one of listed) {
        for (const name of one.after) { made.set(`${one.graph} ${name}`, one); }
        for (const name of one.before) { taken.set(`${one.graph} ${name}`, one); }
      }
      this.applied[stage] = { listed, made, taken };
    }
    return this.applied[stage];
  }

  // Measured numbers by node of the last stage: {times, gaps} from entity to number.
  measured() {
    if (!this.measures) {
      const last = this.stages.length - 1;
      const read = (listed) => {
        const found = new Map();
        for (const [instruction, node, value] of listed) {
          const name = node ?? this.memory?.steps[instruction]?.[1];
          const row = name === undefined || name === null ? -1 : this.rowNamed(last, 0, name);
          if (row >= 0) {
            const entity = this.report.rows.entity[row];
            found.set(entity, (found.get(entity) ?? 0) + value);
          }
        }
        return found;
      };
      this.measures = { times: read(this.raw.times), gaps: read(this.raw.gaps) };
    }
    return this.measures;
  }
}

function patched(before, delta, count) {
  const made = new Int32Array(count);
  let to = 0;
  for (let at = 0; at < delta.length;) {
    if (delta[at] === 0) {
      const [start, length] = [delta[at + 1], delta[at + 2]];
      made.set(before.subarray(start, start + length), to);
      to += length;
      at += 3;
    } else {
      const length = delta[at + 1];
      for (let one = 0; one < length; one += 1) { made[to + one] = delta[at + 2 + one]; }
      to += length;
      at += 2 + length;
    }
  }
  return made;
}
