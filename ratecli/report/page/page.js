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

// Plots: tooltips for the mouse and the arrow keys; legend entries hide and show series.
const NEAR = 28;
const tip = create("div", "tip");
tip.setAttribute("role", "status");
tip.hidden = true;
document.body.append(tip);

class Plot {
  constructor(canvas) {
    this.canvas = canvas;
    this.picture = canvas.querySelector("svg, img");
    const data = JSON.parse(canvas.querySelector("script").textContent);
    this.names = data.series;
    this.marks = data.marks;
    this.off = new Set();
    this.at = -1;
    this.ring = create("span", "ring");
    this.ring.hidden = true;
    canvas.append(this.ring);
    this.addKeys();
    if (this.marks.length) this.listen();
  }

  addKeys() {
    const area = this.picture.getBoundingClientRect();
    this.names.forEach((name, number) => {
      const parts = [...this.picture.querySelectorAll(`[data-legend="${number}"]`)];
      const boxes = parts.map((part) => part.getBoundingClientRect());
      if (!boxes.length || !area.width) return;
      const left = Math.min(...boxes.map((box) => box.left)) - 3, right = Math.max(...boxes.map((box) => box.right)) + 3;
      const top = Math.min(...boxes.map((box) => box.top)) - 2, bottom = Math.max(...boxes.map((box) => box.bottom)) + 2;
      const key = create("button", "key");
      key.type = "button";
      key.title = "Hide or show";
      key.setAttribute("aria-label", name);
      key.setAttribute("aria-pressed", "true");
      key.style.left = `${100 * (left - area.left) / area.width}%`;
      key.style.top = `${100 * (top - area.top) / area.height}%`;
      key.style.width = `${100 * (right - left) / area.width}%`;
      key.style.height = `${100 * (bottom - top) / area.height}%`;
      key.addEventListener("click", () => this.toggle(number, key, parts));
      this.canvas.append(key);
    });
  }

  toggle(number, key, parts) {
    const hide = !this.off.has(number);
    this.off[hide ? "add" : "delete"](number);
    key.setAttribute("aria-pressed", String(!hide));
    for (const part of this.picture.querySelectorAll(`[data-series="${number}"]`)) part.classList.toggle("off", hide);
    for (const part of parts) part.classList.toggle("dim", hide);
    this.leave();
  }

  listen() {
    this.canvas.tabIndex = 0;
    const point = (event) => this.show(this.nearest(event.clientX, event.clientY));
    this.canvas.addEventListener("pointermove", point);
    this.canvas.addEventListener("click", point);
    this.canvas.addEventListener("pointerleave", () => this.leave());
    this.canvas.addEventListener("blur", () => this.leave());
    this.canvas.addEventListener("focus", () => {
      if (this.canvas.matches(":focus-visible")) this.step(0, 1);
    });
    this.canvas.addEventListener("keydown", (event) => {
      const last = this.marks.length - 1;
      const moves = {ArrowRight: [this.at + 1, 1], ArrowDown: [this.at + 1, 1], ArrowLeft: [this.at - 1, -1],
        ArrowUp: [this.at - 1, -1], Home: [0, 1], End: [last, -1]};
      if (event.target !== this.canvas) return;
      if (event.key === "Escape") this.leave();
      if (!moves[event.key]) return;
      event.preventDefault();
      this.step(...moves[event.key]);
    });
  }

  // Go to the next visible mark in a direction; stay at either end.
  step(start, by) {
    for (let k = start; k >= 0 && k < this.marks.length; k += by) {
      if (!this.off.has(this.marks[k][4])) return this.show(k);
    }
  }

  nearest(clientX, clientY) {
    const area = this.picture.getBoundingClientRect();
    let best = -1, least = NEAR;
    this.marks.forEach(([x, y, width, height, number], k) => {
      if (this.off.has(number)) return;
      const across = Math.abs(clientX - area.left - x * area.width) - width * area.width / 2;
      const down = Math.abs(clientY - area.top - y * area.height) - height * area.height / 2;
      const far = width || height ? (across <= 1 && down <= 1 ? 0 : Infinity) : Math.hypot(across, down);
      if (far < least) [best, least] = [k, far];
    });
    return best;
  }

  show(k) {
    if (k < 0) return this.leave();
    this.at = k;
    const [x, y, width, height, number, facts] = this.marks[k];
    const list = create("dl");
    for (const [name, value] of facts) list.append(create("dt", "", name), create("dd", "", value));
    tip.replaceChildren(...(number === null ? [] : [create("strong", "", this.names[number])]), list);
    tip.hidden = this.ring.hidden = false;
    const box = Boolean(width || height);
    this.ring.classList.toggle("square", box);
    this.ring.style.left = `${100 * (x - width / 2)}%`;
    this.ring.style.top = `${100 * (y - height / 2)}%`;
    this.ring.style.width = box ? `${100 * width}%` : "";
    this.ring.style.height = box ? `${100 * height}%` : "";
    this.place(x, y, height);
  }

  // Place the tooltip above the mark, or below if there is no space above, within the window.
  place(x, y, height) {
    const area = this.picture.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const half = height * area.height / 2 + 14, middle = area.top + y * area.height;
    const left = area.left + x * area.width - size.width / 2;
    const top = middle - half - size.height;
    tip.style.left = `${Math.max(6, Math.min(left, innerWidth - size.width - 6))}px`;
    tip.style.top = `${top >= 6 ? top : middle + half}px`;
  }

  leave() {
    this.at = -1;
    tip.hidden = this.ring.hidden = true;
  }
}
for (const canvas of document.querySelectorAll(".canvas")) new Plot(canvas);
addEventListener("scroll", () => { tip.hidden = true; }, {passive: true, capture: true});

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
