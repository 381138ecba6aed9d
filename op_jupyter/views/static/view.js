// The live view of one turn: header, answer, plan, card, calls, graph.
import { CallList, preview } from "./calls.js";
import { announcement, answeredCard, expiredCard, PermissionCard } from "./card.js";
import { h, replace, setText, show } from "./dom.js";
import { isOver, outcomeWord, TurnFold, waitingNode } from "./fold.js";
import { DetailsPanel, GraphView, leave } from "./graph.js";
import { icon } from "./icons.js";
import { MarkdownBox } from "./markdown.js";
import { count } from "./text.js";
import { ANSWER_WORDS, lookOf, seconds, thousands } from "./words.js";

const KERNEL_PATIENCE_MS = 2500;
const TWICE_MS = 1000;

class TurnView {
  constructor(model, el) {
    this.model = model;
    this.el = el;
    this.fold = new TurnFold();
    this.loaded = false;
    this.expired = false;
    this.stopping = false;
    this.skew = 0;
    this.lastTyped = Number.NEGATIVE_INFINITY;
    this.pressedI = Number.NEGATIVE_INFINITY;
    this.build();
  }

  build() {
    this.header = new Header(() => this.stop());
    this.answer = new MarkdownBox("opv-md");
    this.notes = h("div", { class: "opv-notes" });
    this.noteBoxes = [];
    this.plan = h("aside", { class: "opv-plan", "aria-label": "Plan" });
    this.thinking = h("pre", { class: "opv-box opv-thinking", tabindex: "0" });
    this.thinkingFold = h("details", { class: "opv-think" }, h("summary", {}, "Thinking"), this.thinking);
    this.said = h("div", { class: "opv-said" }, this.notes, this.thinkingFold, this.answer.element);
    this.two = h("div", { class: "opv-two" }, this.said, this.plan);
    this.outcome = h("div", { class: "opv-outcome" });
    this.cardPlace = h("div", { class: "opv-cards" });
    this.calls = new CallList();
    this.graph = new GraphView((row, node) => this.details.look(row, node));
    this.details = new DetailsPanel(this.graph, {
      ask: null,
      act: (action, id) => this.model.send({ kind: "node_action", action, id }),
    });
    this.graphPlace = h("div", { class: "opv-dag" }, this.graph.element, this.details.element);
    this.polite = h("div", { class: "opv-sr", role: "status", "aria-live": "polite" });
    this.alert = h("div", { class: "opv-sr", role: "alert" });
    this.cursor = h("span", { class: "opv-cursor", "aria-hidden": "true" });
    this.root = h(
      "section",
      { class: "opv", "aria-label": "Agent turn", onkeydown: (event) => this.keepKey(event) },
      this.header.element,
      this.outcome,
      this.two,
      this.cardPlace,
      this.calls.element,
      this.graphPlace,
      this.polite,
      this.alert,
    );
    this.el.append(this.root);
  }

  start() {
    const receive = (message) => this.receive(message);
    const typed = (event) => this.noteTyping(event);
    const lost = () => this.loseKernel();
    this.model.on("msg:custom", receive);
    // Told by the widget manager when the kernel restarts: the new one knows nothing of this view.
    this.model.on("comm_live_update", lost);
    document.addEventListener("keydown", typed, true);
    const clock = setInterval(() => this.tick(), 1000);
    const patience = setTimeout(() => this.paint(), KERNEL_PATIENCE_MS);
    const resized = new ResizeObserver(() => this.graph.draw());
    resized.observe(this.graph.scroller);
    this.since = performance.now();
    this.paint();
    this.model.send({ kind: "ready" });
    return () => {
      this.model.off("msg:custom", receive);
      this.model.off("comm_live_update", lost);
      document.removeEventListener("keydown", typed, true);
      clearInterval(clock);
      clearTimeout(patience);
      resized.disconnect();
    };
  }

  // -- messages

  receive(message) {
    if (message.kind === "snapshot") this.load(message);
    else if (message.kind === "updates" && this.loaded) this.apply(message.items);
    else if (message.kind === "expire") this.expired = true;
    else if (message.kind === "details") return this.details.receive(message);
    else if (message.kind === "note") return this.details.note(message);
    return this.schedule();
  }

  // A snapshot that another view asked for is no news.
  load(message) {
    this.expired = message.expired;
    this.skew = message.now_ms - Date.now();
    this.details.actions = message.actions ?? [];
    this.details.ask = message.details ? (id) => this.model.send({ kind: "details", id }) : null;
    this.header.canStop = message.can_cancel !== false;
    if (this.loaded && message.state.sequence === this.fold.state.sequence) return;
    this.loaded = true;
    // Views of one model are handed the same objects; each needs its own to fold into.
    this.fold.load(structuredClone(message.state));
    this.graph.nodes.clear();
    this.graph.clear();
  }

