/** The plugins of JupyterLab and Notebook. */

import {
  ILabShell,
  ILayoutRestorer,
  type JupyterFrontEnd,
  type JupyterFrontEndPlugin
} from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { IStatusBar } from '@jupyterlab/statusbar';

import { Answering } from './answering';
import { SessionsApi } from './api';
import { Approvals } from './approvals';
import { addCommands } from './commands';
import { Desk } from './desk';
import { Notebooks } from './notebooks';
import { savedTurns } from './saved-turns';
import { PLUGIN_ID, Settings } from './settings';
import { SessionItem } from './status';

const sessions: JupyterFrontEndPlugin<void> = {
  id: PLUGIN_ID,
  description: 'Lists stored sessions, and tells of approvals that wait.',
  autoStart: true,
  optional: [ICommandPalette, ILabShell, ILayoutRestorer, ISettingRegistry, IStatusBar],
  activate: (
    app: JupyterFrontEnd,
    palette: ICommandPalette | null,
    labShell: ILabShell | null,
    restorer: ILayoutRestorer | null,
    registry: ISettingRegistry | null,
    statusBar: IStatusBar | null
  ) => {
    const settings = new Settings();
    const notebooks = new Notebooks(app);
    const api = new SessionsApi(app.serviceManager.serverSettings);
    const desk = new Desk(app, api, settings, notebooks, labShell !== null);
    const approvals = new Approvals(app, notebooks, settings);
    addCommands(app, palette, desk, notebooks, approvals, new Answering());
    restorer?.add(desk.panel, desk.panel.id);
    if (statusBar) {
      addStatus(statusBar, desk, notebooks, settings);
    }
    if (registry) {
      settings.load(registry).catch(error => console.warn(`${PLUGIN_ID}: no settings`, error));
    }
  }
};

function addStatus(
  statusBar: IStatusBar,
  desk: Desk,
  notebooks: Notebooks,
  settings: Settings
): void {
  const item = new SessionItem(id => desk.reveal(id));
  const update = (): void => {
    item.sessionId = notebooks.current?.link.sessionId ?? '';
    item.setHidden(!settings.values.statusItem || item.sessionId === '');
  };
  notebooks.changed.connect(update);
  settings.changed.connect(update);
  update();
  statusBar.registerStatusItem(`${PLUGIN_ID}:session`, { item, align: 'left', rank: 200 });
}

export default [savedTurns, sessions];
