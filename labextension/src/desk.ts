/** What the page does with stored sessions: list, open, resume, delete, restore. */

import type { JupyterFrontEnd } from '@jupyterlab/application';
import { Dialog, Notification, showDialog } from '@jupyterlab/apputils';

import { visible } from '../../op_jupyter/views/static/text.js';
import type { Format, SessionInfo, SessionsApi } from './api';
import { keepFocus } from './focus';
import type { Notebooks } from './notebooks';
import { SessionsPanel } from './panel';
import { insertResume } from './resume';
import { SessionView } from './session-view';
import { Sessions } from './sessions';
import type { Settings } from './settings';

const RANK = 210; // behind the file browser, the running kernels and the table of contents
const UNDO_MS = 15_000;
const TITLE_CHARS = 80;
const SAVED_MS = 60_000; // a browser may read the file a while after the click

export class Desk {
  readonly sessions: Sessions;
  readonly panel: SessionsPanel;
  private readonly views = new Map<string, SessionView>();
  private readonly seen = new WeakMap<SessionView, string>();

  constructor(
    private readonly app: JupyterFrontEnd,
    private readonly api: SessionsApi,
    settings: Settings,
    private readonly notebooks: Notebooks,
    private readonly hasMainArea: boolean
  ) {
    const watched = (): boolean =>
      this.panel.isVisible || [...this.views.values()].some(view => view.isVisible);
    this.sessions = new Sessions(api, settings, watched);
    this.panel = new SessionsPanel(this.sessions, {
      resume: id => void this.resume(id),
      open: id => void this.open(id),
      copy: id => void this.copy(id),
      save: (id, format) => void this.save(id, format),
      trash: session => void this.trash(session)
    });
    app.shell.add(this.panel, 'left', { rank: RANK });
    notebooks.changed.connect(() => this.onNotebook());
    this.sessions.changed.connect(() => this.refreshViews());
  }

  show(): void {
    this.app.shell.activateById(this.panel.id);
    keepFocus(() => this.panel.node, () => this.panel.takeFocus());
  }

  /** Show a session in the sidebar. */
  reveal(id: string): void {
    this.show();
    this.panel.reveal(id);
  }

  /** Open a session's graph: in a tab, or, where there are none, below the notebook. */
  async open(id: string): Promise<void> {
    let view = this.views.get(id);
    if (view === undefined) {
      view = new SessionView(this.api, id);
      this.views.set(id, view);
      view.disposed.connect(() => this.views.delete(id));
      view.toggleClass('op-below', !this.hasMainArea);
      this.app.shell.add(view, this.hasMainArea ? 'main' : 'down');
    }
    this.app.shell.activateById(view.id);
    const { graph, node } = view;
    keepFocus(() => node, () => graph.scroller.focus());
    await view.refresh();
  }

  /** Insert and run the cell that resumes a session in the notebook in front. */
  async resume(id: string): Promise<void> {
    const notebook = this.notebooks.current;
    if (notebook === null) {
      Notification.warning('Open a notebook first: a session is resumed in one.', FOR_A_WHILE);
      return;
    }
    if (notebook.link.sessionId === id) {
      Notification.info(`${notebook.panel.title.label} works in this session already.`, FOR_A_WHILE);
      return;
    }
    this.app.shell.activateById(notebook.panel.id);
    insertResume(notebook, id);
    await this.app.commands.execute('notebook:run-cell');
  }

  async copy(id: string): Promise<void> {
    try {
      await navigator.clipboard.writeText(id);
      Notification.success(`Copied: ${id}`, { autoClose: 2000 });
    } catch {
      Notification.info(id, FOR_A_WHILE); // no access to the clipboard: to be copied by hand
    }
  }

  /** Export a session into a file that the browser saves. */
  async save(id: string, format: Format): Promise<void> {
    await this.tell(async () => {
      const url = URL.createObjectURL(await this.api.exported(id, format));
      const link = document.createElement('a');
      link.href = url;
      link.download = `${id}.${format}`;
      link.click();
      setTimeout(() => URL.revokeObjectURL(url), SAVED_MS);
    });
  }

  /** Move a session to the trash, after asking; can be undone. */
  async trash(session: SessionInfo): Promise<void> {
    const title = visible(session.title).slice(0, TITLE_CHARS);
    const asked = await showDialog({
      title: 'Move this session to the trash?',
      body: `${title ? `“${title}”, ` : ''}${session.id}. It can be restored.`,
      buttons: [Dialog.cancelButton(), Dialog.warnButton({ label: 'Move to trash' })],
      defaultButton: 0
    });
    if (!asked.button.accept) {
      return;
    }
    await this.tell(async () => {
      await this.api.trash(session.id);
      this.views.get(session.id)?.dispose();
      Notification.success(`${session.id} is in the trash.`, {
        autoClose: UNDO_MS,
        actions: [{ label: 'Undo', callback: () => void this.restore(session.id) }]
      });
    });
  }

  private async restore(id: string): Promise<void> {
    await this.tell(() => this.api.restore(id));
  }

  /** Do something and look again; what goes wrong is told in words. */
  private async tell(act: () => Promise<void>): Promise<void> {
    try {
      await act();
    } catch (error) {
      Notification.error((error as Error).message, { autoClose: false });
    }
    await this.sessions.refresh();
  }

  private onNotebook(): void {
    this.panel.currentSession = this.notebooks.current?.link.sessionId ?? '';
    void this.sessions.refresh();
  }

  /** Read those sessions anew that changed; one may be large. */
  private refreshViews(): void {
    for (const view of this.views.values()) {
      const info = this.sessions.found.find(session => session.id === view.sessionId);
      const now = info ? `${info.updated_at} ${info.turns} ${info.last_status}` : '';
      if (view.isVisible && (now === '' || now !== this.seen.get(view))) {
        this.seen.set(view, now);
        void view.refresh();
      }
    }
  }
}

const FOR_A_WHILE = { autoClose: 5000 };
