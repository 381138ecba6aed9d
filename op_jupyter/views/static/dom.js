// Elements made one by one. Text from a model or a tool only ever becomes a text node or a plain
// attribute: nothing here, or built on it, parses HTML.
import { visible } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";

const SUPPRESSES = "data-lm-suppress-shortcuts";
const TAKES_KEYS = new Set(["button", "input", "textarea", "summary"]);

// `on*` attributes are listeners, `false` and `null` leave an attribute or a child out.
function fill(element, attributes, children) {
  // Front ends that hear keys first would else act on them: D D deletes the cell around us. They
  // look for this on the focused element itself.
  if (TAKES_KEYS.has(element.localName) || "tabindex" in attributes) {
    element.setAttribute(SUPPRESSES, "true");
  }
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  put(element, children);
  return element;
}

function put(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : visible(child));
  }
}

export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

export function replace(element, ...children) {
  element.replaceChildren();
  put(element, children);
  return element;
}

// Text that only changes when it has to, so that live regions speak once.
export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

export function show(element, wanted) {
  if (element.hidden === wanted) element.hidden = !wanted;
}

// Give the focus back to the notebook.
export function leave(element) {
  document.activeElement?.blur();
  const cell = element.closest(".jp-Cell, .cell");
  const home = cell?.closest(".jp-Notebook, #notebook-container") ?? null;
  for (const target of [cell, home]) {
    target?.focus({ preventScroll: true });
    if (target && document.activeElement === target) return;
  }
}

// Shortcuts with Ctrl or Cmd, such as the one that saves the notebook, are its own also while the
// focus is in `root`: what holds keys back is away while they pass. Returns the way to end that.
export function passShortcuts(root) {
  const pass = (event) => {
    if (!root.contains(event.target) || !isShortcut(event)) return;
    const held = [];
    for (let at = event.target; root.contains(at); at = at.parentElement) {
      if (at.hasAttribute(SUPPRESSES)) held.push(at);
      at.removeAttribute(SUPPRESSES);
    }
    setTimeout(() => held.forEach((element) => element.setAttribute(SUPPRESSES, "true")));
  };
  window.addEventListener("keydown", pass, true);
  return () => window.removeEventListener("keydown", pass, true);
}

// While somebody writes, only saving: the others may mean the text.
function isShortcut({ key, ctrlKey, metaKey, altKey, target }) {
  if (!(ctrlKey || metaKey) || altKey || key.length !== 1) return false;
  return key.toLowerCase() === "s" || !/^(TEXTAREA|INPUT)$/.test(target.tagName);
}
