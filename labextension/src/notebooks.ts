/** The notebooks of the page, each with its line to its kernel. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import type { DocumentRegistry, IDocumentWidget } from '@jupyterlab/docregistry';
import { type ISignal, Signal } from '@lumino/signaling';
import type { Widget } from '@lumino/widgets';

import { KernelLink } from './link';

/** What we use of a notebook's panel, so that the notebook package need not be built in. */
export interface NotebookPanel extends IDocumentWidget {
  readonly content: Widget & { activeCellIndex: number };
}

export interface OpenNotebook {
  readonly panel: NotebookPanel;
  readonly context: DocumentRegistry.Context;
  readonly link: KernelLink;
}

export class Notebooks {
  private readonly open = new Set<OpenNotebook>();
  private readonly _changed = new Signal<this, OpenNotebook>(this);

  constructor(private readonly app: JupyterFrontEnd) {
    app.docRegistry.addWidgetExtension('Notebook', {
      createNew: (panel, context) => this.add(panel as NotebookPanel, context)
    });
    app.shell.currentChanged?.connect(() => {
      const { current } = this;
      if (current) {
        this._changed.emit(current);
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

  /** The notebook in front; else the one that was there last and is still in view. */
  get current(): OpenNotebook | null {
    const { currentWidget } = this.app.shell;
    const all = [...this.open];
    return (
      all.find(notebook => notebook.panel === currentWidget) ??
      all.find(notebook => notebook.panel.isVisible) ??
      null
    );
  }

  isOpen(notebook: OpenNotebook): boolean {
    return this.open.has(notebook);
  }

  private add(panel: NotebookPanel, context: DocumentRegistry.Context): void {
    const notebook = { panel, context, link: new KernelLink(context.sessionContext) };
    this.open.add(notebook);
    notebook.link.changed.connect(() => this._changed.emit(notebook));
    panel.disposed.connect(() => {
      notebook.link.dispose();
      this.open.delete(notebook);
      this._changed.emit(notebook);
    });
  }
}
