// How states are told: an icon, a word and a tone, never colour alone.

const DONE = { icon: "ok", word: "done", tone: "ok" };
const FAILED = { icon: "failed", word: "failed", tone: "err" };

const LOOKS = {
  completed: DONE,
  succeeded: DONE,
  error: FAILED,
  failed: FAILED,
  denied: { icon: "denied", word: "denied", tone: "err" },
  running: { icon: "running", word: "running", tone: "run" },
  waiting: { icon: "waiting", word: "waiting", tone: "warn" },
  cancelled: { icon: "cancelled", word: "cancelled", tone: "off" },
  interrupted: { icon: "interrupted", word: "interrupted", tone: "off" },
  outcome_unknown: { icon: "interrupted", word: "outcome unknown", tone: "off" },
  expired: { icon: "expired", word: "expired", tone: "off" },
};

// What `table` says of `key`; a key may be any text, also the name of something that objects have.
export function lookup(table, key, otherwise) {
  return Object.hasOwn(table, key) ? table[key] : otherwise;
}

export function lookOf(status) {
  return lookup(LOOKS, status, { icon: "todo", word: String(status || "unknown"), tone: "off" });
}

export const ANSWER_WORDS = {
  allow: "allowed once",
  allow_session: "allowed for this session",
  deny: "denied",
  deny_message: "denied with a message",
};

export function seconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.1) return "<0.1 s";
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

export function thousands(number) {
  return String(number).replace(/\B(?=(\d{3})+(?!\d))/g, ",");
}
