/** Commands that answer the card in view.  None can allow what the person does not look at.

The first use puts the focus on the card.  Only a second one, after all keys were let go and a
moment to read, presses its button; a held key, a double press or another card does not.
*/

const READ_MS = 600;

export class Answering {
  private card: HTMLElement | null = null;
  private since = Number.POSITIVE_INFINITY;
  private released = false;

  constructor() {
    document.addEventListener('keyup', () => (this.released = true), true);
    document.addEventListener('focusin', event => this.follow(event.target as Element), true);
  }

  /** Press a button of *card*, or put the card forward first; whether it was pressed. */
  answer(card: HTMLElement, name: 'allow' | 'deny', focus: (card: HTMLElement) => void): boolean {
    const ready =
      this.card === card &&
      this.released &&
      performance.now() - this.since >= READ_MS &&
      isInView(card);
    if (!ready) {
      focus(card);
      this.card = card;
      this.since = performance.now();
      this.released = false;
      return false;
    }
    card.querySelector<HTMLButtonElement>(`[data-answer="${name}"]:enabled`)?.click();
    this.card = null;
    return true;
  }

  /** The focus may go to the command palette and back, and nowhere else. */
  private follow(target: Element): void {
    const card = target.closest<HTMLElement>('.opv-card');
    if (card === this.card || target.closest('.lm-CommandPalette, .lm-Menu')) {
      return;
    }
    this.card = card;
    this.since = performance.now();
    this.released = false;
  }
}

function isInView(card: HTMLElement): boolean {
  const answers = card.querySelector('.opv-btns')?.getBoundingClientRect();
  return (
    answers !== undefined &&
    answers.height > 0 &&
    answers.top >= 0 &&
    answers.bottom <= window.innerHeight &&
    !document.hidden
  );
}
