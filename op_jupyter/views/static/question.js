// A question of the program's: radio buttons, checkboxes, texts; one answer, checked by the kernel.
import { h, leave, passShortcuts, replace, setText } from "./dom.js";
import { icon } from "./icons.js";
import { isCleared, leaveNotebook } from "./leave.js";
import { visible } from "./text.js";

const NO_KERNEL_MS = 6000;
let questions = 0;

class QuestionForm {
  constructor(model) {
    this.model = model;
    this.question = model.get("question");
    questions += 1;
    this.prefix = `opv-${this.question.id}-${questions}`.replace(/[^\w-]/g, "_");
    this.problem = h("p", { class: "opv-err opv-problem", role: "alert" });
    this.status = h("p", { class: "opv-sent", role: "status" });
    this.body = this.makeBody();
    this.form = h(
      "form",
      {
        class: "opv-card opv-plain opv-question",
        "aria-labelledby": `${this.prefix}-t`,
        onsubmit: (event) => this.submit(event),
        onkeydown: (event) => this.key(event),
      },
      h(
        "div",
        { class: "opv-ct" },
        h("span", { class: "opv-run" }, icon("user")),
        h("h3", { id: `${this.prefix}-t` }, this.question.prompt),
      ),
      this.body,
      this.problem,
      this.buttons(),
      this.status,
    );
    this.element = h(
      "section",
      { class: "opv", "aria-label": "Question" },
      h("div", { class: "opv-sr", role: "alert" }, visible(`Question: ${this.question.prompt}`)),
      h("div", { class: "opv-cards" }, this.form),
    );
  }

  makeBody() {
    const { kind, options, multi, allow_custom: custom, fields } = this.question;
    if (kind === "confirm") return h("div", {});
    if (kind === "form") {
      this.fields = fields.map((field, index) => new Field(field, `${this.prefix}-${index}`));
      return h(
        "div",
        { class: "opv-fields" },
        this.fields.map((field) => field.element),
      );
    }
    this.own = custom ? h("textarea", { rows: options.length ? 1 : 2, class: "opv-own" }) : null;
    const label = options.length ? "In your own words" : "Answer";
    if (this.own) this.own.setAttribute("aria-label", label);
    this.group = options.length ? choiceGroup(this.prefix, this.question.prompt, options, multi, []) : null;
    if (this.own && this.group && !multi) {
      this.own.addEventListener("input", () => {
        if (this.own.value) for (const input of this.inputs()) input.checked = false;
      });
      this.group.addEventListener("change", () => {
        this.own.value = "";
      });
    }
    return h(
      "div",
      { class: "opv-fields" },
      this.group,
      this.own && h("div", { class: "opv-field" }, options.length ? h("span", {}, label) : null, this.own),
    );
  }

  inputs() {
    return this.group ? [...this.group.querySelectorAll("input")] : [];
  }

  buttons() {
    const button = (text, more) => h("button", { class: "opv-btn", type: "button", ...more }, text);
    const decline = button("Decline", { onclick: () => this.decline() });
    if (this.question.kind !== "confirm") {
      return h(
        "div",
        { class: "opv-btns" },
        button("Answer", { type: "submit", class: "opv-btn opv-safe" }),
        h("span", { class: "opv-gap" }),
        decline,
      );
    }
    const choice = (text, value) =>
      button(text, {
        class: value === this.question.default ? "opv-btn opv-safe" : "opv-btn",
        onclick: () => this.send(value),
      });
    return h(
      "div",
      { class: "opv-btns" },
      choice("Yes", true),
      choice("No", false),
      h("span", { class: "opv-gap" }),
      decline,
    );
  }

  value() {
    const { kind, multi } = this.question;
    if (kind === "form")
      return Object.fromEntries(this.fields.map((field) => [field.name, field.value()]));
    const chosen = this.inputs()
      .filter((input) => input.checked)
      .map((input) => this.question.options[Number(input.value)]);
    const own = this.own?.value ?? "";
    if (multi) return own.trim() ? [...chosen, own] : chosen;
    return chosen[0] ?? own;
  }

  submit(event) {
    event.preventDefault();
    if (this.question.kind === "confirm") this.send(this.question.default);
    else this.send(this.value());
  }

