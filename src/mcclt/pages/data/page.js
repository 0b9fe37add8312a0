"use strict";
// What every page shares; its own script follows in the same element.
const root = document.documentElement;
const byId = (id) => document.getElementById(id);

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
