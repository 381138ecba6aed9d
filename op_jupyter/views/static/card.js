// The permission card: everything needed to decide, the safe answer focused, one answer taken.
import { argumentsView, diffSize } from "./arguments.js";
import { h, leave, replace } from "./dom.js";
import { icon } from "./icons.js";
import { count, visible } from "./text.js";
import { ANSWER_WORDS, lookup } from "./words.js";

// A key pressed in the moment in which the card took the focus was not meant for it.
const ARMED_AFTER_MS = 250;
const TYPING_MS = 1500;
const PATIENCE_MS = 6000;
const NEW_TEXT = ["new_text", "new_string", "new", "content", "text"];

export class PermissionCard {
  // `decide({answer, arguments, message})` takes the one answer.
  constructor(request, decide) {
    this.request = request;
    this.decide = decide;
    this.drawer = null;
    this.answered = null;
    this.focusedAt = Number.NEGATIVE_INFINITY;
    this.prefix = `opv-card-${request.id}`.replace(/[^\w-]/g, "_");
    this.element = h(
      "section",
      {
        class: `opv-card${request.dangers?.length ? "" : " opv-plain"}`,
        role: "group",
        tabindex: "-1",
        "aria-labelledby": `${this.prefix}-t`,
        "aria-describedby": `${this.prefix}-w`,
        onkeydown: (event) => this.key(event),
      },
      this.head(),
      this.facts(),
      argumentsView(request),
      this.buttons(),
      h("div", {}),
      hints(this.editable() !== null),
    );
    [this.drawerPlace, this.hints] = [...this.element.children].slice(-2);
  }

  get question() {
    return questionOf(this.request);
  }

  head() {
    const { dangers = [], display = {} } = this.request;
    const dangerous = dangers.length > 0;
    const [, ...parts] = this.question;
    const chip = dangerous
      ? h("span", { class: "opv-chip opv-err" }, icon("alert"), `dangerous: ${lower(dangers[0])}`)
      : display.kind === "diff" &&
        h("span", { class: "opv-chip opv-off" }, diffSize(display.diff ?? ""));
    const mark = dangerous
      ? ["shield", "opv-warn"]
      : [display.kind === "diff" ? "pencil" : "shield", "opv-run"];
    return h(
      "div",
      { class: "opv-ct" },
      h("span", { class: mark[1] }, icon(mark[0])),
      h("h3", { id: `${this.prefix}-t` }, parts),
      chip,
    );
  }

  facts() {
    const { dangers = [], reason, mode, touches = [], undo } = this.request;
    const fact = (name, value, id) => (value ? [h("dt", {}, name), h("dd", { id }, value)] : null);
    const list = (items) => items.map((item, index) => [index > 0 && ", ", h("code", {}, item)]);
    return h(
      "dl",
      { class: "opv-facts" },
      dangers.length > 1 &&
        fact(
          "Danger",
          h(
            "ul",
            {},
            dangers.map((danger) => h("li", {}, danger)),
          ),
        ),
      fact("Why", reason, `${this.prefix}-w`),
      fact("Mode", mode && h("code", {}, mode)),
      fact("Touches", touches.length > 0 && list(touches)),
      fact("Undo", undo),
    );
  }

  buttons() {
    const button = (name, text, key, act, more = {}) =>
      h(
        "button",
        {
          type: "button",
          class: "opv-btn",
          "data-answer": name,
          "aria-keyshortcuts": key,
          onclick: act,
          ...more,
        },
        name === "edit" && icon("pencil"),
        text,
        h("kbd", { "aria-hidden": "true" }, key),
      );
    const opens = { "aria-expanded": "false" };
    this.denyButton = button("deny", "Deny", "D", () => this.answer("deny"), {
      class: "opv-btn opv-safe",
    });
    return h(
      "div",
      { class: "opv-btns" },
      button("allow", "Allow once", "A", () => this.answer("allow")),
      this.request.rule &&
        button("session", "Allow for this session…", "S", () => this.toggle("session"), opens),
      this.editable() !== null &&
        button("edit", "Edit first", "E", () => this.toggle("edit"), opens),
      h(
        "span",
        { class: "opv-no" },
        this.denyButton,
        button("message", "Deny with message…", "M", () => this.toggle("message"), opens),
      ),
    );
  }

  // -- keys

  key(event) {
    if (event.key === "Escape") return this.escape(event);
    const typing = /^(TEXTAREA|INPUT)$/.test(event.target.tagName);
    if (typing || event.ctrlKey || event.metaKey || event.altKey || event.repeat) return undefined;
    const presses = event.key === "Enter" || event.key === " ";
    const letter = CSS.escape(event.key.toUpperCase());
    const button = presses
      ? event.target.closest("[data-answer]")
      : this.element.querySelector(`[aria-keyshortcuts="${letter}"]`);
    if (!button || button.disabled) return undefined;
    const armed = performance.now() - this.focusedAt > ARMED_AFTER_MS;
    const decides = !button.hasAttribute("aria-expanded");
    if (presses && (armed || !decides)) return undefined;
    event.preventDefault();
    event.stopPropagation();
    if (!presses && (armed || !decides)) button.click();
    return undefined;
  }

