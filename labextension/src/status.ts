/** How a status is told: always an icon, a word and a colour, never the colour alone. */

export interface StatusLook {
  icon: string;
  word: string;
  tone: string;
}

const DONE: StatusLook = { icon: 'ok', word: 'done', tone: 'ok' };
const FAILED: StatusLook = { icon: 'failed', word: 'failed', tone: 'err' };

const LOOKS: Record<string, StatusLook> = {
  completed: DONE,
  succeeded: DONE,
  done: DONE,
  ok: DONE,
  failed: FAILED,
  error: FAILED,
  denied: { icon: 'denied', word: 'denied', tone: 'err' },
  running: { icon: 'running', word: 'running', tone: 'run' },
  waiting: { icon: 'waiting', word: 'waiting', tone: 'warn' },
  cancelled: { icon: 'cancelled', word: 'cancelled', tone: 'off' },
  interrupted: { icon: 'interrupted', word: 'interrupted', tone: 'off' },
  outcome_unknown: { icon: 'interrupted', word: 'outcome unknown', tone: 'off' },
  expired: { icon: 'expired', word: 'expired', tone: 'off' }
};

// A folded row tells the most urgent of its calls.
const URGENCY = ['done', 'expired', 'cancelled', 'interrupted', 'denied', 'failed', 'waiting', 'running'];

/** *status* may carry more than its word, as in "done, allowed once": the words are all kept. */
export function lookOf(status: string): StatusLook {
  const known = Object.hasOwn(LOOKS, status) ? LOOKS[status] : undefined;
  if (known) {
    return known;
  }
  const first = /^[a-z_]+/.exec(status)?.[0] ?? '';
  const base = Object.hasOwn(LOOKS, first) ? LOOKS[first] : undefined;
  return { icon: base?.icon ?? 'todo', word: status || 'unknown', tone: base?.tone ?? 'off' };
}

/** The look that stands for several calls at once. */
export function mostUrgent(statuses: string[]): StatusLook {
  const rank = (look: StatusLook): number => URGENCY.indexOf(look.word);
  return statuses
    .map(lookOf)
    .reduce((worst, look) => (rank(look) > rank(worst) ? look : worst), lookOf(statuses[0] ?? ''));
}
