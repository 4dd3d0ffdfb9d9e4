// Building and updating nodes. Text goes in as text only; there is no way to pass markup.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element: `on` holds listeners, `class`, `style` (an object), other keys are attributes; null and false are left out. */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [type, listener] of Object.entries(value)) node.addEventListener(type, listener);
    else if (name === "style") for (const [key, one] of Object.entries(value)) node.style.setProperty(key, one);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Draw one stroke as a small decorative picture. */
export function icon(path, size = 12) {
  const svg = document.createElementNS(SVG, "svg");
  const attributes = { viewBox: "0 0 12 12", width: size, height: size, fill: "none", stroke: "currentColor", "stroke-width": 1.8, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" };
  for (const [name, value] of Object.entries(attributes)) svg.setAttribute(name, value);
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  svg.append(line);
  return svg;
}

export const byId = (id) => document.getElementById(id);

/**
 * Make a container's children follow a list: nodes are kept while key and version stay, focus inside a replaced node goes to the
 * same control of its successor (by data-focus), else to the successor itself.
 */
export function reconcile(container, items, { key, version, build }) {
  const focused = container.contains(document.activeElement) ? document.activeElement : null;
  const old = new Map([...container.children].map((node) => [node.dataset.key, node]));
  let place = container.firstElementChild;
  for (const item of items) {
    const id = String(key(item));
    const stamp = String(version(item));
    let node = old.get(id);
    old.delete(id);
    if (!node || node.dataset.version !== stamp) {
      const next = build(item);
      next.dataset.key = id;
      next.dataset.version = stamp;
      if (node) {
        if (place === node) place = node.nextElementSibling;
        replaceKeepingFocus(node, next);
        if (next.nextElementSibling === place) continue;
      }
      node = next;
    }
    if (node === place) place = place.nextElementSibling;
    else container.insertBefore(node, place);
  }
  for (const node of old.values()) node.remove();
  if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true }); // moving a node drops its focus
}

export function replaceKeepingFocus(node, next) {
  const focused = node.contains(document.activeElement) ? document.activeElement : null;
  const wanted = focused && focused.dataset.focus;
  for (const details of node.querySelectorAll("details[open][data-fold]")) {
    const twin = [...next.querySelectorAll("details[data-fold]")].find((one) => one.dataset.fold === details.dataset.fold);
    if (twin) twin.open = true;
  }
  node.replaceWith(next);
  if (!focused) return;
  const twin = wanted && [...next.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === wanted);
  const target = twin || next;
  if (!twin) target.setAttribute("tabindex", "-1");
  target.focus({ preventScroll: true });
  if (twin && typeof focused.selectionStart === "number") twin.setSelectionRange(focused.selectionStart, focused.selectionEnd);
}

let clear = 0;

/** Say something to screen readers, politely. */
export function announce(text) {
  const region = byId("announce");
  region.textContent = text;
  clearTimeout(clear);
  clear = setTimeout(() => { region.textContent = ""; }, 6000);
}