  apply(items) {
    for (const item of items) this.fold.apply(structuredClone(item));
  }

  stop() {
    this.stopping = true;
    this.model.send({ kind: "cancel" });
    this.paint();
  }

  decide(request, answer) {
    this.model.send({ kind: "decide", id: request.id, ...answer });
  }

  loseKernel() {
    if (this.expired || isOver(this.fold.state)) return;
    this.expired = true;
    this.schedule();
  }

  // Plain keys stay in the view, because the notebook around it has commands on them. Its way to
  // interrupt, I I, works here as well.
  keepKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.stopPropagation();
    if (event.key === "Escape") leave(this.root);
    const typing = /^(TEXTAREA|INPUT)$/.test(event.target.tagName);
    if (typing || event.key.toLowerCase() !== "i" || event.repeat) return;
    const now = performance.now();
    if (now - this.pressedI < TWICE_MS && this.header.stops) this.stop();
    this.pressedI = now;
  }

  noteTyping(event) {
    const writes = event.key.length === 1 || event.key === "Backspace";
    if (writes && !event.ctrlKey && !event.metaKey && !event.altKey) this.lastTyped = performance.now();
  }

  // -- drawing, at most once a frame

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    // A hidden page has no frames, but its live regions and its title still have to be right.
    const frame = document.hidden ? (run) => setTimeout(run, 100) : requestAnimationFrame;
    frame(() => {
      this.scheduled = false;
      this.paint();
    });
  }

  paint() {
    const { state } = this.fold;
    if (!this.loaded) {
      this.paintSaved();
      return;
    }
    this.header.update(state, { expired: this.expired, stopping: this.stopping, now: Date.now() + this.skew });
    this.paintSaid(state);
    this.paintPlan(state.plan);
    this.paintOutcome(state);
    this.paintCard(state);
    const { nodes, calls } = this.fold.takeTouched();
    show(this.calls.element, state.calls.length > 0);
    this.calls.update(calls, state.permission?.id ?? null);
    show(this.graphPlace, state.nodes.length > 0);
    for (const call of calls) this.graph.labels.set(call.node_id, preview(call.name, call.arguments));
    this.graph.update(nodes, waitingNode(state));
    this.details.refresh();
    this.speak(state);
    this.root.dataset.status = this.expired && !isOver(state) ? "expired" : outcomeWord(state);
  }

  // Without a kernel only the widget's own few words are left.
  paintSaved() {
    const waited = performance.now() - (this.since ?? performance.now());
    const gone = waited >= KERNEL_PATIENCE_MS - 50 || this.expired;
    for (const part of [this.cardPlace, this.calls.element, this.graphPlace, this.plan, this.notes, this.thinkingFold]) show(part, false);
    const saved = this.model.get("state") ?? {};
    show(this.two, gone && Boolean(saved.answer));
    if (gone && saved.answer) this.answer.update(saved.answer);
    this.header.wait(gone ? (saved.status === "running" ? "interrupted" : (saved.status ?? "interrupted")) : null);
    const words = "No kernel answers for this view, so it shows what was saved. Nothing was run again.";
    show(this.outcome, gone);
    if (gone) replace(this.outcome, h("p", { class: "opv-note" }, words));
  }

  paintSaid(state) {
    const notes = state.cleared ? [...state.notes, state.cleared] : state.notes;
    const shownNotes = isOver(state) && state.answer ? [] : notes;
    shownNotes.forEach((text, index) => {
      this.noteBoxes[index] ??= new MarkdownBox("opv-md opv-note-text");
      this.noteBoxes[index].update(text);
    });
    this.noteBoxes.length = shownNotes.length;
    this.notes.replaceChildren(...this.noteBoxes.map((box) => box.element));
    show(this.notes, shownNotes.length > 0);
    const text = state.answer || state.draft;
    if (text !== this.shownText) this.answer.update(text);
    this.shownText = text;
    show(this.answer.element, text !== "");
    this.paintCursor(state.draft !== "" && !isOver(state) && !this.expired);
    setText(this.thinking, state.reasoning);
    show(this.thinkingFold, state.reasoning !== "");
    const anything = shownNotes.length > 0 || text !== "" || state.reasoning !== "" || state.plan.length > 0;
    show(this.two, anything);
  }

  paintCursor(writing) {
    if (!writing) {
      this.cursor.remove();
      return;
    }
    const last = this.answer.element.lastElementChild;
    const inside = last?.matches("p, h3, h4, h5, h6") ? last : (last?.querySelector(":scope > li:last-child") ?? this.answer.element);
    inside.append(this.cursor);
  }

  paintPlan(steps) {
    show(this.plan, steps.length > 0);
    const key = JSON.stringify(steps);
    if (key === this.planKey) return;
    this.planKey = key;
    const looks = {
      completed: ["ok", "opv-ok", "done: ", "opv-done"],
      done: ["ok", "opv-ok", "done: ", "opv-done"],
      in_progress: ["now", "opv-run", "in progress: ", "opv-now"],
    };
    const done = steps.filter((step) => (looks[step.status] ?? [])[0] === "ok").length;
    replace(
      this.plan,
      h("p", { class: "opv-label" }, icon("list"), `Plan, ${done} of ${steps.length}`),
      h(
        "ol",
        {},
        steps.map(({ text, status }) => {
          const [name, tone, spoken, className] = looks[status] ?? ["todo", "opv-off", "to do: ", null];
          return h("li", { class: className }, h("span", { class: tone }, icon(name)), h("span", {}, h("span", { class: "opv-sr" }, spoken), text));
        }),
      ),
    );
  }

  paintOutcome(state) {
    const words = outcomeNote(state, this.expired);
    show(this.outcome, words !== null);
    const key = JSON.stringify(words);
    if (key === this.outcomeKey) return;
    this.outcomeKey = key;
    if (!words) return;
    replace(
      this.outcome,
      h("p", { class: "opv-note" }, words.note),
      words.error && h("p", { class: "opv-error" }, h("b", { class: "opv-err" }, words.code), words.code && ": ", words.error),
    );
  }

  paintCard(state) {
    const request = state.permission;
    if (request && this.expired) return this.holdCard(`expired ${request.id}`, () => expiredCard(request));
    if (request) return this.openCard(request);
    if (state.resolved && Object.hasOwn(ANSWER_WORDS, state.resolved.answer)) return this.holdCard(`answered ${state.resolved.id}`, () => answeredCard(state.resolved));
    return this.holdCard("", () => null);
  }

  holdCard(key, make) {
    if (key === this.cardKey) return;
    const had = this.cardPlace.contains(document.activeElement);
    this.cardKey = key;
    replace(this.cardPlace, make());
    show(this.cardPlace, this.cardPlace.childNodes.length > 0);
    // The focus was in a card that is gone: keep it in the turn, not on the page's top.
    if (had) this.header.element.focus({ preventScroll: true });
  }

  openCard(request) {
    const key = `open ${request.id}`;
    if (key === this.cardKey) return;
    const card = new PermissionCard(request, (answer) => this.decide(request, answer));
    this.holdCard(key, () => card.element);
    card.takeFocus(this.lastTyped);
    setText(this.alert, announcement(request));
  }

  speak(state) {
    if (!state.permission) setText(this.alert, "");
    const step = state.step ? `Step ${state.step}. ` : "";
    const words = isOver(state) ? `Turn ${outcomeWord(state)}.` : `${step}${capital(activity(state))}.`;
    setText(this.polite, words);
    this.root.setAttribute("aria-label", `Agent turn, ${outcomeWord(state)}`);
  }

  tick() {
    if (this.loaded && !isOver(this.fold.state) && !this.expired) {
      this.header.update(this.fold.state, { expired: this.expired, stopping: this.stopping, now: Date.now() + this.skew });
    }
  }
}

