// Puts the page together once its document is read.

let finder = null;

function showTab(selection) {
  for (const [name] of TABS) { byId(`view-${name}`).hidden = selection.state.tab !== name; }
  for (const button of byId("tabs").children) {
    button.setAttribute("aria-selected", button.dataset.tab === selection.state.tab ? "true" : "false");
  }
  byId("method").value = String(selection.state.method);
}

function toggleTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
}

function onKey(event, selection, view, stages) {
  if (event.target.closest("input, select, textarea") && event.target.type !== "checkbox") { return; }
  if (event.ctrlKey || event.metaKey || event.altKey) { return; }
  const inProgram = selection.state.tab === "program";
  const actions = {
    "/": () => byId("search").focus(), "[": () => stages.step(-1), "]": () => stages.step(1), "t": toggleTheme,
    "c": () => selection.set({ changes: !selection.state.changes }), "h": () => byId("idle").click(),
    "b": () => selection.set({ beside: !selection.state.beside }),
    "Escape": () => selection.set({ node: null }),
    ...(inProgram ? { "ArrowDown": () => view.step(1), "ArrowUp": () => view.step(-1), "j": () => view.step(1), "k": () => view.step(-1),
      "n": () => view.stepChange(1), "p": () => view.stepChange(-1) } : {}),
  };
  const tab = TABS[Number(event.key) - 1];
  const action = tab ? () => selection.set({ tab: tab[0] }) : Object.hasOwn(actions, event.key) ? actions[event.key] : null;
  if (action) { event.preventDefault(); action(); }
}

async function main() {
  document.documentElement.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  byId("theme").addEventListener("click", toggleTheme);
  const report = new Report(await readDocument());
  const selection = new Selection(report);
  fill(byId("method"), report.methods.map((method, at) => element("option", { value: at }, method.name)));
  byId("method").closest("label").hidden = report.methods.length < 2;
  byId("method").addEventListener("change", (event) => selection.set({ method: Number(event.target.value) }));
  fill(byId("tabs"), TABS.map(([name, title]) => element("button", { role: "tab", "data-tab": name, onclick: () => selection.set({ tab: name }) }, title)));
  selection.listen(() => showTab(selection));
  const stages = new StageList(selection);
  const view = new ProgramView(selection);
  new BesideView(selection, view);
  finder = new Finder(selection, view);
  new NodePanel(selection);
  new RulesTab(selection);
  new MemoryTab(selection);
  new TablesTab(selection);
  document.addEventListener("keydown", (event) => onKey(event, selection, view, stages));
  if (report.raw.failure.length) { selection.state.tab = "about"; }
  selection.start();
  document.body.dataset.ready = "true";
}

main();
