/** Approvals and questions that wait where nobody looks: notices, badges, and the card in a dialog.

Nothing here decides by itself, and a notice offers no answer: what is allowed is always in full view.
*/

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Notification } from '@jupyterlab/apputils';
import { MessageLoop } from '@lumino/messaging';

import { announcement } from '../../op_jupyter/views/static/card.js';
import { oneLine } from '../../op_jupyter/views/static/text.js';
import { keepFocus } from './focus';
import type { Card, Question } from './link';
import type { Notebooks, OpenNotebook } from './notebooks';
import { Review } from './review';
import type { Settings } from './settings';
import { list, record, text } from './turn';

const NOTICE_CHARS = 140; // JupyterLab cuts what is longer
const MARK = 'op-waits';
const WIDGET_MIME = 'application/vnd.jupyter.widget-view+json';
const DRAWN_MS = 1000; // a cell that was never in sight, with its widget
const LOADED_MS = 5000; // the widgets of a notebook that was just loaded
const LOOK_AGAIN_MS = 2000;
const FIRST_FIELD = 'input, textarea, select, .opv-btn.opv-safe';

export class Approvals {
  private readonly notices = new Map<string, string>();
  private missing = new Map<string, number>(); // since when a widget is not drawn
  private soon = 0;
  private review: Review | null = null;
  private pageTitle: string | null = null;
  private restored = false; // before, a notebook in front is not in sight yet

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly notebooks: Notebooks,
    private readonly settings: Settings
  ) {
    const look = (): void => this.look();
    notebooks.changed.connect(look);
    settings.changed.connect(look);
    app.shell.currentChanged?.connect(look);
    document.addEventListener('visibilitychange', look);
    void app.restored.then(() => {
      this.restored = true;
      this.look();
    });
  }

  /** The notebook with a waiting card that is nearest: the one in front first. */
  get waiting(): OpenNotebook | null {
    return this.nearest(notebook => notebook.link.cards.length > 0);
  }

  /** The same for a waiting question. */
  get asking(): OpenNotebook | null {
    return this.nearest(notebook => notebook.link.questions.length > 0);
  }

  private nearest(waits: (notebook: OpenNotebook) => boolean): OpenNotebook | null {
    const { current } = this.notebooks;
    return current && waits(current) ? current : ([...this.notebooks].find(waits) ?? null);
  }

  /** Bring a card into view and put the focus on its safe answer. */
  async show(notebook: OpenNotebook, card?: Card): Promise<void> {
    const wanted = waits(notebook, card ?? notebook.link.cards[0]);
    if (!wanted) {
      return;
    }
    const find = (): HTMLElement | null => cardElement(notebook, wanted);
    if (await this.bring(notebook, text(wanted.place), find)) {
      keepFocus(find, focusCard);
    } else if (waits(notebook, wanted)) {
      this.open(notebook, wanted); // its output was cleared, or is folded
    }
  }

  /** Bring the form of a question into view and put the focus into it. */
  async showQuestion(notebook: OpenNotebook, question = notebook.link.questions[0]): Promise<void> {
    if (!question) {
      return;
    }
    const find = (): HTMLElement | null => formElement(notebook, question);
    if (await this.bring(notebook, question.place, find)) {
      keepFocus(find, focusForm);
    }
  }

  /** Bring a notebook to the front, and what is in the output with that widget; whether it is drawn. */
  private async bring(
    { panel }: OpenNotebook,
    widget: string,
    find: () => HTMLElement | null
  ): Promise<boolean> {
    const { content, id } = panel;
    this.app.shell.activateById(id);
    MessageLoop.flush(); // lets the notebook take the focus, which is then handed on
    const index = content.widgets.findIndex(cell => holds(cell.model, widget));
    if (index >= 0) {
      content.activeCellIndex = index;
      // Draws it, where only cells in sight are drawn; fails where something else scrolls as well.
      await content.scrollToItem(index).catch(() => undefined);
    }
    const deadline = performance.now() + (index >= 0 ? DRAWN_MS : 0);
    do {
      await new Promise(done => requestAnimationFrame(done));
    } while (find() === null && performance.now() < deadline);
    return find() !== null;
  }

  /** The card in a dialog, in full, for where its cell cannot be seen. */
  open(notebook: OpenNotebook, card?: Card): void {
    const wanted = card ?? notebook.link.cards[0];
    if (wanted) {
      this.review?.close();
      this.review = new Review(notebook, wanted);
    }
  }

  private look(): void {
    const { notify, badge } = this.settings.values;
    const wanted = new Map<string, () => string>();
    const missing = new Map<string, number>();
    let waiting = 0;
    for (const notebook of this.notebooks) {
      const { cards, questions } = notebook.link;
      const here = cards.length + questions.length;
      waiting += here;
      mark(notebook, badge ? here : 0);
      if (!this.restored || notify === 'never') {
        continue;
      }
      const front = notebook.panel.isVisible && !document.hidden;
      const isSeen = (place: string): boolean => {
        if (notify !== 'hidden' || !front || !hasPlace(notebook, place)) {
          return false;
        }
        if (isDrawn(notebook, place)) {
          return true;
        }
        const since = this.missing.get(place) ?? performance.now();
        missing.set(place, since);
        return performance.now() - since < LOADED_MS;
      };
      for (const card of cards) {
        if (isSeen(text(card.place))) {
          continue;
        }
        const key = JSON.stringify([notebook.panel.id, card.turn_id, card.id]);
        wanted.set(key, () => this.notice(notebook, card));
      }
      for (const question of questions) {
        if (isSeen(question.place)) {
          continue;
        }
        const key = JSON.stringify([notebook.panel.id, question.id]);
        wanted.set(key, () => this.questionNotice(notebook, question));
      }
    }
    for (const [key, id] of this.notices) {
      if (!wanted.has(key)) {
        Notification.dismiss(id);
        this.notices.delete(key);
      }
    }
    for (const [key, emit] of wanted) {
      if (!this.notices.has(key)) {
        this.notices.set(key, emit());
      }
    }
    this.titlePage(badge && document.hidden ? waiting : 0);
    this.missing = missing;
    if (missing.size > 0 && this.soon === 0) {
      this.soon = window.setTimeout(() => {
        this.soon = 0;
        this.look();
      }, LOOK_AGAIN_MS);
    }
  }

  private notice(notebook: OpenNotebook, card: Card): string {
    const words = oneLine(`${notebook.panel.title.label}: ${announcement(card)}`, NOTICE_CHARS);
    return Notification.emit(words, 'warning', {
      autoClose: false,
      actions: [
        {
          label: 'Show',
          caption: 'Go to the cell that waits',
          displayType: 'accent',
          callback: () => void this.show(notebook, card)
        },
        {
          label: 'Review…',
          caption: 'See the whole call here, and answer',
          callback: () => this.open(notebook, card)
        }
      ]
    });
  }

  private questionNotice(notebook: OpenNotebook, question: Question): string {
    const words = oneLine(`${notebook.panel.title.label}: Question. ${question.prompt}`, NOTICE_CHARS);
    return Notification.emit(words, 'warning', {
      autoClose: false,
      actions: [
        {
          label: 'Show',
          caption: 'Go to the form in the cell that waits',
          displayType: 'accent',
          callback: () => void this.showQuestion(notebook, question)
        }
      ]
    });
  }

  /** In Notebook 7 every notebook has a tab of the browser; its title is all that can be marked. */
  private titlePage(waiting: number): void {
    const text = waiting > 0 ? `(${waiting}) ` : '';
    if (text === '' && this.pageTitle !== null) {
      document.title = document.title.replace(/^\(\d+\) /, '');
      this.pageTitle = null;
    } else if (text !== '' && !document.title.startsWith(text)) {
      document.title = text + document.title.replace(/^\(\d+\) /, '');
      this.pageTitle = text;
    }
  }
}

