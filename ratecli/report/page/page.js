"use strict";
// Light or dark: the system's preference, until the user presses the button.
const systemDark = matchMedia("(prefers-color-scheme: dark)");
const themes = document.querySelector("button.theme");
function isDark() {
  return (document.documentElement.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";
}
function nameTheme() {
  themes.textContent = isDark() ? "Light" : "Dark";
}
themes.hidden = false;
themes.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
systemDark.addEventListener("change", nameTheme);
nameTheme();

function create(tag, name, text) {
  const found = document.createElement(tag);
  if (name) found.className = name;
  if (text !== undefined) found.textContent = text;
  return found;
}

// Tables: a click on a column head sorts.
const words = new Intl.Collator(undefined, {numeric: true});
// Numbers come first, empty cells last, in either direction.
function compare(a, b, sign) {
  const x = Number(a), y = Number(b);
  const isX = a !== "" && !Number.isNaN(x), isY = b !== "" && !Number.isNaN(y);
  if (isX && isY) return sign * (x - y || 0);
  if (isX !== isY) return isX ? -1 : 1;
  if ((a === "") !== (b === "")) return a === "" ? 1 : -1;
  return sign * words.compare(a, b);
}
function sort(head) {
  const body = head.closest("table").tBodies[0], place = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentElement.children) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...body.rows].map((row) => {
    const cell = row.cells[place];
    return [cell.dataset.sort ?? cell.textContent.trim(), row];
  });
  rows.sort((a, b) => compare(a[0], b[0], down ? -1 : 1));
  body.append(...rows.map(([, row]) => row));
}
for (const button of document.querySelectorAll("th > button")) {
  button.addEventListener("click", () => sort(button.parentElement));
}

// On a phone, each row is a card whose values are labelled with the heads of their columns.
function labelCells(narrow) {
  if (!narrow.matches) return;
  for (const sheet of document.querySelectorAll(".sheet:not(.labelled)")) {
    sheet.classList.add("labelled");
    const heads = [...sheet.querySelectorAll("th")].map((head) => head.textContent.trim());
    for (const row of sheet.querySelectorAll("tbody > tr")) {
      [...row.cells].forEach((cell, k) => { cell.dataset.title = heads[k]; });
    }
  }
}
const phone = matchMedia("(max-width: 40rem)");
phone.addEventListener("change", labelCells);
labelCells(phone);

// Links to folded parts open them.
function openTarget(hash) {
  const target = hash.length > 1 && document.getElementById(decodeURIComponent(hash.slice(1)));
  if (target && target.matches("details")) target.open = true;
}
document.addEventListener("click", (event) => {
  const link = event.target.closest?.('a[href^="#"]');
  if (link) openTarget(link.hash);
});
openTarget(location.hash);

// Long tables: filter rows by words.
const LONG = 12;
for (const sheet of document.querySelectorAll(".sheet")) {
  const rows = [...sheet.querySelectorAll("tbody > tr")];
  if (rows.length < LONG) continue;
  const filters = sheet.insertBefore(create("div", "filters"), sheet.querySelector(".scroll"));
  const box = create("input");
  box.type = "search";
  box.placeholder = "Filter rows";
  box.setAttribute("aria-label", `Filter the rows of ${sheet.querySelector(".scroll").getAttribute("aria-label")}`);
  const status = create("span", "shown");
  status.setAttribute("role", "status");
  filters.append(box, status);
  const texts = rows.map((row) => row.textContent.toLowerCase());
  function filter() {
    const wanted = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    rows.forEach((row, k) => {
      row.hidden = !wanted.every((word) => texts[k].includes(word));
      count += !row.hidden;
    });
    status.textContent = count === rows.length ? `${rows.length} rows` : `${count} of ${rows.length} rows`;
  }
  box.addEventListener("input", filter);
  filter();
}

// Expand all sections for printing.
let unfolded = [];
function unfold(print) {
  if (print) {
    unfolded = [...unfolded, ...document.querySelectorAll("details:not([open])")];
    for (const part of unfolded) part.open = true;
  } else {
    for (const part of unfolded) part.open = false;
    unfolded = [];
  }
}
addEventListener("beforeprint", () => unfold(true));
addEventListener("afterprint", () => unfold(false));
matchMedia("print").addEventListener("change", (event) => unfold(event.matches));