  // Closes the open drawer, else leaves the card; decides nothing.
  escape(event) {
    event.preventDefault();
    event.stopPropagation();
    const opener = this.drawer;
    if (opener) {
      this.toggle(opener);
      this.element.querySelector(`[data-answer="${opener}"]`).focus();
    } else {
      leave(this.element);
    }
  }

  // Put the focus on the safe answer, unless somebody is writing elsewhere.
  takeFocus(lastTyped) {
    const writing = document.activeElement?.matches?.(
      "textarea, input, [contenteditable]:not([contenteditable=false])",
    );
    if (writing && performance.now() - lastTyped < TYPING_MS) return;
    this.focusedAt = Number.POSITIVE_INFINITY;
    requestAnimationFrame(() => (this.focusedAt = performance.now())); // now it can be seen
    this.denyButton.focus({ preventScroll: true });
    this.element.scrollIntoView({ block: "nearest" });
  }

  // -- drawers: one at a time

  toggle(name) {
    this.drawer = this.drawer === name ? null : name;
    for (const button of this.element.querySelectorAll("[aria-expanded]")) {
      button.setAttribute("aria-expanded", String(button.dataset.answer === this.drawer));
    }
    const drawers = {
      session: () => this.sessionDrawer(),
      edit: () => this.editDrawer(),
      message: () => this.messageDrawer(),
    };
    replace(this.drawerPlace, this.drawer && drawers[this.drawer]());
    this.drawerPlace.querySelector("textarea, button")?.focus();
  }

  small(text, act) {
    return h("button", { type: "button", class: "opv-btn opv-sm", onclick: act }, text);
  }

  sessionDrawer() {
    const { rule } = this.request;
    const label = { tabindex: "0", role: "note", "aria-label": "The rule" };
    const short = !rule.includes("\n") && rule.length <= 60;
    return h(
      "div",
      { class: "opv-drawer" },
      h("p", { class: "opv-b" }, "Allow for this session adds this rule"),
      short ? null : h("pre", { class: "opv-box", ...label }, rule),
      h(
        "div",
        { class: "opv-r" },
        short && h("code", label, rule),
        h(
          "span",
          { class: "opv-muted" },
          "listed by ",
          h("code", {}, "%agent permissions"),
          ", can be taken back there",
        ),
        h("span", { class: "opv-gap" }),
        this.small("Add rule and allow", () => this.answer("allow_session")),
        this.small("Back", () => this.toggle("session")),
      ),
    );
  }

  messageDrawer() {
    const id = `${this.prefix}-m`;
    const area = h("textarea", { id, rows: 2 });
    const send = () =>
      area.value.trim()
        ? this.answer("deny_message", { message: area.value.trim() })
        : area.focus();
    return h(
      "div",
      { class: "opv-drawer" },
      h("label", { for: id }, "Message to the agent. The call is denied, the turn goes on."),
      area,
      h(
        "div",
        { class: "opv-r" },
        this.small("Deny and send", send),
        h("span", { class: "opv-muted" }, "Deny without a message ends the turn."),
      ),
    );
  }

  // Which argument "Edit first" opens: the code, the new text, or null for all of them as JSON.
  editable() {
    const { arguments: values = {}, display = {} } = this.request;
    const names = Object.keys(values);
    if (names.length === 0) return null;
    const isText = (name) => typeof values[name] === "string";
    if (display.kind === "code") return names.find((name) => values[name] === display.code) ?? "";
    if (display.kind === "diff")
      return NEW_TEXT.find((name) => names.includes(name) && isText(name)) ?? "";
    return "";
  }

  editDrawer() {
    const id = `${this.prefix}-e`;
    const name = this.editable();
    const values = this.request.arguments;
    const proposal = name ? values[name] : JSON.stringify(values, null, 2);
    const area = h("textarea", {
      id,
      class: "opv-mono",
      spellcheck: "false",
      rows: Math.min(16, Math.max(3, proposal.split("\n").length)),
    });
    area.value = proposal;
    const said = h("span", { class: "opv-muted", role: "status" }, "no change yet");
    area.addEventListener("input", () => replace(said, difference(proposal, area.value)));
    const allow = () => {
      const edited = name ? { ...values, [name]: area.value } : parsed(area.value);
      if (edited === null)
        replace(
          said,
          h("span", { class: "opv-err" }, "This is not a JSON object; nothing was sent."),
        );
      else this.answer("allow", area.value === proposal ? {} : { arguments: edited });
    };
    const what = name
      ? this.request.display.kind === "code"
        ? "the code"
        : "the new text"
      : "the arguments";
    return h(
      "div",
      { class: "opv-drawer" },
      h("label", { for: id }, `Edit ${what}, then allow. The agent is told that you changed it.`),
      area,
      h(
        "div",
        { class: "opv-r" },
        this.small("Allow edited", allow),
        this.small("Discard my edit", () => this.toggle("edit")),
        said,
      ),
    );
  }

