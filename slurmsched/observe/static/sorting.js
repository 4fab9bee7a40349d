"use strict";
// A click on the head of a column sorts the table; unknown values stay at its end.
for (const button of document.querySelectorAll("table.sortable thead button")) {
  button.addEventListener("click", () => {
    const head = button.closest("th"), table = head.closest("table"), place = head.cellIndex;
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => row.cells[place].dataset.value ?? row.cells[place].textContent.trim();
    const names = new Intl.Collator("en", { numeric: true });
    const order = (a, b) => a === "" || b === "" ? (a === "") - (b === "") : (down ? -1 : 1) *
      (isNaN(a) || isNaN(b) ? names.compare(a, b) : a - b);
    const body = table.tBodies[0];
    body.append(...[...body.rows].sort((a, b) => order(key(a), key(b))));
  });
}
