/** The notebooks of the page, each with its line to its kernel. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { DocumentRegistry, IDocumentWidget } from '@jupyterlab/docregistry';
import { type ISignal, Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import { KernelLink } from './link';

const SHOWN_AGAIN_MS = 1500; // the kernel shows once more what waits and was cleared

/** What we use of a cell; a placeholder is one that was not in sight yet, of which nothing is drawn. */
export interface NotebookCell extends Widget {
  readonly model: { toJSON(): unknown };
  isPlaceholder(): boolean;
}

/** What we use of a notebook's panel, so that the notebook package need not be built in. */
export interface NotebookPanel extends IDocumentWidget {
  readonly content: Widget & {
    activeCellIndex: number;
    readonly widgets: readonly NotebookCell[];
    deselectAll(): void;
    scrollToItem(index: number, align?: string): Promise<void>;
  };
}

export interface OpenNotebook {
  readonly panel: NotebookPanel;
  readonly context: DocumentRegistry.Context;
  readonly link: KernelLink;
}

export class Notebooks {
  private readonly open = new Set<OpenNotebook>();
  private last: OpenNotebook | null = null;
  private readonly _changed = new Signal<this, OpenNotebook>(this);

  constructor(private readonly app: JupyterFrontEnd) {
    app.docRegistry.addWidgetExtension('Notebook', {
      createNew: (panel, context) => this.add(panel as NotebookPanel, context)
    });
    app.shell.currentChanged?.connect(() => {
      const front = this.find(app.shell.currentWidget);
      if (front) {
        this.last = front;
        this._changed.emit(front);
      }
    });
  }

  /** When a line told something new, another notebook came to the front, or one was closed. */
  get changed(): ISignal<this, OpenNotebook> {
    return this._changed;
  }

  [Symbol.iterator](): Iterator<OpenNotebook> {
    return this.open[Symbol.iterator]();
  }

  /** The notebook in front, or the one that was there last. */
  get current(): OpenNotebook | null {
    const [only] = this.open;
    return this.find(this.app.shell.currentWidget) ?? this.last ?? only ?? null;
  }

  private find(widget: Widget | null): OpenNotebook | null {
    return [...this.open].find(notebook => notebook.panel === widget) ?? null;
  }

  private add(panel: NotebookPanel, context: DocumentRegistry.Context): void {
    const notebook = { panel, context, link: new KernelLink(context.sessionContext) };
    this.open.add(notebook);
    notebook.link.changed.connect(() => this._changed.emit(notebook));
    // What waits may have lost its place by then.
    let soon = 0;
    context.model.contentChanged.connect(() => {
      if (soon === 0 && notebook.link.waits) {
        soon = window.setTimeout(() => {
          soon = 0;
          this._changed.emit(notebook);
        }, SHOWN_AGAIN_MS);
      }
    });
    panel.disposed.connect(() => {
      clearTimeout(soon);
      notebook.link.dispose();
      this.open.delete(notebook);
      if (this.last === notebook) {
        this.last = null;
      }
      this._changed.emit(notebook);
    });
  }
}
