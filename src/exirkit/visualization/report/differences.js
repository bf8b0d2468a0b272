// How two stages differ, line by line, and which node of a stage stands for which of another.

const SAME = 0, ADDED = 1, REMOVED = 2, CHANGED = 3, MOVED = 4, OLD = 5;
const KIND_NAMES = ["same", "added", "removed", "changed", "moved", "old"];
const KIND_MARKS = ["", "+", "\u2212", "~", "\u2195", "~"];

// Positions, in a list of distinct numbers, of a longest rising subsequence.
function longestRise(numbers) {
  const ends = [], before = new Int32Array(numbers.length);
  numbers.forEach((number, at) => {
    let low = 0, high = ends.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[ends[middle]] < number) { low = middle + 1; } else { high = middle; }
    }
    before[at] = low ? ends[low - 1] : -1;
    ends[low] = at;
  });
  const found = [];
  for (let at = ends.length ? ends[ends.length - 1] : -1; at >= 0; at = before[at]) { found.push(at); }
  return found.reverse();
}

// Lines of the later stage, with those of the earlier one that are gone between them: [{kind, row}].
function mergedLines(method, from, to) {
  const entity = method.report.rows.entity;
  const [old, rows] = [method.rowsOf(from), method.rowsOf(to)];
  if (from < 0) { return Array.from(rows, (row) => ({ kind: SAME, row })); }
  const places = new Map();
  old.forEach((row, at) => places.set(entity[row], at));
  const common = [], fixed = new Set();
  rows.forEach((row, at) => { if (places.has(entity[row])) { common.push(at); } });
  for (const at of longestRise(common.map((at) => places.get(entity[rows[at]])))) { fixed.add(common[at]); }
  const present = method.index(to).byEntity;
  const lines = [];
  let reached = 0, waiting = [];
  const flush = (until) => {
    for (; reached < until; reached += 1) {
      if (!present.has(entity[old[reached]])) { lines.push({ kind: REMOVED, row: old[reached] }); }
    }
    lines.push(...waiting);
    waiting = [];
  };
  rows.forEach((row, at) => {
    const place = places.get(entity[row]);
    if (place === undefined) { waiting.push({ kind: ADDED, row }); return; }
    const before = old[place];
    const target = fixed.has(at) ? lines : waiting;
    if (fixed.has(at)) { flush(place); reached = place + 1; }
    if (before !== row) { target.push({ kind: OLD, row: before }, { kind: CHANGED, row }); }
    else { target.push({ kind: fixed.has(at) ? SAME : MOVED, row }); }
  });
  flush(old.length);
  return lines;
}

// The application of a rule that made a row of a stage. Stored tensors that it made are not in its list of nodes.
function madeBy(method, stage, row) {
  const { made } = method.applications(stage), { report } = method;
  if (!made.size) { return null; }
  const of = (one) => made.get(`${report.rows.graph[one]} ${report.text(one, "name")}`) ?? null;
  const found = of(row);
  if (found || !["constant", "parameter", "buffer"].includes(report.text(row, "verb"))) { return found; }
  return method.usersOf(stage, row).map(of).find((one) => one !== null) ?? null;
}

// The application of a rule that took a row of the stage before away, or rewired it.
function takenBy(method, stage, row) {
  const { report } = method;
  return method.applications(stage).taken.get(`${report.rows.graph[row]} ${report.text(row, "name")}`) ?? null;
}

// What stands, at a stage, for a node that was there at the stage before and is gone.
function successors(method, stage, entity) {
  const row = method.rowOf(stage - 1, entity);
  if (row < 0) { return []; }
  const rows = method.report.rows, graph = rows.graph[row];
  const { taken } = method.applications(stage);
  const found = new Set(), pending = [method.report.text(row, "name")], seen = new Set();
  while (pending.length) {
    const name = pending.pop();
    const one = taken.get(`${graph} ${name}`);
    if (!one || seen.has(one)) { continue; }
    seen.add(one);
    for (const made of one.after) {
      const there = method.rowNamed(stage, one.graph, made);
      if (there >= 0) { found.add(rows.entity[there]); } else { pending.push(made); }
    }
  }
  if (!found.size) {
    for (const other of neighbours(method, stage - 1, row, stage)) { found.add(other); }
  }
  return found.size ? [...found] : ofTheSameCall(method, entity, stage, stage - 1);
}

// What a node that is new at a stage stands for at the stage before.
function predecessors(method, stage, entity) {
  const row = method.rowOf(stage, entity);
  if (row < 0 || stage < 1) { return []; }
  const rows = method.report.rows, graph = rows.graph[row];
  const { made } = method.applications(stage);
  const found = new Set(), pending = [method.report.text(row, "name")], seen = new Set();
  while (pending.length) {
    const one = made.get(`${graph} ${pending.pop()}`);
    if (!one || seen.has(one)) { continue; }
    seen.add(one);
    for (const name of one.before) {
      const there = method.rowNamed(stage - 1, one.graph, name);
      if (there >= 0) { found.add(rows.entity[there]); } else { pending.push(name); }
    }
  }
  if (!found.size) {
    for (const other of neighbours(method, stage, row, stage - 1)) { found.add(other); }
  }
  return found.size ? [...found] : ofTheSameCall(method, entity, stage - 1, stage);
}

// Nodes of one stage that are not at another and come from the same call of the model as a node, the last of them.
function ofTheSameCall(method, entity, stage, other) {
  const { rows, raw } = method.report, handles = raw.handles[entity] ?? [];
  if (!handles.length) { return []; }
  const wanted = new Set(handles);
  const found = Array.from(method.rowsOf(stage)).filter((row) => method.rowOf(other, rows.entity[row]) < 0
    && (raw.handles[rows.entity[row]] ?? []).some((one) => wanted.has(one)));
  const inside = new Set(found);
  const last = found.filter((row) => !method.usersOf(stage, row).some((user) => inside.has(user)));
  return last.map((row) => rows.entity[row]);
}

// Nodes that the users of a node have instead of it at another stage.
function neighbours(method, stage, row, other) {
  const { entity, graph } = method.report.rows, name = method.report.text(row, "name");
  const found = new Set();
  for (const user of method.usersOf(stage, row)) {
    const there = method.rowOf(other, entity[user]);
    if (there < 0) { continue; }
    const [mine, theirs] = [method.namesIn(user), method.namesIn(there)];
    mine.forEach((word, at) => {
      const match = word === name && at < theirs.length ? method.rowNamed(other, graph[there], theirs[at]) : -1;
      if (match >= 0 && method.rowOf(stage, entity[match]) < 0) { found.add(entity[match]); }
    });
  }
  return found;
}

// For every stage, the nodes that a node of one stage is or stands for.
function traced(method, stage, entity) {
  const found = new Array(method.stages.length);
  found[stage] = [entity];
  for (let at = stage + 1; at < found.length; at += 1) {
    found[at] = [...new Set(found[at - 1].flatMap((one) =>
      method.rowOf(at, one) >= 0 ? [one] : successors(method, at, one)))];
  }
  for (let at = stage - 1; at >= 0; at -= 1) {
    found[at] = [...new Set(found[at + 1].flatMap((one) =>
      method.rowOf(at, one) >= 0 ? [one] : predecessors(method, at + 1, one)))];
  }
  return found;
}
