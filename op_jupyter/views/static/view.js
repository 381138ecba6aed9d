// The live view of one turn: header, answer, plan, card, calls, graph.
import { CallList, preview } from "./calls.js";
import { announcement, answeredCard, expiredCard, PermissionCard } from "./card.js";
import { DetailsPanel } from "./details.js";
import { h, leave, passShortcuts, replace, setText, show } from "./dom.js";
import { isOver, outcomeWord, TurnFold, waitingNode } from "./fold.js";
import { GraphView } from "./graph.js";
import { activity, capital, Header, outcomeNote } from "./header.js";
import { icon } from "./icons.js";
import { isCleared, leaveNotebook } from "./leave.js";
import { MarkdownBox } from "./markdown.js";
import { ANSWER_WORDS, lookup } from "./words.js";

const KERNEL_PATIENCE_MS = 2500;
const LONGEST_PATIENCE_MS = 20000;
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
    this.thinkingFold = h(
      "details",
      { class: "opv-think" },
      h("summary", {}, "Thinking"),
      this.thinking,
    );
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
    const stopPassing = passShortcuts(this.root);
    const clock = setInterval(() => this.tick(), 1000);
    const resized = new ResizeObserver(() => this.graph.draw());
    resized.observe(this.graph.scroller);
    this.since = performance.now();
    this.paint();
    this.hail(KERNEL_PATIENCE_MS);
    return () => {
      this.model.off("msg:custom", receive);
      this.model.off("comm_live_update", lost);
      document.removeEventListener("keydown", typed, true);
      stopPassing();
      const cleared = isCleared(this.model, this.place);
      if (!this.expired) this.model.send({ kind: "removed", cleared });
      this.calls.stop();
      this.el.replaceChildren(); // JupyterLab keeps the element for as long as the page is open
      clearInterval(clock);
      clearTimeout(this.patience);
      resized.disconnect();
    };
  }

  // Ask for the state, and again while nothing came. A message may be lost: the server lets a page
  // talk to a busy kernel before it is sure to hear what that says.
  hail(patience) {
    this.model.send({ kind: "ready" });
    this.patience = setTimeout(() => {
      this.paint();
      if (!this.loaded && !this.expired && patience < LONGEST_PATIENCE_MS) this.hail(2 * patience);
    }, patience);
  }

  // -- messages

  receive(message) {
    if (message.kind === "snapshot") this.load(message);
    else if (message.kind === "updates" && this.loaded) this.apply(message.items);
    else if (message.kind === "expire") this.expired = true;
    else if (message.kind === "who") return this.model.send({ kind: "here" });
    else if (message.kind === "leave") return leaveNotebook(this.model, message);
    else if (message.kind === "details") return this.details.receive(message);
    else if (message.kind === "note") return this.details.note(message);
    return this.schedule();
  }

  // A snapshot that another view asked for is no news.
  load(message) {
    this.expired = message.expired;
    this.place = message.place;
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
    if (writes && !event.ctrlKey && !event.metaKey && !event.altKey)
      this.lastTyped = performance.now();
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
    this.header.update(state, {
      expired: this.expired,
      stopping: this.stopping,
      now: Date.now() + this.skew,
    });
    this.paintSaid(state);
    this.paintPlan(state.plan);
    this.paintOutcome(state);
    this.paintCard(state);
    this.paintDeath(this.expired && !isOver(state));
    const { nodes, calls } = this.fold.takeTouched();
    show(this.calls.element, state.calls.length > 0);
    this.calls.update(calls, state.permission?.id ?? null);
    show(this.graphPlace, state.nodes.length > 0);
    for (const call of calls)
      this.graph.labels.set(call.node_id, preview(call.name, call.arguments));
    this.graph.update(nodes, waitingNode(state));
    this.details.refresh();
    this.speak(state);
    this.root.dataset.status = this.expired && !isOver(state) ? "expired" : outcomeWord(state);
  }

  paintDeath(dead) {
    if (dead === this.graph.dead) return;
    this.graph.dead = this.calls.dead = dead;
    this.fold.touchAll();
  }

  // Without a kernel only the widget's own few words are left.
  paintSaved() {
    const waited = performance.now() - (this.since ?? performance.now());
    const gone = waited >= KERNEL_PATIENCE_MS - 50 || this.expired;
    for (const part of [
      this.cardPlace,
      this.calls.element,
      this.graphPlace,
      this.plan,
      this.notes,
      this.thinkingFold,
    ])
      show(part, false);
    const saved = this.model.get("state") ?? {};
    show(this.two, gone && Boolean(saved.answer));
    if (gone && saved.answer) this.answer.update(saved.answer);
    this.header.wait(
      gone ? (saved.status === "running" ? "interrupted" : (saved.status ?? "interrupted")) : null,
    );
    const words =
      "No kernel answers for this view, so it shows what was saved. Nothing was run again.";
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
    const said = shownNotes.length > 0 || text !== "" || state.reasoning !== "";
    show(this.said, said);
    show(this.two, said || state.plan.length > 0);
  }

  paintCursor(writing) {
    if (!writing) {
      this.cursor.remove();
      return;
    }
    const last = this.answer.element.lastElementChild;
    const inside = last?.matches("p, h3, h4, h5, h6")
      ? last
      : (last?.querySelector(":scope > li:last-child") ?? this.answer.element);
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
    const todo = ["todo", "opv-off", "to do: ", null];
    const lookedUp = steps.map(({ text, status }) => [text, lookup(looks, status, todo)]);
    const done = lookedUp.filter(([, [name]]) => name === "ok").length;
    replace(
      this.plan,
      h("p", { class: "opv-label" }, icon("list"), `Plan, ${done} of ${steps.length}`),
      h(
        "ol",
        {},
        lookedUp.map(([text, [name, tone, spoken, className]]) => {
          return h(
            "li",
            { class: className },
            h("span", { class: tone }, icon(name)),
            h("span", {}, h("span", { class: "opv-sr" }, spoken), text),
          );
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
      words.error &&
        h(
          "p",
          { class: "opv-error" },
          h("b", { class: "opv-err" }, words.code),
          words.code && ": ",
          words.error,
        ),
    );
  }

  paintCard(state) {
    const request = state.permission;
    if (request && this.expired)
      return this.holdCard(`expired ${request.id}`, () => expiredCard(request));
    if (request) return this.openCard(request);
    if (state.resolved && Object.hasOwn(ANSWER_WORDS, state.resolved.answer))
      return this.holdCard(`answered ${state.resolved.id}`, () => answeredCard(state.resolved));
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
    const words = isOver(state)
      ? `Turn ${outcomeWord(state)}.`
      : `${step}${capital(activity(state))}.`;
    setText(this.polite, words);
    this.root.setAttribute("aria-label", `Agent turn, ${outcomeWord(state)}`);
  }

  tick() {
    if (this.loaded && !isOver(this.fold.state) && !this.expired) {
      this.header.update(this.fold.state, {
        expired: this.expired,
        stopping: this.stopping,
        now: Date.now() + this.skew,
      });
    }
  }
}

function render({ model, el }) {
  return new TurnView(model, el).start();
}

export default { render };
