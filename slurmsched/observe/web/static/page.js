{
  // Rows that have all words of the field "Find".
  const find = document.getElementById("find"), found = document.getElementById("found");
  const show = () => {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...document.querySelectorAll("table.found tbody tr")];
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    found.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
  };
  if (find) {
    find.closest("label").hidden = false;
    find.addEventListener("input", show);
    if (find.value) show();
  }
  // Whether there is a newer state. The page never reloads by itself.
  const shown = document.querySelector("main time"), newer = document.getElementById("newer");
  const look = async () => {
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
  };
  if (shown && newer) {
    setInterval(look, 30000);
    document.addEventListener("visibilitychange", look);
  }
}
