"use strict";
(() => {
  const all = (selector, root) => [...(root || document).querySelectorAll(selector)];
  const groups = all("details.group");

  // Sorting: a button in each heading that names a kind.
  const value = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value || cell.textContent.trim();
  };
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const sort = (heading) => {
    const body = heading.closest("table").tBodies[0];
    const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const sign = order === "ascending" ? 1 : -1;
    const column = heading.cellIndex;
    all("th[aria-sort]", heading.parentNode).forEach((other) => other.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order);
    body.append(...[...body.rows].sort((a, b) => sign * compare(value(a, column), value(b, column))));
  };
  all("th[data-sort]").forEach((heading) => {
    const button = document.createElement("button");
    button.type = "button";
    heading.dataset.title = heading.textContent;
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(heading));
    heading.append(button);
  });

  // Filtering: rows that have the text, and groups with such rows.
  const filter = document.getElementById("filter");
  const status = document.getElementById("status");
  const show = (row, text) => {
    row.hidden = !row.textContent.toLowerCase().includes(text);
    return !row.hidden;
  };
  const filtered = () => {
    const text = filter.value.trim().toLowerCase();
    const rows = all(".filtered > tbody > tr").filter((row) => show(row, text)).length;
    groups.forEach((group) => {
      const named = group.querySelector("summary").textContent.toLowerCase().includes(text);
      const kept = all(".matrix > tbody > tr", group).filter((row) => show(row, named ? "" : text));
      group.hidden = !kept.length && !named;
    });
    const left = groups.filter((group) => !group.hidden).length;
    status.textContent = text ? `${rows} rows of the lists, ${left} of ${groups.length} groups` : "";
  };
  let timer;
  filter.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(filtered, 150);
  });
  document.getElementById("open").addEventListener("click", () => {
    groups.forEach((group) => (group.open = true));
  });
  document.getElementById("close").addEventListener("click", () => {
    groups.forEach((group) => (group.open = false));
  });

  // A link into a closed group opens it.
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  reveal();

  // The boxes on paper are those of the list.
  addEventListener("beforeprint", () => {
    all(".box").forEach((box) => {
      const done = document.getElementById(box.dataset.done);
      box.classList.toggle("ticked", Boolean(done && done.checked));
    });
  });

  // Ticks survive a reload of this very page; the next one starts without.
  const key = `bwagent ${document.body.dataset.key}`;
  const boxes = all("input[type=checkbox]");
  try {
    const ticked = new Set(JSON.parse(localStorage.getItem(key) || "[]"));
    boxes.forEach((box) => (box.checked = ticked.has(box.id)));
    addEventListener("change", () => {
      localStorage.setItem(key, JSON.stringify(boxes.filter((box) => box.checked).map((box) => box.id)));
    });
  } catch {
    // A browser that keeps nothing of local files.
  }
  document.getElementById("tools").hidden = false;
})();