  key(event) {
    if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      leave(this.element);
    } else if (
      event.key === "Enter" &&
      /^(TEXTAREA|INPUT)$/.test(event.target.tagName) &&
      !event.shiftKey &&
      !event.isComposing
    ) {
      event.preventDefault();
      event.stopPropagation();
      this.form.requestSubmit();
    }
  }

  send(value) {
    this.tell({ kind: "answer", id: this.question.id, value });
  }

  decline() {
    this.tell({ kind: "decline", id: this.question.id });
  }

  tell(message) {
    if (this.waiting) return;
    this.waiting = true;
    setText(this.problem, "");
    this.hold(true);
    setText(this.status, "sent, waiting for the kernel");
    this.late = setTimeout(
      () => setText(this.status, "sent, but the kernel has not replied. Was it restarted?"),
      NO_KERNEL_MS,
    );
    this.model.send(message);
  }

  hold(held) {
    for (const control of this.form.elements) control.disabled = held;
  }

  receive(message) {
    if (message?.kind === "open") {
      this.place = message.place;
      return;
    }
    if (message?.kind === "who") {
      this.model.send({ kind: "here" });
      return;
    }
    if (message?.kind === "leave") {
      leaveNotebook(this.model, message);
      return;
    }
    clearTimeout(this.late);
    if (message?.kind === "problem") {
      this.waiting = false;
      this.hold(false);
      setText(this.status, "");
      setText(this.problem, message.text);
      this.first()?.focus();
    } else if (message?.kind === "taken") {
      this.waiting = true; // in another page, perhaps
      this.hold(true);
      setText(this.status, "answered");
    }
  }

  first() {
    const safe = this.form.querySelector(".opv-btn.opv-safe");
    return this.question.kind === "confirm"
      ? safe
      : (this.form.querySelector("input, textarea, select") ?? safe);
  }

  start(el) {
    el.append(this.element);
    const listen = (message) => this.receive(message);
    this.model.on("msg:custom", listen);
    const stopPassing = passShortcuts(this.element);
    this.model.send({ kind: "ready" });
    const writing = document.activeElement?.matches?.(
      "textarea, input, [contenteditable]:not([contenteditable=false])",
    );
    if (!writing) this.first()?.focus({ preventScroll: true });
    return () => {
      clearTimeout(this.late);
      stopPassing();
      this.model.off("msg:custom", listen);
      el.replaceChildren(); // JupyterLab keeps the element for as long as the page is open
      this.model.send({ kind: "removed", cleared: isCleared(this.model, this.place) });
    };
  }
}

class Field {
  constructor(field, id) {
    this.field = field;
    this.name = field.name;
    const { kind, options, default: initial } = field;
    const hint = field.help ? h("span", { class: "opv-muted", id: `${id}-h` }, field.help) : null;
    const about = { "aria-describedby": field.help ? `${id}-h` : null };
    if (kind === "choice" || kind === "choices") {
      const first = kind === "choices" ? initial.split(", ") : [initial];
      this.group = choiceGroup(id, field.title, options, kind === "choices", first, "");
      this.element = h("div", { class: "opv-field" }, this.group, hint);
      return;
    }
    if (kind === "boolean") {
      this.input = h("input", { type: "checkbox", id, ...about });
      this.input.checked = initial === "true";
      const label = h("label", { for: id, class: "opv-choice" }, this.input, field.title);
      this.element = h("div", { class: "opv-field" }, label, hint);
      return;
    }
    const number = kind === "integer" || kind === "number";
    this.input =
      kind === "json"
        ? h("textarea", { id, rows: 2, class: "opv-mono", spellcheck: "false", ...about })
        : h("input", { type: "text", id, inputmode: number ? "decimal" : null, ...about });
    this.input.value = initial;
    if (field.required && !initial) this.input.setAttribute("aria-required", "true");
    this.element = h("div", { class: "opv-field" }, h("label", { for: id }, field.title), this.input, hint);
  }

  value() {
    if (this.field.kind === "boolean") return this.input.checked ? "yes" : "no";
    if (!this.group) return this.input.value;
    const chosen = [...this.group.querySelectorAll("input")]
      .filter((input) => input.checked)
      .map((input) => this.field.options[Number(input.value)]);
    return this.field.kind === "choices" ? chosen : (chosen[0] ?? "");
  }
}

// Where the title stands above all of them already, `legend` hides it.
function choiceGroup(name, title, options, multi, checked, legend = "opv-sr") {
  return h(
    "fieldset",
    { class: "opv-choices" },
    h("legend", { class: legend }, title),
    options.map((option, index) => {
      const input = h("input", { type: multi ? "checkbox" : "radio", name, value: index });
      input.checked = checked.includes(option);
      return h("label", { class: "opv-choice" }, input, option);
    }),
  );
}

function render({ model, el }) {
  replace(el);
  return new QuestionForm(model).start(el);
}

export default { render };
