"use strict";
// What every page shares; its own script follows in the same element.
const root = document.documentElement;
const byId = (id) => document.getElementById(id);

// --- making elements ---

const html = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
function fill(element, attributes, children) {
  set(element, attributes);
  element.append(...children);
  return element;
}
function set(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
}

// --- numbers ---

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const fine = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 4 });
const power = new Intl.NumberFormat("en-US", { notation: "scientific", maximumSignificantDigits: 3 });
function say(v) {
  if (v === null || v === undefined) return "–";
  const size = Math.abs(v);
  const how = size >= 1e6 || (size > 0 && size < 1e-3) ? power : size >= 1000 ? whole : fine;
  return how.format(v).replaceAll("-", "−").replace("E", "e");
}
const known = (values) => values.filter((v) => v !== null);
const least = (values) => known(values).reduce((a, b) => Math.min(a, b), Infinity);
const most = (values) => known(values).reduce((a, b) => Math.max(a, b), -Infinity);
const clamp = (v, low, high) => Math.max(low, Math.min(high, v));

// Round numbers between low and high, about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const size = 10 ** Math.floor(Math.log10(rough));
  const step = size * [1, 2, 2.5, 5, 10].find((m) => m * size >= rough * (1 - 1e-9));
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(+(k * step).toPrecision(12));
  return found;
}

// --- shapes of charts: values by place, and functions from place and value to pixels ---

const place = (v) => +v.toFixed(1);

// A line through the known values, broken where there is none; one alone is a dot (a line of no length).
function path(values, x, y) {
  let text = "";
  let pen = "M";
  for (let k = 0; k < values.length; k++) {
    if (values[k] === null) { pen = "M"; continue; }
    text += `${pen}${place(x(k))} ${place(y(values[k]))}${pen === "M" ? "h0" : ""}`;
    pen = "L";
  }
  return text;
}

// What lies between two lines, where both are known.
function area(low, high, x, y) {
  const places = [...low.keys()].filter((k) => low[k] !== null && high[k] !== null);
  const go = (values) => (k) => `${place(x(k))} ${place(y(values[k]))}`;
  return places.length ? `M${places.map(go(high)).join("L")}L${places.reverse().map(go(low)).join("L")}z` : "";
}

// --- theme: the system's, or what the reader chose. Storage may be forbidden (file://, private windows). ---

const KEY = "mcclt-theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

function remembered() {
  try { return localStorage.getItem(KEY); } catch { return null; }
}
function remember(theme) {
  try { localStorage.setItem(KEY, theme); } catch { /* it then lasts as long as the page */ }
}
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);

const chosen = remembered();
if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen; // before anything is painted

function setUpTheme() {
  const button = byId("theme");
  const show = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    remember(root.dataset.theme);
    show();
  });
  dark.addEventListener("change", show);
  show();
}

// --- copy buttons -------------------------------------------------------------------------------------

function setUpCopying() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest(".copy");
    if (!button) return;
    const code = button.previousElementSibling;
    button.textContent = (await copy(code)) ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  });
}

// Copies an element's text; where that is forbidden, selects it instead.
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return true;
  } catch {
    getSelection().selectAllChildren(element);
    return document.execCommand("copy");
  }
}

// --- the section being read, in the bar ---------------------------------------------------------------

function setUpBar() {
  const links = new Map([...document.querySelectorAll(".bar li a")].map((a) => [a.hash.slice(1), a]));
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) links.get(target.id).setAttribute("aria-current", "true");
      else links.get(target.id).removeAttribute("aria-current");
    }
  }, { rootMargin: "-30% 0px -69% 0px" });
  for (const id of links.keys()) watcher.observe(byId(id));
}