/** That card as it is told by now, if it still waits. */
function waits(notebook: OpenNotebook, card: Card | undefined): Card | undefined {
  return notebook.link.cards.find(each => each.id === card?.id && each.turn_id === card.turn_id);
}

/** The element, unless it is not there, or hidden: out of sight in some front ends, or folded. */
function drawn(element: HTMLElement | null | undefined): HTMLElement | null {
  return element && element.getClientRects().length > 0 ? element : null;
}

/** Whether one of a cell's outputs is the widget with that id. */
function holds(model: { toJSON(): unknown }, widget: string): boolean {
  return widget !== '' && list(record(model.toJSON()).outputs).some(
    output => text(record(record(record(output).data)[WIDGET_MIME]).model_id) === widget
  );
}

/** Whether the notebook shows that widget: not when its output was cleared, or its cell deleted.

One that is not told yet is on its way. */
function hasPlace({ panel, context }: OpenNotebook, place: string): boolean {
  const { widgets } = panel.content;
  return place === '' || !context.isReady || widgets.some(cell => holds(cell.model, place));
}

/** Whether the widget is drawn where it has its place, or will be once its cell is in sight.

A notebook that is not trusted shows no widgets when it is loaded again, and a folded output none. */
function isDrawn({ panel, context }: OpenNotebook, place: string): boolean {
  const cell = panel.content.widgets.find(each => holds(each.model, place));
  return (
    place === '' ||
    !context.isReady ||
    cell === undefined ||
    cell.isPlaceholder() ||
    cell.node.querySelector('.opv-card:not(.opv-gone), .opv-question') !== null
  );
}

/** The form of a question in the notebook's own output, if it is drawn. */
function formElement(notebook: OpenNotebook, question: Question): HTMLElement | null {
  const name = CSS.escape(`opv-${question.id}-`.replace(/[^\w-]/g, '_'));
  const title = notebook.panel.node.querySelector(`.opv-question [id^="${name}"]`);
  return drawn(title?.closest<HTMLElement>('.opv-question'));
}

function focusForm(form: HTMLElement): void {
  form.scrollIntoView({ block: 'center' });
  form.querySelector<HTMLElement>(FIRST_FIELD)?.focus({ preventScroll: true });
}

/** The card of a call in the notebook's own output, if it is drawn. */
export function cardElement(notebook: OpenNotebook, card: Card): HTMLElement | null {
  const title = CSS.escape(`opv-card-${card.id}`.replace(/[^\w-]/g, '_') + '-t');
  const found = notebook.panel.node.querySelector(`.opv-card:not(.opv-gone) #${title}`);
  return drawn(found?.closest<HTMLElement>('.opv-card'));
}

/** Put the focus on the safe answer of a card. */
export function focusCard(card: HTMLElement): void {
  card.scrollIntoView({ block: 'center' });
  card.querySelector<HTMLElement>('[data-answer="deny"]')?.focus({ preventScroll: true });
}

function mark(notebook: OpenNotebook, waiting: number): void {
  const { title } = notebook.panel;
  if ((title.dataset[MARK] ?? '') === (waiting > 0 ? String(waiting) : '')) {
    return;
  }
  const { [MARK]: _mark, ...others } = title.dataset;
  title.dataset = waiting > 0 ? { ...others, [MARK]: String(waiting) } : others;
}
