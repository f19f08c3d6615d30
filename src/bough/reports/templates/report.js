"use strict";
// What a mark stands for, beside the pointer or the finger.
const tip = document.body.appendChild(document.createElement("div"));
tip.className = "tip";
function tipOf(target, event) {
  if (target.dataset.tip) return target.dataset.tip;
  const heat = JSON.parse(target.dataset.heat), box = target.getBoundingClientRect();
  const place = (at, many) => Math.min(many - 1, Math.max(0, Math.floor(at * many)));
  const i = place((event.clientX - box.left) / box.width, heat.x.length);
  const j = place((event.clientY - box.top) / box.height, heat.y.length);
  const value = heat.v[j][i];
  return `${heat.y[j]} · ${heat.x[i]}\n${value === null ? "none" : value}`;
}
function point(event) {
  const target = event.target.closest && event.target.closest("[data-tip],[data-heat]");
  tip.classList.toggle("on", !!target);
  if (!target) return;
  tip.textContent = tipOf(target, event);
  const wide = tip.offsetWidth, high = tip.offsetHeight;
  tip.style.left = Math.max(6, Math.min(innerWidth - wide - 6, event.clientX + 14)) + "px";
  tip.style.top = (event.clientY + high + 24 > innerHeight ? event.clientY - high - 12 : event.clientY + 16) + "px";
}
addEventListener("pointermove", point);
addEventListener("pointerdown", point);
addEventListener("scroll", () => tip.classList.remove("on"), { passive: true });

// The legend hides and shows a variant in every plot and in the tables.
for (const chip of document.querySelectorAll("[data-toggle]")) {
  chip.addEventListener("click", () => {
    const on = chip.getAttribute("aria-pressed") !== "true";
    const same = `[data-toggle="${chip.dataset.toggle}"]`;
    for (const other of document.querySelectorAll(same)) other.setAttribute("aria-pressed", on);
    for (const part of document.querySelectorAll(`[data-v="${chip.dataset.toggle}"]`)) part.classList.toggle("off", !on);
  });
}

// Tables sort by the column that is clicked; numbers first from the highest.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("thead th")];
  heads.forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const rows = [...table.tBodies[0].rows];
      const key = (row) => { const cell = row.cells[column]; return cell.dataset.sort ?? cell.textContent.trim(); };
      const numbers = rows.every((row) => key(row) === "" || !isNaN(key(row)));
      const up = head.ariaSort ? head.ariaSort === "descending" : !numbers;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const order = (a, b) => (a === "") - (b === "") || (numbers ? a - b : a.localeCompare(b)) * (up ? 1 : -1);
      rows.sort((a, b) => order(key(a), key(b)));
      table.tBodies[0].append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}

// One variant's panels at a time.
for (const select of document.querySelectorAll("select[data-panels]")) {
  const show = () => {
    for (const panel of document.querySelectorAll(`[data-panel^="${select.dataset.panels}:"]`))
      panel.hidden = panel.dataset.panel !== `${select.dataset.panels}:${select.value}`;
  };
  select.addEventListener("change", show);
  show();
}

// A cell of a confusion matrix, and a row of the commonest mistakes, leads to examples of that confusion; the same
// cell again, or the button above them, leads back.
function lead(examples, cell) {
  const list = examples.querySelector("table"), rows = [...list.tBodies[0].rows];
  for (const other of document.querySelectorAll(`[data-list="${list.id}"].chosen`)) other.classList.remove("chosen");
  for (const row of rows)
    row.hidden = cell ? row.dataset.true !== cell.dataset.true || row.dataset.answer !== cell.dataset.answer
      : row.dataset.more === "1";
  list.nextElementSibling.hidden = rows.some((row) => !row.hidden);
  examples.querySelector(".all").hidden = !!cell;
  examples.querySelector(".only").hidden = !cell;
  if (!cell) return;
  for (const part of ["true", "answer"]) examples.querySelector(`.only .${part}`).textContent = cell.dataset[part];
  cell.classList.add("chosen");
  examples.scrollIntoView({ block: "nearest" });
}
for (const cell of document.querySelectorAll("[data-list]")) {
  const examples = document.getElementById(cell.dataset.list).closest(".examples");
  const click = () => lead(examples, cell.classList.contains("chosen") ? null : cell);
  cell.addEventListener("click", click);
  cell.addEventListener("keydown", (event) => { if (event.key === "Enter") click(); });
}
for (const button of document.querySelectorAll("[data-all]"))
  button.addEventListener("click", () => lead(button.closest(".examples"), null));
