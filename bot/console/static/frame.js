// The frame: drawers on narrow screens, the theme switch.

import { announce, byId } from "./dom.js";

const narrow = matchMedia("(max-width: 900px)");
const drawers = ["side", "time"];
let open = null, opener = null;

function show() {
  for (const name of drawers) {
    const drawer = byId(name);
    drawer.classList.toggle("open", open === name);
    drawer.inert = narrow.matches && open !== name;
    document.querySelector(`[data-open="${name}"]`).setAttribute("aria-expanded", String(open === name));
  }
  byId("main").inert = narrow.matches && open !== null;
  byId("scrim").hidden = !(narrow.matches && open !== null);
}

export function openDrawer(name) {
  open = name;
  opener = document.activeElement;
  show();
  byId(name).focus({ preventScroll: true });
}

export function closeDrawer() {
  if (open === null) return;
  open = null;
  show();
  if (opener && opener.isConnected) opener.focus({ preventScroll: true });
}

function setUpDrawers() {
  for (const button of document.querySelectorAll("[data-open]")) button.addEventListener("click", () => openDrawer(button.dataset.open));
  for (const button of document.querySelectorAll("[data-close]")) button.addEventListener("click", closeDrawer);
  byId("scrim").addEventListener("click", closeDrawer);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape" && open !== null && !document.querySelector("dialog[open]")) closeDrawer(); });
  narrow.addEventListener("change", () => { open = null; show(); });
  show();
}

function setUpTheme() {
  const buttons = [...document.querySelectorAll("[data-theme-choice]")];
  const mark = () => {
    const chosen = document.documentElement.dataset.theme ?? "system";
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.themeChoice === chosen));
  };
  for (const button of buttons) {
    button.addEventListener("click", () => {
      const choice = button.dataset.themeChoice;
      if (choice === "system") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = choice;
      if (choice === "system") localStorage.removeItem("moorings.theme");
      else localStorage.setItem("moorings.theme", choice);
      mark();
      announce(`Theme: ${choice}`);
    });
  }
  mark();
}

export function setUpFrame() {
  setUpDrawers();
  setUpTheme();
}
