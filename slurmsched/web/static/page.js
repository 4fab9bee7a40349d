"use strict";
for (const button of document.querySelectorAll("table.sortable thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = head.closest("table"), place = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[place].dataset.value ?? row.cells[place].textContent.trim();
    const order = (a, b) => (down ? -1 : 1) * (isNaN(a) || isNaN(b) ? a.localeCompare(b) : a - b);
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort((a, b) => order(key(a), key(b))));
  });
}
const shown = document.querySelector("main time"), newer = document.getElementById("newer");
async function look() {
  if (document.hidden || newer.hasChildNodes()) return;
  const answer = await fetch("/now.json").catch(() => null);
  if (!answer || !answer.ok) return;
  const now = (await answer.json()).now_s;
  if (now !== Number(shown.dataset.now) && !newer.hasChildNodes()) {
    const again = document.createElement("button");
    again.type = "button";
    again.textContent = "Show the newer state";
    again.addEventListener("click", () => location.reload());
    newer.append(again);
  }
}
if (shown && newer) {
  setInterval(look, 30000);
  document.addEventListener("visibilitychange", look);
}