// One line: what goes on, for how long, at what cost, and the way to stop it.
class Header {
  constructor(stop) {
    this.status = h("span", { class: "opv-st" });
    this.facts = h("span", { class: "opv-facts-line" });
    this.canStop = true;
    this.button = h(
      "button",
      { type: "button", class: "opv-btn opv-sm", "aria-label": "Stop: interrupt this turn", title: "Interrupt this turn", onclick: stop },
      icon("cancelled"),
      h("span", {}, "Stop"),
    );
    this.also = h("span", { class: "opv-hint" }, "or ", h("kbd", {}, "I"), " ", h("kbd", {}, "I"));
    this.element = h("div", { class: "opv-hd", tabindex: "-1" }, this.status, this.facts, h("span", { class: "opv-gap" }), this.button, this.also);
  }

  update(state, { expired, stopping, now }) {
    const over = isOver(state);
    const [look, word] = headline(state, expired);
    this.setStatus(look, word);
    const parts = facts(state, now, expired);
    const key = JSON.stringify(parts);
    if (key !== this.factsKey) replace(this.facts, parts.map((part) => h("span", { class: "opv-m" }, part)));
    this.factsKey = key;
    show(this.button, !over && !expired && this.canStop);
    show(this.also, !over && !expired && this.canStop);
    this.button.disabled = stopping;
    setText(this.button.lastElementChild, stopping ? "Stopping…" : "Stop");
  }