  // -- the answer

  answer(answer, more = {}) {
    if (this.answered) return;
    this.answered = answer;
    this.element.focus({ preventScroll: true });
    this.hints.remove();
    for (const control of this.element.querySelectorAll("button, textarea"))
      control.disabled = true;
    const edited = more.arguments ? ", edited" : "";
    const said = h(
      "p",
      { class: "opv-sent", role: "status" },
      `${ANSWER_WORDS[answer]}${edited}: sent, waiting for the kernel`,
    );
    replace(this.drawerPlace, said);
    const late =
      "sent, but the kernel has not replied. If it was restarted, this card has expired and the call did not run.";
    setTimeout(() => replace(said, `${ANSWER_WORDS[answer]}${edited}: ${late}`), PATIENCE_MS);
    this.decide({ answer, ...more });
  }
}

// What stays of a card that nobody will answer any more.
export function expiredCard(request) {
  const code =
    request.display?.code ?? request.display?.diff ?? JSON.stringify(request.arguments ?? {});
  const lines = code.split("\n");
  const [, ...question] = questionOf(request);
  return h(
    "section",
    { class: "opv-card opv-gone", role: "group", "aria-label": "Expired approval" },
    h(
      "div",
      { class: "opv-ct" },
      h("span", { class: "opv-off" }, icon("expired")),
      h("h3", {}, question),
      h("span", { class: "opv-chip opv-off" }, icon("expired"), "expired"),
    ),
    h(
      "p",
      { class: "opv-note" },
      "This approval belongs to a kernel that has ended. It was not answered and the call did not run.",
    ),
    h(
      "pre",
      { class: "opv-box" },
      lines.find((line) => line.trim()) ?? "",
      lines.length > 1 && h("span", { class: "opv-muted" }, `  … ${count(lines.length, "line")}`),
    ),
  );
}

// What stays of a card while its answered call runs.
export function answeredCard({ request, answer, how }) {
  const [, ...question] = questionOf(request);
  const allowed = answer.startsWith("allow");
  const by = how && how !== "click" ? ` (${how})` : "";
  return h(
    "div",
    { class: "opv-answered" },
    h("span", { class: allowed ? "opv-ok" : "opv-err" }, icon(allowed ? "ok" : "denied")),
    h("span", {}, question),
    h("span", { class: "opv-muted" }, `${ANSWER_WORDS[answer]}${by}`),
  );
}

// [plain text, ...nodes]
export function questionOf({ tool, display = {} }) {
  if (tool === "undo_files") return ["Put these files back?", "Put these files back?"];
  if (tool === "delete_file" && display.path) {
    return [`Delete ${display.path}?`, "Delete ", h("code", {}, display.path), "?"];
  }
  if (display.kind === "diff") {
    const verb = /^--- \/dev\/null/m.test(display.diff ?? "") ? "Create" : "Edit";
    return [`${verb} ${display.path}?`, `${verb} `, h("code", {}, display.path ?? "file"), "?"];
  }
  if (display.kind === "code") {
    const what = {
      python: "Python code",
      shell: "shell command",
      bash: "shell command",
      sh: "shell command",
    };
    const text = `Run this ${lookup(what, display.language, "code")}?`;
    return [text, text];
  }
  return [`Call ${tool}?`, "Call ", h("code", {}, tool), "?"];
}

const lower = (text) => text.charAt(0).toLowerCase() + text.slice(1).replace(/\.$/, "");

function difference(one, other) {
  if (one === other) return "no change yet";
  const before = new Set(one.split("\n"));
  const changed = other.split("\n").filter((line) => !before.has(line)).length;
  return changed === 1
    ? "1 line differs from the proposal"
    : `${changed} lines differ from the proposal`;
}

function parsed(text) {
  try {
    const value = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

function hints(editable) {
  const keys = (...names) => names.map((name) => [h("kbd", {}, name), " "]);
  const letters = editable ? ["A", "S", "E", "D", "M"] : ["A", "S", "D", "M"];
  return h(
    "div",
    { class: "opv-hints" },
    h("span", {}, keys("Tab"), "next answer"),
    h("span", {}, keys("Enter"), "press"),
    h("span", {}, keys(...letters), "choose, while the card has focus"),
    h("span", {}, keys("Esc"), "back to the notebook, decides nothing"),
  );
}

// One sentence for a screen reader when the card opens.
export function announcement(request) {
  const [question] = questionOf(request);
  const danger = request.dangers?.length ? ` Dangerous: ${request.dangers.join(" ")}` : "";
  return visible(`Approval needed. ${question}${danger}`);
}
