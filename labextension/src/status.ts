/** The status bar's item: the session of the notebook in front; a click shows it in the sidebar. */

import { Widget } from '@lumino/widgets';

import { h, setText } from '../../op_jupyter/views/static/dom.js';

export class SessionItem extends Widget {
  private readonly button: HTMLButtonElement;
  private session = '';

  constructor(show: (id: string) => void) {
    super();
    this.button = h('button', { type: 'button', onclick: () => show(this.session) });
    this.node.append(this.button);
    this.addClass('op-status');
  }

  get sessionId(): string {
    return this.session;
  }

  set sessionId(id: string) {
    this.session = id;
    setText(this.button, id);
    this.button.title = `OpenProgram session ${id}: show it in the sidebar`;
    this.button.setAttribute('aria-label', this.button.title);
  }
}