  get stops() {
    return !this.button.hidden && !this.button.disabled;
  }

  setStatus(look, word) {
    const key = `${look.icon} ${word}`;
    if (key === this.statusKey) return;
    this.statusKey = key;
    this.status.className = `opv-st opv-${look.tone}`;
    const spins = look.icon === "running" ? "opv-i opv-spin" : "opv-i";
    replace(this.status, icon(look.icon, { class: spins }), h("span", {}, word));
  }

  // Before a kernel has answered, or when none does.
  wait(savedStatus) {
    this.setStatus(savedStatus ? lookOf(savedStatus) : lookOf("running"), savedStatus ? capital(lookOf(savedStatus).word) : "Waiting for the kernel");
    replace(this.facts);
    show(this.button, false);
    show(this.also, false);
  }
}

function headline(state, expired) {
  if (isOver(state)) {
    const word = outcomeWord(state);
    return [lookOf(word), capital(word)];
  }
  if (expired) return [lookOf("interrupted"), "Interrupted"];
  if (state.permission) return [lookOf("waiting"), "Waiting for you"];
  return [lookOf("running"), "Running"];
}

function facts(state, now, expired) {
  const parts = [];
  const steps = state.outcome?.steps || state.step;
  if (steps) parts.push(isOver(state) ? count(steps, "step") : `step ${steps}`);
  if (expired && !isOver(state)) parts.push("kernel ended");
  else if (state.permission) parts.push("1 call parked, nothing runs");
  else if (!isOver(state)) parts.push(activity(state));
  const elapsed = isOver(state) ? state.outcome.seconds : state.started_at_ms === null ? null : Math.max(0, Math.floor((now - state.started_at_ms) / 1000));
  if (elapsed !== null && !state.permission && !expired) parts.push(isOver(state) ? seconds(elapsed) : `${elapsed} s`);
  const tokens = totals(state);
  if (tokens && !state.permission) parts.push(tokens);
  return parts.filter(Boolean);
}

function activity(state) {
  if (state.permission) return "waiting for your answer";
  if (state.phase === "compacting") return "shortening the history";
  if (state.phase === "running_tools") {
    const running = state.calls.findLast((call) => call.state === "running");
    return running ? `running ${running.name}` : "running tools";
  }
  if (state.phase === "running_model") {
    if (state.draft) return "writing the answer";
    return state.reasoning ? "thinking" : "waiting for the model";
  }
  return "starting";
}

function totals(state) {
  let [input, output] = [0, 0];
  for (const node of state.nodes) {
    input += node.input_tokens ?? 0;
    output += node.output_tokens ?? 0;
  }
  return input + output > 0 ? `${thousands(input)} in / ${thousands(output)} out tokens` : "";
}

// What a turn without an answer leaves the reader to know.
function outcomeNote(state, expired) {
  const word = outcomeWord(state);
  if (word === "running") {
    return expired ? { note: "The kernel ended during this turn. Nothing was run again. The next turn continues this session; kernel variables are gone." } : null;
  }
  if (word === "completed") return null;
  const finished = state.calls.filter((call) => call.state === "succeeded").length;
  const kept = `the ${count(finished, "finished call")} ${finished === 1 ? "is" : "are"} kept`;
  const denied = state.calls.findLast((call) => call.state === "denied");
  const byPerson = ["click", "stdin", "terminal"].includes(denied?.how);
  const who = byPerson ? "You denied this call." : "The call was denied.";
  const notes = {
    denied: `${who} It did not run and the turn ended. Your next cell goes on from here.`,
    cancelled: `You stopped the turn. The unfinished answer was dropped; ${kept}.`,
    interrupted: "The kernel ended during this turn. Nothing was run again.",
    failed: `The turn ended without an answer; ${kept}. Run the cell again to try once more.`,
  };
  const { code, message } = state.outcome;
  return { note: notes[word] ?? notes.failed, code: word === "cancelled" ? "" : code, error: word === "cancelled" ? "" : message };
}

const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);

function render({ model, el }) {
  return new TurnView(model, el).start();
}

export default { render };
