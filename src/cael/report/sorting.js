// Tables sort by their heads. Without this script the page is the same, in its first order.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0], heads = [...table.querySelectorAll("thead th")];
  if (!body || body.rows.length < 3) continue;
  const first = [...body.rows];
  const key = (row, at, numeric) => {
    const text = row.cells[at].textContent.trim();
    const number = text.match(/[-+]?\d[\d,]*\.?\d*(e[-+]?\d+)?/);
    return !numeric ? text : number ? parseFloat(number[0].replaceAll(",", "")) : null;
  };
  const compare = (a, b) => typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
  heads.forEach((head, at) => {
    if (!head.textContent.trim()) return;
    const button = document.createElement("button"), numeric = head.classList.contains("n");
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const states = numeric ? ["descending", "ascending", "none"] : ["ascending", "descending", "none"];
      const state = states[(states.indexOf(head.getAttribute("aria-sort") ?? "none") + 1) % 3];
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      if (state !== "none") head.setAttribute("aria-sort", state);
      const sign = state === "descending" ? -1 : 1;
      const pairs = first.map((row) => [key(row, at, numeric), row]);
      const empty = ([value]) => value === null || value === "";
      if (state !== "none") pairs.sort((a, b) => empty(a) - empty(b) || (empty(a) ? 0 : sign * compare(a[0], b[0])));
      body.append(...pairs.map(([, row]) => row));
    });
  });
}
