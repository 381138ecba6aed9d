// The turn in words: its header line, and what a turn without an answer leaves to know.
import { h, replace, setText, show } from "./dom.js";
import { isOver, outcomeWord } from "./fold.js";
import { icon } from "./icons.js";
import { count } from "./text.js";
import { lookOf, seconds, thousands } from "./words.js";

// One line: what goes on, for how long, at what cost, and the way to stop it.
export class Header {
  constructor(stop) {
    this.status = h("span", { class: "opv-st" });
    this.facts = h("span", { class: "opv-facts-line" });
    this.canStop = true;
    this.button = h(
      "button",
      {
        type: "button",
        class: "opv-btn opv-sm",
        "aria-label": "Stop: interrupt this turn",
        title: "Interrupt this turn",
        onclick: stop,
      },
      icon("cancelled"),
      h("span", {}, "Stop"),
    );
    this.also = h("span", { class: "opv-hint" }, "or ", h("kbd", {}, "I"), " ", h("kbd", {}, "I"));
    this.element = h(
      "div",
      { class: "opv-hd", tabindex: "-1" },
      this.status,
      this.facts,
      this.button,
      this.also,
    );
  }

  update(state, { expired, stopping, now }) {
    const over = isOver(state);
    const [look, word] = headline(state, expired);
    this.setStatus(look, word);
    const parts = facts(state, now, expired);
    const key = JSON.stringify(parts);
    if (key !== this.factsKey)
      replace(
        this.facts,
        parts.map((part) => h("span", { class: "opv-m" }, part)),
      );
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
    this.setStatus(
      savedStatus ? lookOf(savedStatus) : lookOf("running"),
      savedStatus ? capital(lookOf(savedStatus).word) : "Waiting for the kernel",
    );
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
  const elapsed = isOver(state)
    ? state.outcome.seconds
    : state.started_at_ms === null
      ? null
      : Math.max(0, Math.floor((now - state.started_at_ms) / 1000));
  if (elapsed !== null && !state.permission && !expired)
    parts.push(isOver(state) ? seconds(elapsed) : `${elapsed} s`);
  if (!state.permission) parts.push(...totals(state));
  return parts.filter(Boolean);
}

export function activity(state) {
  if (state.permission) return "waiting for your answer";
  if (state.phase === "pending") return "waiting for other turns to end";
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
  let [input, output, cost] = [0, 0, 0];
  for (const node of state.nodes) {
    input += node.input_tokens ?? 0;
    output += node.output_tokens ?? 0;
    cost += node.cost ?? 0;
  }
  if (input + output === 0) return [];
  const tokens = `${thousands(input)} in / ${thousands(output)} out tokens`;
  // In whatever currency the user's prices are.
  return cost > 0 ? [tokens, `cost ${cost.toFixed(4)}`] : [tokens];
}

// What a turn without an answer leaves the reader to know.
export function outcomeNote(state, expired) {
  const word = outcomeWord(state);
  if (word === "running") {
    return expired
      ? {
          note: "The kernel ended during this turn. Nothing was run again. The next turn continues this session; kernel variables are gone.",
        }
      : null;
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
  return {
    note: notes[word] ?? notes.failed,
    code: word === "cancelled" ? "" : code,
    error: word === "cancelled" ? "" : message,
  };
}

export const capital = (text) => text.charAt(0).toUpperCase() + text.slice(1);
