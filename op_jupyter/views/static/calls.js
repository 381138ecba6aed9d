// Tool calls: one line each, arguments and result on demand.
import { h, replace, setText } from "./dom.js";
import { coloured } from "./highlight.js";
import { icon } from "./icons.js";
import { count, depth, oneLine } from "./text.js";
import { ANSWER_WORDS, lookOf, seconds } from "./words.js";

const SHOWN_CHARS = 20_000;
const PREVIEW_CHARS = 160;
// So many rows are drawn at once; of the others only the words, until they come near the window.
const DRAWN = 50;
const NEAR = "600px";
const DEEPEST = 100;

export class CallList {
  constructor() {
    this.title = h("span");
    this.list = h("div");
    this.element = h(
      "div",
      { class: "opv-calls" },
      h("p", { class: "opv-label" }, icon("tool"), this.title),
      this.list,
    );
    this.rows = new Map();
    this.near = new IntersectionObserver((seen) => this.approach(seen), { rootMargin: NEAR });
    // The kernel is gone: what ran does so no more.
    this.dead = false;
  }

  // Take calls that are new or changed, and the id of the one that waits on a card.
  update(calls, waitingId) {
    for (const call of calls) {
      if (!this.rows.has(call.id)) {
        const row = new CallRow(this.rows.size < DRAWN);
        this.rows.set(call.id, row);
        this.list.append(row.element);
        if (!row.drawn) this.near.observe(row.element);
      }
      this.rows.get(call.id).update(call, call.id === waitingId, this.dead);
    }
    if (waitingId !== this.waitingId) {
      for (const id of [this.waitingId, waitingId])
        this.rows.get(id)?.wait(id === waitingId, this.dead);
      this.waitingId = waitingId;
    }
    setText(this.title, `Tool calls, ${this.rows.size}`);
  }

  stop() {
    this.near.disconnect();
  }

  approach(seen) {
    const near = new Set(seen.filter((one) => one.isIntersecting).map((one) => one.target));
    for (const row of this.rows.values()) {
      if (!near.has(row.element)) continue;
      this.near.unobserve(row.element);
      row.draw();
    }
  }
}

class CallRow {
  constructor(drawn) {
    this.drawn = drawn;
    this.summary = h("summary");
    this.body = h("div", { class: "opv-body" });
    this.element = h(
      "details",
      { class: "opv-call", ontoggle: () => this.fill() },
      this.summary,
      this.body,
    );
  }

  wait(waits, dead) {
    this.update(this.call, waits, dead);
  }

  update(call, waits, dead) {
    this.call = call;
    this.waits = waits;
    this.dead = dead;
    if (this.drawn || waits) this.draw();
    else setText(this.summary, `${call.name} ${lookOf(call.state).word}`);
  }

  draw() {
    const { call, waits, dead } = this;
    this.drawn = true;
    const running = dead ? "interrupted" : waits ? "waiting" : "running";
    const look = lookOf(call.state === "running" ? running : call.state);
    const told = waits ? undefined : ANSWER_WORDS[call.answer];
    const answer = told ? `, ${call.edited ? "edited and " : ""}${told}` : "";
    const word = call.state === "denied" ? look.word : look.word + answer;
    replace(
      this.summary,
      icon("chevron", { class: "opv-i opv-chev" }),
      icon("tool", { class: "opv-i opv-off" }),
      h("code", {}, h("b", {}, call.name)),
      h("code", { class: "opv-arg" }, lastLine(call) || preview(call.name, call.arguments)),
      h("span", { class: `opv-state opv-${look.tone}` }, icon(look.icon), h("span", {}, word)),
      h("span", { class: "opv-time" }, seconds(call.seconds)),
    );
    this.fill();
  }

  fill() {
    if (!this.element.open) return;
    const { call } = this;
    const [code, language] = readable(call.name, call.arguments);
    const shown = call.text || call.progress;
    replace(
      this.body,
      code ? textBox("Arguments", coloured(code.slice(0, SHOWN_CHARS), language), code) : null,
      shown
        ? textBox(call.text ? "Result" : "Output so far", [shown.slice(0, SHOWN_CHARS)], shown)
        : null,
      code || shown ? null : h("p", { class: "opv-muted" }, "No arguments, no result."),
    );
  }
}

function textBox(label, children, whole) {
  const box = h("pre", { class: "opv-box", tabindex: "0", "aria-label": label }, children);
  if (whole.length <= SHOWN_CHARS) return box;
  const all = () => replace(box, whole);
  box.append(
    "\n",
    h(
      "button",
      { type: "button", class: "opv-btn opv-sm", onclick: all },
      `Show all ${whole.length} characters`,
    ),
  );
  return box;
}

function lastLine(call) {
  return call.progress ? oneLine(call.progress.trimEnd().split("\n").at(-1), PREVIEW_CHARS) : "";
}

function argumentsOf(text) {
  if (depth(text) > DEEPEST) return null; // to write it again would overflow the stack
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

// The arguments for reading: code as code, a single text as it is, else indented JSON.
function readable(name, text) {
  const values = argumentsOf(text);
  if (!values) return [text, ""];
  const names = Object.keys(values);
  if (names.length === 1 && names[0] === "code") return [String(values.code), "python"];
  if (names.length === 1 && names[0] === "command") return [String(values.command), "shell"];
  return [names.length ? JSON.stringify(values, null, 2) : "", "json"];
}

// The arguments in one line.
export function preview(name, text) {
  const values = argumentsOf(text);
  if (!values) return oneLine(text, PREVIEW_CHARS);
  const names = Object.keys(values);
  if (names.length === 1 && Array.isArray(values[names[0]])) {
    return count(values[names[0]].length, name === "update_plan" ? "step" : "item");
  }
  if (names.length === 1 && /^(code|command)$/.test(names[0])) {
    return oneLine(String(values[names[0]]).trim().replaceAll("\n", "; "), PREVIEW_CHARS);
  }
  return oneLine(
    names.map((key) => `${key}=${JSON.stringify(values[key])}`).join(", "),
    PREVIEW_CHARS,
  );
}
