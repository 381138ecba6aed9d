/** A permission card outside of its notebook: the live view's own card, whole, in a dialog. */

import { PermissionCard } from '../../op_jupyter/views/static/card.js';
import { h } from '../../op_jupyter/views/static/dom.js';
import type { Card } from './link';
import type { OpenNotebook } from './notebooks';

export class Review {
  private readonly dialog: HTMLDialogElement;
  private readonly before = document.activeElement;

  constructor(
    private readonly notebook: OpenNotebook,
    private readonly request: Card
  ) {
    const card = new PermissionCard(request, (answer: Record<string, unknown>) =>
      notebook.link.decide(request, answer)
    );
    const name = notebook.panel.title.label;
    this.dialog = h(
      'dialog',
      // The page around it must not act on keys that are meant for the card.
      { class: 'opv op-review', 'aria-label': `Approval in ${name}`, 'data-lm-suppress-shortcuts': 'true' },
      h(
        'div',
        { class: 'op-review-head' },
        h('h2', {}, name),
        h('button', { type: 'button', class: 'opv-btn opv-sm', onclick: () => this.close() }, 'Close')
      ),
      card.element
    );
    this.dialog.addEventListener(
      'keydown',
      event => {
        if (event.key === 'Escape' && !card.drawer) {
          event.preventDefault();
          event.stopPropagation();
          this.close(); // decides nothing
        }
      },
      true
    );
    this.dialog.addEventListener('close', () => this.end());
    notebook.link.changed.connect(this.look, this);
    document.body.append(this.dialog);
    this.dialog.showModal();
    card.takeFocus(Number.NEGATIVE_INFINITY);
  }

  close(): void {
    if (this.dialog.open) {
      this.dialog.close();
    }
  }

  /** Answered, here or elsewhere, or its turn is over. */
  private look(): void {
    const { id, turn_id } = this.request;
    const waits = this.notebook.link.cards.some(card => card.id === id && card.turn_id === turn_id);
    if (!waits) {
      this.close();
    }
  }

  private end(): void {
    this.notebook.link.changed.disconnect(this.look, this);
    this.dialog.remove();
    if (this.before instanceof HTMLElement && this.before.isConnected) {
      this.before.focus({ preventScroll: true });
    }
  }
}
